//! The home folders of the people on this machine: no agent works on one of them as a whole.

use std::path::PathBuf;

/// Every home that is a real folder: ours, and those in `/etc/passwd`.
#[must_use]
pub fn homes() -> Vec<PathBuf> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let listed = passwd.lines().filter_map(home_of_a_person);
    let mut homes: Vec<PathBuf> = std::iter::once(own())
        .chain(listed)
        .filter_map(|home| home.canonicalize().ok())
        .collect();
    homes.sort();
    homes.dedup();
    homes
}

/// Root and the ordinary uids; a service's "home" such as `/var/www` may well be worked on.
fn home_of_a_person(line: &str) -> Option<PathBuf> {
    let fields: Vec<&str> = line.split(':').collect();
    let uid: u32 = fields.get(2)?.parse().ok()?;
    let person = uid == 0 || (1_000..65_534).contains(&uid);
    person.then(|| fields.get(5).map(PathBuf::from))?
}

/// The home of the daemon's user.
#[must_use]
pub fn own() -> PathBuf {
    std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"))
}
