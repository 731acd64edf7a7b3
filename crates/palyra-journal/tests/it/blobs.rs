//! What entries commit to.

use palyra_core::entry::Stream;
use palyra_core::{Blob, BlobKind};
use palyra_journal::{Append, Expected, JournalError};

use crate::support::{Place, started, to};

fn with(blobs: Vec<Blob>) -> Append {
    Append {
        streams: vec![to(Stream::Daemon, Expected::Any, vec![started("x")])],
        blobs,
    }
}

#[tokio::test]
async fn a_blob_comes_back_whole_whatever_its_size() {
    let place = Place::new();
    let journal = place.open();
    let sizes = [0, 1, 4_095, 4_096, 5 << 20];
    let kinds = [
        BlobKind::Arguments,
        BlobKind::Facts,
        BlobKind::Output,
        BlobKind::Policies,
    ];
    let blobs: Vec<Blob> = sizes
        .iter()
        .zip(kinds.iter().cycle())
        .map(|(size, kind)| Blob::new(*kind, vec![0xa5; *size]))
        .collect();
    journal.append(with(blobs.clone())).await.unwrap();
    for blob in &blobs {
        let found = journal.blob(&blob.commitment()).unwrap();
        assert!(found.as_ref() == Some(blob), "{} bytes", blob.bytes.len());
    }
    drop(journal);
    let journal = place.open();
    assert!(journal.blob(&blobs[4].commitment()).unwrap().as_ref() == Some(&blobs[4]));
}

#[tokio::test]
async fn an_unknown_commitment_has_no_blob() {
    let place = Place::new();
    let unknown = Blob::new(BlobKind::Output, Vec::new()).commitment();
    assert!(place.open().blob(&unknown).unwrap().is_none());
}

#[tokio::test]
async fn the_same_blob_twice_is_stored_once() {
    let place = Place::new();
    let journal = place.open();
    let blob = Blob::new(BlobKind::Facts, b"same".to_vec());
    journal
        .append(with(vec![blob.clone(), blob.clone()]))
        .await
        .unwrap();
    journal.append(with(vec![blob.clone()])).await.unwrap();
    let count: i64 = place
        .shell()
        .query_row("SELECT count(*) FROM blobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
    assert!(journal.blob(&blob.commitment()).unwrap() == Some(blob));
}

#[tokio::test]
async fn a_blob_that_was_changed_is_not_handed_out() {
    let place = Place::new();
    let journal = place.open();
    let blob = Blob::new(BlobKind::Output, b"honest".to_vec());
    journal.append(with(vec![blob.clone()])).await.unwrap();
    place
        .shell()
        .execute_batch("DROP TRIGGER blobs_are_never_changed; UPDATE blobs SET bytes = 'forged'")
        .unwrap_err();
    place
        .shell()
        .execute_batch("UPDATE blobs SET bytes = CAST('forged' AS BLOB)")
        .unwrap();
    let outcome = journal.blob(&blob.commitment());
    assert!(matches!(outcome, Err(JournalError::Corrupt { .. })));
}
