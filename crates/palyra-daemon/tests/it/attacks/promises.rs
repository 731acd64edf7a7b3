//! `docs/guarantees.md` lists what a tier does not hold; here it is compared with the probes.

use std::collections::BTreeSet;

use palyra_testkit::probes::{self, Promise};

const PAGE: &str = include_str!("../../../../../docs/guarantees.md");

/// The rows of the page's table: `` | `probe`, `probe` | not held | held | why | ``.
fn listed() -> BTreeSet<(String, Promise)> {
    let mut listed = BTreeSet::new();
    for line in PAGE.lines() {
        let mut parts = line.split('|').skip(1).map(str::trim);
        let (Some(names), Some(b), Some(c)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        for name in names.split('`').skip(1).step_by(2) {
            for (tier, held) in [(Promise::B, b), (Promise::C, c)] {
                if held == "not held" {
                    listed.insert((name.to_owned(), tier));
                }
            }
        }
    }
    listed
}

#[test]
fn what_is_not_promised_is_listed() {
    let mut open = BTreeSet::new();
    for probe in probes::all() {
        for tier in probe.open_in {
            open.insert((probe.name.to_owned(), *tier));
        }
    }
    let listed = listed();
    let missing: Vec<_> = open.difference(&listed).collect();
    let too_many: Vec<_> = listed.difference(&open).collect();
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
    assert!(too_many.is_empty(), "on the page, but held: {too_many:#?}");
}
