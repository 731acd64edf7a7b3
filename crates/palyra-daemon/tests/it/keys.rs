//! The daemon's own keys: in the vault, moved there from the files of earlier versions, and what
//! happens when they are locked away, lost or somebody else's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use palyra_journal::{BlobKey, JournalKeys};
use palyra_testkit::{Daemon, eventually};
use palyra_vault::keystore::KeyFile;
use palyra_vault::{SqliteBlobs, Vault};

const WORDS: &str = "words-that-a-call-said";

fn status(daemon: &Daemon) -> serde_json::Value {
    let shown = daemon.palyra(&["vault", "status", "--json"]);
    shown.expect_code(0).json()
}

/// The keys of an earlier version, in their files; what signs, as text.
pub(crate) fn old_home(daemon: &Daemon) -> String {
    let keys = JournalKeys::generate().unwrap();
    let text = keys.sealing_with(BlobKey::from_bytes(&[3; 32])).to_text();
    let home = daemon.home();
    let own = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    own(&home.journal_key(), text.as_bytes());
    own(&home.blob_key(), &[3; 32]);
    own(&home.digest_key(), &[4; 32]);
    text
}

fn files(daemon: &Daemon) -> Vec<&'static str> {
    let all = ["journal.key", "blobs.key", "digest.key"];
    let there = |name: &&str| daemon.home_folder().join(name).exists();
    all.into_iter().filter(there).collect()
}

/// A call whose output is sealed; its id.
fn spoken(daemon: &Daemon) -> String {
    let _ = daemon.palyra(&["exec", "--", "echo", WORDS]).expect_code(0);
    let list = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
    list.json()["items"][0]["call_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn opens(daemon: &Daemon, call: &str) -> bool {
    let shown = daemon.palyra(&["calls", "show", call]).expect_code(0);
    shown.stdout.contains(WORDS)
}

/// One key from the beginning to here, and a journal that proves itself.
fn one_key(daemon: &Daemon) {
    let export = daemon.palyra(&["journal", "export"]).expect_code(0).stdout;
    assert!(!export.contains("key_rotated"), "one key signed everything");
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
}

/// What the vault of a daemon that is not running holds under this name.
pub(crate) fn held(daemon: &Daemon, name: &str) -> Option<Vec<u8>> {
    let folder = daemon.home_folder();
    let vault = Vault::open(Box::new(SqliteBlobs::open(&folder).unwrap())).unwrap();
    vault.unlock(Arc::new(KeyFile::new(&folder))).unwrap();
    vault.own(name).unwrap().map(|key| key.expose().to_vec())
}

#[test]
fn keys_move_into_the_vault_and_their_files_go_at_the_next_clean_start() {
    let mut daemon = Daemon::builder().prepare();
    let text = old_home(&daemon);
    daemon.start_again(None);
    let call = spoken(&daemon);
    assert_eq!(files(&daemon).len(), 3, "kept until a clean start");
    let said = status(&daemon)["journal_keys"].as_str().unwrap().to_owned();
    assert!(
        said.contains("also in") && said.contains("journal.key"),
        "{said}"
    );
    daemon.stop();
    assert_eq!(held(&daemon, "journal.signing"), Some(text.into_bytes()));
    assert_eq!(held(&daemon, "journal.blobs"), Some(vec![3; 32]));
    daemon.start_again(None);
    assert!(files(&daemon).is_empty(), "{:?}", files(&daemon));
    let shown = daemon.palyra(&["status"]).expect_code(0).stdout;
    assert!(shown.contains("sealed in the vault"), "{shown}");
    assert!(opens(&daemon, &call));
    one_key(&daemon);
    // A new home has no such files at all.
    let fresh = Daemon::start();
    let _ = spoken(&fresh);
    assert!(files(&fresh).is_empty());
}

/// Killed at some instant of its start, and again: the same keys, and the journal goes on.
#[test]
fn a_daemon_killed_while_it_moves_its_keys_has_each_of_them_once() {
    let mut daemon = Daemon::builder().prepare();
    let text = old_home(&daemon);
    for round in 0..10_u64 {
        let mut starting = daemon.program("palyrad");
        let starting = starting.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = starting.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 15));
        let _ = child.kill();
        let _ = child.wait();
    }
    daemon.start_again(None);
    let call = spoken(&daemon);
    one_key(&daemon);
    daemon.stop();
    daemon.start_again(None);
    assert!(opens(&daemon, &call) && files(&daemon).is_empty());
    daemon.stop();
    assert_eq!(held(&daemon, "journal.signing"), Some(text.into_bytes()));
    // Overwritten, and not removed any more.
    std::fs::write(daemon.home().blob_key(), [0; 32]).unwrap();
    daemon.start_again(None);
    assert!(opens(&daemon, &call) && files(&daemon).is_empty());
    one_key(&daemon);
    // Another key in such a file is nobody's: it is left alone, and changes nothing.
    daemon.stop();
    std::fs::write(daemon.home().blob_key(), [9; 32]).unwrap();
    daemon.start_again(None);
    assert!(opens(&daemon, &call));
    assert_eq!(files(&daemon), ["blobs.key"]);
}

#[test]
fn a_locked_daemon_reads_and_does_nothing_else_until_it_is_unlocked() {
    let config = "[vault]\nkeystore = \"passphrase\"\n";
    let mut daemon = Daemon::builder().config(config).start();
    let unlock = |daemon: &Daemon| {
        let _ = daemon
            .palyra_with_input(&["vault", "unlock"], "correct horse")
            .expect_code(0);
    };
    unlock(&daemon);
    let call = spoken(&daemon);
    let mut running = daemon.palyra_in_background(&["exec", "--", "sleep", "60"]);
    let cut = eventually("a call runs", || {
        let list = daemon
            .palyra(&["calls", "list", "--json"])
            .expect_code(0)
            .json();
        let newest = list["items"][0]["call_id"].as_str().unwrap().to_owned();
        (newest != call && list["items"][0]["state"] == "admitted").then_some(newest)
    });
    daemon.kill();
    let _ = running.wait();
    let _ = std::fs::create_dir(daemon.home().policies());
    daemon.start_again(None);
    let head = |daemon: &Daemon| {
        let said = daemon.palyra(&["status", "--json"]).expect_code(0).json();
        said["journal_head"].as_u64().unwrap()
    };
    let before = head(&daemon);
    // What is public is read.
    for arguments in [
        &["status"][..],
        &["vault", "list"],
        &["calls", "list"],
        &["journal", "tail"],
        &["journal", "checkpoint"],
        &["journal", "verify"],
    ] {
        let _ = daemon.palyra(arguments).expect_code(0);
    }
    let shown = daemon
        .palyra(&["calls", "show", &call])
        .expect_code(0)
        .stdout;
    assert!(
        !shown.contains(WORDS) && shown.contains("vault is locked"),
        "{shown}"
    );
    // Nothing is written, and nothing runs.
    for arguments in [
        &["agents", "add", "x"][..],
        &["exec", "--json", "--", "true"],
        &["vault", "get", "token", "--yes"],
    ] {
        let refused = daemon.palyra(arguments);
        assert_ne!(refused.code, Some(0), "{arguments:?}");
        let said = refused.stdout + &refused.stderr;
        assert!(
            said.contains("palyra vault unlock"),
            "{arguments:?}: {said}"
        );
    }
    assert_eq!(head(&daemon), before, "nothing was appended");
    unlock(&daemon);
    let shown = daemon
        .palyra(&["calls", "show", &cut])
        .expect_code(0)
        .stdout;
    assert!(shown.contains("interrupted"), "{shown}");
    let tail = daemon
        .palyra(&["journal", "tail", "-n", "20"])
        .expect_code(0)
        .stdout;
    assert!(tail.contains("daemon_started"), "{tail}");
    assert!(opens(&daemon, &call));
    // The twin: what runs is ended and recorded, and then nothing more is.
    let mut running = daemon.palyra_in_background(&["exec", "--", "sleep", "60"]);
    let live = eventually("a call runs", || {
        let list = daemon
            .palyra(&["calls", "list", "--json"])
            .expect_code(0)
            .json();
        let newest = &list["items"][0];
        (newest["state"] == "admitted").then(|| newest["call_id"].as_str().unwrap().to_owned())
    });
    let _ = daemon.palyra(&["vault", "lock"]).expect_code(0);
    let _ = running.wait();
    let before = head(&daemon);
    let shown = daemon
        .palyra(&["calls", "show", &live])
        .expect_code(0)
        .stdout;
    assert!(shown.contains("cancelled"), "{shown}");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(120);
    assert_eq!(head(&daemon), before);
    unlock(&daemon);
    let _ = spoken(&daemon);
    one_key(&daemon);
}

#[test]
fn a_lost_a_foreign_and_a_damaged_key_are_told_apart() {
    let mut daemon = Daemon::start();
    let call = spoken(&daemon);
    daemon.stop();
    let away = daemon.folder().join("away");
    std::fs::create_dir(&away).unwrap();
    let vault = ["vault.db", "vault.key"];
    let move_all = |from: &Path, to: &Path| {
        for name in vault {
            std::fs::rename(from.join(name), to.join(name)).unwrap();
        }
    };
    let home = daemon.home_folder();
    move_all(&home, &away);
    let locked = |daemon: &Daemon| {
        status(daemon)["locked"]["code"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    daemon.start_again(None);
    assert_eq!(locked(&daemon), "vault_gone");
    let lost = daemon.palyra(&["vault", "unlock", "--accept-rollback", "--json"]);
    assert_eq!(lost.error_code(), "journal_key_lost", "{lost:?}");
    assert_eq!(locked(&daemon), "journal_key_lost");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(120);
    let _ = daemon.palyra(&["journal", "tail"]).expect_code(0);
    daemon.stop();
    // Somebody else's vault.
    let mut other = Daemon::start();
    let _ = spoken(&other);
    other.stop();
    for name in vault {
        std::fs::copy(other.home_folder().join(name), home.join(name)).unwrap();
    }
    daemon.start_again(None);
    let foreign = daemon.palyra(&["vault", "unlock", "--accept-rollback", "--json"]);
    assert_eq!(foreign.error_code(), "journal_key_foreign", "{foreign:?}");
    daemon.stop();
    // Its own vault, with the journal's key edited.
    move_all(&away, &home);
    let whole = std::fs::read(home.join("vault.db")).unwrap();
    let editor = rusqlite::Connection::open(home.join("vault.db")).unwrap();
    editor
        .execute("UPDATE own SET value = zeroblob(length(value))", [])
        .unwrap();
    drop(editor);
    daemon.start_again(None);
    assert_eq!(locked(&daemon), "vault_damaged");
    daemon.stop();
    for left in ["vault.db-wal", "vault.db-shm"] {
        let _ = std::fs::remove_file(home.join(left));
    }
    std::fs::write(home.join("vault.db"), whole).unwrap();
    daemon.start_again(None);
    assert!(opens(&daemon, &call), "the control: its own opens");
    one_key(&daemon);
    daemon.stop();
    // For good: a person goes on without them, and everybody can see it.
    move_all(&home, &away);
    daemon.start_again(None);
    let anew = ["vault", "unlock", "--accept-rollback", "--new-journal-keys"];
    let _ = daemon.palyra(&anew).expect_code(0);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    assert!(
        !opens(&daemon, &call),
        "what the lost key sealed stays sealed"
    );
    let verified = daemon.palyra(&["journal", "verify"]).expect_code(7);
    assert!(verified.stderr.contains("NOBODY vouches"), "{verified:?}");
}

#[test]
fn a_key_file_that_holds_no_key_keeps_the_daemon_locked() {
    let mut daemon = Daemon::builder().prepare();
    let text = old_home(&daemon);
    std::fs::write(
        daemon.home().journal_key(),
        text.replace("PRIVATE", "PUBLIC"),
    )
    .unwrap();
    daemon.start_again(None);
    assert_eq!(status(&daemon)["locked"]["code"], "journal_key_damaged");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(120);
    std::fs::write(daemon.home().journal_key(), text).unwrap();
    let _ = daemon.palyra(&["vault", "unlock"]).expect_code(0);
    let _ = spoken(&daemon);
}

/// A backup of the journal and an export of the vault are enough for another machine.
#[test]
fn a_journal_comes_back_in_another_home_with_an_export_of_the_vault() {
    let daemon = Daemon::start();
    let call = spoken(&daemon);
    let _ = daemon
        .palyra_with_input(&["vault", "put", "token"], "a secret value")
        .expect_code(0);
    let folder = daemon.folder().to_owned();
    let (backup, export) = (folder.join("j.db"), folder.join("v.age"));
    let (backup, export) = (backup.to_str().unwrap(), export.to_str().unwrap());
    let made = daemon.palyra(&["journal", "backup", backup, "--json"]);
    let key = made.expect_code(0).json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let exporting = ["vault", "export", export, "--yes"];
    let _ = daemon
        .palyra_with_input(&exporting, "pass phrase")
        .expect_code(0);

    let mut other = Daemon::builder().prepare();
    let restored = other.palyra(&["journal", "restore", backup, "--key", &key]);
    let _ = restored.expect_code(0);
    other.start_again(None);
    assert_eq!(status(&other)["locked"]["code"], "vault_gone");
    let lost = other.palyra(&["vault", "unlock", "--accept-rollback", "--json"]);
    assert_eq!(lost.error_code(), "journal_key_lost", "{lost:?}");
    // The keys of another journal are not taken.
    let stranger = Daemon::start();
    let foreign = folder.join("foreign.age");
    let foreign = foreign.to_str().unwrap();
    let exporting = ["vault", "export", foreign, "--yes"];
    let _ = stranger
        .palyra_with_input(&exporting, "pass phrase")
        .expect_code(0);
    let refused = other.palyra_with_input(&["vault", "import", foreign, "--json"], "pass phrase");
    assert_eq!(refused.error_code(), "not_the_journals_keys", "{refused:?}");
    let _ = other
        .palyra_with_input(&["vault", "import", export], "pass phrase")
        .expect_code(0);
    assert_eq!(status(&other)["state"], "open");
    assert!(opens(&other, &call));
    let shown = other
        .palyra(&["vault", "get", "token", "--yes"])
        .expect_code(0);
    assert_eq!(shown.stdout, "a secret value");
    one_key(&other);
    other.stop();
    other.start_again(None);
    let _ = spoken(&other);
    one_key(&other);
}

/// The key-encryption key changes, and the journal's keys are found under the new one.
#[test]
fn a_change_of_the_key_covers_the_journals_keys() {
    let mut daemon = Daemon::start();
    let call = spoken(&daemon);
    let _ = daemon.palyra(&["vault", "rotate-key"]).expect_code(0);
    assert!(opens(&daemon, &call));
    for _ in 0..2 {
        daemon.kill();
        daemon.start_again(None);
        assert!(opens(&daemon, &call));
        let _ = spoken(&daemon);
    }
    one_key(&daemon);
    daemon.stop();
    let keys = std::fs::read_to_string(daemon.home_folder().join("vault.key")).unwrap();
    assert_eq!(keys.lines().count(), 1, "the old one is forgotten");
}
