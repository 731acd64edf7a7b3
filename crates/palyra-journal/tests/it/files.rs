//! The file: who may read it, what is refused, what survives.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use palyra_core::entry::Stream;
use palyra_journal::{Expected, JournalError, JournalState, JournalStore};

use crate::support::{Place, clock, keys, started};

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let place = Place::new();
    let journal = place.open();
    for number in 0..50 {
        journal
            .append_if(
                Stream::Daemon,
                Expected::Revision(number),
                vec![started("x")],
            )
            .await
            .unwrap();
    }
    let before = journal.read(0, usize::MAX).unwrap();
    drop(journal);
    let journal = place.open();
    assert_eq!(journal.head(), 50);
    assert_eq!(*journal.watch().borrow(), 50);
    assert_eq!(journal.state(), JournalState::Writable);
    assert_eq!(journal.read(0, usize::MAX).unwrap(), before);
    let stale = journal.append_if(Stream::Daemon, Expected::NoStream, vec![started("y")]);
    assert!(matches!(
        stale.await,
        Err(JournalError::Conflict { found: 50, .. })
    ));
    let next = journal.append_if(Stream::Daemon, Expected::Revision(50), vec![started("y")]);
    assert_eq!(next.await.unwrap().last_seq, 51);
}

#[tokio::test]
async fn only_the_owner_may_read_any_of_the_files() {
    let place = Place::new();
    let journal = place.open();
    let append = journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    append.await.unwrap();
    let files: Vec<_> = fs::read_dir(place.folder())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(
        files.len(),
        4,
        "the journal, its log, its index and the room for a full disk: {files:?}"
    );
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(journal);
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let _journal = place.open();
    assert_eq!(mode(&place.file()), 0o600, "a looser mode is tightened");
}

#[tokio::test]
async fn entries_cannot_be_changed_removed_or_replaced() {
    let place = Place::new();
    let journal = place.open();
    let append = journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    append.await.unwrap();
    let before = journal.read(0, 10).unwrap();
    let shell = place.shell();
    for (attempt, refusal) in [
        ("UPDATE entries SET kind = 'closed'", "never changed"),
        ("UPDATE entries SET at = 0 WHERE seq = 1", "never changed"),
        ("DELETE FROM entries", "never removed"),
        ("UPDATE blobs SET kind = 'facts'", ""),
        (
            "INSERT INTO entries VALUES (1, 'daemon', 9, 'closed', 0, x'')",
            "UNIQUE",
        ),
        (
            "INSERT INTO entries VALUES (2, 'daemon', 1, 'closed', 0, x'')",
            "UNIQUE",
        ),
        (
            "PRAGMA recursive_triggers = ON;
             INSERT OR REPLACE INTO entries VALUES (1, 'daemon', 1, 'closed', 0, x'')",
            "never removed",
        ),
    ] {
        let outcome = shell.execute_batch(attempt);
        if refusal.is_empty() {
            outcome.unwrap();
        } else {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(refusal), "{attempt}: {error}");
        }
    }
    assert_eq!(journal.read(0, 10).unwrap(), before);
}

fn refused(place: &Place) -> JournalError {
    let before = fs::read(place.file()).unwrap();
    let listing = || fs::read_dir(place.folder()).unwrap().count();
    let files = listing();
    let error = JournalStore::open(&place.file(), Vec::new(), clock(), keys()).unwrap_err();
    assert_eq!(fs::read(place.file()).unwrap(), before, "left untouched");
    assert_eq!(listing(), files, "and nothing put beside it");
    error
}

#[test]
fn what_is_not_a_journal_is_refused_and_left_alone() {
    let place = Place::new();
    fs::write(
        place.file(),
        "[agents]\nname = \"not a database at all\"\n".repeat(100),
    )
    .unwrap();
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let error = refused(&place);
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error}");
    assert!(error.to_string().contains("left untouched"), "{error}");
    assert_eq!(mode(&place.file()), 0o640);

    let place = Place::new();
    place
        .shell()
        .execute_batch("CREATE TABLE somebody_elses (x)")
        .unwrap();
    assert!(matches!(refused(&place), JournalError::NotAJournal { .. }));
}

#[test]
fn a_later_format_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    place
        .shell()
        .execute_batch("PRAGMA user_version = 4")
        .unwrap();
    let error = refused(&place);
    assert!(
        matches!(
            error,
            JournalError::Newer {
                found: 4,
                known: 3,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("upgrade palyra"), "{error}");
}

#[tokio::test]
async fn damage_inside_is_reported_when_it_is_met() {
    let place = Place::new();
    let journal = place.open();
    for _ in 0..200 {
        let entries = vec![started("x".repeat(500))];
        journal
            .append_if(Stream::Daemon, Expected::Any, entries)
            .await
            .unwrap();
    }
    drop(journal);
    let mut bytes = fs::read(place.file()).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xee);
    fs::write(place.file(), &bytes).unwrap();
    let outcome = JournalStore::open(&place.file(), Vec::new(), clock(), keys())
        .and_then(|journal| journal.read(0, usize::MAX));
    assert!(
        matches!(outcome, Err(JournalError::Corrupt { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn an_entry_that_makes_no_sense_is_reported_with_its_place() {
    let place = Place::new();
    let journal = place.open();
    let entries = vec![started("x"), started("x"), started("x")];
    let append = journal.append_if(Stream::Daemon, Expected::Any, entries);
    append.await.unwrap();
    let shell = place.shell();
    shell
        .execute_batch("DROP TRIGGER entries_are_never_changed")
        .unwrap();
    for (seq, body) in (1_u32..).zip([
        r#"{"kind":"interrupted","v":2}"#,
        r#"{"kind":"nonsense","v":1}"#,
        "{",
    ]) {
        shell
            .execute(
                "UPDATE entries SET body = CAST(?2 AS BLOB) WHERE seq = ?1",
                rusqlite::params![seq, body],
            )
            .unwrap();
        let error = journal.read(u64::from(seq) - 1, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("entry {seq} ")), "{error}");
    }
}

#[test]
fn a_missing_folder_and_a_folder_in_the_way_are_named() {
    let place = Place::new();
    let missing = place.folder().join("nowhere/journal.db");
    let error = JournalStore::open(&missing, Vec::new(), clock(), keys()).unwrap_err();
    assert!(matches!(error, JournalError::Open { .. }));
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = JournalStore::open(place.folder(), Vec::new(), clock(), keys()).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn an_empty_file_becomes_a_journal() {
    let place = Place::new();
    fs::write(place.file(), "").unwrap();
    assert_eq!(place.open().head(), 0);
    assert_eq!(mode(&place.file()), 0o600);
}
