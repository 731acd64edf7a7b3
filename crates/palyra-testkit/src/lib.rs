//! Fixtures: a real daemon in a throw-away home, driven by the real command line.
//!
//! Nothing here is part of what ships. A fixture that cannot be had panics with the reason: a
//! test that silently tests nothing is worse than none.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test fixtures: a broken fixture must stop the test"
)]

mod clients;
mod daemon;
pub mod probes;
mod ran;
mod terminal;

pub use clients::outside_client;
pub use daemon::{Daemon, DaemonBuilder, bin};
pub use ran::Ran;
pub use terminal::{Terminal, pair};

/// Polls until `ready` gives something; panics with `what` after half a minute.
pub fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = ready() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited in vain: {what}")
}

/// Whether this process is root; tests of other uids need it.
#[must_use]
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Notes that a test could not run here; when `CI` is set that is a failure.
pub fn not_run(test: &str, why: &str) {
    use std::io::Write;
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} could not run in CI: {why}"
    );
    if let Some(path) = std::env::var_os("PALYRA_NOT_RUN") {
        let mut list = std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .expect("the list");
        writeln!(list, "{test}: {why}").expect("the list takes a line");
    }
}
