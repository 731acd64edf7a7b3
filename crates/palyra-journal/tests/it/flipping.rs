//! Every byte of the file, changed: found, and its place named.

use std::fs;
use std::path::Path;

use palyra_journal::verify::{Place as Where, Verdict, verify};
use rusqlite::types::Value;

use crate::sample::{Sample, places};
use crate::support::only_editor;

/// A value with one thing changed, in every place it can be.
fn changes(value: &Value) -> Vec<Value> {
    let flipped = |bytes: &[u8]| -> Vec<Value> {
        (0..bytes.len())
            .map(|place| {
                let flip = |(at, byte): (usize, &u8)| match at == place {
                    true => byte ^ (1 << (place % 8)),
                    false => *byte,
                };
                Value::Blob(bytes.iter().enumerate().map(flip).collect())
            })
            .collect()
    };
    match value {
        Value::Integer(number) => [number + 1, number - 1, -number - 7, i64::MAX]
            .into_iter()
            .map(Value::Integer)
            .collect(),
        Value::Text(text) => flipped(text.as_bytes()),
        Value::Blob(bytes) => flipped(bytes),
        // The journal holds neither.
        Value::Null | Value::Real(_) => Vec::new(),
    }
}

fn rows(editor: &rusqlite::Connection, table: &str) -> (Vec<String>, Vec<Vec<Value>>) {
    let mut statement = editor.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns = statement.column_names().map(str::to_owned);
    let columns: Vec<String> = columns.collect();
    let rows = statement
        .query_map([], |row| (0..columns.len()).map(|at| row.get(at)).collect())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    (columns, rows)
}

#[tokio::test]
async fn every_changed_byte_of_the_database_is_found() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let editor = only_editor(&place.file());
    let mut found = 0;
    for table in ["entries", "checkpoints", "blobs", "signer"] {
        let (columns, rows) = rows(&editor, table);
        let key = &columns[0];
        assert!(!rows.is_empty());
        for row in &rows {
            for (column, value) in columns.iter().zip(row) {
                let set = if matches!(value, Value::Text(_)) {
                    "CAST(?1 AS TEXT)"
                } else {
                    "?1"
                };
                let sql = format!("UPDATE {table} SET {column} = {set} WHERE {key} = ?2");
                for changed in changes(value) {
                    // Refused are a place that is taken, and a second signer.
                    if editor.execute(&sql, (&changed, &row[0])).is_err() {
                        continue;
                    }
                    let report = verify(&place.file(), &trust).unwrap();
                    let told = format!("{table}.{column} {changed:?}: {report:?}");
                    assert_eq!(report.verdict(), Verdict::Faulty, "{told}");
                    if let ("entries", Value::Integer(seq)) = (table, &row[0]) {
                        let here = Where::Entry(seq.unsigned_abs());
                        assert!(places(&report).contains(&&here), "{told}");
                    }
                    if let (true, Value::Integer(key)) = (column != key, &row[0]) {
                        let here = match table {
                            "checkpoints" => Where::Checkpoint(key.unsigned_abs()),
                            "blobs" => Where::Blob(key.unsigned_abs()),
                            "entries" => Where::Entry(key.unsigned_abs()),
                            _ => Where::File,
                        };
                        let all = places(&report);
                        assert!(all.contains(&&here) || table == "signer", "{told}");
                    }
                    found += 1;
                    let now = if column == key { &changed } else { &row[0] };
                    assert_eq!(editor.execute(&sql, (value, now)).unwrap(), 1);
                }
            }
        }
        let report = verify(&place.file(), &trust).unwrap();
        assert_eq!(report.verdict(), Verdict::Verified, "{table}: {report:?}");
    }
    assert!(found > 3_000, "{found}");
}

/// Bytes of the file itself, below SQL. A flip either is found, or changes nothing that the
/// journal says: there is unused space in every page. `PALYRA_EVERY_BYTE=1` leaves none out.
#[tokio::test]
async fn flipped_bytes_of_pages_are_found_or_mean_nothing() {
    let sample = Sample::new().await;
    let trust = sample.trust();
    let place = sample.close();
    let dump = |file: &Path| -> Vec<Vec<Vec<Value>>> {
        let shell = rusqlite::Connection::open(file).unwrap();
        let tables = ["entries", "checkpoints", "blobs", "signer"];
        tables.map(|table| rows(&shell, table).1).to_vec()
    };
    let (bytes, said) = (fs::read(place.file()).unwrap(), dump(&place.file()));
    let step = if std::env::var_os("PALYRA_EVERY_BYTE").is_some() {
        1
    } else {
        23
    };
    let mut found = 0;
    for at in (0..bytes.len()).step_by(step) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(place.file(), &changed).unwrap();
        let Ok(report) = verify(&place.file(), &trust) else {
            continue;
        };
        if report.verdict() == Verdict::Faulty {
            found += 1;
            continue;
        }
        assert_eq!(report.verdict(), Verdict::Verified);
        for (table, said) in dump(&place.file()).into_iter().zip(&said) {
            assert_eq!(table.len(), said.len(), "byte {at}");
            for (found, said) in table.iter().zip(said) {
                assert_eq!(found, said, "byte {at}");
            }
        }
    }
    assert!(found > 100, "{found}");
}
