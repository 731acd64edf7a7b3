//! The scripts that the README names, run as they are: `./run` twice, and `make demo`'s walk.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use palyra_testkit::{Ran, bin, eventually};

fn checkout() -> PathBuf {
    // Not `env!`: a build taken from a shared folder may be another clone's.
    let own = std::env::current_dir().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

/// A script of the checkout on the build that these tests belong to.
fn script(path: &str, folder: &Path) -> Command {
    let built = bin("palyrad");
    let target = built.parent().and_then(Path::parent).unwrap();
    let user_home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let or = |name: &str, usual: &str| {
        std::env::var_os(name).map_or_else(|| user_home.join(usual), PathBuf::from)
    };
    let linked = folder.join(".local/bin");
    let mut command = Command::new(checkout().join(path));
    // What cargo says of this package to its tests would say it to another build: some dependencies
    // are built anew when it changes.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
        .env("CARGO_HOME", or("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", or("RUSTUP_HOME", ".rustup"))
        .env("CARGO_TARGET_DIR", target)
        .env("PALYRA_PROFILE", "dev")
        .env("HOME", folder)
        .env(
            "PATH",
            format!("{}:{}", linked.display(), std::env::var("PATH").unwrap()),
        )
        .env("PALYRA_HOME", folder.join("home"))
        .env("NO_COLOR", "1")
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

#[test]
fn run_starts_a_daemon_links_palyra_and_is_quick_the_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = script("run", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let socket = folder.path().join("home/palyrad.sock");
    eventually("palyrad listens", || {
        assert!(running.try_wait().unwrap().is_none(), "./run ended");
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    let linked = folder.path().join(".local/bin/palyra");
    let ran: Ran = Command::new(&linked)
        .args(["exec", "--", "echo", "hello"])
        .env("PALYRA_HOME", folder.path().join("home"))
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.expect_code(0).stdout, "hello\n");
    // Already running: says so, and that is no error.
    let again = Ran::from(script("run", folder.path()).output().unwrap()).expect_code(0);
    assert!(again.stderr.contains("already running"), "{}", again.stderr);
    // It is palyrad itself now, in the foreground.
    let pid = running.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let ended = Ran::from(running.wait_with_output().unwrap()).expect_code(0);
    assert!(
        ended.stdout.contains("palyrad listens on"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("try: palyra exec -- echo hello"),
        "{}",
        ended.stdout
    );
}

#[test]
fn the_demo_walks_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let _ = Ran::from(script("scripts/demo.sh", folder.path()).output().unwrap()).expect_code(0);
}

/// What `prepare_clients` does on a machine without clients, with an `apt-get` that only tells.
fn clients(ci: bool) -> String {
    let machine = tempfile::tempdir().unwrap();
    for name in ["awk", "bash", "cat", "dirname", "env", "id"] {
        let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        let real = real.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(real, machine.path().join(name)).unwrap();
    }
    for name in ["apt-get", "sudo"] {
        let told = machine.path().join(name);
        std::fs::write(&told, format!("#!/bin/bash\necho {name} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&told, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let lines = "set -euo pipefail; . scripts/prepare.sh; release_name() { echo bookworm; }; \
                 prepare_clients";
    let mut command = Command::new(machine.path().join("bash"));
    command.args(["-c", lines]).current_dir(checkout());
    command.env_clear().env("PATH", machine.path());
    if ci {
        command.env("CI", "true");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn clients_are_pinned_under_ci_and_only_named_otherwise() {
    let told = clients(true);
    let line = told.lines().find(|line| line.contains(" install "));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    for pinned in [
        "git=1:2.39.*",
        "nodejs=18.*",
        "python3=3.11.*",
        "curl=7.88.*",
        "cvc5=1.0.*",
        "bubblewrap=0.8.*",
        "tmux=3.3*",
        "openssl=3.0.*",
    ] {
        assert!(line.contains(pinned), "{line}");
    }
    let told = clients(false);
    assert!(told.contains("tests that need git nodejs python3 curl cvc5 bubblewrap dbus-daemon gnome-keyring tmux openssl"));
    assert!(!told.contains("--no-install-recommends"));
}
