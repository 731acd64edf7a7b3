//! A real terminal that can be read back: tmux, with a server of its own.

use std::path::Path;
use std::process::{Command, Output};

use palyra_testkit::{Daemon, eventually};

/// Whether tmux is here; otherwise this test says that it did not run.
pub(crate) fn is_here(test: &str) -> bool {
    let here = ["/usr/bin/tmux", "/bin/tmux", "/usr/local/bin/tmux"];
    if here.iter().any(|at| Path::new(at).is_file()) {
        return true;
    }
    let why = "the terminal program tmux is not installed; sudo apt-get install -y tmux";
    palyra_testkit::not_run(test, why);
    false
}

/// One terminal, gone when dropped.
pub(crate) struct Tmux {
    folder: tempfile::TempDir,
}

impl Tmux {
    /// Starts a command line in a terminal of 80 columns and 24 lines, with this daemon's home. What
    /// it ends with is shown after it ended.
    pub(crate) fn start(daemon: &Daemon, line: &str) -> Self {
        Self::start_with(daemon, line, "")
    }

    /// The same, with more of an environment, as `NAME=value` words.
    pub(crate) fn start_with(daemon: &Daemon, line: &str, environment: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("palyra-tmux-").tempdir();
        let tmux = Self {
            folder: folder.unwrap(),
        };
        let home = daemon.home_folder();
        let script = tmux.folder.path().join("run.sh");
        let text = format!(
            "export PALYRA_HOME='{}' XDG_STATE_HOME='{}'\ncd '{}'\n\
             PATH='{}':$PATH {environment} {line}\necho \"ended with $?\"\nstty -a | grep -o -- '-*icanon'\nexec sleep 600\n",
            home.display(),
            daemon.state_folder().display(),
            daemon.workspace().display(),
            daemon.bins().display(),
        );
        std::fs::write(&script, text).unwrap();
        tmux.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "sh",
            script.to_str().unwrap(),
        ]);
        tmux
    }

    #[track_caller]
    fn tmux(&self, words: &[&str]) -> Output {
        let ran = self.try_tmux(words);
        assert!(ran.status.success(), "{words:?}: {ran:?}");
        ran
    }

    fn try_tmux(&self, words: &[&str]) -> Output {
        #[expect(clippy::disallowed_methods, reason = "the terminal, not a tool")]
        let mut command = Command::new("tmux");
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .arg("-u")
            .arg("-S")
            .arg(self.folder.path().join("socket"))
            .args(words)
            .output()
            .unwrap()
    }

    /// Types a text, letter by letter.
    pub(crate) fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key by its name.
    pub(crate) fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    /// Pastes, as a mouse does.
    pub(crate) fn paste(&self, text: &str) {
        self.tmux(&["set-buffer", text]);
        self.tmux(&["paste-buffer", "-p"]);
    }

    /// Changes its size.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// What is on it now.
    pub(crate) fn screen(&self) -> String {
        let ran = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8(ran.stdout).unwrap()
    }

    /// The same with its escape sequences.
    pub(crate) fn coloured(&self) -> String {
        let ran = self.tmux(&["capture-pane", "-p", "-e"]);
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Waits until all of these are on it.
    #[track_caller]
    pub(crate) fn sees(&self, parts: &[&str]) -> String {
        let mut last = String::new();
        for _ in 0..1_500 {
            last = self.screen();
            if parts.iter().all(|part| last.contains(part)) {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{parts:?} are not all on the screen:\n{last}")
    }

    /// The process id of the `palyra` that runs in it.
    pub(crate) fn palyra(&self) -> String {
        let ran = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = String::from_utf8(ran.stdout).unwrap();
        let path = format!("/proc/{0}/task/{0}/children", shell.trim());
        eventually("palyra runs", || {
            let children = std::fs::read_to_string(&path).ok()?;
            children.split_whitespace().next().map(str::to_owned)
        })
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.try_tmux(&["kill-server"]);
    }
}
