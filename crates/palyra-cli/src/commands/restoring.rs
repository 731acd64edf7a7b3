//! `palyra journal backup` and `restore`: a copy that proves itself, and the way back.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use palyra_core::{Clock as _, SystemClock};
use palyra_journal::proof::{Checkpoint, Note, VerifierKey};
use palyra_journal::verify::{Completeness, Report, Trust, Verdict};
use palyra_journal::{Beyond, beyond, kept_name, replace};
use serde_json::json;

use super::proofs::{cannot_read, create, given_trust, look, opening, render};
use crate::args::{Restore, Verify};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::folders::private_file;
use crate::output::WAITING;
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::Facts;
use crate::witness::{Seen, Witness};

/// `palyra journal backup`.
pub(super) async fn backup(out: &Path, session: &Session) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    let path = match out.is_dir() {
        true => {
            let at = SystemClock.now().to_string().replace(':', "-");
            out.join(format!("palyra-journal-{at}.db"))
        }
        false => out.to_owned(),
    };
    // Copying a long journal takes longer than other answers may.
    let answered = client.download("/api/v1/journal/backup").await;
    let mut bytes = answered.map_err(Failure::from)?;
    let mut file = create(&path)?;
    let written = async {
        while let Some(bytes) = in_time(bytes.next()).await? {
            file.write_all(&bytes)
                .map_err(|error| Failure::unwritable(&error))?;
        }
        file.sync_all().map_err(|error| Failure::unwritable(&error))
    };
    if let Err(failure) = written.await {
        let _gone = std::fs::remove_file(&path);
        return Err(failure);
    }
    let seen = match Witness::from_env() {
        Some(witness) => witness.of_folder(session.home.state())?,
        None => None,
    };
    let trust = opening(Trust::nobody(), None, &session.home.journal())?;
    let trust = seen.iter().fold(trust, |trust, seen| seen.add_to(trust));
    let report = look(&path, &trust)?;
    if report.verdict() == Verdict::Faulty {
        let _gone = std::fs::remove_file(&path);
        session.output.text(&render(&path, &report))?;
        return Err(Failure::new(
            Meaning::Faulty,
            "backup_faulty",
            "the daemon's journal does not verify, so no backup of it was kept",
            "`palyra journal verify` says more; an earlier backup is worth keeping",
        ));
    }
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
    });
    session.output.answer(&document, |_| {
        Facts::default()
            .with("file", path.display().to_string())
            .with("checkpoint", checkpoint.display().to_string())
            .with("entries", report.last.to_string())
            .maybe("signed by", key.as_ref())
            .render()
    })?;
    session.output.suggest(
        "arguments and output in it are sealed with `blobs.key`, which is not in it: keep that, \
         `journal.key` and `digest.key` somewhere else",
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
        None => None,
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
    let report = look(&args.file, &trust(args, session, seen.as_ref())?)?;
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
    let lost = beyond(&journal, report.last).ok().flatten();
    if (older.is_some() || lost.is_some()) && !args.accept_older {
        return Err(Failure::new(
            Meaning::Faulty,
            "backup_older",
            format!(
                "the backup is older: {}",
                what_is_lost(&report, older, lost.as_ref())
            ),
            "to lose that for good, add `--accept-older`",
        ));
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
        "lost": lost, "accepted_older": older.is_some() || lost.is_some(),
    });
    output.answer(&document, |_| {
        Facts::default()
            .with("restored", args.file.display().to_string())
            .with("entries", report.last.to_string())
            .maybe("replaced", kept.as_ref())
            .render()
    })?;
    if older.is_some() || lost.is_some() {
        output.say(&format!(
            "{WAITING}warning:{WAITING:#} {}; every checkpoint of those that was kept elsewhere \
             now disagrees with this journal",
            what_is_lost(&report, older, lost.as_ref())
        ));
    }
    output.suggest("`palyra journal verify` checks it; the next command starts a daemon on it");
    Ok(Exit::OK)
}

/// What is believed about the backup: what was given, what was seen, and, when it is whole, the
/// journal that it would replace.
fn trust(args: &Restore, session: &Session, seen: Option<&Seen>) -> Result<Trust, Failure> {
    let given = given_trust(&Verify {
        path: None,
        against: args.against.clone(),
        key: args.key.clone(),
        blob_key: None,
    })?;
    let journal = session.home.journal();
    let trust = opening(given, None, &journal)?;
    Ok(seen
        .into_iter()
        .fold(trust, |trust, seen| seen.add_to(trust)))
}

fn what_is_lost(report: &Report, older: Option<(u64, u64)>, lost: Option<&Beyond>) -> String {
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
    let said: Vec<String> = seen.into_iter().chain(here).chain(back).collect();
    match said.is_empty() {
        true => format!("it ends at entry {}", report.last),
        false => said.join("; "),
    }
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
            witness.keep(&Seen::first(&session.home, key, checkpoint, note))
        }
        None => Ok(()),
    }
}

/// Keeps every daemon from starting meanwhile, or says which one runs.
fn lock(session: &Session) -> Result<File, Failure> {
    let path = session.home.lock();
    let mut file = private_file()
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
            let _unread = file.read_to_string(&mut pid);
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
