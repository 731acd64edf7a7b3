//! A journal without its keys: read as ever, and nothing is taken.

use palyra_core::entry::Stream;
use palyra_core::{Blob, BlobKind};
use palyra_journal::verify::{Trust, Verdict, verify};
use palyra_journal::{
    Append, Expected, JournalError, JournalKeys, JournalState, JournalStore, Kept,
};

use crate::support::{Place, blob_key, clock, keys, started};

fn locked(place: &Place) -> JournalStore {
    JournalStore::open_locked(&place.file(), Vec::new(), clock()).unwrap()
}

fn entries(journal: &JournalStore) -> usize {
    journal.read(0, 10_000).unwrap().len()
}

async fn refused(journal: &JournalStore) {
    let appended = journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    let error = appended.await.unwrap_err();
    assert!(matches!(error, JournalError::Keyless), "{error}");
    assert!(error.remedy().contains("palyra vault unlock"));
}

#[tokio::test]
async fn without_its_keys_a_journal_is_read_and_takes_nothing() {
    let place = Place::new();
    let secret = Blob::new(BlobKind::Output, b"swordfish".to_vec());
    let journal = JournalStore::open(&place.file(), Vec::new(), clock(), keys()).unwrap();
    let append = Append {
        streams: Vec::new(),
        blobs: vec![secret.clone()],
    };
    journal.append(append).await.unwrap();
    let one = || journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    one().await.unwrap();
    let (key, note) = (journal.key(), journal.checkpoint().unwrap());
    drop(journal);

    let journal = locked(&place);
    assert!(journal.is_locked());
    assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    assert_eq!(entries(&journal), 1);
    assert_eq!((journal.key(), journal.checkpoint().unwrap()), (key, note));
    assert!(journal.prove_inclusion(1, 1).unwrap().is_some());
    let trust = Trust::nobody().key(journal.key().unwrap());
    let report = verify(&place.file(), &trust).unwrap();
    assert_ne!(report.verdict(), Verdict::Faulty);
    let sealed = journal.kept(&secret.commitment());
    assert!(matches!(sealed, Err(JournalError::Keyless)));
    let never = Blob::new(BlobKind::Output, b"never".to_vec()).commitment();
    assert!(journal.kept(&never).unwrap() == Kept::Unknown);
    refused(&journal).await;

    journal.unlock(keys()).await.unwrap();
    assert!(journal.state() == JournalState::Writable);
    assert!(journal.blob(&secret.commitment()).unwrap() == Some(secret.clone()));
    let one = || journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    one().await.unwrap();
    for _ in 0..3 {
        journal.lock().await.unwrap();
        refused(&journal).await;
        assert!(journal.blob(&secret.commitment()).is_err());
        assert!(journal.blob_key().is_err());
        journal.unlock(keys()).await.unwrap();
        one().await.unwrap();
    }
    assert_eq!(entries(&journal), 5, "and no key took over from another");
    drop(journal);
    let report = verify(&place.file(), &trust).unwrap();
    assert_eq!((report.fault_count, report.last), (0, 5));
}

#[tokio::test]
async fn a_new_journal_begins_when_it_is_unlocked() {
    let place = Place::new();
    let journal = locked(&place);
    assert!(journal.key().is_none() && entries(&journal) == 0);
    assert!(!journal.has_sealed_blobs().unwrap());
    refused(&journal).await;
    drop(journal);
    let journal = locked(&place);
    journal.unlock(keys()).await.unwrap();
    let one = journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
    one.await.unwrap();
    let key = journal.key().unwrap();
    assert!(keys().follow(&key));
    let other = palyra_journal::JournalKeys::generate().unwrap();
    assert!(!other.follow(&key));
    assert!(
        keys().rotated().unwrap().follow(&key),
        "the old one vouches"
    );
}

/// The key changes while the journal is locked, with somebody who vouches for it and without.
#[tokio::test]
async fn another_key_takes_over_when_it_is_unlocked() {
    let place = Place::new();
    let journal = JournalStore::open(&place.file(), Vec::new(), clock(), keys()).unwrap();
    let started = || vec![started("x")];
    let one = journal.append_if(Stream::Daemon, Expected::Any, started());
    one.await.unwrap();
    let first = journal.key().unwrap();
    drop(journal);
    let journal = locked(&place);
    let rotated = keys().rotated().unwrap();
    let again = JournalKeys::from_text(&rotated.to_text(), blob_key()).unwrap();
    for (taken, entries) in [
        (rotated, 3),
        (again, 4),
        (JournalKeys::generate().unwrap(), 6),
    ] {
        journal
            .unlock(taken.sealing_with(blob_key()))
            .await
            .unwrap();
        let one = journal.append_if(Stream::Daemon, Expected::Any, started());
        one.await.unwrap();
        assert_eq!(self::entries(&journal), entries);
        journal.lock().await.unwrap();
    }
    assert_ne!(journal.key().unwrap(), first);
    drop(journal);
    let report = verify(&place.file(), &Trust::nobody().key(first)).unwrap();
    assert_eq!((report.fault_count, report.keys.len()), (0, 3));
}

/// Appends meanwhile are written whole or refused, and nothing is written without a seal.
#[tokio::test(flavor = "multi_thread")]
async fn locking_loses_nothing_that_was_accepted() {
    let place = Place::new();
    let journal = JournalStore::open(&place.file(), Vec::new(), clock(), keys()).unwrap();
    let appending = tokio::spawn({
        let journal = journal.clone();
        async move {
            let mut written = 0;
            for _ in 0..400 {
                let one = journal.append_if(Stream::Daemon, Expected::Any, vec![started("x")]);
                written += usize::from(one.await.is_ok());
            }
            written
        }
    });
    for _ in 0..20 {
        journal.lock().await.unwrap();
        journal.unlock(keys()).await.unwrap();
    }
    let written = appending.await.unwrap();
    assert_eq!(entries(&journal), written);
    let trust = Trust::nobody().key(journal.key().unwrap());
    drop(journal);
    assert_eq!(verify(&place.file(), &trust).unwrap().fault_count, 0);
}
