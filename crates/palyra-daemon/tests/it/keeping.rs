//! What a person does to the journal: contents are sealed and erased, lists are made anew, copies are
//! taken and put back, and entries are found.

use std::path::{Path, PathBuf};

use palyra_testkit::{Daemon, Ran};
use serde_json::Value;

/// Nothing else in a home looks like this.
const SECRET: &str = "xyzzy-plugh-1749";

fn newest_call(daemon: &Daemon) -> String {
    let list = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
    list.json()["items"][0]["call_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Runs something with the secret among its arguments, its environment and its output.
fn spill(daemon: &Daemon) -> String {
    let variable = format!("TOKEN={SECRET}");
    let script = format!("echo {SECRET}; echo $TOKEN");
    let ran = daemon.palyra(&["exec", "--env", &variable, "--", "sh", "-c", &script]);
    assert!(ran.expect_code(0).stdout.contains(SECRET), "control");
    newest_call(daemon)
}

/// The files under a folder that hold these bytes.
fn holding(folder: &Path, what: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, what));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(what.len()).any(|window| window == what)
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_file_of_the_home_holds_an_argument_a_variable_or_an_output() {
    let mut daemon = Daemon::start();
    let call = spill(&daemon);
    let shown = daemon.palyra(&["calls", "show", &call]).expect_code(0);
    assert!(shown.stdout.contains(SECRET), "control: it is kept");
    let home = daemon.home_folder();
    assert!(!holding(&home, call.as_bytes()).is_empty(), "control");
    assert_eq!(holding(&home, SECRET.as_bytes()), Vec::<PathBuf>::new());
    daemon.stop();
    assert!(!holding(&home, call.as_bytes()).is_empty(), "control");
    assert_eq!(holding(&home, SECRET.as_bytes()), Vec::<PathBuf>::new());
    // Nor does what is handed on.
    daemon.start_again(None);
    let export = daemon.palyra(&["journal", "export"]).expect_code(0);
    let attestation = daemon.palyra(&["attest", "export", &call]).expect_code(0);
    for handed_on in [export.stdout, attestation.stdout] {
        assert!(handed_on.contains(&call), "control");
        assert!(!handed_on.contains(SECRET));
    }
}

/// A secret got into the journal by accident. It is redacted, and every proof still holds: also
/// those that were handed out before.
#[test]
fn a_secret_is_erased_and_every_proof_still_holds() {
    let mut daemon = Daemon::start();
    let call = spill(&daemon);
    let before = daemon.folder().join("before.json");
    let path = before.to_str().unwrap();
    let _ = daemon
        .palyra(&["attest", "export", &call, path])
        .expect_code(0);
    let head = daemon
        .palyra(&["journal", "checkpoint", "--json"])
        .expect_code(0)
        .json();
    let key = head["key"].as_str().unwrap().to_owned();

    // Only the output first.
    let erased = daemon
        .palyra(&["journal", "erase", &call, "--what", "output", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(erased["erased"][0]["kind"], "output");
    assert_eq!(erased["log_cleared"], true);
    let shown = daemon
        .palyra(&["calls", "show", &call])
        .expect_code(0)
        .stdout;
    assert!(shown.contains("output     erased"), "{shown}");
    assert!(
        shown.contains(SECRET),
        "the arguments are still there: {shown}"
    );
    let rest = daemon.palyra(&["journal", "erase", &call, "--reason", "a password"]);
    let rest = rest.expect_code(0);
    assert!(rest.stdout.contains("arguments (sha256:"), "{rest:?}");
    assert!(rest.stdout.contains("facts (sha256:"), "{rest:?}");
    let nothing = daemon.palyra(&["journal", "erase", &call]).expect_code(0);
    assert!(nothing.stderr.contains("nothing left"), "{nothing:?}");

    let shown = daemon
        .palyra(&["calls", "show", &call])
        .expect_code(0)
        .stdout;
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains("arguments  erased"), "{shown}");
    assert!(shown.contains("blob_erased"), "{shown}");
    let tail = daemon.palyra(&["journal", "tail"]).expect_code(0).stdout;
    assert!(tail.contains("erased by owner: a password"), "{tail}");
    // What was handed out before, and what is handed out now.
    let attested = daemon.palyra(&["attest", "show", &call]).expect_code(0);
    assert!(attested.stdout.contains("a password"), "{attested:?}");
    let after = daemon.folder().join("after.json");
    let after = after.to_str().unwrap();
    let _ = daemon
        .palyra(&["attest", "export", &call, after])
        .expect_code(0);
    for file in [path, after] {
        let _ = daemon
            .palyra(&["attest", "verify", file, "--key", &key])
            .expect_code(0);
    }
    // Asking policies about it says why it cannot be told.
    let explained = daemon.palyra(&["policy", "explain", &call]);
    assert_eq!(explained.code, Some(1), "{explained:?}");
    assert!(explained.stderr.contains("no longer kept"), "{explained:?}");
    let draft = daemon.folder().join("draft");
    std::fs::create_dir(&draft).unwrap();
    let replayed = daemon.palyra(&["policy", "replay", draft.to_str().unwrap()]);
    assert!(replayed.expect_code(0).stdout.contains("erased"));
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
    daemon.stop();
    let verified = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(
        verified.stdout.contains("3 erased, as entries say"),
        "{verified:?}"
    );
}

#[test]
fn only_a_person_erases_and_only_what_is_over() {
    let daemon = Daemon::start();
    let call = spill(&daemon);
    daemon.add_agent("helper");
    for arguments in [
        &["journal", "erase", &call][..],
        &["journal", "rebuild"],
        &["journal", "backup", daemon.folder().to_str().unwrap()],
    ] {
        let refused = daemon.palyra(&[arguments, &["--as", "agent:helper"]].concat());
        assert_eq!(refused.code, Some(3), "{refused:?}");
    }
    let unknown = daemon.palyra(&["journal", "erase", "call_00000000000000000000000000"]);
    assert!(unknown.stderr.contains("no call"), "{unknown:?}");
    let mut child = daemon.palyra_in_background(&["exec", "--", "sleep", "30"]);
    let running = palyra_testkit::eventually("it runs", || {
        let list = daemon
            .palyra(&["calls", "list", "--state", "admitted", "--json"])
            .json();
        list["items"][0]["call_id"].as_str().map(str::to_owned)
    });
    let refused = daemon.palyra(&["journal", "erase", &running]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("is not over"), "{refused:?}");
    let _ = child.kill();
    let _ = child.wait();
    let shown = daemon.palyra(&["calls", "show", &call]).expect_code(0);
    assert!(shown.stdout.contains(SECRET), "nothing was erased");
}

/// Equal calls have equal digests, under a key that never leaves the home. What is handed on must
/// not tell that they are equal.
#[test]
fn the_digest_that_tells_equal_calls_stays_at_home() {
    let daemon = Daemon::start();
    let facts = |daemon: &Daemon| {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
        let call = newest_call(daemon);
        let shown = daemon.palyra(&["calls", "show", &call, "--json"]);
        let digest = shown.expect_code(0).json()["facts"]["digest"].clone();
        (call, digest.as_str().unwrap().to_owned())
    };
    let ((call, digest), (equal, same)) = (facts(&daemon), facts(&daemon));
    assert_eq!(digest, same, "control: the two are equal");
    // Keyed: elsewhere, the same call has another one.
    let other = Daemon::start();
    assert_ne!(facts(&other).1, digest);
    let export = daemon.palyra(&["journal", "export"]).expect_code(0).stdout;
    let attestation = daemon.palyra(&["attest", "export", &call]).expect_code(0);
    for handed_on in [&export, &attestation.stdout] {
        assert!(handed_on.contains(&call), "control");
        assert!(!handed_on.contains(&digest));
    }
    // What stands there instead is each call's own.
    let mut recorded: Vec<(String, String)> = export
        .lines()
        .filter_map(|line| {
            let entry: Value = serde_json::from_str(line).ok()?;
            let digest = entry["body"]["digest"].as_str()?.to_owned();
            let stream = entry["stream"].as_str()?.to_owned();
            stream.starts_with("call_").then_some((stream, digest))
        })
        .collect();
    recorded.sort();
    recorded.dedup();
    let digests: std::collections::BTreeSet<&String> =
        recorded.iter().map(|(_, digest)| digest).collect();
    assert_eq!((recorded.len(), digests.len()), (2, 2), "{recorded:?}");
    // Nor does anything else that stands for contents: plans, arguments, output.
    let hashes = |call: &str| -> std::collections::BTreeSet<&str> {
        let lines = export.lines().filter(|line| line.contains(call));
        let words = lines.flat_map(|line| line.split('"'));
        words.filter(|word| word.starts_with("sha256:")).collect()
    };
    let (these, those) = (hashes(&call), hashes(&equal));
    assert!(these.len() >= 4, "control: {these:?}");
    let both: Vec<_> = these.intersection(&those).collect();
    assert!(both.is_empty(), "{both:?}");
}

fn shell(daemon: &Daemon) -> rusqlite::Connection {
    rusqlite::Connection::open(daemon.home().journal()).unwrap()
}

/// Every list of the daemon, as its users see it.
fn lists(daemon: &Daemon) -> Vec<Value> {
    let commands: [&[&str]; 4] = [
        &["calls", "list", "--json"],
        &["approvals", "list", "--all", "--json"],
        &["agents", "list", "--json"],
        &["policy", "versions", "--json"],
    ];
    let list = |command: &&[&str]| daemon.palyra(command).expect_code(0).json();
    commands.iter().map(list).collect()
}

#[test]
fn lists_made_anew_are_what_they_were_and_what_was_changed_is_mended() {
    let mut daemon = Daemon::start();
    daemon.add_agent("helper");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let mut asking = daemon.palyra_in_background(&["exec", "--as", "agent:helper", "--", "id"]);
    let approval = daemon.pending_approval();
    let decide = ["approvals", "decide", &approval, "--decision", "deny"];
    let _ = daemon.palyra(&decide).expect_code(0);
    let _ = asking.wait();
    std::fs::create_dir_all(daemon.home().policies()).unwrap();
    std::fs::write(
        daemon.home().policies().join("own.cedar"),
        "@id(\"mine\") forbid (principal, action, resource) when { false };",
    )
    .unwrap();
    let _ = daemon.palyra(&["policy", "reload"]).expect_code(0);
    let honest = lists(&daemon);
    let same = daemon
        .palyra(&["journal", "rebuild", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(same["seq"], Value::Null, "{same}");
    let names = ["calls.2", "approvals", "agents", "policy"];
    for name in names {
        let found = same["projections"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["name"].as_str().unwrap().starts_with(name));
        let found = found.unwrap_or_else(|| panic!("{name}: {same}"));
        assert!(found["rows"].as_u64().unwrap() > 0, "{found}");
    }
    shell(&daemon)
        .execute_batch(
            "DELETE FROM projections WHERE name = 'calls.2';
             UPDATE projections SET value = CAST('{}' AS BLOB) WHERE name = 'approvals';
             UPDATE projections SET state = 'odd' WHERE name LIKE 'agents%';
             INSERT INTO projections VALUES ('calls.2', 'call_x', 'completed a b', x'00');",
        )
        .unwrap();
    let mended = daemon.palyra(&["journal", "rebuild"]).expect_code(0);
    assert!(mended.stdout.contains("mended"), "{mended:?}");
    assert!(mended.stderr.contains("restart the daemon"), "{mended:?}");
    assert_eq!(lists(&daemon), honest);
    let tail = daemon
        .palyra(&["journal", "tail", "-n", "4"])
        .expect_code(0);
    assert!(tail.stdout.contains("projection_mended"), "{tail:?}");
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(lists(&daemon), honest);
    let again = daemon
        .palyra(&["journal", "rebuild", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(again["seq"], Value::Null, "{again}");
}

fn elsewhere(daemon: &Daemon, arguments: &[&str]) -> Ran {
    let mut palyra = daemon.program("palyra");
    palyra.env("XDG_STATE_HOME", daemon.folder().join("elsewhere"));
    palyra.args(arguments).output().unwrap().into()
}

/// An older copy with its own right checkpoint is put back: not by accident.
#[test]
fn a_backup_is_taken_while_running_and_an_older_one_is_restored_only_knowingly() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut daemon = Daemon::start();
    let call = spill(&daemon);
    let folder = daemon.folder().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let made = daemon.palyra(&["journal", "backup", folder.to_str().unwrap(), "--json"]);
    let made = made.expect_code(0).json();
    let file = made["file"].as_str().unwrap().to_owned();
    let checkpoint = made["checkpoint_file"].as_str().unwrap().to_owned();
    for file in [&file, &checkpoint] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(holding(&folder, SECRET.as_bytes()), Vec::<PathBuf>::new());
    let anywhere = elsewhere(
        &daemon,
        &["journal", "verify", &file, "--against", &checkpoint],
    );
    assert!(anywhere.expect_code(0).stdout.contains("not looked into"));
    let taken = daemon.palyra(&["journal", "backup", &file]);
    assert_eq!(taken.code, Some(1), "nothing is overwritten: {taken:?}");

    let running = daemon.palyra(&["journal", "restore", &file]);
    assert!(running.stderr.contains("stop it first"), "{running:?}");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let erased = newest_call(&daemon);
    let _ = daemon.palyra(&["journal", "erase", &erased]).expect_code(0);
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    let older = daemon.palyra(&["journal", "restore", &file]).expect_code(8);
    assert!(
        older.stderr.contains("would be lost, with 1 calls"),
        "{older:?}"
    );
    assert!(older.stderr.contains("were seen"), "{older:?}");
    assert!(
        older.stderr.contains("what 1 erasures among them"),
        "{older:?}"
    );
    // Whoever saw nothing is still told what is lost here; a stranger's backup is nobody's.
    let unseen = elsewhere(&daemon, &["journal", "restore", &file]).expect_code(7);
    assert!(unseen.stderr.contains("nobody known"), "{unseen:?}");
    let key = made["key"].as_str().unwrap();
    let unseen = elsewhere(&daemon, &["journal", "restore", &file, "--key", key]).expect_code(8);
    assert!(unseen.stderr.contains("would be lost"), "{unseen:?}");
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);

    // Only the file would be put in place, and the log beside it was verified with it.
    let log = format!("{file}-wal");
    std::fs::write(&log, "frames").unwrap();
    let refused = daemon.palyra(&["journal", "restore", &file, "--accept-older"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("palyra journal backup"),
        "{refused:?}"
    );
    std::fs::remove_file(&log).unwrap();

    // A backup that was touched is not restored, whatever is accepted.
    let touched = daemon.folder().join("touched.db");
    std::fs::copy(&file, &touched).unwrap();
    rusqlite::Connection::open(&touched)
        .unwrap()
        .execute_batch(
            "DROP TRIGGER entries_are_never_changed;
             UPDATE entries SET at = at + 1 WHERE seq = 2;",
        )
        .unwrap();
    let arguments = [
        "journal",
        "restore",
        touched.to_str().unwrap(),
        "--accept-older",
    ];
    let _ = daemon.palyra(&arguments).expect_code(8);
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);

    // Nor is a shorter one of somebody else, however right its own signatures are.
    let strangers = Daemon::start();
    let foreign = daemon.folder().join("foreign.db");
    let foreign = foreign.to_str().unwrap();
    let _ = strangers
        .palyra(&["journal", "backup", foreign])
        .expect_code(0);
    let refused = daemon.palyra(&["journal", "restore", foreign, "--accept-older"]);
    assert!(matches!(refused.code, Some(7 | 8)), "{refused:?}");
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);

    let restored = daemon.palyra(&["journal", "restore", &file, "--accept-older"]);
    let restored = restored.expect_code(0);
    assert!(restored.stderr.contains("warning"), "{restored:?}");
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
    daemon.start_again(None);
    let shown = daemon.palyra(&["calls", "show", &call]).expect_code(0);
    assert!(shown.stdout.contains(SECRET), "it opens: {shown:?}");
    assert_eq!(newest_call(&daemon), call);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
}

/// The key that seals contents is gone, and a person has the daemon make another: contents of before
/// do not open any more, and nothing else is wrong.
#[test]
fn a_lost_blob_key_is_no_fault_of_the_journal() {
    let mut daemon = Daemon::builder().prepare();
    let _ = crate::keys::old_home(&daemon);
    let kept = daemon.folder().join("kept.key");
    std::fs::copy(daemon.home().blob_key(), &kept).unwrap();
    daemon.start_again(None);
    let call = spill(&daemon);
    let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
    daemon.stop();
    // The file of the key that signs is still there: only the other one is lost.
    for name in ["vault.db", "vault.key", "blobs.key"] {
        std::fs::remove_file(daemon.home_folder().join(name)).unwrap();
    }
    let missing = daemon.palyra(&["journal", "verify"]).expect_code(0);
    assert!(missing.stdout.contains("not looked into"), "{missing:?}");
    daemon.start_again(None);
    let lost = daemon.palyra(&["vault", "unlock", "--accept-rollback"]);
    assert!(lost.stderr.contains("journal.blobs"), "{lost:?}");
    let _ = daemon
        .palyra(&["vault", "unlock", "--new-journal-keys"])
        .expect_code(0);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let _ = daemon.palyra(&["journal", "verify"]).expect_code(0);
    let shown = daemon.palyra(&["calls", "show", &call]).expect_code(0);
    assert!(!shown.stdout.contains(SECRET), "{shown:?}");
    daemon.stop();
    // Whoever still has the old key opens what it sealed, and sees what was changed.
    let kept = kept.to_str().unwrap();
    let old = ["journal", "verify", "--blob-key", kept, "--json"];
    let report = daemon.palyra(&old).expect_code(0).json();
    let counted = &report["report"];
    assert_eq!(counted["fault_count"], 0, "{counted}");
    assert!(
        counted["blobs_of_another_key"].as_u64().unwrap() >= 1,
        "{counted}"
    );
    assert!(counted["blobs"].as_u64().unwrap() >= 3, "{counted}");
    let editor = shell(&daemon);
    let config = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
    editor.set_db_config(config, false).unwrap();
    let change = "UPDATE blobs SET sealed = zeroblob(length(sealed)) WHERE id = 1";
    editor.execute_batch(change).unwrap();
    drop(editor);
    let _ = daemon.palyra(&old).expect_code(8);
}

/// The journal in place is shorter than the backup, and another history; or it is nothing that can
/// be read. Neither is taken for "nothing is lost".
#[test]
fn a_journal_in_place_is_compared_by_its_history_and_not_by_its_length() {
    let mut daemon = Daemon::start();
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    daemon.stop();
    let journal = daemon.home().journal();
    let before = std::fs::read(&journal).unwrap();
    daemon.start_again(None);
    for _ in 0..4 {
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    }
    let backup = daemon.folder().join("backup.db");
    let file = backup.to_str().unwrap();
    let made = daemon.palyra(&["journal", "backup", file, "--json"]);
    let key = made.expect_code(0).json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    daemon.stop();
    let restore = |daemon: &Daemon, witness: &str, more: &[&str]| -> Ran {
        let mut palyra = daemon.program("palyra");
        palyra.env("XDG_STATE_HOME", daemon.folder().join(witness));
        palyra.args(["journal", "restore", file, "--key", &key]);
        palyra.args(more).output().unwrap().into()
    };
    // A beginning of the backup, and the very same, lose nothing.
    for (number, bytes) in [before.clone(), std::fs::read(file).unwrap()]
        .iter()
        .enumerate()
    {
        std::fs::write(&journal, bytes).unwrap();
        let _ = restore(&daemon, &format!("fits {number}"), &[]).expect_code(0);
    }
    // It was put back and went another way, which is shorter.
    std::fs::write(&journal, &before).unwrap();
    daemon.start_again(None);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    daemon.stop();
    let forked = restore(&daemon, "forked", &[]).expect_code(8);
    assert!(forked.stderr.contains("another history"), "{forked:?}");
    assert!(forked.stderr.contains("would be lost"), "{forked:?}");
    assert!(forked.stderr.contains("--accept-older"), "{forked:?}");
    let _ = restore(&daemon, "forked", &["--accept-older"]).expect_code(0);
    for nonsense in [&b"nonsense"[..], b""] {
        std::fs::write(&journal, nonsense).unwrap();
        let unread = restore(&daemon, "unread", &[]).expect_code(8);
        assert!(unread.stderr.contains("cannot be read"), "{unread:?}");
        let restored = restore(&daemon, "unread", &["--accept-older"]).expect_code(0);
        assert!(restored.stderr.contains("warning"), "{restored:?}");
    }
    daemon.start_again(None);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
}

/// A backup that was killed leaves a name of its own, which the next one removes; nothing else goes.
#[test]
fn a_backup_that_was_killed_is_removed_by_the_next() {
    let daemon = Daemon::start();
    let folder = daemon.folder().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let written = |name: &str, begins: &str| {
        let path = folder.join(name);
        std::fs::write(&path, begins).unwrap();
        path
    };
    let left = written("palyra-journal-x.db.partial", "SQLite format 3\0");
    let in_the_way = written("mine.db.partial", "SQLite format 3\0");
    let others = written("theirs.db.partial", "SQLite format 3\0");
    let not_ours = written("palyra-journal-y.db.partial", "a thesis in the making");
    let running = written("palyra-journal-z.db.partial", "");
    let locked = std::fs::File::open(&running).unwrap();
    locked.try_lock().unwrap();
    let out = folder.join("mine.db");
    let made = daemon.palyra(&["journal", "backup", out.to_str().unwrap()]);
    let _ = made.expect_code(0);
    assert!(out.exists() && !left.exists() && !in_the_way.exists());
    assert!(others.exists() && not_ours.exists() && running.exists());
}

fn tail(daemon: &Daemon, more: &[&str]) -> Vec<Value> {
    let arguments = [&["journal", "tail", "-n", "1000", "--json"], more].concat();
    let page = daemon.palyra(&arguments).expect_code(0).json();
    page["items"].as_array().unwrap().clone()
}

#[test]
fn entries_are_found_by_time_agent_tool_and_outcome() {
    let daemon = Daemon::start();
    daemon.add_agent("helper");
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let own = newest_call(&daemon);
    let arguments = ["call", "palyra.echo", "--args", r#"{"message":"x"}"#];
    let _ = daemon
        .palyra(&[&arguments[..], &["--as", "agent:helper"]].concat())
        .expect_code(0);
    let helpers = newest_call(&daemon);
    let mut asking = daemon.palyra_in_background(&["exec", "--as", "agent:helper", "--", "id"]);
    let approval = daemon.pending_approval();
    let decide = ["approvals", "decide", &approval, "--decision", "deny"];
    let _ = daemon.palyra(&decide).expect_code(0);
    let _ = asking.wait();
    let denied = newest_call(&daemon);
    let everything = tail(&daemon, &[]);
    let streams = |entries: &[Value]| {
        let mut streams: Vec<String> = entries
            .iter()
            .map(|entry| entry["stream"].as_str().unwrap().to_owned())
            .collect();
        streams.sort();
        streams.dedup();
        streams
    };
    let sorted = |mut streams: Vec<&str>| {
        streams.sort_unstable();
        streams.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let by_agent = tail(&daemon, &["--agent", "helper"]);
    assert_eq!(
        streams(&by_agent),
        sorted(vec![&approval, &helpers, &denied])
    );
    assert!(by_agent.is_sorted_by_key(|entry| entry["seq"].as_u64()));
    let by_tool = tail(&daemon, &["--tool", "palyra.process.run"]);
    assert_eq!(streams(&by_tool), sorted(vec![&approval, &denied, &own]));
    let by_outcome = tail(&daemon, &["--outcome", "approval_denied"]);
    assert_eq!(streams(&by_outcome), sorted(vec![&approval, &denied]));
    let both = tail(&daemon, &["--agent", "helper", "--outcome", "completed"]);
    assert_eq!(streams(&both), [helpers]);
    assert_eq!(tail(&daemon, &["--agent", "nobody"]), Vec::<Value>::new());
    // By time: everything, nothing, and exactly what lies between two entries.
    assert_eq!(tail(&daemon, &["--since", "1h"]), everything);
    assert_eq!(tail(&daemon, &["--until", "1h"]), Vec::<Value>::new());
    let at = everything[everything.len() / 2]["at"].as_str().unwrap();
    let (since, until) = (
        tail(&daemon, &["--since", at]),
        tail(&daemon, &["--until", at]),
    );
    assert!(since.iter().all(|entry| entry["at"].as_str() >= Some(at)));
    assert!(until.iter().all(|entry| entry["at"].as_str() <= Some(at)));
    assert!(since.len() + until.len() > everything.len());
    let late = tail(&daemon, &["--agent", "helper", "--since", at]);
    assert!(
        late.iter()
            .all(|entry| by_agent.contains(entry) && since.contains(entry))
    );
    let wrong = daemon.palyra(&["journal", "tail", "--since", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn following_with_a_filter_prints_what_fits_as_it_is_written() {
    use std::io::{BufRead as _, BufReader};
    let daemon = Daemon::start();
    daemon.add_agent("helper");
    let mut following = daemon.program("palyra");
    following.args([
        "journal", "tail", "-n", "0", "--follow", "--json", "--agent", "helper",
    ]);
    let mut following = following
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let arguments = [
        "call",
        "palyra.echo",
        "--args",
        r#"{"message":"x"}"#,
        "--as",
        "agent:helper",
    ];
    let (tell, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(lines.next()));
    // It may not have begun to follow when the first of these is made.
    let first = palyra_testkit::eventually("a line", || {
        let _ = daemon.palyra(&arguments).expect_code(0);
        heard.try_recv().ok()
    });
    let first = first.unwrap().unwrap();
    let _ = following.kill();
    let _ = following.wait();
    let entry: Value = serde_json::from_str(&first).unwrap();
    let stream = entry["stream"].as_str().unwrap();
    let shown = daemon
        .palyra(&["calls", "show", stream, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(shown["principal"], "agent:helper", "{first}");
}
