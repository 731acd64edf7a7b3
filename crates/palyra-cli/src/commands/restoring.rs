//! `palyra journal backup` and `restore`: a copy that proves itself, and the way back.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use palyra_core::{Clock as _, SystemClock};
use palyra_journal::proof::{Checkpoint, Note, VerifierKey};
use palyra_journal::verify::{Completeness, Report, Trust, Verdict, open_regular};
use palyra_journal::{Beyond, kept_name, replace};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;

use super::in_place::InPlace;
use super::proofs::{cannot_read, create, given_trust, look, not_made, opening, render, unopened};
use crate::args::{Restore, Verify};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::folders::private_file;
use crate::output::WAITING;
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::Facts;
use crate::witness::{Seen, Witness};

/// How the names of backups begin that are made in a folder.
const NAME: &str = "palyra-journal-";

/// `palyra journal backup`.
pub(super) async fn backup(out: &Path, session: &Session) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    let path = match out.is_dir() {
        true => {
            let at = SystemClock.now().to_string().replace(':', "-");
            out.join(format!("{NAME}{at}.db"))
        }
        false => out.to_owned(),
    };
    // Under its own name there is only ever a whole one, whenever this is killed.
    let unfinished = Unfinished::create(&path)?;
    // Copying a long journal takes longer than other answers may.
    let answered = client.download("/api/v1/journal/backup").await;
    let mut bytes = answered.map_err(Failure::from)?;
    while let Some(bytes) = in_time(bytes.next()).await? {
        let written = (&unfinished.file).write_all(&bytes);
        written.map_err(|error| Failure::unwritable(&error))?;
    }
    let synced = unfinished.file.sync_all();
    synced.map_err(|error| Failure::unwritable(&error))?;
    let seen = match Witness::from_env() {
        Some(witness) => witness.of_folder(session.home.state())?,
        None => Vec::new(),
    };
    let trust = opening(Trust::nobody(), None, &session.home.journal())?;
    let trust = seen.iter().fold(trust, |trust, seen| seen.add_to(trust));
    let report = look(&unfinished.path, &trust)?;
    if report.verdict() == Verdict::Faulty {
        session.output.text(&render(&path, &report))?;
        return Err(Failure::new(
            Meaning::Faulty,
            "backup_faulty",
            "the daemon's journal does not verify, so no backup of it was kept",
            "`palyra journal verify` says more; an earlier backup is worth keeping",
        ));
    }
    unfinished.finish(&path)?;
    let checkpoint = beside(&path, ".checkpoint");
    let head = report.head.clone().unwrap_or_default();
    let mut note = create(&checkpoint)?;
    note.write_all(head.as_bytes())
        .and_then(|()| note.sync_all())
        .map_err(|error| Failure::unwritable(&error))?;
    let key = report.keys.last().map(|used| used.key.clone());
    let document = json!({
        "file": path, "checkpoint_file": checkpoint, "checkpoint": head, "entries": report.last,
        "key": key, "contents": report.blobs, "contents_unopened": report.blobs_unopened,
        "contents_of_another_key": report.blobs_of_another_key,
    });
    session.output.answer(&document, |_| {
        Facts::default()
            .with("file", path.display().to_string())
            .with("checkpoint", checkpoint.display().to_string())
            .with("entries", report.last.to_string())
            .maybe("signed by", key.as_ref())
            .maybe("not opened", unopened(&report))
            .render()
    })?;
    session.output.suggest(
        "arguments and output in it are sealed, and the key is in the vault: keep an export of that \
         with it (`palyra vault export FILE`), or the vault's files and its key store",
    );
    Ok(Exit::OK)
}

/// `palyra journal restore`.
pub(super) fn restore(args: &Restore, session: &Session) -> Result<Exit, Failure> {
    let _no_daemon = lock(session)?;
    let journal = session.home.journal();
    let witness = Witness::from_env();
    let seen = match &witness {
        Some(witness) => witness.of_folder(session.home.state())?,
        None => Vec::new(),
    };
    // Only the file itself is put in place, so it must be what was verified.
    if std::fs::metadata(beside(&args.file, "-wal")).is_ok_and(|log| log.len() > 0) {
        return Err(Failure::new(
            Meaning::Error,
            "backup_has_log",
            "a write-ahead log lies beside this file: it is a copy of a journal in use, not a backup",
            "restore what `palyra journal backup` wrote",
        ));
    }
    let report = look(&args.file, &trust(args, session, &seen)?)?;
    let output = &session.output;
    if report.fault_count > 0 {
        output.text(&render(&args.file, &report))?;
        return Err(faulty(
            "the backup does not verify, so nothing was restored",
        ));
    }
    let older = match report.completeness {
        Completeness::Unknown | Completeness::Complete { .. } => None,
        Completeness::Cut { found, expected } => Some((found, expected)),
        Completeness::Forked { after, by } => {
            return Err(faulty(format!(
                "the backup is of another history than was seen: they part somewhere in entries \
                 {} to {by}",
                after + 1
            )));
        }
    };
    // Also an older one: what a stranger signed is not a part of this history.
    if report
        .anchored
        .is_none_or(|anchored| anchored < report.last)
    {
        return Err(Failure::new(
            Meaning::SignerUnknown,
            "signer_unknown",
            "nobody known signed this backup",
            "give `--key KEY` (`palyra journal backup` names it) or `--against CHECKPOINT`",
        ));
    }
    let in_place = InPlace::compare(&journal, &args.file, &report);
    let lost = in_place.lost(&journal, report.last);
    let objection = match (in_place.objection(), older) {
        (None, Some(_)) => InPlace::Ahead.objection(),
        (objection, _) => objection,
    };
    let objection = objection.map(|(code, words)| {
        let more = what_is_lost(older, lost.as_ref());
        (
            code,
            [words]
                .into_iter()
                .chain(more)
                .collect::<Vec<_>>()
                .join("; "),
        )
    });
    if let (Some((code, words)), false) = (&objection, args.accept_older) {
        let next = "to lose that for good, add `--accept-older`; it is kept beside the new one";
        return Err(Failure::new(Meaning::Faulty, code, words, next));
    }
    let keep = kept_name(&journal, SystemClock.now());
    let had_one = journal.exists();
    replace(&journal, &args.file, &keep).map_err(|error| {
        Failure::new(
            Meaning::Error,
            "not_restored",
            format!("the backup could not be put in place: {error}"),
            "see that the daemon's home is writable and has space, then run it again",
        )
    })?;
    if let Some(witness) = &witness {
        remember(&report, session, witness)?;
    }
    let kept = had_one.then(|| keep.display().to_string());
    let document = json!({
        "restored": args.file, "entries": report.last, "replaced": kept,
        "lost": lost, "accepted_older": objection.is_some(),
        "contents_unopened": report.blobs_unopened,
        "contents_of_another_key": report.blobs_of_another_key,
    });
    output.answer(&document, |_| {
        Facts::default()
            .with("restored", args.file.display().to_string())
            .with("entries", report.last.to_string())
            .maybe("replaced", kept.as_ref())
            .maybe("not opened", unopened(&report))
            .render()
    })?;
    if let Some((_, words)) = objection {
        output.say(&format!(
            "{WAITING}warning:{WAITING:#} {words}; every checkpoint of what is lost that was kept \
             elsewhere now disagrees with this journal"
        ));
    }
    output.suggest("`palyra journal verify` checks it; the next command starts a daemon on it");
    Ok(Exit::OK)
}

/// What is believed about the backup: what was given, and what was seen.
fn trust(args: &Restore, session: &Session, seen: &[Seen]) -> Result<Trust, Failure> {
    let given = given_trust(&Verify {
        path: None,
        against: args.against.clone(),
        key: args.key.clone(),
        blob_key: None,
    })?;
    let journal = session.home.journal();
    let trust = opening(given, None, &journal)?;
    Ok(seen.iter().fold(trust, |trust, seen| seen.add_to(trust)))
}

fn what_is_lost(older: Option<(u64, u64)>, lost: Option<&Beyond>) -> Vec<String> {
    let seen =
        older.map(|(found, expected)| format!("it has {found} entries, and {expected} were seen"));
    let here = lost.map(|lost| {
        format!(
            "entries {} to {} would be lost, with {} calls and {} answers of people",
            lost.first, lost.last, lost.calls, lost.decisions
        )
    });
    let back = lost.filter(|lost| lost.erasures > 0).map(|lost| {
        format!(
            "what {} erasures among them erased is back, until it is erased again",
            lost.erasures
        )
    });
    seen.into_iter().chain(here).chain(back).collect()
}

/// From now on this is the history that is compared with.
fn remember(report: &Report, session: &Session, witness: &Witness) -> Result<(), Failure> {
    let head = report.head.as_ref().and_then(|head| {
        let note: Note = head.parse().ok()?;
        let key: VerifierKey = report.keys.last()?.key.parse().ok()?;
        Some((key, Checkpoint::unverified(&note).ok()?, note))
    });
    match head {
        Some((key, checkpoint, note)) => {
            let first = Seen::first(key, checkpoint, note);
            witness.keep(session.home.state(), &first)
        }
        None => Ok(()),
    }
}

/// Keeps every daemon from starting meanwhile, or says which one runs.
fn lock(session: &Session) -> Result<File, Failure> {
    let path = session.home.lock();
    let file = private_file()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| cannot_read(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _unread = (&file).take(32).read_to_string(&mut pid);
            Err(Failure::new(
                Meaning::Error,
                "daemon_runs",
                format!("palyrad (pid {}) uses this home", safe::line(pid.trim())),
                format!("stop it first: `kill {}`", safe::line(pid.trim())),
            ))
        }
        Err(TryLockError::Error(error)) => Err(cannot_read(&path, &error)),
    }
}

/// A backup that is being written, under a name that says so. It is gone when it does not come to an
/// end, and one that was killed is removed by the next.
struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    fn create(path: &Path) -> Result<Self, Failure> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if path.symlink_metadata().is_ok() {
            return Err(not_made(path, &ErrorKind::AlreadyExists.into()));
        }
        let partial = beside(path, ".partial");
        sweep(folder.unwrap_or(Path::new(".")), &partial);
        let file = create(&partial)?;
        // So that nobody takes it for one that was left.
        file.try_lock()
            .map_err(|error| not_made(&partial, &error.into()))?;
        Ok(Self {
            file,
            path: partial,
        })
    }

    /// Gives it its name, unless somebody else took that meanwhile.
    fn finish(self, path: &Path) -> Result<(), Failure> {
        let (from, flags) = (&self.path, RenameFlags::NOREPLACE);
        match renameat_with(CWD, from, CWD, path, flags) {
            // Not every file system can promise that.
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, path),
            renamed => renamed.map_err(Into::into),
        }
        .map_err(|error| not_made(path, &error))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It is not there any more under this name when it was finished.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Removes backups that were killed from the folder of a new one: those with names that were made
/// here, and the one that stands in its way. Nobody has their lock.
fn sweep(folder: &Path, partial: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(NAME) && name.ends_with(".db.partial"))
    });
    for path in ours.chain([partial.to_owned()]) {
        if open_regular(&path).is_ok_and(|file| was_left(&file)) {
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Whether this is the beginning of a journal that nobody is writing.
fn was_left(file: &File) -> bool {
    let mut begins = Vec::new();
    let read = file.take(16).read_to_end(&mut begins);
    let journal = begins.is_empty() || begins == b"SQLite format 3\0";
    read.is_ok() && journal && file.try_lock().is_ok()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn faulty(message: impl Into<String>) -> Failure {
    Failure::new(
        Meaning::Faulty,
        "backup_faulty",
        message,
        "`palyra journal verify FILE` says more; use another backup",
    )
}
