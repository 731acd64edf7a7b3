//! Programs that run another one: which of their words are that command.
//!
//! A wrapper without a rule here is opaque, and so is an option without one.

use std::path::Path;

use palyra_core::Effect;

use crate::arguments::Options;
use crate::opaque::Opaque;
use crate::risk::Note;
use crate::unfold::{Input, Unfolder};
use crate::words::Word;
use crate::{builtins, network};

/// A wrapper of the ordinary kind: options, operands of its own, then the command.
struct Rule {
    options: Options,
    /// Words of its own before the command.
    operands: usize,
    /// Takes `NAME=value` words before the command.
    assignments: bool,
}

const fn rule(plain: &'static str, valued: &'static str, operands: usize) -> Rule {
    Rule {
        options: Options {
            plain,
            valued,
            long: &[],
            long_valued: &[],
            anywhere: false,
        },
        operands,
        assignments: false,
    }
}

fn rule_of(name: &str) -> Option<Rule> {
    Some(match name {
        "env" => {
            let mut env = rule("i0v", "u", 0);
            env.options.long = &["ignore-environment", "null", "debug"];
            env.options.long_valued = &["unset"];
            env.assignments = true;
            env
        }
        "sudo" => {
            let mut sudo = rule("bEHknPS", "uprgt", 0);
            sudo.options.long = &["non-interactive", "preserve-env", "set-home", "stdin"];
            sudo.options.long_valued = &["user", "group", "prompt", "role", "type"];
            sudo.assignments = true;
            sudo
        }
        "doas" => rule("n", "u", 0),
        "nice" => {
            let mut nice = rule("", "n", 0);
            nice.options.long_valued = &["adjustment"];
            nice
        }
        "ionice" => rule("t", "cn", 0),
        "nohup" => rule("", "", 0),
        "setsid" => {
            let mut setsid = rule("cfw", "", 0);
            setsid.options.long = &["ctty", "fork", "wait"];
            setsid
        }
        "stdbuf" => {
            let mut stdbuf = rule("", "ioe", 0);
            stdbuf.options.long_valued = &["input", "output", "error"];
            stdbuf
        }
        "unbuffer" => rule("p", "", 0),
        "time" => rule("pv", "f", 0),
        "timeout" => {
            let mut timeout = rule("v", "ks", 1);
            timeout.options.long = &["foreground", "preserve-status", "verbose"];
            timeout.options.long_valued = &["kill-after", "signal"];
            timeout
        }
        "chrt" => rule("bfior", "", 1),
        "taskset" => rule("ac", "", 1),
        "strace" => rule("fqvxyTtrcCwki", "esaPS", 0),
        "fakeroot" | "eatmydata" => rule("", "", 0),
        _ => return None,
    })
}

pub(crate) fn unfold(
    to: &mut Unfolder<'_>,
    name: &str,
    program: &Path,
    arguments: &[Word],
    input: Input,
    depth: usize,
) {
    if asks_for_help(arguments) {
        return;
    }
    match name {
        "xargs" => xargs(to, arguments, depth),
        "watch" => watch(to, arguments, depth),
        "flock" => flock(to, arguments, depth),
        "busybox" | "toybox" => to.applet(program, arguments, input, depth + 1),
        "ssh" => network::ssh(to, arguments),
        "docker" | "podman" => match arguments.first().and_then(Word::known) {
            // They only ask their daemon.
            Some("ps" | "images" | "version" | "info" | "logs" | "inspect" | "top" | "stats") => {}
            Some(_) | None => to.opaque(Opaque::UnknownWrapper),
        },
        name => match rule_of(name) {
            Some(rule) => ordinary(to, &rule, arguments, input, depth),
            None => to.opaque(Opaque::UnknownWrapper),
        },
    }
}

fn asks_for_help(arguments: &[Word]) -> bool {
    matches!(arguments, [Word::Known(only)] if only == "--help" || only == "--version")
}

fn ordinary(to: &mut Unfolder<'_>, rule: &Rule, arguments: &[Word], input: Input, depth: usize) {
    let Some(taken) = rule.options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let mut operands = taken.operands.into_iter().peekable();
    for _ in 0..rule.operands {
        // A duration, a priority, a mask; some versions do without, and a command is first.
        let number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        if !operands.next().and_then(Word::known).is_some_and(number) {
            return to.opaque(Opaque::DynamicArguments);
        }
    }
    while let Some(word) = operands.next_if(|word| rule.assignments && word.shown().contains('=')) {
        let name = word.shown().split('=').next().unwrap_or_default();
        if word.known().is_none() || builtins::is_decisive(name) {
            to.opaque(Opaque::Environment);
        }
    }
    // `env -i` finds programs by a default path that is not ours to know.
    if taken.options.iter().any(|(option, value)| {
        *option == "i"
            || *option == "ignore-environment"
            || value.is_some_and(builtins::is_decisive)
    }) && rule.assignments
    {
        to.opaque(Opaque::Environment);
    }
    to.argv(operands.cloned().collect(), input, depth + 1);
}

/// The command gets more words from the input, or has them put into its own.
fn xargs(to: &mut Unfolder<'_>, arguments: &[Word], depth: usize) {
    let options = Options {
        plain: "0rtxo",
        valued: "EILnPsda",
        long: &["null", "no-run-if-empty", "verbose", "exit"],
        // `--replace` and `--max-lines` take a value only behind `=`.
        long_valued: &["max-args", "max-procs", "delimiter", "arg-file"],
        anywhere: false,
    };
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    for file in ["a", "arg-file"]
        .iter()
        .filter_map(|option| taken.value(option))
    {
        to.file(file, |path| Effect::FsRead { path });
    }
    // Of several, and of those that exclude each other, the last one counts.
    let modes = taken
        .options
        .iter()
        .filter(|(option, _)| matches!(*option, "I" | "L" | "n" | "max-args"));
    let marker = match modes.collect::<Vec<_>>().as_slice() {
        [("I", Some(marker))] => Some(*marker),
        [("I", None)] => return to.opaque(Opaque::DynamicArguments),
        modes if modes.iter().any(|(option, _)| *option == "I") => {
            return to.opaque(Opaque::UnknownOption);
        }
        _ => None,
    };
    let mut command: Vec<Word> = taken.operands.into_iter().cloned().collect();
    if command.is_empty() {
        command.push(Word::Known("echo".to_owned()));
    }
    match marker {
        Some(marker) => fill(&mut command, marker),
        None => command.push(Word::Unknown("…".to_owned())),
    }
    to.argv(command, Input::Unknown, depth + 1);
}

/// Words with the marker in them are only known when it runs.
fn fill(command: &mut [Word], marker: &str) {
    for word in command {
        if word.known().is_some_and(|text| text.contains(marker)) {
            *word = Word::Unknown(word.shown().to_owned());
        }
    }
}

/// Without `-exec` it is a program like others.
pub(crate) fn find(to: &mut Unfolder<'_>, program: &Path, arguments: &[Word], depth: usize) {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some(text) = word.known() else {
            to.opaque(Opaque::DynamicArguments);
            continue;
        };
        match text {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                to.runs_others(program);
                let mut command: Vec<Word> = Vec::new();
                for word in rest.by_ref() {
                    // A `+` is the end only behind `{}`.
                    match (word.known(), command.last().and_then(Word::known)) {
                        (Some(";"), _) | (Some("+"), Some("{}")) => break,
                        _ => command.push(word.clone()),
                    }
                }
                fill(&mut command, "{}");
                // It runs in folders that are found on the way.
                if text.ends_with("dir") && command.first().is_some_and(is_relative) {
                    to.opaque(Opaque::DynamicCommand);
                }
                to.argv(command, Input::Unknown, depth + 1);
            }
            "-delete" => {
                to.notes.insert(Note::Destructive("find -delete"));
            }
            "-files0-from" => match rest.next().map(Word::known) {
                Some(Some(file)) => to.file(file, |path| Effect::FsRead { path }),
                Some(None) | None => to.opaque(Opaque::UnknownPath),
            },
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => match rest.next().map(Word::known) {
                Some(Some(file)) => to.file(file, |path| Effect::FsWrite { path }),
                Some(None) | None => to.opaque(Opaque::UnknownPath),
            },
            _ => {}
        }
    }
}

fn is_relative(word: &Word) -> bool {
    word.known()
        .is_none_or(|text| text.contains('/') && !text.starts_with('/'))
}

/// Its words become a text for `sh -c`, unless `-x` keeps them.
fn watch(to: &mut Unfolder<'_>, arguments: &[Word], depth: usize) {
    let options = Options {
        plain: "bcdegtpx",
        valued: "n",
        long: &[
            "beep",
            "color",
            "differences",
            "errexit",
            "chgexit",
            "no-title",
            "exec",
        ],
        long_valued: &["interval"],
        anywhere: false,
    };
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    if taken.has("x") || taken.has("exec") {
        let command = taken.operands.into_iter().cloned().collect();
        return to.argv(command, Input::Unknown, depth + 1);
    }
    let known: Option<Vec<&str>> = taken.operands.iter().map(|word| word.known()).collect();
    match known {
        Some(words) => shell_text(to, &words.join(" "), depth),
        None => to.opaque(Opaque::DynamicArguments),
    }
}

/// `flock FILE COMMAND…`, `flock FILE -c TEXT`, `flock FD`.
fn flock(to: &mut Unfolder<'_>, arguments: &[Word], depth: usize) {
    let options = Options {
        plain: "nsxueoFv",
        valued: "wE",
        long: &[
            "nonblock",
            "shared",
            "exclusive",
            "unlock",
            "close",
            "no-fork",
        ],
        long_valued: &["timeout", "conflict-exit-code"],
        anywhere: false,
    };
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let [file, command @ ..] = taken.operands.as_slice() else {
        return to.opaque(Opaque::UnknownOption);
    };
    match file.known() {
        Some(file) => to.file(file, |path| Effect::FsWrite { path }),
        None => to.opaque(Opaque::UnknownPath),
    }
    match command {
        [flag, text] if matches!(flag.known(), Some("-c" | "--command")) => match text.known() {
            Some(text) => shell_text(to, text, depth),
            None => to.opaque(Opaque::DynamicArguments),
        },
        command => {
            let command = command.iter().map(|word| (*word).clone()).collect();
            to.argv(command, Input::Unknown, depth + 1);
        }
    }
}

/// Text that a program gives to `sh -c`.
fn shell_text(to: &mut Unfolder<'_>, text: &str, depth: usize) {
    let argv = ["sh", "-c", text].map(|word| Word::Known(word.to_owned()));
    to.argv(argv.to_vec(), Input::Unknown, depth + 1);
}
