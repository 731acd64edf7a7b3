//! Help texts: examples first, then usage and options.
//!
//! The examples stand in one table, keyed by command. A test parses every one of them, so none
//! can rot.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use clap::CommandFactory;

use crate::args::Palyra;
use crate::exit::Meaning;

/// What it is, how it is used, then the parts.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

const HEADING: Style = AnsiColor::Green.on_default().bold();
const LITERAL: Style = AnsiColor::Cyan.on_default().bold();

/// Command lines and what they do, by command.
pub const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "palyra",
        &[
            (
                "palyra exec -- git status",
                "run a program, limited and recorded",
            ),
            (
                "palyra agents add claude",
                "let an agent work on this folder",
            ),
            (
                "palyra exec --as agent:claude -- make",
                "run it as that agent: you are asked",
            ),
            ("palyra approvals list", "see what waits for your answer"),
            ("palyra calls list", "see what ran"),
        ],
    ),
    (
        "palyra init",
        &[(
            "palyra init",
            "set up; an existing palyra.toml is never touched",
        )],
    ),
    (
        "palyra status",
        &[
            ("palyra status", "is it there, who am I, what waits"),
            (
                "palyra status --as agent:claude",
                "the same, as an agent sees it",
            ),
            ("palyra status --json", "for a script"),
        ],
    ),
    (
        "palyra exec",
        &[
            ("palyra exec -- git status", "in the current folder"),
            (
                "palyra exec --timeout 30s -- cargo test",
                "killed with all that it started",
            ),
            (
                "palyra exec --as agent:claude -- npm ci",
                "as an agent: you are asked",
            ),
            (
                "palyra exec --env CI=1 --env HOME -- make",
                "set one variable, pass another on",
            ),
            ("palyra exec --json -- id", "the whole result as JSON"),
        ],
    ),
    (
        "palyra call",
        &[
            (
                "palyra call palyra.echo --args '{\"message\":\"hi\"}'",
                "arguments as JSON",
            ),
            (
                "palyra call palyra.fs.read --args '{\"path\":\"a.txt\"}'",
                "read in this folder",
            ),
            (
                "palyra call palyra.fs.write --args @request.json",
                "arguments from a file",
            ),
            (
                "palyra call palyra.fs.apply_patch --args -",
                "arguments from standard input",
            ),
        ],
    ),
    (
        "palyra agents",
        &[
            (
                "palyra agents add claude",
                "register an agent for this folder",
            ),
            ("palyra agents list", "list them"),
        ],
    ),
    (
        "palyra agents add",
        &[
            ("palyra agents add claude", "it works on the current folder"),
            (
                "palyra agents add ci --workspace /srv/build",
                "it works on that folder",
            ),
        ],
    ),
    (
        "palyra agents list",
        &[("palyra agents list", "who acts for you, and where")],
    ),
    (
        "palyra agents show",
        &[("palyra agents show claude", "one agent")],
    ),
    (
        "palyra agents remove",
        &[("palyra agents remove claude", "it may no longer act")],
    ),
    (
        "palyra tools",
        &[
            ("palyra tools list", "what can be called"),
            (
                "palyra tools show palyra.fs.read",
                "one tool and its schema",
            ),
        ],
    ),
    (
        "palyra tools list",
        &[("palyra tools list", "what can be called")],
    ),
    (
        "palyra tools show",
        &[(
            "palyra tools show palyra.process.run",
            "what `exec` calls, with its schema",
        )],
    ),
    (
        "palyra calls",
        &[
            ("palyra calls list", "the newest 20"),
            (
                "palyra calls show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "one call and its record",
            ),
        ],
    ),
    (
        "palyra calls list",
        &[
            ("palyra calls list --agent claude", "what an agent did"),
            (
                "palyra calls list --state denied -n 5",
                "the last five denials",
            ),
            ("palyra calls list --json", "for a script"),
        ],
    ),
    (
        "palyra calls show",
        &[(
            "palyra calls show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "arguments, output, timeline",
        )],
    ),
    (
        "palyra approvals",
        &[
            ("palyra approvals list", "what waits"),
            (
                "palyra approvals show appr_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "exactly what would run",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow",
                "let it run, once",
            ),
        ],
    ),
    (
        "palyra approvals list",
        &[
            ("palyra approvals list", "what waits for your answer"),
            ("palyra approvals list --all", "what was answered, too"),
        ],
    ),
    (
        "palyra approvals show",
        &[(
            "palyra approvals show appr_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "exactly what would run",
        )],
    ),
    (
        "palyra approvals decide",
        &[
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow",
                "let it run, once",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision deny \
                 --reason 'too broad'",
                "refuse, and tell the agent why",
            ),
        ],
    ),
    (
        "palyra journal",
        &[(
            "palyra journal tail --follow",
            "watch everything as it happens",
        )],
    ),
    (
        "palyra journal tail",
        &[
            ("palyra journal tail -n 50", "the last fifty entries"),
            (
                "palyra journal tail --follow --json",
                "JSON lines, as they are written",
            ),
        ],
    ),
    (
        "palyra completions",
        &[
            (
                "palyra completions bash",
                "source it, or save it where your shell looks",
            ),
            (
                "palyra completions fish",
                "save it as ~/.config/fish/completions/palyra.fish",
            ),
        ],
    ),
    (
        "palyra man",
        &[
            ("palyra man", "print palyra(1)"),
            (
                "palyra man share/man/man1",
                "write a page for every command",
            ),
        ],
    ),
    (
        "palyra exit-codes",
        &[("palyra exit-codes", "the table, for scripts with --json")],
    ),
];

/// The whole command line, with its help texts.
#[must_use]
pub fn command() -> clap::Command {
    let root = Palyra::command()
        .styles(
            clap::builder::Styles::styled()
                .header(HEADING)
                .usage(HEADING)
                .literal(LITERAL)
                .placeholder(AnsiColor::Cyan.on_default()),
        )
        .max_term_width(100)
        .after_help("Exit codes: `palyra help exit-codes`. Set NO_COLOR for plain text.");
    dressed(root, "palyra")
}

fn dressed(mut command: clap::Command, path: &str) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let below = format!("{path} {name}");
        command = command.mut_subcommand(name, |sub| dressed(sub, &below));
    }
    command = command.help_template(TEMPLATE).before_help(examples(path));
    match path {
        "palyra exec" => command
            .override_usage("palyra exec [OPTIONS] -- PROG [ARGS]...")
            .after_help(exec_notes()),
        "palyra exit-codes" => command.after_help(exit_codes()),
        _ => command,
    }
}

/// The examples of one command, such as `palyra agents add`.
#[must_use]
pub fn examples_of(path: &str) -> &'static [(&'static str, &'static str)] {
    let found = EXAMPLES.iter().find(|(command, _)| *command == path);
    found.map_or(&[], |(_, examples)| examples)
}

fn examples(path: &str) -> String {
    let examples = examples_of(path);
    if examples.is_empty() {
        return String::new();
    }
    let widest = examples
        .iter()
        .map(|(line, _)| line.len())
        .max()
        .unwrap_or(0);
    let mut text = format!("{HEADING}Examples:{HEADING:#}\n");
    for (line, what) in examples {
        // A long line keeps its explanation underneath, so that nothing wraps in the middle.
        let gap = if widest > 48 {
            format!("\n{:8}", "")
        } else {
            " ".repeat(widest - line.len() + 2)
        };
        let _ = writeln!(text, "  {LITERAL}{line}{LITERAL:#}{gap}{what}");
    }
    text.pop();
    text
}

fn exec_notes() -> String {
    format!(
        "Its output is passed on byte for byte; its standard input is empty. While it waits for an \
         approval, the id and the deciding command are on standard error. Ctrl-C cancels it.\n\n{}",
        exit_codes()
    )
}

/// The table of exit codes.
#[must_use]
pub fn exit_codes() -> String {
    let mut text = format!("{HEADING}Exit codes:{HEADING:#}\n");
    let _ = writeln!(text, "  {:>7}  {:>5}  meaning", "others", "exec");
    for row in Meaning::ALL.map(Meaning::row) {
        let _ = writeln!(text, "  {:>7}  {:>5}  {}", row.general, row.exec, row.what);
    }
    let _ = writeln!(text, "  {:>7}  {:>5}  ended by signal n", "", "128+n");
    let _ = write!(
        text,
        "  {:>7}  {:>5}  otherwise the program's own code",
        "", "else"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits as a shell does, for the quoting that the examples use.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for letter in line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words
    }

    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        for sub in command.get_subcommands() {
            leaves(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    #[test]
    fn clap_finds_nothing_wrong() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_every_example_a_command() {
        let mut paths = Vec::new();
        leaves(&command(), "palyra", &mut paths);
        let known: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        for path in &paths {
            assert!(known.contains(&path.as_str()), "no example for `{path}`");
        }
        for path in known {
            assert!(
                paths.iter().any(|found| found == path),
                "no command `{path}`"
            );
        }
    }

    #[test]
    fn examples_fit_on_an_ordinary_terminal() {
        for (path, _) in EXAMPLES {
            let text = anstream::adapter::strip_str(&examples(path)).to_string();
            for line in text
                .lines()
                .filter(|line| !line.contains("_01kgq5r7h3e8x2m4n6p8q0s2t4"))
            {
                assert!(line.len() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn every_example_parses() {
        for (path, examples) in EXAMPLES {
            for (line, _) in *examples {
                assert!(line.starts_with(path), "{line}");
                let parsed = command().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
