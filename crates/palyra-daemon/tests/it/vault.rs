//! The vault as its users meet it, and as those do who would like to have what is in it.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use palyra_core::{SecretValue, Timestamp};
use palyra_testkit::{Daemon, Ran, eventually};
use palyra_vault::keystore::KeyFile;
use palyra_vault::{NewSecret, SqliteBlobs, Vault};

/// Nothing else looks like this.
const CANARY: &str = "Kx7-canary-Zq81-vault";

fn put(daemon: &Daemon, name: &str, value: &str) {
    let _ = daemon
        .palyra_with_input(&["vault", "put", name], value)
        .expect_code(0);
}

fn get(daemon: &Daemon, name: &str) -> Ran {
    daemon.palyra(&["vault", "get", name, "--yes"])
}

#[test]
fn a_secret_is_kept_listed_shown_recorded_and_deleted() {
    let mut daemon = Daemon::start();
    let arguments = [
        "vault",
        "put",
        "token",
        "--audience",
        "api.example.com/v1",
        "--method",
        "GET",
        "--ttl",
        "30d",
    ];
    let _ = daemon
        .palyra_with_input(&arguments, &format!("{CANARY}\n"))
        .expect_code(0);
    let list = daemon.palyra(&["vault", "list", "--json"]).expect_code(0);
    let one = &list.json()["items"][0];
    assert_eq!(
        (&one["secret"], &one["version"]),
        (&"token".into(), &1.into())
    );
    assert_eq!(one["audience"][0]["host"], "api.example.com");
    assert!(!list.stdout.contains(CANARY));
    let asked = daemon.palyra(&["vault", "get", "token", "--json"]);
    assert_eq!(asked.expect_code(4).error_code(), "not_confirmed");
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, CANARY);
    put(&daemon, "token", "second value");
    let versions = daemon.palyra(&["vault", "versions", "token", "--json"]);
    assert_eq!(
        versions.expect_code(0).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, "second value");
    let _ = daemon.palyra(&["vault", "rotate-key"]).expect_code(0);
    let old = daemon.palyra(&["vault", "get", "token", "--version", "1", "--yes"]);
    assert_eq!(old.expect_code(0).stdout, CANARY);
    let _ = daemon.palyra(&["vault", "delete", "token"]).expect_code(0);
    let gone = daemon.palyra(&["vault", "get", "token", "--yes", "--json"]);
    assert_eq!(gone.expect_code(1).error_code(), "no_such_secret");
    let audit = daemon
        .palyra(&["vault", "audit", "--json"])
        .expect_code(0)
        .json();
    let what: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|event| event["what"].as_str().unwrap())
        .collect();
    let wanted = [
        "created",
        "keys_kept",
        "put",
        "revealed",
        "put",
        "revealed",
        "rotation_done",
        "revealed",
        "deleted",
    ];
    assert_eq!(what, wanted);
}

#[test]
fn a_value_in_arguments_is_refused_unrecorded_and_the_third_time_pauses_the_agent() {
    let daemon = Daemon::start();
    daemon.add_agent("claude");
    put(&daemon, "token", CANARY);
    put(&daemon, "odd", "quote\"and\\back\nslash");
    put(&daemon, "short", "7bytes!");
    let echo = |text: &str| {
        let arguments = serde_json::json!({ "message": text }).to_string();
        daemon.palyra(&[
            "call",
            "palyra.echo",
            "--json",
            "--as",
            "agent:claude",
            "--args",
            &arguments,
        ])
    };
    let _ = echo("hello 7bytes!").expect_code(0);
    for text in [format!("x{CANARY}y"), "quote\"and\\back\nslash".to_owned()] {
        let refused = echo(&text).expect_code(3);
        assert_eq!(refused.error_code(), "secret_in_arguments");
        let said = refused.stdout + &refused.stderr;
        assert!(said.contains("palyra vault list"), "{said}");
        assert!(!said.contains(CANARY) && !said.contains("token`") && !said.contains("odd"));
    }
    let _ = echo("still allowed").expect_code(0);
    assert_eq!(
        echo(CANARY).expect_code(3).error_code(),
        "secret_in_arguments"
    );
    assert_eq!(echo("hello").expect_code(3).error_code(), "agent_paused");
    // A person is refused too, and never paused.
    let own = daemon.palyra(&["exec", "--json", "--", "echo", CANARY]);
    assert_eq!(own.expect_code(120).error_code(), "secret_in_arguments");
    let tail = daemon
        .palyra(&["journal", "tail", "-n", "50"])
        .expect_code(0)
        .stdout;
    assert!(tail.matches("secret_in_arguments").count() >= 4, "{tail}");
    assert!(!tail.contains(CANARY));
    let itself = daemon.palyra(&["agents", "resume", "claude", "--as", "agent:claude"]);
    let _ = itself.expect_code(3);
    let _ = daemon
        .palyra(&["agents", "resume", "claude"])
        .expect_code(0);
    let _ = echo("hello again").expect_code(0);
}

#[test]
fn an_agent_neither_sees_changes_nor_takes_secrets() {
    let daemon = Daemon::start();
    daemon.add_agent("claude");
    put(&daemon, "token", CANARY);
    let age = daemon.folder().join("b.age");
    let age = age.to_str().unwrap();
    for arguments in [
        &["vault", "get", "token", "--yes"][..],
        &["vault", "list"],
        &["vault", "versions", "token"],
        &["vault", "delete", "token"],
        &["vault", "rotate-key"],
        &["vault", "lock"],
        &["vault", "unlock"],
        &["vault", "audit"],
        &["vault", "export", age, "--recipient", "age1x", "--yes"],
    ] {
        let whole: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(["--as", "agent:claude", "--json"])
            .collect();
        let refused = daemon.palyra(&whole);
        let refused = refused.expect_code(3);
        assert_eq!(refused.error_code(), "denied_by_policy", "{arguments:?}");
        assert!(!(refused.stdout + &refused.stderr).contains(CANARY));
    }
    let put = daemon.palyra_with_input(&["vault", "put", "x", "--as", "agent:claude"], "value");
    let _ = put.expect_code(3);
    assert_eq!(
        get(&daemon, "token").expect_code(0).stdout,
        CANARY,
        "control"
    );
}

#[test]
fn a_daemon_whose_key_is_away_starts_locked_and_runs_nothing() {
    let mut daemon = Daemon::builder()
        .config("[vault]\nkeystore = \"passphrase\"\n")
        .start();
    let locked = |daemon: &Daemon, why: &str| {
        let status = daemon
            .palyra(&["vault", "status", "--json"])
            .expect_code(0)
            .json();
        assert_eq!(
            (&status["state"], &status["locked"]["code"]),
            (&"locked".into(), &why.into())
        );
        assert_eq!(status["keystore"], "passphrase");
        let refused = daemon
            .palyra(&["exec", "--json", "--", "true"])
            .expect_code(120);
        assert_eq!(refused.error_code(), "vault_locked");
        assert!((refused.stdout.clone() + &refused.stderr).contains("palyra vault unlock"));
        let _ = daemon.palyra(&["status"]).expect_code(0);
        let _ = daemon.palyra(&["journal", "tail"]).expect_code(0);
    };
    locked(&daemon, "passphrase_needed");
    let unlock = |daemon: &Daemon, text: &str| {
        daemon.palyra_with_input(&["vault", "unlock", "--json"], text)
    };
    assert_eq!(
        unlock(&daemon, "short").expect_code(1).error_code(),
        "passphrase_too_short"
    );
    let _ = unlock(&daemon, "correct horse").expect_code(0);
    let _ = daemon.palyra(&["vault", "unlock"]).expect_code(0);
    put(&daemon, "token", CANARY);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    daemon.stop();
    daemon.start_again(None);
    locked(&daemon, "passphrase_needed");
    assert!(
        daemon
            .palyra(&["vault", "list"])
            .expect_code(0)
            .stdout
            .contains("token")
    );
    let wrong = unlock(&daemon, "correct horsf");
    assert_eq!(wrong.error_code(), "wrong_passphrase");
    let _ = unlock(&daemon, "correct horse").expect_code(0);
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, CANARY);
    let _ = daemon.palyra(&["vault", "lock"]).expect_code(0);
    locked(&daemon, "vault_locked");
    daemon.stop();
    // Another store is never used in its place.
    std::fs::write(
        daemon.home().config_file(),
        "[vault]\nkeystore = \"file\"\n",
    )
    .unwrap();
    daemon.start_again(None);
    let status = daemon
        .palyra(&["vault", "status", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(status["locked"]["code"], "vault_other_keystore");
    assert!(!daemon.home_folder().join("vault.key").exists());
}

#[test]
fn an_older_file_is_noticed_named_and_taken_only_by_a_person() {
    let mut daemon = Daemon::start();
    put(&daemon, "token", "last week");
    daemon.stop();
    let file = daemon.home_folder().join("vault.db");
    let old = std::fs::read(&file).unwrap();
    daemon.start_again(None);
    put(&daemon, "token", "today's value");
    daemon.stop();
    std::fs::write(&file, old).unwrap();
    daemon.start_again(None);
    let status = daemon
        .palyra(&["vault", "status", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(status["locked"]["code"], "vault_rolled_back");
    assert!(
        status["locked"]["message"]
            .as_str()
            .unwrap()
            .contains("generation 3"),
        "{status}"
    );
    let _ = get(&daemon, "token").expect_code(3);
    let refused = daemon.palyra(&["vault", "unlock", "--json"]);
    assert_eq!(refused.error_code(), "vault_rolled_back");
    let _ = daemon
        .palyra(&["vault", "unlock", "--accept-rollback"])
        .expect_code(0);
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, "last week");
    let audit = daemon.palyra(&["vault", "audit"]).expect_code(0).stdout;
    assert!(audit.contains("rollback_accepted"), "{audit}");
    daemon.stop();
    std::fs::remove_file(&file).unwrap();
    daemon.start_again(None);
    let status = daemon
        .palyra(&["vault", "status", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(status["locked"]["code"], "vault_gone");
}

#[test]
fn a_crash_between_the_two_commits_is_mended_at_the_next_start() {
    let mut daemon = Daemon::start();
    put(&daemon, "token", "first value");
    daemon.kill();
    // The vault's commit, without the journal's.
    let folder = daemon.home_folder();
    let vault = Vault::open(Box::new(SqliteBlobs::open(&folder).unwrap())).unwrap();
    vault.unlock(Arc::new(KeyFile::new(&folder))).unwrap();
    let new = NewSecret {
        secret: "token".parse().unwrap(),
        value: SecretValue::new(b"second value".to_vec()),
        audience: Vec::new(),
        expires_at: None,
    };
    vault.put(&new, Timestamp::from_millis(1)).unwrap();
    drop(vault);
    daemon.start_again(None);
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, "second value");
    let audit = daemon
        .palyra(&["vault", "audit", "token", "--json"])
        .expect_code(0)
        .json();
    let put = &audit["items"][1];
    assert_eq!(
        (&put["what"], &put["version"], &put["by"]),
        (&"put".into(), &2.into(), &serde_json::Value::Null)
    );
    daemon.stop();
    daemon.start_again(None);
    assert_eq!(get(&daemon, "token").expect_code(0).stdout, "second value");
}

#[test]
fn backups_and_env_files_come_back_whole_or_not_at_all() {
    let daemon = Daemon::start();
    let env = daemon.folder().join("x.env");
    std::fs::write(&env, "A=first value\nexport B='second'\n").unwrap();
    let env = env.to_str().unwrap();
    let _ = daemon
        .palyra(&["vault", "import", env, "--env", "--scope", "agent:x"])
        .expect_code(0);
    assert_eq!(get(&daemon, "agent:x/B").expect_code(0).stdout, "second");
    std::fs::write(env, "C=fine\nnonsense canary\n").unwrap();
    let odd = daemon
        .palyra(&["vault", "import", env, "--env"])
        .expect_code(2);
    assert!(!odd.stderr.contains("canary"), "{}", odd.stderr);
    let _ = get(&daemon, "C").expect_code(1);
    let file = daemon.folder().join("b.age");
    let file = file.to_str().unwrap();
    let _ = daemon
        .palyra_with_input(&["vault", "export", file, "--yes"], "pass phrase")
        .expect_code(0);
    assert!(
        std::fs::read(file)
            .unwrap()
            .starts_with(b"age-encryption.org/v1")
    );
    let _ = daemon
        .palyra(&["vault", "delete", "agent:x/B"])
        .expect_code(0);
    let wrong = daemon.palyra_with_input(&["vault", "import", file, "--json"], "other");
    assert_eq!(wrong.expect_code(1).error_code(), "backup_not_opened");
    let _ = daemon
        .palyra_with_input(&["vault", "import", file], "pass phrase")
        .expect_code(0);
    assert_eq!(get(&daemon, "agent:x/B").expect_code(0).stdout, "second");
}

/// Whether this process's memory holds these bytes; `None` when it cannot be read.
fn memory_holds(pid: u32, what: &[u8]) -> Option<bool> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let found = maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let Some((start, end)) = range.split_once('-') else {
            return false;
        };
        let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (start, end) = (parse(start), parse(end));
        if !rights.starts_with('r') || end - start > 256 << 20 {
            return false;
        }
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        let read = memory
            .seek(SeekFrom::Start(start))
            .and_then(|_| memory.read(&mut bytes));
        read.is_ok_and(|count| {
            bytes[..count]
                .windows(what.len())
                .any(|window| window == what)
        })
    });
    (!maps.is_empty()).then_some(found)
}

/// Core files, wherever the kernel or a name of old would put one.
fn core_files(daemon: &Daemon) -> Vec<std::path::PathBuf> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let named = Path::new(pattern.trim().trim_start_matches('|')).parent();
    let named = named
        .filter(|folder| folder.is_absolute())
        .map(Path::to_owned);
    let usual = [
        "/var/lib/systemd/coredump",
        "/var/crash",
        "/cores",
        "/tmp",
        "/",
    ];
    let own = [
        daemon.home_folder(),
        daemon.workspace(),
        daemon.bins().to_owned(),
    ];
    let places = named.into_iter().chain(usual.map(Into::into)).chain(own);
    let pid = daemon.pid().to_string();
    let is_core = |name: &str| name == "core" || (name.contains("core") && name.contains(&pid));
    places
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_file() && name.is_some_and(is_core)
        })
        .collect()
}

fn children(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after
            .split_whitespace()
            .nth(1)
            .and_then(|text| text.parse().ok())
            == Some(pid)
    };
    pids.filter(parent)
        .flat_map(|child| {
            let mut below = children(child);
            below.push(child);
            below
        })
        .collect()
}

fn holds(folder: &Path, what: &[u8]) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .flat_map(|path| {
            if path.is_dir() {
                return holds(&path, what);
            }
            let found = std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(what.len()).any(|w| w == what));
            if found { vec![path] } else { Vec::new() }
        })
        .collect()
}

#[test]
fn a_canary_is_found_nowhere_but_in_the_vault() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut daemon = Daemon::builder()
        .config("[log]\nlevel = \"trace\"\n")
        .log_to(log.path().to_owned())
        .start();
    put(&daemon, "token", CANARY);
    assert_eq!(
        get(&daemon, "token").expect_code(0).stdout,
        CANARY,
        "control: it is there"
    );
    let _ = daemon
        .palyra(&["exec", "--", "echo", CANARY])
        .expect_code(120);
    let mut running = daemon.palyra_in_background(&["exec", "--", "sleep", "20"]);
    let helpers = eventually("the sandbox's helpers run", || {
        let below = children(daemon.pid());
        let sleeps = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "sleep")
        };
        below.iter().any(sleeps).then_some(below)
    });
    let mut looked_into = 0;
    for pid in &helpers {
        match memory_holds(*pid, CANARY.as_bytes()) {
            Some(found) => assert!(!found, "memory of {pid}"),
            None => continue,
        }
        looked_into += 1;
    }
    if looked_into == 0 {
        let why = "needs root to look into the memory of helpers";
        palyra_testkit::not_run("a canary in the memory of helpers", why);
    }
    assert_eq!(
        memory_holds(std::process::id(), CANARY.as_bytes()),
        Some(true),
        "control: it would be found"
    );
    // No core file of the daemon or a helper of its own, whatever the kernel's pattern says.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid()));
    let core = limits.unwrap_or_default();
    let core = core.lines().find(|line| line.starts_with("Max core file"));
    let core = core
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>();
    assert!(
        core.starts_with(&["Max", "core", "file", "size", "0", "0"]),
        "{core:?}"
    );
    for pid in helpers.iter().chain([&daemon.pid()]) {
        for place in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{place}")).unwrap_or_default();
            assert!(
                !bytes
                    .windows(CANARY.len())
                    .any(|window| window == CANARY.as_bytes())
            );
        }
    }
    let _ = running.kill();
    let _ = running.wait();
    let export = daemon.palyra(&["journal", "export"]).expect_code(0).stdout;
    assert!(export.contains("secret_accessed") && !export.contains(CANARY));
    // Not dumpable, and no core file wanted: one would hold it.
    let before = core_files(&daemon);
    let pid = daemon.pid();
    daemon.signal("ABRT");
    eventually("it is gone", || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
    assert_eq!(core_files(&daemon), before, "no core file appeared");
    let _ = daemon.wait();
    let written = std::fs::read_to_string(log.path()).unwrap();
    assert!(
        written.len() > 1_000 && !written.contains(CANARY),
        "the log at its most talkative"
    );
    assert_eq!(
        holds(daemon.folder(), CANARY.as_bytes()),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn odd_names_and_values_are_one_clear_error() {
    let daemon = Daemon::start();
    let long = "a".repeat(64 * 1024);
    for name in ["../x", "", "a b", "tоken", "CON", ".x", &long] {
        let _ = daemon
            .palyra_with_input(&["vault", "put", name], "value")
            .expect_code(2);
    }
    let _ = daemon
        .palyra_with_input(&["vault", "put", "x"], "")
        .expect_code(1);
    let large = "x".repeat(1 << 20);
    let refused = daemon
        .palyra_with_input(&["vault", "put", "x", "--json"], &large)
        .expect_code(1);
    assert_eq!(refused.error_code(), "secret_too_large");
    assert!(refused.stdout.len() + refused.stderr.len() < 2_000);
    assert!(
        daemon
            .palyra(&["vault", "list", "--json"])
            .expect_code(0)
            .json()["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

/// Approvals are about calls: a reveal that policy wants somebody asked about is refused, for that
/// reason and no other, and nothing of it is recorded as seen.
#[test]
fn where_policy_wants_somebody_asked_a_value_is_not_shown() {
    let mut daemon = Daemon::builder().prepare();
    let folder = daemon.home().policies();
    std::fs::create_dir(&folder).unwrap();
    let asked = "@id(\"ask_reveal\")\n@reason(\"somebody is asked first\")\n\
        forbid (principal, action == Palyra::Action::\"vault.get\", resource)\n\
        when { resource == Palyra::Secret::\"asked\" };\n\
        @id(\"may_ask\")\n@reason(\"a person may ask\")\n\
        permit (principal is Palyra::User, action == Palyra::Action::\"vault.get.ask\", resource);\n";
    std::fs::write(folder.join("reveal.cedar"), asked).unwrap();
    daemon.start_again(None);
    daemon.add_agent("claude");
    put(&daemon, "asked", CANARY);
    put(&daemon, "other", "another value");
    let refused = daemon.palyra(&["vault", "get", "asked", "--yes", "--json"]);
    assert_eq!(refused.expect_code(3).error_code(), "reveal_needs_approval");
    let agent = [
        "vault",
        "get",
        "asked",
        "--yes",
        "--json",
        "--as",
        "agent:claude",
    ];
    assert_eq!(
        daemon.palyra(&agent).expect_code(3).error_code(),
        "denied_by_policy"
    );
    let shown = get(&daemon, "other").expect_code(0).stdout;
    assert_eq!(shown, "another value", "control");
    let audit = daemon
        .palyra(&["vault", "audit", "--json"])
        .expect_code(0)
        .json();
    let revealed = audit["items"].as_array().unwrap().iter();
    let revealed: Vec<_> = revealed
        .filter(|event| event["what"] == "revealed")
        .collect();
    assert!(
        revealed.len() == 1 && revealed[0]["secret"] == "other",
        "{audit}"
    );
}
