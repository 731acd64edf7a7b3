//! The binary under test, copied into a folder of its own so that no `palyrad` stands next to it.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A copy of `palyra`, a home and a folder to stand in.
pub(crate) struct Palyra {
    scratch: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Palyra {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let palyra = Self {
            scratch,
            variables: Vec::new(),
        };
        std::fs::create_dir(palyra.path("bin")).unwrap();
        std::fs::create_dir(palyra.path("work")).unwrap();
        // Linked rather than written: a file just written may still be busy when it is executed.
        let built = env!("CARGO_BIN_EXE_palyra");
        if std::fs::hard_link(built, palyra.path("bin/palyra")).is_err() {
            std::fs::copy(built, palyra.path("bin/palyra")).unwrap();
        }
        palyra
    }

    /// Sets a variable for every run.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Puts a shell script in the daemon's place.
    pub(crate) fn with_daemon(self, script: &str) -> Self {
        let daemon = self.path("bin/palyrad");
        // Not `env!`: a build taken from a shared folder may be another clone's.
        let stand_in = std::env::current_dir().unwrap().join("tests/it/palyrad.sh");
        if !daemon.exists() {
            // A program just written may still be busy; this one is only linked.
            std::os::unix::fs::symlink(stand_in, daemon).unwrap();
        }
        std::fs::write(self.path("bin/palyrad.lines"), script).unwrap();
        self
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(self.path("bin/palyra"));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("PALYRA_HOME", self.home())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.run_raw(words)
    }

    pub(crate) fn run_raw<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        self.command(words).output().unwrap().into()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Asserts that standard error says this, and hints at that.
    #[track_caller]
    pub(crate) fn complains(self, message: &str, hint: &str) -> Self {
        let (said, hinted) = self
            .stderr
            .split_once("hint:")
            .unwrap_or((&self.stderr, ""));
        assert!(said.contains(message), "{self:?}");
        assert!(hinted.contains(hint), "{self:?}");
        self
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
