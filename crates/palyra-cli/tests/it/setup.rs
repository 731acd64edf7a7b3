//! `init`, and homes that cannot be used.

use crate::palyra::{Palyra, mode};

#[test]
fn init_is_private_and_never_overwrites() {
    let palyra = Palyra::new();
    let first = palyra.run(&["init"]).exits(0);
    assert!(first.stdout.contains("made") && first.stderr.contains("palyra exec -- id"));
    let config = palyra.home().join("palyra.toml");
    assert_eq!(mode(&palyra.home()), 0o700);
    assert_eq!(mode(&config), 0o600);
    std::fs::write(&config, "# mine\n").unwrap();
    let second = palyra.run(&["init", "--json", "--quiet"]).exits(0);
    assert_eq!(second.json()["config_written"], false);
    assert_eq!(second.stderr, "");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine\n");
    // Not through a link either, even one that leads nowhere.
    std::fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink(palyra.path("elsewhere"), &config).unwrap();
    assert!(palyra.run(&["init"]).exits(0).stdout.contains("kept"));
    assert!(!palyra.path("elsewhere").exists());
}

#[test]
fn init_follows_xdg_without_palyra_home() {
    let palyra = Palyra::new();
    let home = palyra.path("person");
    std::fs::create_dir(&home).unwrap();
    let mut command = palyra.command(&["init", "--json"]);
    command.env_remove("PALYRA_HOME").env("HOME", &home);
    let ran = crate::palyra::Ran::from(command.output().unwrap()).exits(0);
    let config = home.join(".config/palyra/palyra.toml");
    assert_eq!(ran.json()["config"], config.to_str().unwrap());
    for folder in [
        ".config/palyra",
        ".local/state/palyra",
        ".local/state/palyra/run",
    ] {
        assert_eq!(mode(&home.join(folder)), 0o700, "{folder}");
    }
}

#[test]
fn a_folder_in_use_for_something_else_is_refused() {
    let palyra = Palyra::new();
    std::fs::create_dir(palyra.home()).unwrap();
    std::fs::write(palyra.home().join("thesis.tex"), "").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(palyra.home(), open).unwrap();
    palyra
        .run(&["init"])
        .exits(1)
        .complains("holds other files", "PALYRA_HOME");
    palyra
        .with_daemon("exit 1")
        .run(&["exec", "--", "true"])
        .exits(123)
        .complains("holds other files", "PALYRA_HOME");
}

#[test]
fn a_home_that_cannot_work_says_why() {
    let relative = Palyra::new().with("PALYRA_HOME", "relative");
    relative
        .run(&["status"])
        .exits(1)
        .complains("not absolute", "export PALYRA_HOME");
    relative
        .run(&["exec", "--", "true"])
        .exits(125)
        .complains("not absolute", "PALYRA_HOME");
    let long = Palyra::new().with("PALYRA_HOME", &format!("/{}", "x".repeat(200)));
    long.run(&["init"])
        .exits(1)
        .complains("longer than 107 bytes", "PALYRA_HOME");
}

#[test]
fn init_writes_the_baseline_that_was_chosen() {
    for (words, expected) in [
        (&["init", "--json"][..], "standard"),
        (&["init", "--baseline", "sandboxed", "--json"], "sandboxed"),
        (&["init", "--baseline", "locked", "--json"], "locked"),
    ] {
        let palyra = Palyra::new();
        let done = palyra.run(words).exits(0).json();
        assert_eq!(done["baseline"], expected);
        let text = std::fs::read_to_string(palyra.home().join("palyra.toml")).unwrap();
        let live = format!("\nbaseline = \"{expected}\"\n");
        assert!(text.contains(&live), "{text}");
        let listed = palyra.run(&["policy", "list", "--json"]).exits(0).json();
        assert_eq!(listed["baseline"], expected);
    }
}

#[test]
fn init_does_not_pretend_to_have_changed_the_baseline() {
    let palyra = Palyra::new();
    palyra.run(&["init"]).exits(0);
    palyra.run(&["init", "--baseline", "standard"]).exits(0);
    palyra
        .run(&["init", "--baseline", "locked"])
        .exits(1)
        .complains("with the baseline `standard`", "baseline = \"locked\"");
    palyra.run(&["init", "--baseline", "lax"]).exits(2);
}
