//! What holds for every call, however it is spelled.

use palyra_core::{Effect, RiskLevel};
use palyra_effects::{Analysis, Opaque, Read, of_process};
use proptest::prelude::*;

use crate::machine::{Machine, analyse, call};

fn shell(text: &str) -> Analysis {
    analyse(&["bash", "-c", text])
}

fn holds_all(larger: &Analysis, smaller: &Analysis) -> bool {
    smaller
        .effects
        .iter()
        .all(|effect| larger.effects.contains(effect))
        && larger.risk.level >= smaller.risk.level
}

/// Fragments that commands are made of, and what goes wrong between them.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "ls",
            "rm -rf x",
            "git status",
            "env A=1",
            "xargs",
            "sh -c",
            "'",
            "\"",
            "$(",
            ")",
            "`",
            "${",
            "}",
            "{",
            "<<E\n",
            "\nE\n",
            "<<<",
            ">",
            "<(",
            "|",
            "&&",
            ";",
            "&",
            "((",
            "))",
            "if",
            "then",
            "fi",
            "for",
            "do",
            "done",
            "case",
            "esac",
            "in",
            "[[",
            "]]",
            "\\",
            "$",
            "$'",
            "~",
            "*",
            "f()",
            "eval",
            "cd",
            "..",
            "=",
            "a=(",
            "\n",
            " ",
            "#",
            "!",
            "{1..9}",
            "${99999999999999999999}",
            "$[1+",
            "{1..99999999999999999999}",
            "coproc",
            "time",
            "@(",
            "?(",
            "curl http://a.example",
            "sudo -u",
            "find . -exec",
            "\\;",
            "timeout 5",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..24).prop_map(|parts| parts.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_breaks_it(text in line(), tight in prop::collection::vec(fragment(), 0..16)) {
        shell(&text);
        shell(&tight.concat());
        analyse(&["sh", "-c", &tight.concat()]);
    }

    #[test]
    fn no_argv_breaks_it(argv in prop::collection::vec(prop_oneof![fragment(), ".{0,12}"], 0..12)) {
        let _ = of_process(&call(&argv), &Machine);
        let programs = ["env", "xargs", "sudo", "find", "ssh", "curl", "git", "busybox", "watch",
            "flock", "timeout", "python3", "bash", "scp", "rsync", "wget", "nc"];
        for program in programs {
            let mut words = vec![program.to_owned()];
            words.extend(argv.iter().cloned());
            let _ = of_process(&call(&words), &Machine);
        }
    }

    #[test]
    fn a_further_segment_takes_nothing_away(
        one in prop::sample::select(COMMANDS.to_vec()),
        more in prop::collection::vec(prop::sample::select(COMMANDS.to_vec()), 1..12),
        between in prop::sample::select(vec![" ; ", " && ", " || ", " | ", "\n", " & "]),
    ) {
        let alone = shell(one);
        let mut lines = vec![one];
        lines.extend(&more);
        prop_assert!(holds_all(&shell(&lines.join(between)), &alone));
        lines.reverse();
        prop_assert!(holds_all(&shell(&lines.join(between)), &alone));
    }
}

const COMMANDS: [&str; 14] = [
    "ls",
    "rm -rf x",
    "git push --force ssh://a.example/x",
    "cat < a > b",
    "curl https://a.example",
    "cd sub",
    "ls() { rm x; }",
    "echo $(id)",
    "env A=1 rm x",
    "x=1",
    "exit",
    "sudo rm /x",
    "eval x",
    "python3 x.py",
];

/// Case 20 of the research page.
#[test]
fn fifty_one_commands_are_judged_no_more_leniently_than_one() {
    let mut lines = vec!["ls"; 50];
    lines.push("rm -rf /");
    let found = shell(&lines.join(" && "));
    assert!(holds_all(&found, &shell("rm -rf /")));
    assert_eq!(found.segments.len(), 52);
    assert_eq!(found.risk.level, RiskLevel::Critical);
    assert!(!found.is_opaque());
}

#[test]
fn too_much_is_opaque_and_quickly_so() {
    let start = std::time::Instant::now();
    let nested = |open: &str, close: &str, times: usize| {
        format!("{}ls{}", open.repeat(times), close.repeat(times))
    };
    for text in [
        "ls;".repeat(600),
        "ls ".repeat(100_000),
        nested("(", ")", 10_000),
        nested("( ", " )", 49),
        "(".repeat(40),
        "( ".repeat(10),
        "case x in x) ".repeat(3),
        "f() { ".repeat(10),
        "for x in a; do ".repeat(40),
        "$(".repeat(40),
        "{ ".repeat(48),
        "((".repeat(4),
        nested("echo $(", ")", 40),
        nested("if ", "; then ls; fi", 60),
        "a\0b".to_owned(),
    ] {
        assert!(
            shell(&text).is_opaque(),
            "{}",
            &text.chars().take(40).collect::<String>()
        );
    }
    let mut argv: Vec<&str> = vec!["env"; 5_000];
    argv.push("ls");
    assert!(analyse(&argv).is_opaque());
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// Inside a small stack, too: the daemon's threads have two megabytes.
#[test]
fn the_deepest_text_that_is_read_fits_the_stack() {
    let deep = || {
        for (open, close) in [
            ("( ", " )"),
            ("{ ", "; }"),
            ("echo $(", ")"),
            ("echo \"$(", ")\""),
            ("if ", "; then ls; fi"),
            ("while ", "; do ls; done"),
            ("echo ${a:-", "}"),
            ("! ", ""),
        ] {
            shell(&format!("{}ls{}", open.repeat(48), close.repeat(48)));
        }
    };
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(deep)
        .unwrap();
    thread.join().unwrap();
}

#[test]
fn a_variable_of_the_call_counts() {
    let argv = ["ls".to_owned()];
    let mut with = call(&argv);
    with.environment = &[("LD_PRELOAD", "x")];
    assert!(of_process(&with, &Machine).is_opaque());
    with.environment = &[("FOO", "x")];
    assert!(!of_process(&with, &Machine).is_opaque());
}

#[test]
fn standard_input_of_the_call_is_a_shells_text() {
    let argv = ["sh".to_owned()];
    let mut with = call(&argv);
    with.stdin = Read::Text("rm x");
    let found = of_process(&with, &Machine);
    assert!(!found.is_opaque());
    let rm = Effect::Exec {
        program: "/usr/bin/rm".into(),
    };
    assert!(found.effects.contains(&rm));
}

/// Whatever the words say, what is typed later may be anything: `less` runs what follows `!`.
#[test]
fn input_that_comes_later_is_not_understood() {
    let argv = ["less", "a"].map(str::to_owned);
    let mut with = call(&argv);
    with.stdin = Read::Live;
    let found = of_process(&with, &Machine);
    assert!(found.opaque.contains(&Opaque::LiveInput));
}
