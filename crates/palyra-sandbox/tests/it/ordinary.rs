//! All of it once more, as somebody who is not root.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::fixture::{BINARIES, OWNER, attacker, broken_jail, is_root, jail};

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the tests themselves, under another uid"
)]
fn everything_holds_for_a_daemon_that_is_not_root() {
    if !is_root() {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    std::fs::set_permissions(here.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let tests = here.path().join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    std::fs::copy(jail(), here.path().join("palyra-jail")).unwrap();
    std::fs::copy(attacker(), here.path().join("palyra-attacker")).unwrap();
    std::fs::copy(broken_jail(), here.path().join("palyra-broken-jail")).unwrap();
    let output = std::process::Command::new(&tests)
        // Programs of this machine may be out of that uid's reach: run as whoever runs the tests.
        .args([
            "--test-threads",
            "4",
            "--skip",
            "clients::",
            "--skip",
            "ordinary::",
        ])
        .env(BINARIES, here.path())
        .current_dir(here.path())
        .uid(OWNER)
        .gid(OWNER)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for test in [
        "masked::it_cannot_be_read_listed_or_written",
        "caged::a_helper_without_one_of_the_walls_is_refused",
    ] {
        assert!(text.contains(&format!("test {test} ... ok")), "{text}");
    }
}
