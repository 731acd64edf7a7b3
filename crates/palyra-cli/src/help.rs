//! Help texts: examples first, then usage and options.
//!
//! The examples come from [`crate::examples`]. A test parses every one of them, so none can rot.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use clap::CommandFactory;

use crate::args::Palyra;
use crate::examples;
use crate::exit::Meaning;

/// What it is, how it is used, then the parts.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

const HEADING: Style = AnsiColor::Green.on_default().bold();
const LITERAL: Style = AnsiColor::Cyan.on_default().bold();

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
    command = command
        .help_template(TEMPLATE)
        .before_help(leading_examples(path));
    match path {
        "palyra exec" => command
            .override_usage("palyra exec [OPTIONS] -- PROG [ARGS]...")
            .after_help(exec_notes()),
        "palyra exit-codes" => command.after_help(exit_codes()),
        _ => command,
    }
}

fn leading_examples(path: &str) -> String {
    let examples = examples::of(path);
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
        "Its output is passed on byte for byte; its standard input is empty unless `--stdin` is \
         given. While it waits for an approval, the id and the deciding command are on standard \
         error. Ctrl-C cancels it.\n\n{}",
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
    use clap::FromArgMatches;

    use super::*;
    use crate::examples::EXAMPLES;

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
            let text = anstream::adapter::strip_str(&leading_examples(path)).to_string();
            for line in text
                .lines()
                .filter(|line| !line.contains("_01kgq5r7h3e8x2m4n6p8q0s2t4"))
                .filter(|line| !line.contains("sha256:"))
            {
                assert!(line.len() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn every_command_and_option_says_what_it_does() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            let words = about.split(' ').count();
            assert!(words >= 4, "`{name}` says only `{about}`");
            assert!(about.len() <= 84, "`{name}` wraps in a list: `{about}`");
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "`{}` of `{name}`", arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    #[test]
    fn every_command_that_speaks_to_the_daemon_takes_as() {
        let id = "_01kgq5r7h3e8x2m4n6p8q0s2t4";
        for line in [
            "status".to_owned(),
            "doctor".to_owned(),
            "exec --as agent:x -- id".to_owned(),
            "call palyra.echo".to_owned(),
            "agents list".to_owned(),
            "agents add y".to_owned(),
            "tools list".to_owned(),
            "calls list --agent y".to_owned(),
            format!("calls show call{id}"),
            "approvals list".to_owned(),
            format!("approvals decide appr{id} --decision deny"),
            "journal tail".to_owned(),
            "journal checkpoint".to_owned(),
            format!("attest show call{id}"),
            "quarantine list".to_owned(),
        ] {
            let more = if line.starts_with("exec") {
                ""
            } else {
                " --as agent:x"
            };
            let matches = command().try_get_matches_from(words(&format!("palyra {line}{more}")));
            let palyra = Palyra::from_arg_matches(&matches.unwrap()).unwrap();
            let whom = palyra.command.whom().map(ToString::to_string);
            assert_eq!(whom.as_deref(), Some("agent:x"), "{line}");
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
