//! `palyra journal verify`, `checkpoint` and `export`: what the journal can prove.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use palyra_api::Client;
use palyra_api::wire::{JournalHead, OutputStream};
use palyra_journal::BlobKey;
use palyra_journal::proof::{Checkpoint, Hash, Note, VerifierKey, verify_consistency};
use palyra_journal::verify::{
    Completeness, Report, Trust, Verdict, read_bounded, verify as verify_file,
};
use serde_json::json;

use crate::args::Verify;
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::folders::private_file;
use crate::output::{BAD, GOOD, Output, WAITING};
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::{Cell, Facts};
use crate::witness::{Seen, Witness};

/// The most that a key, or a checkpoint, may have.
const MOST_TEXT: u64 = 64 << 10;

/// `palyra journal verify`.
pub(super) fn verify(args: &Verify, session: &Session) -> Result<Exit, Failure> {
    let file = match &args.path {
        Some(path) if path.is_dir() => path.join("journal.db"),
        Some(path) => path.clone(),
        None => session.home.journal(),
    };
    let witness = Witness::from_env();
    let seen = seen_of(&file, witness.as_ref())?;
    let given = opening(given_trust(args)?, args.blob_key.as_deref(), &file)?;
    let trust = seen
        .iter()
        .fold(given.clone(), |trust, seen| seen.add_to(trust));
    let mut report = look(&file, &trust)?;
    let mut seen = seen.into_iter().next();
    let mut elsewhere = false;
    // Seen under another path. Of copies that went different ways, it has to continue one.
    if seen.is_none()
        && let (Some(origin), Some(witness)) = (report.origin.clone(), &witness)
    {
        for known in witness.of_origin(&origin)? {
            let compared = look(&file, &known.add_to(given.clone()))?;
            let fits = compared.verdict() == Verdict::Verified;
            if fits || !elsewhere {
                (report, seen, elsewhere) = (compared, Some(known), true);
            }
            if fits {
                break;
            }
        }
    }
    let output = &session.output;
    let verdict = report.verdict();
    output.answer(&json!({"verdict": verdict, "report": &report}), |_| {
        render(&file, &report)
    })?;
    warn_of_keys(&report, seen.as_ref(), output);
    if file == session.home.journal()
        && let Some(witness) = &witness
    {
        remember(&report, seen, session, witness)?;
    }
    Ok(Exit::Ours(match verdict {
        Verdict::Verified => Meaning::Ok,
        Verdict::SignerUnknown => Meaning::SignerUnknown,
        Verdict::Faulty => Meaning::Faulty,
    }))
}

pub(super) fn look(file: &Path, trust: &Trust) -> Result<Report, Failure> {
    let report = tokio::task::block_in_place(|| verify_file(file, trust));
    report.map_err(|error| cannot_read(file, &error))
}

pub(super) fn cannot_read(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Meaning::Error,
        "file_not_read",
        format!("`{}` cannot be read: {error}", file.display()),
        "name a journal's file or folder, or an export of `palyra journal export`",
    )
}

/// What was seen of the journal that lies in this file's folder.
fn seen_of(file: &Path, witness: Option<&Witness>) -> Result<Vec<Seen>, Failure> {
    let is_journal = file.file_name().is_some_and(|name| name == "journal.db");
    match (witness, file.parent()) {
        (Some(witness), Some(folder)) if is_journal => witness.of_folder(folder),
        (Some(_) | None, Some(_) | None) => Ok(Vec::new()),
    }
}

pub(super) fn given_trust(args: &Verify) -> Result<Trust, Failure> {
    let mut trust = Trust::nobody();
    if let Some(key) = &args.key {
        trust = trust.key(key_of(key)?);
    }
    if let Some(path) = &args.against {
        let text = read_text(path).map_err(|error| Failure {
            hint: "give a file that `palyra journal checkpoint` wrote".to_owned(),
            ..cannot_read(path, &error)
        })?;
        let pinned = text
            .parse::<Note>()
            .map_err(Into::into)
            .and_then(|note| trust.pinned(note));
        trust = pinned.map_err(|error| {
            let hint = "give a file that `palyra journal checkpoint` wrote";
            Failure::usage(format!("`{}`: {error}", path.display()), hint)
        })?;
    }
    Ok(trust)
}

/// With the key that opens blobs, when it lies beside the journal or is named.
pub(super) fn opening(trust: Trust, named: Option<&Path>, file: &Path) -> Result<Trust, Failure> {
    let beside = file.with_file_name("blobs.key");
    let path = named.unwrap_or(&beside);
    let bytes = match read_bounded(path, MOST_TEXT) {
        Ok(bytes) => bytes,
        // Then only that contents are there is seen, and the answer says so.
        Err(_) if named.is_none() => return Ok(trust),
        Err(error) => return Err(cannot_read(path, &error)),
    };
    match <[u8; 32]>::try_from(bytes) {
        Ok(bytes) => Ok(trust.opening(BlobKey::from_bytes(&bytes))),
        // What lies beside a journal may be anything, and the log is judged without it.
        Err(_) if named.is_none() => Ok(trust),
        Err(_) => Err(Failure::usage(
            format!("`{}` does not hold a key", path.display()),
            "give the 32 bytes of `journal.blobs` in a `palyra vault export`, as a file",
        )),
    }
}

/// A key, or a file with one.
pub(super) fn key_of(given: &str) -> Result<VerifierKey, Failure> {
    let text = match read_text(Path::new(given)) {
        Ok(text) => text,
        Err(error) if is_no_file(&error) => given.to_owned(),
        Err(error) => {
            return Err(Failure {
                hint: "give the key itself, or a file that holds nothing else".to_owned(),
                ..cannot_read(Path::new(given), &error)
            });
        }
    };
    text.trim().parse().map_err(|error| {
        Failure::usage(
            format!("`{}` is not a key: {error}", safe::line(given)),
            "`palyra journal checkpoint --json` shows the key of your daemon",
        )
    })
}

/// A key or a checkpoint that somebody kept.
fn read_text(path: &Path) -> std::io::Result<String> {
    let bytes = read_bounded(path, MOST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is no text"))
}

/// Whether a path leads nowhere, as a key's text does.
fn is_no_file(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

pub(super) fn render(file: &Path, report: &Report) -> String {
    let faults = report
        .faults
        .iter()
        .map(|fault| Cell::styled(fault.to_string(), BAD));
    let more = report.fault_count - report.faults.len() as u64;
    let more = (more > 0).then(|| Cell::styled(format!("and {more} more"), BAD));
    let range = match report.last {
        last if last == report.after => "no entries".to_owned(),
        last => format!("entries {} to {last}", report.after + 1),
    };
    let integrity = match report.fault_count {
        0 => Cell::styled(
            format!("intact: {range}, {} checkpoints", report.checkpoints),
            GOOD,
        ),
        count => Cell::styled(format!("{count} faults in {range}"), BAD),
    };
    let (completeness, style) = completeness(&report.completeness);
    let anchored = match report.anchored {
        None => Cell::styled(
            "nothing: the signer is unknown (give --key or --against)",
            WAITING,
        ),
        Some(size) if size < report.last => Cell::styled(format!("up to entry {size}"), WAITING),
        Some(size) => Cell::styled(format!("up to entry {size}, the last"), GOOD),
    };
    let keys = report.keys.iter().map(|used| {
        let vouched = match used.vouched {
            None => "",
            Some(true) => ", vouched for by the one before",
            Some(false) => ", vouched for by NOBODY",
        };
        Cell::new(format!("{} from entry {}{vouched}", used.key, used.from))
    });
    Facts::default()
        .with("file", file.display().to_string())
        .with("integrity", integrity)
        .lines("faults", faults.chain(more))
        .maybe("contents", contents(report))
        .maybe("not opened", unopened(report))
        .styled("completeness", completeness, style)
        .with("anchored", anchored)
        .lines("signed by", keys)
        .render()
}

/// What was seen of arguments, facts, output and policies.
fn contents(report: &Report) -> Option<String> {
    let mut said = vec![format!("{} as committed to", report.blobs?)];
    let erased = report.blobs_erased.unwrap_or_default();
    if erased > 0 {
        said.push(format!("{erased} erased, as entries say"));
    }
    let unopened = report.blobs_unopened.unwrap_or_default();
    if unopened > 0 {
        said.push(format!("{unopened} not looked into (give --blob-key)"));
    }
    Some(said.join(", "))
}

/// Arguments, facts, output and policies that no key at hand opens. The log is none the worse.
pub(super) fn unopened(report: &Report) -> Option<String> {
    match report.blobs_of_another_key {
        None | Some(0) => None,
        Some(count) => Some(format!(
            "{count} contents: sealed with another key than this one; proofs hold without it"
        )),
    }
}

fn completeness(found: &Completeness) -> (String, anstyle::Style) {
    match found {
        Completeness::Unknown => (
            "unknown: there is no checkpoint from elsewhere to compare with".to_owned(),
            WAITING,
        ),
        Completeness::Complete { size } => (format!("nothing is missing up to entry {size}"), GOOD),
        Completeness::Cut { found, expected } => (
            format!("CUT: there are {found} entries, and there were {expected}"),
            BAD,
        ),
        Completeness::Forked { after, by } => (
            format!(
                "FORKED: another history, from somewhere in entries {} to {by}",
                after + 1
            ),
            BAD,
        ),
    }
}

/// A new key is worth a loud word, also when everything else is right.
fn warn_of_keys(report: &Report, seen: Option<&Seen>, output: &Output) {
    let Some(seen) = seen else { return };
    let known = seen.key.to_string();
    for used in report.keys.iter().filter(|used| used.key != known) {
        let place = report.keys.iter().position(|other| other.key == known);
        let later =
            place.is_none_or(|place| report.keys.iter().skip(place).any(|other| other == used));
        if !later {
            continue;
        }
        let vouched = match used.vouched {
            Some(true) => "the key before it vouches for it",
            Some(false) | None => "NOBODY vouches for it",
        };
        output.say(&format!(
            "{WAITING}warning:{WAITING:#} the journal has a new key since it was last seen, from \
             entry {} on; {vouched}: {}",
            used.from,
            safe::line(&used.key)
        ));
    }
}

/// Remembers the home's journal when it continues what was seen, or was never seen.
fn remember(
    report: &Report,
    seen: Option<Seen>,
    session: &Session,
    witness: &Witness,
) -> Result<(), Failure> {
    let head = report.head.as_ref().and_then(|head| {
        let note: Note = head.parse().ok()?;
        let key: VerifierKey = report.keys.last()?.key.parse().ok()?;
        Some((key, Checkpoint::unverified(&note).ok()?, note))
    });
    let (Some((key, checkpoint, note)), Verdict::Verified | Verdict::SignerUnknown) =
        (head, report.verdict())
    else {
        return Ok(());
    };
    match seen {
        // A key that nobody vouches for is not believed for having been looked at.
        Some(_) if report.verdict() == Verdict::SignerUnknown => Ok(()),
        Some(mut seen) => {
            seen.later(key, checkpoint, note);
            witness.keep(session.home.state(), &seen)
        }
        None => {
            session.output.note(
                "this is the first sight of this journal; from now on it is compared with it",
            );
            let first = Seen::first(key, checkpoint, note);
            witness.keep(session.home.state(), &first)
        }
    }
}

/// `palyra journal checkpoint`.
pub(super) async fn checkpoint(session: &Session) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    let head = witnessed(&mut client, session).await?;
    session
        .output
        .answer(&head, |head| head.checkpoint.clone())?;
    session.output.suggest(&format!(
        "keep this elsewhere; `palyra journal verify --against FILE` compares with it, and the key \
         is {}",
        safe::line(&head.key)
    ));
    Ok(Exit::OK)
}

/// `palyra journal export`.
pub(super) async fn export(
    out: Option<&PathBuf>,
    after: u64,
    session: &Session,
) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    witnessed(&mut client, session).await?;
    let path = format!("/api/v1/journal/export?after={after}");
    let mut lines = in_time(client.download(&path)).await?;
    let mut file = out.map(|path| create(path)).transpose()?;
    while let Some(bytes) = in_time(lines.next()).await? {
        match &mut file {
            None => session.output.raw(OutputStream::Stdout, &bytes)?,
            Some(file) => file
                .write_all(&bytes)
                .map_err(|error| Failure::unwritable(&error))?,
        }
    }
    if let (Some(file), Some(path)) = (file, out) {
        file.sync_all()
            .map_err(|error| Failure::unwritable(&error))?;
        session.output.suggest(&format!(
            "check it anywhere with `palyra journal verify {}`",
            safe::line(&path.display().to_string())
        ));
    }
    Ok(Exit::OK)
}

/// Arguments are not in it, but what was called is: for its owner alone.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    private_file()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| not_made(path, &error))
}

pub(super) fn not_made(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Meaning::Error,
        "file_not_written",
        format!("`{}` cannot be made: {error}", path.display()),
        "name a file that is not there yet, in a folder that is",
    )
}

/// The daemon's head, after comparing it with what was seen before.
async fn witnessed(client: &mut Client, session: &Session) -> Result<JournalHead, Failure> {
    let Some(witness) = Witness::from_env() else {
        session.output.note(
            "neither HOME nor XDG_STATE_HOME is set, so nothing is remembered of this journal",
        );
        return head_since(client, None).await;
    };
    let folder = session.home.state();
    let mut seen = witness.of_folder(folder)?;
    let mut head = head_since(client, None).await?;
    let (key, ..) = signed(&head)?;
    // Under each name of the home something else may have been seen: all of it counts. Of copies of
    // this journal under other paths, which may have gone different ways, it has to continue one.
    let all = !seen.is_empty();
    if seen.is_empty() {
        seen = witness.of_origin(key.name())?;
    }
    let mut continued = None;
    let mut refused = None;
    for known in seen {
        match continuing(client, &known).await {
            Ok(answered) => {
                head = answered;
                continued.get_or_insert(known);
            }
            Err(failure) if all || failure.meaning != Meaning::Faulty => return Err(failure),
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
        if continued.is_some() && !all {
            break;
        }
    }
    let (key, checkpoint, note) = signed(&head)?;
    let memory = match (continued, refused) {
        (Some(known), _) if known.key != key => {
            // It is remembered by whoever verifies that it was vouched for.
            session.output.say(&format!(
                "{WAITING}warning:{WAITING:#} the journal has a new key since it was last seen; \
                 `palyra journal verify` tells who vouches for it: {}",
                safe::line(&head.key)
            ));
            return Ok(head);
        }
        (Some(mut known), _) => {
            known.later(key, checkpoint, note);
            known
        }
        (None, Some(failure)) => return Err(failure),
        (None, None) => Seen::first(key, checkpoint, note),
    };
    witness.keep(folder, &memory)?;
    Ok(head)
}

/// The daemon's head, which is shown to continue what was seen.
async fn continuing(client: &mut Client, seen: &Seen) -> Result<JournalHead, Failure> {
    let since = seen.head().map(|head| head.size);
    let head = match head_since(client, since).await {
        Err(failure) if failure.code == "no_such_entry" => return Err(cut(since, &failure)),
        answered => answered?,
    };
    let (_, checkpoint, _) = signed(&head)?;
    match continues(seen, &head, &checkpoint) {
        Ok(()) => Ok(head),
        Err(failure) => Err(where_it_forks(client, seen, failure).await),
    }
}

async fn head_since(client: &mut Client, since: Option<u64>) -> Result<JournalHead, Failure> {
    let since = since.map(|size| size.to_string());
    let path = super::with_query("/api/v1/journal/checkpoint", &[("since", since)]);
    in_time(client.get::<JournalHead>(&path)).await
}

/// The head, if it is signed by the key that the daemon names.
fn signed(head: &JournalHead) -> Result<(VerifierKey, Checkpoint, Note), Failure> {
    let wrong = || {
        faulty(
            "journal_unsigned",
            "the daemon's checkpoint is not signed by its key",
        )
    };
    let key: VerifierKey = head.key.parse().map_err(|_| wrong())?;
    let note: Note = head.checkpoint.parse().map_err(|_| wrong())?;
    let checkpoint = Checkpoint::signed_by(&note, &key).map_err(|_| wrong())?;
    Ok((key, checkpoint, note))
}

/// Whether a head continues the last one that was seen.
fn continues(seen: &Seen, head: &JournalHead, checkpoint: &Checkpoint) -> Result<(), Failure> {
    let forked = || {
        faulty(
            "journal_forked",
            "the daemon's journal is another one than was seen",
        )
    };
    let last = seen.head().ok_or_else(forked)?;
    proven(last, head, checkpoint).ok_or_else(forked)
}

fn proven(old: &Checkpoint, head: &JournalHead, new: &Checkpoint) -> Option<()> {
    let path: Vec<Hash> = head
        .continues
        .as_ref()?
        .iter()
        .map(|text| text.parse().ok())
        .collect::<Option<_>>()?;
    let proof = verify_consistency(old.size, new.size, &path, &old.root, &new.root);
    (old.origin == new.origin && proof.is_ok()).then_some(())
}

/// Asks about earlier checkpoints until one is continued.
async fn where_it_forks(client: &mut Client, seen: &Seen, failure: Failure) -> Failure {
    let mut by = seen.head().map_or(0, |head| head.size);
    let mut after = 0;
    for (checkpoint, _) in seen.checkpoints.iter().rev() {
        let head = head_since(client, Some(checkpoint.size)).await;
        let same = head.ok().is_some_and(|head| {
            signed(&head).is_ok_and(|(_, new, _)| proven(checkpoint, &head, &new).is_some())
        });
        if same {
            after = checkpoint.size;
            break;
        }
        by = checkpoint.size;
    }
    Failure {
        message: format!(
            "{}: they part somewhere in entries {} to {by}",
            failure.message,
            after + 1
        ),
        ..failure
    }
}

fn cut(since: Option<u64>, failure: &Failure) -> Failure {
    let expected = since.unwrap_or_default();
    let message = format!(
        "the daemon's journal was cut: it was seen with {expected} entries, and now {}",
        failure.message
    );
    faulty("journal_cut", message)
}

fn faulty(code: &str, message: impl Into<String>) -> Failure {
    Failure::new(
        Meaning::Faulty,
        code,
        message,
        "stop the daemon and keep its home as it is; `palyra journal verify` says more",
    )
}

#[cfg(test)]
mod tests {
    use palyra_journal::proof::SignerKey;

    use super::*;

    #[test]
    fn a_key_is_given_as_text_or_as_a_file() {
        let key = SignerKey::from_seed("o", &[1; 32]).unwrap().verifier();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, format!("{key}\n")).unwrap();
        for given in [key.to_string(), file.display().to_string()] {
            assert_eq!(key_of(&given).unwrap(), key);
        }
        assert_eq!(key_of("nonsense").unwrap_err().meaning, Meaning::Usage);
    }
}
