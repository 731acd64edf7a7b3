//! The README's tour, run command by command.
//!
//! What is run: every line that starts with `$ ` inside a fence that opens with ```` ```console ````,
//! in one bash, in order, in an empty workspace, against a daemon of its own. A line `# exit N`
//! states how the command above it ends; otherwise it ends with 0. Every other line in such a
//! fence shows output, and must be printed by the tour.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use palyra_testkit::Daemon;

const README: &str = include_str!("../../../../README.md");

#[test]
fn the_tour_of_the_readme_runs() {
    let tour = Tour::of(README);
    assert!(
        tour.steps.len() > 15,
        "the tour is gone: {} steps",
        tour.steps.len()
    );
    let daemon = Daemon::start();
    let path = std::env::var("PATH").unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of someone who reads the README"
    )]
    let ran = Command::new("timeout")
        .args(["120", "bash", "-c", &tour.script()])
        .env_clear()
        .env("PATH", format!("{}:{path}", daemon.bins().display()))
        .env("HOME", daemon.workspace())
        .env("PALYRA_HOME", daemon.home_folder())
        .env("NO_COLOR", "1")
        .current_dir(daemon.workspace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{}\n{out}\n{err}", ran.status);
    for shown in tour.shown {
        assert!(
            out.lines().any(|line| line == shown),
            "never printed: {shown}\n{out}"
        );
    }
}

/// The commands of a page, with how each ends, and the output that it shows.
#[derive(Default)]
struct Tour<'a> {
    steps: Vec<(&'a str, u8)>,
    shown: Vec<&'a str>,
}

impl<'a> Tour<'a> {
    fn of(page: &'a str) -> Self {
        let mut tour = Self::default();
        let mut inside = false;
        for line in page.lines() {
            match (inside, line) {
                (false, "```console") => inside = true,
                (false, _) => {}
                (true, "```") => inside = false,
                (true, _) => tour.take(line),
            }
        }
        tour
    }

    fn take(&mut self, line: &'a str) {
        if let Some(command) = line.strip_prefix("$ ") {
            self.steps.push((command, 0));
        } else if let Some(code) = line.strip_prefix("# exit ") {
            if let (Some(step), Ok(code)) = (self.steps.last_mut(), code.parse()) {
                step.1 = code;
            }
        } else {
            self.shown.push(line);
        }
    }

    /// One script, so that variables, the folder and background jobs last from step to step.
    fn script(&self) -> String {
        let mut script = String::new();
        for (number, (command, code)) in self.steps.iter().enumerate() {
            let _ = write!(
                script,
                "{command}\n\
                 ended=$?; if [ $ended -ne {code} ]; then \
                 echo \"step {number}, counted from 0, ended with $ended, not with {code}\" >&2; exit 1; fi\n"
            );
        }
        script
    }
}
