//! Help, completions, man pages, usage errors, colours.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::palyra::Palyra;

fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
        found.push(path.to_vec());
        for sub in command.get_subcommands() {
            let below = [path, &[sub.get_name().to_owned()]].concat();
            walk(sub, &below, found);
        }
    }
    let mut found = Vec::new();
    walk(&palyra_cli::help::command(), &[], &mut found);
    found
}

#[test]
fn help_leads_with_examples() {
    let palyra = Palyra::new();
    for mut words in commands() {
        words.push("--help".to_owned());
        let help = palyra.run_raw(&words).exits(0);
        let examples = help
            .stdout
            .find("Examples:")
            .unwrap_or_else(|| panic!("{words:?}"));
        let usage = help.stdout.find("Usage:").unwrap();
        assert!(examples < usage, "{}", help.stdout);
        assert!(
            help.stdout.lines().all(|line| line.chars().count() <= 100),
            "{}",
            help.stdout
        );
        assert_eq!(help.stderr, "");
    }
}

#[test]
fn the_first_help_a_person_sees() {
    let help = Palyra::new().run(&[]).exits(2).stderr;
    let start = "\
Puts a decision, limits and a durable record in front of every tool call

Examples:
  palyra exec -- git status              run a program, limited and recorded
";
    assert!(help.starts_with(start), "{help}");
}

#[test]
fn exit_codes_are_documented_where_people_look() {
    let palyra = Palyra::new();
    for words in [
        &["help", "exit-codes"][..],
        &["exit-codes"],
        &["exec", "--help"],
    ] {
        let text = palyra.run(words).exits(0).stdout;
        for line in [
            "3    120  denied by policy",
            "5    123  daemon unreachable",
            "128+n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    let table = palyra.run(&["exit-codes", "--json"]).exits(0).json();
    assert_eq!(table["items"][6]["exec"], 122);
}

#[test]
fn completions_are_scripts() {
    let palyra = Palyra::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = palyra.run(&["completions", shell]).exits(0).stdout;
        assert!(
            script.contains("approvals") && script.contains("decide"),
            "{shell}"
        );
    }
    let script = palyra.path("completions.bash");
    std::fs::write(&script, palyra.run(&["completions", "bash"]).stdout).unwrap();
    #[expect(clippy::disallowed_methods, reason = "bash judges the script")]
    let judged = Command::new("bash")
        .arg("-n")
        .arg(&script)
        .output()
        .unwrap();
    assert!(judged.status.success(), "{judged:?}");
    let document = palyra
        .run(&["completions", "fish", "--json"])
        .exits(0)
        .json();
    assert_eq!(document["shell"], "fish");
}

#[test]
fn every_command_has_a_page() {
    let palyra = Palyra::new();
    let ran = palyra.run(&["man", "pages", "--json"]).exits(0).json();
    assert_eq!(ran["pages"].as_array().unwrap().len(), commands().len());
    for words in commands() {
        let name = [&["palyra".to_owned()], &words[..]].concat().join("-");
        let page = std::fs::read_to_string(palyra.path(&format!("work/pages/{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        for section in ["EXAMPLES\"\n.TP", "EXIT STATUS"] {
            assert!(page.contains(section), "{name} lacks {section}: {page}");
        }
    }
    assert!(
        palyra
            .run(&["man"])
            .exits(0)
            .stdout
            .contains(".TH palyra 1")
    );
    std::fs::write(palyra.path("work/file"), "").unwrap();
    palyra
        .run(&["man", "file"])
        .exits(1)
        .complains("could not be written", "palyra man");
}

#[test]
fn typos_are_guessed() {
    let palyra = Palyra::new();
    for (words, guess) in [
        (&["stauts"][..], "status"),
        (&["approvals", "lsit"], "list"),
        (&["calls", "list", "--limt", "3"], "--limit"),
        (
            &[
                "approvals",
                "decide",
                "appr_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "--decision",
                "alow",
            ],
            "allow",
        ),
    ] {
        let ran = palyra.run(words).exits(2);
        assert!(
            ran.stderr.contains("similar") && ran.stderr.contains(guess),
            "{ran:?}"
        );
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn usage_errors_of_exec_have_its_own_code() {
    let palyra = Palyra::new();
    for words in [
        &["exec"][..],
        &["exec", "--tiemout", "3s", "--", "id"],
        &["exec", "--timeout", "0", "--", "id"],
        &["exec", "--as", "claude", "--", "id"],
        &["exec", "--as", "user:owner", "--", "id"],
        &["exec", "--tier", "z", "--", "id"],
        &["exec", "--env", "1=2", "--", "id"],
        &["exec", "--env", "NOT_SET_HERE", "--", "id"],
        &["exec", "--workspace", "nowhere", "--", "id"],
        &["--json", "exec"],
    ] {
        let ran = palyra.run(words).exits(125);
        assert!(!ran.stderr.is_empty(), "{words:?}");
    }
    let raw = [
        OsStr::new("exec"),
        OsStr::new("--"),
        OsStr::from_bytes(b"a\xff"),
    ];
    palyra
        .run_raw(&raw)
        .exits(125)
        .complains("not UTF-8", "UTF-8 path");
    assert!(!palyra.home().exists(), "a usage error starts nothing");
}

#[test]
fn ids_and_names_are_checked_at_the_door() {
    let palyra = Palyra::new();
    for words in [
        &["approvals", "show", "call_01kgq5r7h3e8x2m4n6p8q0s2t4"][..],
        &["calls", "show", "../../healthz"],
        &["agents", "show", "a/b"],
        &["agents", "add", "A"],
        &["tools", "show", "a?b"],
        &["calls", "list", "--limit", "0"],
        &["call", "palyra.echo", "--args", "@"],
    ] {
        palyra.run(words).exits(2);
    }
}

#[test]
fn colours_come_and_go_as_asked() {
    let coloured = |palyra: Palyra| {
        let help = palyra.run(&["--help"]).stdout;
        let error = palyra.run(&["status"]).exits(5).stderr;
        assert_eq!(help.contains('\u{1b}'), error.contains('\u{1b}'));
        help.contains('\u{1b}')
    };
    assert!(!coloured(Palyra::new()), "not a terminal");
    assert!(coloured(Palyra::new().with("CLICOLOR_FORCE", "1")));
    assert!(!coloured(Palyra::new().with("NO_COLOR", "1")));
    assert!(!coloured(Palyra::new().with("TERM", "dumb")));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Palyra::new()
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert!(ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn a_full_disk_is_said() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let ran = Palyra::new()
        .command(&["exit-codes"])
        .stdout(full)
        .output()
        .unwrap();
    let ran = crate::palyra::Ran::from(ran).exits(1);
    ran.complains("could not be written", "make room");
}
