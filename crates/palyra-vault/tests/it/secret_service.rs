//! A real Secret Service: GNOME Keyring on a bus of its own.

use std::process::{Command, Output};
use std::sync::Arc;

use palyra_vault::Vault;
use palyra_vault::keystore::SecretServiceStore;

use crate::support::{folder, get, locked, put, refused};

/// Runs one of the tests below on a bus of its own, with this before it.
fn on_a_bus(before: &str, test: &str) -> Output {
    let home = folder();
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "keyrings() {{ for p in $(pidof gnome-keyring-daemon); do
             grep -qz \"^HOME=$HOME$\" /proc/$p/environ && echo $p; done; }}
         {before}
         \"$0\" --exact {test} --nocapture; code=$?
         kill -KILL $(keyrings) 2>/dev/null; exit $code"
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "a bus and a keyring for the test"
    )]
    Command::new("dbus-run-session")
        .args(["--", "sh", "-c", &script])
        .arg(own)
        .env("PALYRA_VAULT_BUS", test)
        .env("HOME", home.path())
        .env("XDG_DATA_HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env_remove("DISPLAY")
        .output()
        .expect("dbus-run-session is installed: `sudo apt-get install dbus-daemon gnome-keyring`")
}

fn asserted(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("was run"),
        "{said}"
    );
}

fn is_child(test: &str) -> bool {
    let told = std::env::var("PALYRA_VAULT_BUS").is_ok_and(|told| told == test);
    if told {
        println!("was run");
    }
    told
}

const UNLOCKED: &str =
    "printf pass | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1 || exit 9";

#[test]
fn a_real_keyring_holds_the_key() {
    asserted(&on_a_bus(UNLOCKED, "secret_service::child_with_a_keyring"));
}

#[test]
fn child_with_a_keyring() {
    if !is_child("secret_service::child_with_a_keyring") {
        return;
    }
    let folder = folder();
    let vault = locked(folder.path()).unwrap();
    let id = Vault::new_id().unwrap();
    let store = || Arc::new(SecretServiceStore::new(&Vault::id_text(&id)));
    vault.create(id, store()).unwrap();
    put(&vault, "x", "value");
    drop(vault);
    let vault = locked(folder.path()).unwrap();
    let other = Arc::new(SecretServiceStore::new("another install"));
    assert_eq!(refused(vault.unlock(other)).code(), "keystore_no_such_key");
    vault.unlock(store()).unwrap();
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    vault.rotate(go).unwrap().unwrap();
    drop(vault);
    let vault = locked(folder.path()).unwrap();
    vault.unlock(store()).unwrap();
    vault.settle(go).unwrap();
    assert_eq!(get(&vault, "x").unwrap(), "value");
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !names.iter().any(|name| name == "vault.key"),
        "no file took its place"
    );
    // Locked under a running daemon: no key, and no question to a desktop that is not there.
    let service =
        secret_service::blocking::SecretService::connect(secret_service::EncryptionType::Plain)
            .unwrap();
    service.get_default_collection().unwrap().lock().unwrap();
    vault.lock();
    assert_eq!(refused(vault.unlock(store())).code(), "keystore_locked");
}

#[test]
fn a_bus_without_a_keyring_is_a_store_that_is_away() {
    asserted(&on_a_bus("true", "secret_service::child_without_a_keyring"));
    asserted(&on_a_bus(
        "unset DBUS_SESSION_BUS_ADDRESS",
        "secret_service::child_without_a_keyring",
    ));
}

#[test]
fn child_without_a_keyring() {
    if !is_child("secret_service::child_without_a_keyring") {
        return;
    }
    let folder = folder();
    let vault = locked(folder.path()).unwrap();
    let store = Arc::new(SecretServiceStore::new("x"));
    let code = refused(vault.create(Vault::new_id().unwrap(), store)).code();
    assert!(
        ["keystore_away", "keystore_slow", "keystore_locked"].contains(&code),
        "{code}"
    );
    assert!(!vault.exists());
}

#[test]
fn a_keyring_that_hangs_is_slow_and_not_waited_for_for_ever() {
    // Stopped, so that it never answers.
    let before = format!("{UNLOCKED}\nkill -STOP $(keyrings) || exit 8");
    asserted(&on_a_bus(
        &before,
        "secret_service::child_with_a_hanging_keyring",
    ));
}

#[test]
fn child_with_a_hanging_keyring() {
    if !is_child("secret_service::child_with_a_hanging_keyring") {
        return;
    }
    let folder = folder();
    let vault = locked(folder.path()).unwrap();
    let store = Arc::new(SecretServiceStore::new("x"));
    let code = refused(vault.create(Vault::new_id().unwrap(), store)).code();
    assert_eq!(code, "keystore_slow");
}
