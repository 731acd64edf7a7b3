//! What a person said yes to is what runs: between the question and the answer programs, links,
//! folders and scripts are swapped, and then the answer is yes. Each attack has a control in which
//! nothing is swapped.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;

use palyra_testkit::{Daemon, Ran, is_root};
use serde_json::Value;

struct House {
    daemon: Daemon,
    tier: &'static str,
}

/// A tier each.
fn every() -> Vec<House> {
    let mut all = Vec::new();
    for tier in ["b", "c"] {
        let daemon = Daemon::start();
        // As root, Tier-B works on nobody's folder but an ordinary user's.
        if is_root() {
            chown(daemon.workspace(), Some(65_532), Some(65_532)).unwrap();
        }
        daemon.add_agent("a");
        all.push(House { daemon, tier });
    }
    all
}

impl House {
    fn put(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.daemon.workspace().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.give(&path);
        path
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.daemon.workspace().join(name);
        std::fs::create_dir(&path).unwrap();
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(65_532), Some(65_532)).unwrap();
        }
    }

    fn ask(&self, argv: &[&str]) -> Child {
        let start = [
            "exec", "--json", "--as", "agent:a", "--tier", self.tier, "--",
        ];
        self.daemon
            .palyra_in_background(&[start.as_slice(), argv].concat())
    }

    /// Asks, does something while the question waits, and then says yes.
    fn yes_after(&self, argv: &[&str], meanwhile: impl FnOnce()) -> (Value, Value) {
        let waiting = self.ask(argv);
        let id = self.daemon.pending_approval();
        meanwhile();
        let decide = ["approvals", "decide", &id, "--decision", "allow", "--json"];
        let _ = self.daemon.palyra(&decide).expect_code(0);
        let result = Ran::from(waiting.wait_with_output().unwrap()).json();
        let call = result["call_id"].as_str().unwrap_or_default().to_owned();
        let record = self.daemon.palyra(&["calls", "show", &call, "--json"]);
        (result, record.expect_code(0).json())
    }

    /// The control, and the same with the attack in between.
    fn refuses(&self, argv: &[&str], said: &str, attack: impl FnOnce()) {
        let (control, record) = self.yes_after(argv, || {});
        assert_eq!(control["output"]["stdout"]["text"], said, "{control}");
        assert!(record["facts"]["code"][0]["content"]["sha256"].is_string());
        let (result, _) = self.yes_after(argv, attack);
        assert_eq!(
            result["outcome"], "failed",
            "{argv:?} {}: {result}",
            self.tier
        );
        assert_eq!(result["problem"]["code"], "program_changed", "{result}");
        let told = result.to_string();
        assert!(told.contains("propose the call again"), "{told}");
        assert!(!told.contains("evil\\n"), "{told}");
    }
}

#[test]
fn a_program_swapped_while_the_question_waits_is_not_run() {
    for house in every() {
        let good = b"#!/bin/sh\necho good\n";
        let (tool, evil) = (
            house.put("tool", good),
            house.put("evil", b"#!/bin/sh\necho evil\n"),
        );
        house.refuses(&["./tool"], "good\n", || {
            std::fs::rename(&evil, &tool).unwrap();
        });
        // Rewritten in place.
        let tool = house.put("again", good);
        house.refuses(&["./again"], "good\n", || {
            std::fs::write(&tool, b"#!/bin/sh\necho evil\n").unwrap();
        });
    }
}

#[test]
fn a_folder_or_link_swapped_while_the_question_waits_is_not_followed() {
    for house in every() {
        let (bin, _) = (house.folder("bin"), house.folder("other"));
        house.put("bin/tool", b"#!/bin/sh\necho good\n");
        house.put("other/tool", b"#!/bin/sh\necho evil\n");
        let workspace = house.daemon.workspace();
        house.refuses(&["bin/tool"], "good\n", || {
            std::fs::rename(&bin, workspace.join("was")).unwrap();
            symlink("other", &bin).unwrap();
        });
        let link = workspace.join("link");
        symlink("was/tool", &link).unwrap();
        house.refuses(&["./link"], "good\n", || {
            std::fs::remove_file(&link).unwrap();
            symlink("other/tool", &link).unwrap();
        });
    }
}

#[test]
fn a_script_rewritten_while_the_question_waits_is_not_read() {
    for house in every() {
        for (at, argv) in [
            ["sh", "build.sh"].as_slice(),
            &["env", "X=1", "sh", "build.sh"],
            &["sh", "-c", "sh build.sh; true"],
            &["sh", "-c", "./build.sh | cat"],
        ]
        .into_iter()
        .enumerate()
        {
            let script = house.put("build.sh", b"#!/bin/sh\necho good\n");
            let attack = || match at % 2 {
                0 => std::fs::write(&script, b"#!/bin/sh\necho evil\n").unwrap(),
                _ => {
                    let evil = house.put("evil.sh", b"#!/bin/sh\necho evil\n");
                    std::fs::rename(evil, &script).unwrap();
                }
            };
            house.refuses(argv, "good\n", attack);
        }
    }
}

/// A yes to one content is no yes to another: the same words are another call.
#[test]
fn the_same_words_with_another_script_are_another_question() {
    for house in every() {
        let script = house.put("build.sh", b"echo one\n");
        let first = house.ask(&["sh", "build.sh"]);
        let _ = house.daemon.pending_approval();
        let same = house.ask(&["sh", "build.sh"]);
        let listed = || {
            let listed = house.daemon.palyra(&["approvals", "list", "--json"]);
            listed.expect_code(0).json()["items"]
                .as_array()
                .unwrap()
                .clone()
        };
        // The control: the same content joins the question that waits.
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert_eq!(listed().len(), 1);
        // The same content written anew is the same call as well.
        std::fs::remove_file(&script).unwrap();
        house.put("build.sh", b"echo one\n");
        let anew = house.ask(&["sh", "build.sh"]);
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert_eq!(listed().len(), 1);
        std::fs::write(&script, b"echo two\n").unwrap();
        let other = house.ask(&["sh", "build.sh"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while listed().len() < 2 {
            assert!(std::time::Instant::now() < deadline, "it joined");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        for mut child in [first, same, anew, other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// The facts say what runs, and that an interpreter reads more than that.
#[test]
fn a_question_says_which_files_run_and_that_there_may_be_more() {
    for house in every() {
        house.put("x.sh", b"echo good\n");
        let (_, record) = house.yes_after(&["sh", "x.sh"], || {});
        let facts = &record["facts"];
        assert_eq!(facts["reads_more_code"], true, "{facts}");
        let parts: Vec<&str> = facts["code"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["part"].as_str())
            .collect();
        assert_eq!(parts, ["program", "operand"], "{facts}");
        let (_, record) = house.yes_after(&["ls"], || {});
        assert_eq!(record["facts"]["reads_more_code"], false);
    }
}

/// Programs that look for themselves still find themselves.
#[test]
fn ordinary_programs_run_as_before() {
    let daemon = Daemon::start();
    let workspace = daemon.workspace();
    let mut tried = 0;
    for (program, argv, said) in [
        (
            "/usr/bin/git",
            ["git", "--version"].as_slice(),
            "git version",
        ),
        ("/usr/bin/node", &["node", "-p", "process.execPath"], "node"),
        ("/usr/bin/perl", &["perl", "-e", "print $^X"], "perl"),
        (
            "/usr/bin/python3",
            &[
                "/usr/bin/python3",
                "-c",
                "import sys, json; print(sys.prefix)",
            ],
            "/usr",
        ),
    ] {
        if !Path::new(program).exists() {
            println!("absent: {program}");
            continue;
        }
        tried += 1;
        let words = [["exec", "--"].as_slice(), argv].concat();
        let ran = daemon.palyra(&words).expect_code(0);
        assert!(ran.stdout.contains(said), "{argv:?}: {}", ran.stdout);
        // By a link of the workspace, which is started by its descriptor.
        let link = workspace.join(argv[0].rsplit('/').next().unwrap());
        symlink(program, &link).unwrap();
        let own = format!("./{}", link.file_name().unwrap().to_str().unwrap());
        let words = [["exec", "--", &own].as_slice(), &argv[1..]].concat();
        let ran = daemon.palyra(&words).expect_code(0);
        assert!(ran.stdout.contains(said), "{argv:?}: {}", ran.stdout);
        std::fs::remove_file(link).unwrap();
    }
    assert!(tried > 0, "nothing ordinary is installed");
    // One file with many names acts by the one it is called by.
    if Path::new("/usr/bin/xz").exists() {
        symlink("/usr/bin/xz", workspace.join("unxz")).unwrap();
        let ran = daemon.palyra(&["exec", "--", "./unxz", "--help"]);
        let said = ran.expect_code(0).stdout;
        assert!(said.contains("unxz"), "{said}");
    }
}
