//! Rows are what a fold makes of all entries, at every moment.

use std::collections::BTreeMap;

use palyra_core::entry::{Entry, Fold, Recorded, Row, Stream};
use palyra_journal::{Expected, JournalError, JournalStore, RowQuery};

use crate::support::{Counting, Place, all, call, clock, keys, started, to};

const EVERYTHING: RowQuery = RowQuery {
    state: None,
    before: None,
    limit: usize::MAX,
    newest_first: false,
};

/// The rows as they must be: the fold fed with every entry, in order.
fn recomputed(fold: &dyn Fold, entries: &[Recorded]) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for recorded in entries {
        let Some(key) = fold.key(recorded) else {
            continue;
        };
        let before = rows.get(&key).map(|row| row.value.clone());
        match fold.fold(before.as_deref(), recorded) {
            Some(row) => rows.insert(key, row),
            None => rows.remove(&key),
        };
    }
    rows.into_values().collect()
}

fn assert_rows(journal: &JournalStore, name: &'static str) {
    let entries = journal.read(0, usize::MAX).unwrap();
    let rows = journal.rows(name, &EVERYTHING).unwrap();
    assert_eq!(rows, recomputed(&Counting(name), &entries));
    for row in &rows {
        assert_eq!(journal.row(name, &row.key).unwrap().as_ref(), Some(row));
    }
}

/// Appends to a few streams from many tasks, sometimes removing a row.
async fn stir(journal: &JournalStore, streams: &[Stream]) {
    let mut tasks = tokio::task::JoinSet::new();
    for (number, stream) in streams.iter().cycle().take(300).enumerate() {
        let (journal, stream) = (journal.clone(), stream.clone());
        let entry = if number % 11 == 3 {
            Entry::Interrupted
        } else {
            started(number.to_string())
        };
        tasks.spawn(async move {
            journal
                .append_if(
                    stream,
                    Expected::Any,
                    vec![entry.clone(), started("more"), entry],
                )
                .await
                .unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_equal_a_recomputation_also_after_reopening() {
    let place = Place::new();
    let streams: Vec<Stream> = (0..13).map(|_| Stream::Call(call())).collect();
    for _ in 0..3 {
        let journal = place.open_with(vec![Box::new(Counting("counts"))]);
        stir(&journal, &streams).await;
        assert_rows(&journal, "counts");
    }
}

#[tokio::test]
async fn a_new_projection_is_made_from_what_is_there_and_an_unused_one_goes() {
    let place = Place::new();
    let streams: Vec<Stream> = (0..5).map(|_| Stream::Call(call())).collect();
    let journal = place.open_with(vec![Box::new(Counting("first"))]);
    stir(&journal, &streams).await;
    drop(journal);

    let journal = place.open_with(vec![Box::new(Counting("second"))]);
    assert_rows(&journal, "second");
    assert_eq!(journal.rows("first", &EVERYTHING).unwrap(), []);
    stir(&journal, &streams).await;
    drop(journal);

    // Had its rows been kept, they would be behind by now.
    let journal = place.open_with(vec![
        Box::new(Counting("first")),
        Box::new(Counting("second")),
    ]);
    assert_rows(&journal, "first");
    assert_rows(&journal, "second");
}

#[tokio::test]
async fn two_projections_of_one_name_are_refused() {
    let place = Place::new();
    let folds: Vec<Box<dyn Fold>> = vec![Box::new(Counting("same")), Box::new(Counting("same"))];
    let outcome = JournalStore::open(&place.file(), folds, clock(), keys());
    assert!(matches!(
        outcome,
        Err(JournalError::TwoFolds { name: "same" })
    ));
    assert!(!place.file().exists());
}

#[tokio::test]
async fn rows_can_be_selected_paged_and_turned_around() {
    let place = Place::new();
    let journal = place.open_with(vec![Box::new(Counting("counts"))]);
    let mut keys = Vec::new();
    for number in 0..9_usize {
        let id = call();
        keys.push(id.to_string());
        let entries = vec![started("x"); 1 + number % 2];
        let stream = Stream::Call(id);
        journal
            .append(all(vec![to(stream, Expected::NoStream, entries)]))
            .await
            .unwrap();
    }
    keys.sort();
    let ask = |state: Option<&str>, before: Option<&str>, limit, newest_first| {
        let query = RowQuery {
            state: state.map(str::to_owned),
            before: before.map(str::to_owned),
            limit,
            newest_first,
        };
        let rows = journal.rows("counts", &query).unwrap();
        rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(ask(None, None, 100, false), keys);
    assert_eq!(ask(None, None, 4, false), keys[..4]);
    let mut newest = keys.clone();
    newest.reverse();
    assert_eq!(ask(None, None, 4, true), newest[..4]);
    assert_eq!(ask(None, Some(&newest[3]), 4, true), newest[4..8]);
    assert_eq!(ask(None, Some(&keys[2]), 100, false), keys[..2]);
    assert_eq!(ask(Some("odd"), None, 100, true).len(), 5);
    assert_eq!(ask(Some("even"), None, 100, false).len(), 4);
    assert_eq!(ask(Some("other"), None, 100, false), [""; 0]);
    assert!(journal.row("counts", "nobody").unwrap().is_none());
    assert!(
        journal
            .rows("nothing", &RowQuery::default())
            .unwrap()
            .is_empty()
    );
}
