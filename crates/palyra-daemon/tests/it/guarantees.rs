//! `docs/guarantees.md` names a test for every promise; here each of them must exist.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/guarantees.md");

/// The tests that the page names, each written `` `crate: function` ``.
fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
    let quoted = PAGE.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| text.split_once(": "))
        .filter(|(room, _)| room.starts_with("palyra-"))
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let crates = Path::new("..");
    let mut missing = Vec::new();
    let mut found = 0;
    for (room, test) in named() {
        let folder = crates.join(room);
        let defines = format!("fn {test}(");
        match ["src", "tests"]
            .iter()
            .any(|part| holds(&folder.join(part), &defines))
        {
            true => found += 1,
            false => missing.push(format!("{room}: {test}")),
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(found > 20, "the page names only {found} tests");
}

/// Whether a Rust file beneath this folder holds the text.
fn holds(folder: &Path, text: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path, text),
            false => {
                path.extension().is_some_and(|ending| ending == "rs")
                    && std::fs::read_to_string(&path).is_ok_and(|source| source.contains(text))
            }
        }
    })
}
