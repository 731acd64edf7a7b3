//! Workspaces that are not what one expects: each is worked on or refused in one clear sentence, and
//! nothing half-made is left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use palyra_testkit::{Daemon, Ran, eventually, is_root, not_run};

use crate::attacks::leftovers;

const USER: u32 = 64_041;

/// A daemon of an ordinary user and, where that can be had, one of root.
fn daemons() -> Vec<(Daemon, Option<u32>)> {
    match is_root() {
        true => vec![
            (Daemon::builder().uid(USER).start(), Some(USER)),
            (Daemon::start(), None),
        ],
        false => vec![(Daemon::start(), None)],
    }
}

/// A folder beside the workspace, of the same owner.
fn beside(daemon: &Daemon, name: impl AsRef<OsStr>, owner: Option<u32>) -> PathBuf {
    let path = daemon.folder().join(name.as_ref());
    std::fs::create_dir(&path).unwrap();
    chown(&path, owner, owner).unwrap();
    path
}

fn on(daemon: &Daemon, folder: &Path, words: &[&str]) -> Ran {
    let mut command = daemon.program("palyra");
    command.args(["exec", "--quiet", "--workspace"]).arg(folder);
    command.arg("--").args(words).current_dir(folder);
    command.output().unwrap().into()
}

/// One sentence, one hint, no panic and no number of a signal.
fn refused(ran: &Ran) {
    let code = ran.code.unwrap();
    assert!((120..=127).contains(&code), "{ran:?}");
    let hints = ran.stderr.matches("hint:").count();
    assert!(hints == 1 && !ran.stderr.contains("panicked"), "{ran:?}");
}

/// Whoever renames a folder above the daemon's home would see it under another name the next time,
/// and could put another one in its place.
#[test]
fn what_is_covered_is_not_moved_with_the_folder_it_is_in() {
    for (daemon, owner) in daemons() {
        let folder = daemon.folder();
        let (state, home) = (daemon.state_folder(), daemon.home_folder());
        std::fs::create_dir_all(&state).unwrap();
        for path in [folder, &state] {
            chown(path, owner, owner).unwrap();
        }
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let witness = state.join("palyra-witness");
        let made = on(&daemon, folder, &["mkdir", &text(&witness)]);
        assert_ne!(made.code, Some(0), "{made:?}");
        // The daemon makes it when it starts, where it can.
        assert_eq!(witness.exists(), owner.is_none());
        let _ = daemon.palyra(&["journal", "checkpoint"]).expect_code(0);
        assert!(witness.exists(), "control: there is something to see");
        let control = "mkdir plain && mv plain plainer && rmdir plainer";
        let _ = on(&daemon, folder, &["sh", "-c", control]).expect_code(0);
        for path in [&state, &home] {
            let moved = on(&daemon, folder, &["mv", &text(path), "elsewhere"]);
            assert_ne!(moved.code, Some(0), "{moved:?}");
            assert!(path.exists() && !folder.join("elsewhere").exists());
        }
        let inside = format!("{}/* {}/vault.key", text(&witness), text(&home));
        let seen = on(&daemon, folder, &["sh", "-c", &format!("cat {inside}")]);
        assert_eq!((seen.code, seen.stdout.as_str()), (Some(1), ""), "{seen:?}");
    }
}

#[test]
fn a_workspace_behind_a_link_is_the_folder_it_leads_to() {
    for (daemon, _) in daemons() {
        let link = daemon.folder().join("link");
        symlink(daemon.workspace(), &link).unwrap();
        let real = daemon.workspace().canonicalize().unwrap();
        let ran = on(&daemon, &link, &["pwd", "-P"]).expect_code(0);
        assert_eq!(Path::new(ran.stdout.trim()), real);
        let ran = on(&daemon, &link, &["touch", "made"]);
        let _ = ran.expect_code(0);
        assert!(real.join("made").exists());
        let dangling = daemon.folder().join("dangling");
        symlink(daemon.folder().join("nowhere"), &dangling).unwrap();
        let arguments = ["exec", "--workspace", "../dangling", "--", "true"];
        refused(&daemon.palyra(&arguments));
        leftovers::none_after(daemon);
    }
}

#[test]
fn the_whole_machine_is_no_workspace() {
    for (daemon, _) in daemons() {
        for folder in ["/", "/proc", "/dev"] {
            refused(&on(&daemon, Path::new(folder), &["true"]));
            let read = ["call", "palyra.fs.list", "--args", r#"{"path":"."}"#];
            let mut words = read.to_vec();
            words.extend(["--workspace", folder]);
            let ran = daemon.palyra(&words).expect_code(1);
            assert_eq!(ran.stderr.matches("hint:").count(), 1, "{ran:?}");
        }
        leftovers::none_after(daemon);
    }
}

#[test]
fn names_with_newlines_work_and_names_that_are_no_text_are_refused() {
    for (daemon, owner) in daemons() {
        let odd = beside(&daemon, "new\nline 'quoted' \"twice\" \\ $(x)", owner);
        let ran = on(&daemon, &odd, &["touch", "a\nb"]);
        let _ = ran.expect_code(0);
        assert!(odd.join("a\nb").exists());
        let bytes = beside(&daemon, OsStr::from_bytes(b"not\xfftext"), owner);
        refused(&on(&daemon, &bytes, &["true"]));
        // In a workspace, such names are listed and harm nobody.
        let name = OsStr::from_bytes(b"file\xff");
        std::fs::write(daemon.workspace().join(name), "x").unwrap();
        let listed = daemon.palyra(&["call", "palyra.fs.list", "--args", r#"{"path":"."}"#]);
        assert!(listed.expect_code(0).stdout.contains("file"));
        let nul = r#"{"path":"a\u0000b"}"#;
        let ran = daemon.palyra(&["call", "palyra.fs.read", "--args", nul]);
        let ran = ran.expect_code(1);
        assert_eq!(ran.stderr.matches("hint:").count(), 1, "{ran:?}");
        leftovers::none_after(daemon);
    }
}

/// Before it runs: what was decided about is gone, so nothing runs.
#[test]
fn a_workspace_that_is_gone_when_the_yes_comes_runs_nothing() {
    for (daemon, owner) in daemons() {
        let folder = beside(&daemon, "short-lived", owner);
        daemon.add_agent_on("a", &folder);
        let waiting = daemon.palyra_in_background(&[
            "exec",
            "--as",
            "agent:a",
            "--",
            "touch",
            "/var/tmp/palyra-must-not-be",
        ]);
        let id = daemon.pending_approval();
        std::fs::remove_dir(&folder).unwrap();
        let _ = daemon.palyra(&["approvals", "decide", &id, "--decision", "allow"]);
        let ran = Ran::from(waiting.wait_with_output().unwrap());
        refused(&ran);
        assert!(!Path::new("/var/tmp/palyra-must-not-be").exists());
        leftovers::none_after(daemon);
    }
}

/// While it runs: the call goes on to its own end.
#[test]
fn a_workspace_that_vanishes_under_a_call_ends_nothing_but_itself() {
    for (daemon, owner) in daemons() {
        let folder = beside(&daemon, "vanishing", owner);
        let script = "touch started; while [ -e started ]; do sleep 0.05; done; echo over";
        let path = folder.to_str().unwrap().to_owned();
        let words = [
            "exec",
            "--quiet",
            "--workspace",
            &path,
            "--",
            "sh",
            "-c",
            script,
        ];
        let waiting = {
            let mut command = daemon.program("palyra");
            command.args(words).current_dir(&folder);
            command
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        };
        eventually("it has begun", || {
            folder.join("started").exists().then_some(())
        });
        std::fs::remove_dir_all(&folder).unwrap();
        let ran = Ran::from(waiting.wait_with_output().unwrap()).expect_code(0);
        assert_eq!(ran.stdout, "over\n");
        let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
        leftovers::none_after(daemon);
    }
}

#[test]
fn a_read_only_workspace_can_be_read_and_not_written() {
    if !is_root() {
        not_run(
            "a_read_only_workspace_can_be_read_and_not_written",
            "needs root to mount one",
        );
        return;
    }
    let mount = |arguments: &[&str], folder: &Path| {
        let mut command = std::process::Command::new("mount");
        let done = command.args(arguments).arg(folder).status();
        assert!(done.unwrap().success(), "{arguments:?}");
    };
    for (daemon, owner) in daemons() {
        let folder = beside(&daemon, "read-only", owner);
        std::fs::write(folder.join("there"), "text\n").unwrap();
        let path = folder.to_str().unwrap().to_owned();
        mount(&["--bind", &path], &folder);
        mount(&["-o", "remount,ro,bind"], &folder);
        let read = on(&daemon, &folder, &["cat", "there"]);
        let write = on(&daemon, &folder, &["touch", "new"]);
        let arguments = r#"{"path":"new","content":"x"}"#;
        let tool = daemon.palyra(&[
            "call",
            "palyra.fs.write",
            "--workspace",
            &path,
            "--args",
            arguments,
        ]);
        let unmounted = std::process::Command::new("umount").arg(&folder).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(read.expect_code(0).stdout, "text\n");
        // The program's own failure, with its own words.
        assert!(
            write
                .expect_code(1)
                .stderr
                .contains("Read-only file system")
        );
        let tool = tool.expect_code(1);
        assert!(tool.stderr.contains("Read-only file system"), "{tool:?}");
        assert!(!folder.join("new").exists());
        leftovers::none_after(daemon);
    }
}

#[test]
fn a_workspace_of_100_000_files_is_one_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let many = folder.path().join("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..100_000 {
        std::fs::File::create(many.join(number.to_string())).unwrap();
    }
    for (daemon, owner) in daemons() {
        chown(folder.path(), owner, owner).unwrap();
        let ran = on(&daemon, folder.path(), &["sh", "-c", "ls -U many | wc -l"]);
        assert_eq!(ran.expect_code(0).stdout.trim(), "100000");
        // A tool gives part of it and says so.
        let path = folder.path().to_str().unwrap();
        let list = ["call", "palyra.fs.list", "--json", "--workspace", path];
        let mut words = list.to_vec();
        words.extend(["--args", r#"{"path":"many"}"#]);
        let listed = daemon.palyra(&words).expect_code(0).json();
        let given = listed["output"]["entries"].as_array().unwrap().len();
        assert!(given > 0 && given < 100_000, "{given}");
        assert_eq!(listed["output"]["truncated"], true);
        leftovers::none_after(daemon);
    }
}

#[test]
fn arguments_of_two_mebibytes_are_refused_in_one_sentence() {
    for (daemon, _) in daemons() {
        let request = daemon.workspace().join("request.json");
        let call = |argv: Vec<String>| {
            let text = serde_json::json!({ "argv": argv }).to_string();
            std::fs::write(&request, text).unwrap();
            std::fs::set_permissions(&request, PermissionsExt::from_mode(0o644)).unwrap();
            let ran = daemon.palyra(&["call", "palyra.process.run", "--args", "@request.json"]);
            assert_eq!(ran.stderr.matches("hint:").count(), 1, "{}", ran.stderr);
            ran.expect_code(1).stderr
        };
        for argv in [
            vec!["echo".to_owned(), "x".repeat(2 << 20)],
            vec!["x".repeat(1_000); 2_100],
        ] {
            assert!(call(argv).contains("bytes of arguments"));
        }
        // What the tool takes and the kernel does not: one argument of more than 128 KiB.
        let told = call(vec!["echo".to_owned(), "x".repeat(200 << 10)]);
        assert!(told.contains("Argument list too long"), "{told}");
        leftovers::none_after(daemon);
    }
}
