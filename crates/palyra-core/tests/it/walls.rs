//! No side doors: what must not compile does not, and nobody new implements the corridor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn forging_and_spending_twice_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/fail/*.rs");
}

/// Each implementor of a corridor trait, as `Trait for Type in crate`.
#[test]
fn the_corridor_is_walked_by_the_rooms_we_know() {
    let crates = Path::new("..");
    let mut found = BTreeSet::new();
    for file in sources(crates) {
        let room = file
            .strip_prefix(crates)
            .unwrap()
            .components()
            .next()
            .unwrap();
        let room = room.as_os_str().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("impl"))
        {
            for name in ["Decides", "Admits", "Executes", "Attests"] {
                if let Some(who) = implementor(line, name) {
                    found.insert(format!("{name} for {who} in {room}"));
                }
            }
        }
    }
    let known = [
        "Admits for CallRecorder in palyra-journal",
        "Attests for CallRecorder in palyra-journal",
        "Decides for Noted in palyra-gateway",
        "Decides for PolicyEngine in palyra-policy",
        "Executes for FileRunner in palyra-sandbox",
        "Executes for Networked in palyra-gateway",
        "Executes for ProcessRunner in palyra-sandbox",
        "Executes for Replies in palyra-gateway",
    ];
    assert_eq!(found, known.map(str::to_owned).into());
}

/// The type in `impl<..> Trait<..> for Type<..>`.
fn implementor(line: &str, name: &str) -> Option<String> {
    let (head, tail) = line.split_once(" for ")?;
    let named = head
        .split(|letter: char| !letter.is_alphanumeric())
        .any(|word| word == name);
    let who: String = tail
        .chars()
        .take_while(|letter| letter.is_alphanumeric())
        .collect();
    named.then_some(who)
}

/// Every source file of every room that ships; the testkit does not.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !["palyra-testkit", "tests", "benches"].contains(&name) {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty());
    files
}
