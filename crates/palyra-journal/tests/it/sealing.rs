//! Sealing: every group has a signed checkpoint, and every entry a proof that leads to it.

use palyra_core::entry::{Entry, Stream};
use palyra_journal::proof::{
    Checkpoint, EntryRecord, Hash, Note, VerifierKey, root_of, verify_consistency, verify_inclusion,
};
use palyra_journal::{Expected, JournalError, JournalKeys, JournalState, JournalStore};

use crate::support::{Counting, Place, all, blob_key, call, clock, keys, started, to, unseal};

/// The leaves, computed from the file as anybody sees it.
fn leaves(place: &Place) -> Vec<Hash> {
    let shell = place.shell();
    let mut statement = shell
        .prepare("SELECT seq, stream, revision, kind, at, body FROM entries ORDER BY seq")
        .unwrap();
    let leaf = |row: &rusqlite::Row<'_>| {
        let (stream, kind): (String, String) = (row.get(1)?, row.get(3)?);
        let (seq, revision): (i64, i64) = (row.get(0)?, row.get(2)?);
        let body: Vec<u8> = row.get(5)?;
        let record = EntryRecord {
            seq: seq.unsigned_abs(),
            stream: &stream,
            revision: revision.unsigned_abs(),
            kind: &kind,
            at: row.get(4)?,
            body: &body,
        };
        Ok(record.leaf(&mut Vec::new()))
    };
    let leaves = statement.query_map([], leaf).unwrap();
    leaves.collect::<Result<_, _>>().unwrap()
}

/// Every checkpoint in the file, as the key that signs it says it.
fn checkpoints(place: &Place, key: &VerifierKey) -> Vec<Checkpoint> {
    let shell = place.shell();
    let mut statement = shell
        .prepare("SELECT note FROM checkpoints ORDER BY size")
        .unwrap();
    let notes = statement.query_map([], |row| row.get::<_, String>(0));
    notes
        .unwrap()
        .map(|note| {
            let note: Note = note.unwrap().parse().unwrap();
            Checkpoint::signed_by(&note, key).unwrap()
        })
        .collect()
}

/// Appends this many entries, in commits of one, two and three; gives how many commits.
async fn fill(journal: &JournalStore, count: u64) -> usize {
    let mut left = count;
    let mut commits = 0;
    for turn in 1.. {
        let now = left.min(turn % 3 + 1);
        let entries = (0..now).map(|_| started("x")).collect();
        let stream = Stream::Call(call());
        let append = all(vec![to(stream, Expected::NoStream, entries)]);
        journal.append(append).await.unwrap();
        left -= now;
        commits += 1;
        if left == 0 {
            break;
        }
    }
    commits
}

/// Every entry is in the tree of the last checkpoint, and that continues every one before.
fn everything_is_proven(place: &Place, journal: &JournalStore) {
    let leaves = leaves(place);
    let said = checkpoints(place, &journal.key().unwrap());
    let head = said.last().unwrap();
    assert_eq!(head.size, journal.head());
    assert_eq!(journal.checkpoint().unwrap().text(), head.to_string());
    for (index, leaf) in leaves.iter().enumerate() {
        let seq = index as u64 + 1;
        let path = journal.prove_inclusion(seq, head.size).unwrap().unwrap();
        verify_inclusion(leaf, seq - 1, head.size, &path, &head.root).unwrap();
    }
    for old in &said {
        let size = usize::try_from(old.size).unwrap();
        assert_eq!(leaves.get(..size).map(root_of), Some(old.root));
        let path = journal.prove_consistency(old.size, head.size).unwrap();
        verify_consistency(old.size, head.size, &path.unwrap(), &old.root, &head.root).unwrap();
    }
}

#[tokio::test]
async fn every_entry_is_proven_by_the_checkpoint_of_its_commit() {
    let place = Place::new();
    let journal = place.open();
    let empty = journal.checkpoint().unwrap();
    let empty = Checkpoint::signed_by(&empty, &journal.key().unwrap()).unwrap();
    assert_eq!((empty.size, empty.root), (0, Hash::empty()));
    let commits = fill(&journal, 700).await;
    assert_eq!(
        checkpoints(&place, &journal.key().unwrap()).len(),
        1 + commits
    );
    everything_is_proven(&place, &journal);
    drop(journal);
    let journal = place.open();
    fill(&journal, 100).await;
    everything_is_proven(&place, &journal);
}

#[tokio::test]
async fn there_is_no_proof_about_what_is_not_durable() {
    let place = Place::new();
    let journal = place.open();
    fill(&journal, 5).await;
    assert!(journal.prove_inclusion(5, 5).unwrap().is_some());
    for (seq, size) in [(0, 5), (6, 5), (5, 4), (5, 6), (u64::MAX, u64::MAX)] {
        assert_eq!(journal.prove_inclusion(seq, size).unwrap(), None);
    }
    for (old, size) in [(5, 4), (5, 6), (u64::MAX, u64::MAX)] {
        assert_eq!(journal.prove_consistency(old, size).unwrap(), None);
    }
}

/// More leaves than one kept node covers twice over, so that all levels are used.
#[tokio::test]
async fn proofs_reach_over_levels_that_are_kept() {
    let place = Place::new();
    let journal = place.open();
    let entries = |count: usize| (0..count).map(|_| started("")).collect();
    for (revision, count) in [(0, 40_000), (40_000, 40_000), (80_000, 3)] {
        let expected = Expected::Revision(revision);
        let append = journal.append_if(Stream::Daemon, expected, entries(count));
        append.await.unwrap();
    }
    let leaves = leaves(&place);
    let head =
        Checkpoint::signed_by(&journal.checkpoint().unwrap(), &journal.key().unwrap()).unwrap();
    assert_eq!((head.size, head.root), (80_003, root_of(&leaves)));
    for seq in [1, 255, 256, 257, 65_535, 65_536, 65_537, 80_000, 80_003] {
        let path = journal.prove_inclusion(seq, head.size).unwrap().unwrap();
        let leaf = &leaves[usize::try_from(seq).unwrap() - 1];
        verify_inclusion(leaf, seq - 1, head.size, &path, &head.root).unwrap();
        let path = journal.prove_consistency(seq, head.size).unwrap().unwrap();
        let old = root_of(&leaves[..usize::try_from(seq).unwrap()]);
        verify_consistency(seq, head.size, &path, &old, &head.root).unwrap();
    }
}

#[tokio::test]
async fn a_journal_from_before_there_were_proofs_is_sealed_as_it_is() {
    for count in [0, 1, 700, 5_000] {
        let place = Place::new();
        let journal = place.open();
        let entries = (0..count).map(|_| started("")).collect();
        let stream = to(Stream::Daemon, Expected::Any, entries);
        journal.append(all(vec![stream])).await.unwrap();
        let before = journal.read(0, usize::MAX).unwrap();
        drop(journal);
        unseal(&place, &[]);
        let shell = place.shell();
        shell
            .execute_batch(
                "DROP TABLE signer; DROP TABLE checkpoints; DROP TABLE nodes;
                 PRAGMA user_version = 1",
            )
            .unwrap();
        drop(shell);
        let journal = place.open();
        assert_eq!(journal.read(0, usize::MAX).unwrap(), before);
        fill(&journal, 3).await;
        if count < 1_000 {
            everything_is_proven(&place, &journal);
        }
        drop(journal);
        assert_eq!(place.open().head(), count + 3);
    }
}

/// Somebody with the file writes into it: what they slipped in never gets our signature.
#[tokio::test]
async fn what_another_process_slipped_in_is_not_signed() {
    let place = Place::new();
    let journal = place.open();
    fill(&journal, 2).await;
    place
        .shell()
        .execute_batch(
            r#"INSERT INTO entries VALUES
               (3, 'daemon', 1, 'interrupted', 0, CAST('{"kind":"interrupted","v":1}' AS BLOB))"#,
        )
        .unwrap();
    let append = || journal.append_if(Stream::Agents, Expected::Any, vec![started("x")]);
    for _ in 0..2 {
        let error = append().await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("about 2 entries, and there are 3"),
            "{error}"
        );
        assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    }
    assert_eq!(journal.read(0, 10).unwrap().len(), 2);
    assert_eq!(checkpoints(&place, &journal.key().unwrap()).len(), 1 + 1);
    drop(journal);
    let refused = JournalStore::open(&place.file(), Vec::new(), clock(), keys());
    assert!(
        matches!(refused, Err(JournalError::Corrupt { .. })),
        "{refused:?}"
    );
    // Positive control: without the row, it goes on.
    place
        .shell()
        .execute_batch("DROP TRIGGER entries_are_never_removed; DELETE FROM entries WHERE seq = 3")
        .unwrap();
    fill(&place.open(), 1).await;
}

#[tokio::test]
async fn an_end_that_was_touched_is_noticed_at_the_next_start() {
    for attack in [
        "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
        "DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)",
        "DELETE FROM checkpoints",
        "UPDATE checkpoints SET leaves = zeroblob(length(leaves))",
        "UPDATE checkpoints SET leaves = zeroblob(3)",
        "UPDATE checkpoints SET note = replace(note, 'Peter', 'Pieter')",
        "UPDATE checkpoints SET note = ''",
        "UPDATE nodes SET hash = zeroblob(32)",
        "UPDATE nodes SET hash = zeroblob(31)",
        "DELETE FROM nodes",
        "UPDATE signer SET first_key = 'x'",
        "UPDATE signer SET first_key = replace(first_key, 'Peter', 'Pieter')",
    ] {
        let place = Place::new();
        let journal = place.open();
        fill(&journal, 300).await;
        drop(journal);
        place
            .shell()
            .execute_batch(&format!(
                "DROP TRIGGER entries_are_never_removed;
                 DROP TRIGGER checkpoints_are_never_removed;
                 DROP TRIGGER checkpoints_are_never_changed;
                 {attack}"
            ))
            .unwrap();
        let refused = JournalStore::open(&place.file(), Vec::new(), clock(), keys());
        let noticed = matches!(
            refused,
            Err(JournalError::Corrupt { .. } | JournalError::Database(_))
        );
        assert!(noticed, "{attack}: {refused:?}");
    }
}

#[tokio::test]
async fn a_key_takes_over_and_the_old_one_vouches_for_it() {
    let place = Place::new();
    let journal = place.open();
    let old = journal.key().unwrap();
    fill(&journal, 4).await;
    drop(journal);
    let text = keys().rotated().unwrap().to_text();
    let rotated = || JournalKeys::from_text(&text, blob_key()).unwrap();
    let open = |keys| JournalStore::open(&place.file(), Vec::new(), clock(), keys).unwrap();
    let journal = open(rotated());
    let new = journal.key().unwrap();
    assert_eq!(new.name(), old.name(), "it is the same journal");
    assert_ne!(new, old);
    let recorded = journal.read_stream(&Stream::Journal).unwrap();
    let [recorded] = recorded.as_slice() else {
        panic!("{recorded:?}")
    };
    assert_eq!(recorded.seq, 5);
    let Entry::KeyRotated {
        previous,
        next,
        note,
    } = &recorded.entry
    else {
        panic!("{recorded:?}")
    };
    assert_eq!((previous, next), (&old.to_string(), &new.to_string()));
    let note: Note = note.parse().unwrap();
    assert!(note.signed_by(&old).is_ok() && note.signed_by(&new).is_ok());
    let head = journal.checkpoint().unwrap();
    assert_eq!(Checkpoint::signed_by(&head, &new).unwrap().size, 5);
    drop(journal);
    let journal = open(rotated());
    assert_eq!(journal.head(), 5, "once is enough");
    drop(journal);

    // The key was lost: the journal goes on under another, and says that nobody vouched.
    let journal = open(JournalKeys::generate().unwrap());
    let recorded = journal.read_stream(&Stream::Journal).unwrap();
    let Some(Entry::KeyRotated { previous, note, .. }) = recorded.last().map(|last| &last.entry)
    else {
        panic!("{recorded:?}")
    };
    assert_eq!(*previous, new.to_string());
    let note: Note = note.parse().unwrap();
    assert!(note.signed_by(&new).is_err() && note.signed_by(&journal.key().unwrap()).is_ok());
}

#[tokio::test]
async fn what_is_recorded_first_reaches_the_projections() {
    let place = Place::new();
    fill(&place.open(), 1).await;
    let keys = JournalKeys::generate().unwrap();
    let folds: Vec<Box<dyn palyra_core::entry::Fold>> = vec![Box::new(Counting("counts"))];
    let journal = JournalStore::open(&place.file(), folds, clock(), keys).unwrap();
    let row = journal.row("counts", "journal").unwrap().unwrap();
    assert_eq!(row.value, b"1");
}
