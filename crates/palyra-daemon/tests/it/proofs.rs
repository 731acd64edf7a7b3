//! What the journal proves, through the command line: verified without a daemon, and witnessed.

use std::path::{Path, PathBuf};

use palyra_testkit::{Daemon, Ran};

/// A daemon that did something.
fn used() -> Daemon {
    let daemon = Daemon::start();
    for _ in 0..2 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    daemon
}

/// `palyra` of somebody who saw nothing yet, such as on another machine.
fn elsewhere(daemon: &Daemon, name: &str, arguments: &[&str]) -> Ran {
    let mut palyra = daemon.program("palyra");
    palyra.env("XDG_STATE_HOME", daemon.folder().join(name));
    palyra.args(arguments).output().unwrap().into()
}

fn saved(daemon: &Daemon, name: &str, arguments: &[&str]) -> PathBuf {
    let ran = daemon.palyra(arguments).expect_code(0);
    let file = daemon.folder().join(name);
    std::fs::write(&file, ran.stdout).unwrap();
    file
}

fn copy_home(daemon: &Daemon, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(daemon.home_folder()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn restore_home(daemon: &Daemon, from: &Path) {
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = std::fs::remove_file(daemon.home_folder().join(name));
    }
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = daemon.home_folder().join(entry.file_name());
        std::fs::copy(entry.path(), to).unwrap();
    }
}

#[test]
fn an_export_is_verified_on_another_machine() {
    let mut daemon = used();
    let export = saved(&daemon, "export.ndjson", &["journal", "export"]);
    let checkpoint = saved(&daemon, "checkpoint", &["journal", "checkpoint"]);
    let key = daemon
        .palyra(&["journal", "checkpoint", "--json"])
        .expect_code(0)
        .json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    // Neither a daemon nor its home is needed.
    daemon.stop();
    let (export, checkpoint) = (export.to_str().unwrap(), checkpoint.to_str().unwrap());
    let verify = |more: &[&str]| {
        let arguments = [&["journal", "verify", export], more].concat();
        elsewhere(&daemon, "another", &arguments)
    };
    let unknown = verify(&[]).expect_code(7);
    assert!(unknown.stdout.contains("signer is unknown"), "{unknown:?}");
    assert!(
        unknown.stdout.contains("completeness  unknown"),
        "{unknown:?}"
    );
    let _ = verify(&["--key", &key]).expect_code(0);
    let known = verify(&["--against", checkpoint, "--json"]).expect_code(0);
    assert_eq!(known.json()["verdict"], "verified");
    assert_eq!(known.json()["report"]["completeness"], "complete");
    let text = std::fs::read_to_string(export).unwrap();
    let lie = text.replacen("\"permit\"", "\"pemrit\"", 1);
    assert_ne!(lie, text);
    std::fs::write(export, lie).unwrap();
    let lied = verify(&["--key", &key]).expect_code(8);
    assert!(lied.stdout.contains("entry "), "{lied:?}");
    assert!(lied.stdout.contains("was changed"), "{lied:?}");
    let nothing = verify(&["--against", export]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
}

#[test]
fn a_home_is_verified_while_the_daemon_runs_and_after() {
    let mut daemon = used();
    let first = daemon.palyra(&["journal", "verify"]).expect_code(7);
    assert!(first.stderr.contains("first sight"), "{first:?}");
    let again = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(again.stdout.contains("nothing is missing"), "{again:?}");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
    daemon.stop();
    let home = daemon.home_folder();
    let by_folder = daemon.palyra(&["journal", "verify", home.to_str().unwrap()]);
    let _ = by_folder.expect_code(0);
}

/// The daemon's home is put back to an earlier state, with its own right checkpoints.
#[test]
fn a_home_that_was_put_back_is_found_by_whoever_saw_more() {
    let mut daemon = used();
    daemon.stop();
    let old = daemon.folder().join("old");
    copy_home(&daemon, &old);
    daemon.start_again(None);
    for _ in 0..3 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    restore_home(&daemon, &old);
    let cut = daemon.palyra(&["journal", "verify"]).expect_code(8);
    assert!(cut.stdout.contains("CUT"), "{cut:?}");
    daemon.start_again(None);
    let cut = daemon.palyra(&["journal", "checkpoint"]).expect_code(8);
    assert!(cut.stderr.contains("was cut"), "{cut:?}");
    // It grows past where it was: now it is another history.
    for _ in 0..6 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    let forked = daemon.palyra(&["journal", "export"]).expect_code(8);
    assert!(forked.stderr.contains("they part somewhere"), "{forked:?}");
    assert_eq!(forked.stdout, "");
    let forked = daemon.palyra(&["journal", "verify"]).expect_code(8);
    assert!(forked.stdout.contains("FORKED"), "{forked:?}");
    // Who saw nothing has nothing to compare with.
    let _ = elsewhere(&daemon, "another", &["journal", "checkpoint"]).expect_code(0);
}

/// Two people who are shown two histories: whoever saw the one refuses the other.
#[test]
fn two_who_were_shown_different_histories_refuse_the_others() {
    let mut daemon = used();
    daemon.stop();
    let fork = daemon.folder().join("fork");
    copy_home(&daemon, &fork);
    let mut ways = Vec::new();
    for who in ["ada", "bob"] {
        restore_home(&daemon, &fork);
        daemon.start_again(None);
        for _ in 0..3 {
            let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
        }
        let _ = elsewhere(&daemon, who, &["journal", "checkpoint"]).expect_code(0);
        daemon.stop();
        let way = daemon.folder().join(format!("way of {who}"));
        copy_home(&daemon, &way);
        ways.push((who, way));
    }
    for (who, way) in &ways {
        let home = way.to_str().unwrap();
        for (other, _) in &ways {
            let expected = if other == who { 0 } else { 8 };
            let verify = ["journal", "verify", home];
            let _ = elsewhere(&daemon, other, &verify).expect_code(expected);
        }
    }
}

#[test]
fn a_journal_begun_anew_and_a_new_key_do_not_go_unnoticed() {
    let mut daemon = used();
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    for name in ["vault.db", "vault.key"] {
        std::fs::remove_file(daemon.home_folder().join(name)).unwrap();
    }
    daemon.start_again(None);
    let anew = ["vault", "unlock", "--accept-rollback", "--new-journal-keys"];
    let _ = daemon.palyra(&anew).expect_code(0);
    let warned = daemon.palyra(&["journal", "verify"]).expect_code(7);
    assert!(warned.stderr.contains("NOBODY vouches"), "{warned:?}");
    // Having looked at it is no reason to believe it.
    let warned = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    assert!(warned.stderr.contains("new key"), "{warned:?}");
    let again = daemon.palyra(&["journal", "verify"]).expect_code(7);
    assert!(again.stderr.contains("NOBODY vouches"), "{again:?}");
    let warned = elsewhere(&daemon, "another", &["journal", "checkpoint"]).expect_code(0);
    assert!(!warned.stderr.contains("warning"), "{warned:?}");
    daemon.stop();
    for name in [
        "journal.db",
        "journal.db-wal",
        "journal.db-shm",
        "vault.db",
        "vault.key",
    ] {
        let _ = std::fs::remove_file(daemon.home_folder().join(name));
    }
    daemon.start_again(None);
    for _ in 0..4 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    for arguments in [["journal", "checkpoint"], ["journal", "verify"]] {
        let refused = daemon.palyra(&arguments).expect_code(8);
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("another"), "{refused:?}");
    }
}

/// What is done with a copy says nothing about the original.
#[test]
fn a_copied_home_leaves_what_is_known_of_the_original_alone() {
    let mut daemon = used();
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    let copy = daemon.folder().join("copy");
    copy_home(&daemon, &copy);
    let in_copy = |arguments: &[&str]| -> Ran {
        let mut palyra = daemon.program("palyra");
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&copy, own).unwrap();
        palyra.env("PALYRA_HOME", &copy).args(arguments);
        palyra.output().unwrap().into()
    };
    let mut palyrad = daemon.program("palyrad");
    palyrad
        .env("PALYRA_HOME", &copy)
        .args(["--idle-exit", "1s"]);
    let _ = Ran::from(palyrad.output().unwrap()).expect_code(0);
    let verified = in_copy(&["journal", "verify"]).expect_code(0);
    assert!(verified.stdout.contains("intact"), "control: {verified:?}");
    let original = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(
        original.stdout.contains("nothing is missing"),
        "{original:?}"
    );
}

/// `palyra` and `palyrad` on another home of the same person.
fn in_home(daemon: &Daemon, home: &Path, arguments: &[&str]) -> Ran {
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(home, own).unwrap();
    let mut palyrad = daemon.program("palyrad");
    palyrad.env("PALYRA_HOME", home).args(["--idle-exit", "1s"]);
    let mut runs = palyrad.spawn().unwrap();
    palyra_testkit::eventually("it listens", || {
        let socket = palyra_api::Home::in_folder(home).socket();
        std::os::unix::net::UnixStream::connect(socket).ok()
    });
    let mut palyra = daemon.program("palyra");
    palyra.env("PALYRA_HOME", home).args(arguments);
    let ran = palyra.output().unwrap().into();
    assert!(runs.wait().unwrap().success());
    ran
}

/// A link is put in the place of the home, to a journal that somebody else made: another real path,
/// and the same that people ask for.
#[test]
fn a_home_that_became_a_link_is_compared_with_what_was_seen_there() {
    let mut daemon = used();
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    let forged = Daemon::start();
    for _ in 0..6 {
        let _ = forged.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    let aside = daemon.folder().join("aside");
    let home = daemon.home_folder();
    std::fs::rename(&home, &aside).unwrap();
    let mut forged = forged;
    forged.stop();
    let theirs = daemon.folder().join("theirs");
    copy_home(&forged, &theirs);
    for (target, expected) in [(&theirs, 8), (&aside, 0)] {
        std::os::unix::fs::symlink(target, &home).unwrap();
        let ran = in_home(&daemon, &home, &["journal", "checkpoint"]);
        assert_eq!(ran.code, Some(expected), "{}: {ran:?}", target.display());
        let ran = daemon.palyra(&["journal", "verify"]);
        assert_eq!(ran.code, Some(expected), "{}: {ran:?}", target.display());
        std::fs::remove_file(&home).unwrap();
    }
}

/// An older state of a journal is put where nobody looked yet: its name tells which it is.
#[test]
fn a_journal_under_another_path_continues_what_was_seen_of_it() {
    let mut daemon = used();
    daemon.stop();
    let [older, same] = ["older", "same"].map(|name| daemon.folder().join(name));
    copy_home(&daemon, &older);
    daemon.start_again(None);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    copy_home(&daemon, &same);
    let cut = in_home(&daemon, &older, &["journal", "checkpoint"]).expect_code(8);
    assert!(cut.stderr.contains("was cut"), "{cut:?}");
    // What continues it is remembered there, and the copies then go their own ways.
    let _ = in_home(&daemon, &same, &["journal", "checkpoint"]).expect_code(0);
    let _ = in_home(&daemon, &same, &["exec", "--", "true"]).expect_code(0);
    let _ = in_home(&daemon, &same, &["journal", "checkpoint"]).expect_code(0);
    daemon.start_again(None);
    for _ in 0..2 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
        let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    }
    let _ = in_home(&daemon, &same, &["journal", "checkpoint"]).expect_code(0);
}

/// Whatever a path leads to, it is neither waited for nor read until the memory is full.
#[test]
fn a_file_that_never_ends_or_never_begins_is_refused() {
    let daemon = used();
    let call = daemon
        .palyra(&["calls", "list", "--json"])
        .expect_code(0)
        .json()["items"][0]["call_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let attested = saved(&daemon, "attested.json", &["attest", "export", &call]);
    let attested = attested.to_str().unwrap();
    let pipe = daemon.folder().join("pipe");
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU);
    made.unwrap();
    for odd in ["/dev/zero", pipe.to_str().unwrap()] {
        for arguments in [
            &["attest", "verify", odd][..],
            &["attest", "verify", attested, "--key", odd],
            &["journal", "verify", odd],
            &["journal", "verify", "--key", odd],
            &["journal", "verify", "--against", odd],
            &["journal", "verify", "--blob-key", odd],
        ] {
            // Should it go on reading, it ends by this.
            let limit = "ulimit -v 4000000; exec timeout 20 \"$0\" \"$@\"";
            let mut palyra = daemon.program("/bin/sh");
            palyra.args(["-c", limit]).arg(daemon.bins().join("palyra"));
            let ran: Ran = palyra.args(arguments).output().unwrap().into();
            assert_eq!(ran.code, Some(1), "{arguments:?}: {ran:?}");
            assert!(
                ran.stderr.contains("not a regular file"),
                "{arguments:?}: {ran:?}"
            );
        }
    }
    // A key that lies beside a journal is only a help: the log is judged without it.
    let hostile = daemon.folder().join("hostile");
    copy_home(&daemon, &hostile);
    std::os::unix::fs::symlink("/dev/zero", hostile.join("blobs.key")).unwrap();
    let judged = daemon.palyra(&["journal", "verify", hostile.to_str().unwrap()]);
    assert!(judged.stdout.contains("not looked into"), "{judged:?}");
}

/// What was seen is kept where no call can change it.
#[test]
fn a_call_sees_nothing_of_what_was_seen() {
    let daemon = used();
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    let folder = daemon.state_folder().join("palyra-witness");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "control");
    let path = folder.to_str().unwrap();
    for attempt in [
        format!("ls {path}/*.json"),
        format!("echo x > {path}/new"),
        format!("rm -r {path}"),
    ] {
        let ran = daemon.palyra(&["exec", "--", "sh", "-c", &attempt]);
        assert_ne!(ran.code, Some(0), "{attempt}: {ran:?}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn an_agent_neither_exports_nor_asks_for_the_head() {
    let daemon = used();
    daemon.add_agent("helper");
    for action in ["export", "checkpoint"] {
        let ran = daemon.palyra(&["journal", action, "--as", "agent:helper"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
    let beyond = daemon.palyra(&["journal", "export", "--after", "100000"]);
    assert!(beyond.stderr.contains("no entry 100000"), "{beyond:?}");
}

#[test]
fn one_call_is_attested_in_one_file() {
    let mut daemon = Daemon::start();
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let list = daemon.palyra(&["calls", "list", "--json"]).json();
    let call = list["items"][0]["call_id"].as_str().unwrap().to_owned();
    let shown = daemon.palyra(&["attest", "show", &call]).expect_code(0);
    assert!(shown.stdout.contains("landlock"), "{shown:?}");
    assert!(shown.stdout.contains("permit by"), "{shown:?}");
    let file = daemon.folder().join("attestation.json");
    let path = file.to_str().unwrap();
    let _ = daemon
        .palyra(&["attest", "export", &call, path])
        .expect_code(0);
    let head = daemon.palyra(&["journal", "checkpoint", "--json"]);
    let key = head.expect_code(0).json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    daemon.stop();
    let verify = |more: &[&str]| {
        let arguments = [&["attest", "verify", path], more].concat();
        elsewhere(&daemon, "another", &arguments)
    };
    let unknown = verify(&["--json"]).expect_code(7);
    assert_eq!(unknown.json()["verdict"], "signer_unknown");
    let known = verify(&["--key", &key, "--json"]).expect_code(0);
    let predicate = &known.json()["statement"]["predicate"];
    assert_eq!(predicate["call_id"], call.as_str());
    assert_eq!(predicate["execution"]["sandbox_enforcement"], "tier_c");
    // Whoever saw the journal knows the key.
    let _ = daemon.palyra(&["attest", "verify", path]).expect_code(0);
    let other_key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    let _ = verify(&["--key", other_key]).expect_code(8);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replacen("palyra.process.run", "palyra.process.ran", 1),
    )
    .unwrap();
    let lied = verify(&["--key", &key]).expect_code(8);
    assert!(lied.stderr.contains("does not hold"), "{lied:?}");
    assert_eq!(lied.stdout, "", "what does not hold is not shown");
}

#[test]
fn what_did_not_run_is_not_attested_and_others_calls_are_not_there() {
    let daemon = used();
    daemon.add_agent("helper");
    let list = daemon.palyra(&["calls", "list", "--json"]).json();
    let call = list["items"][0]["call_id"].as_str().unwrap().to_owned();
    let ran = daemon.palyra(&["attest", "show", &call, "--as", "agent:helper"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("no call"), "{ran:?}");
    let ran = daemon.palyra(&["exec", "--", "/nowhere/at-all"]);
    assert_eq!(ran.code, Some(127), "{ran:?}");
}

#[test]
fn a_new_key_that_the_old_one_vouches_for_is_believed_by_whoever_saw_the_old() {
    let mut daemon = used();
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    let old = crate::keys::held(&daemon, "journal.signing").unwrap();
    let mut rotating = daemon.program("palyrad");
    rotating.args(["--rotate-journal-key", "--idle-exit", "1s"]);
    let _ = Ran::from(rotating.output().unwrap()).expect_code(0);
    let new = crate::keys::held(&daemon, "journal.signing").unwrap();
    assert_ne!(new, old);
    let lines = new.split(|byte| *byte == b'\n').count();
    assert_eq!(lines, 2, "the old one is forgotten");
    let verified = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(verified.stderr.contains("warning"), "{verified:?}");
    assert!(
        verified.stderr.contains("the key before it vouches"),
        "{verified:?}"
    );
    // Told once.
    let again = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(!again.stderr.contains("warning"), "{again:?}");
}
