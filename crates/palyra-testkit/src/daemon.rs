//! A daemon of one's own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use palyra_api::{Client, Home};
use tempfile::TempDir;

use crate::{Ran, Terminal, eventually};

/// A program that lies beside the test's own: `palyra`, `palyrad` or `palyra-jail`.
#[must_use]
pub fn bin(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let folder = own
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/test");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo build --workspace --bins",
        program.display()
    );
    program
}

/// How a daemon is started.
#[derive(Default)]
pub struct DaemonBuilder {
    config: String,
    uid: Option<u32>,
    log_to: Option<PathBuf>,
}

/// A running daemon, its home and a workspace, all gone when dropped.
pub struct Daemon {
    child: Option<Child>,
    folder: TempDir,
    bins: PathBuf,
    uid: Option<u32>,
    variables: Vec<(String, String)>,
    inherits: Option<PathBuf>,
}

impl DaemonBuilder {
    /// With this `palyra.toml`.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        toml.clone_into(&mut self.config);
        self
    }

    /// As this uid, which owns home and workspace; needs root.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// With its log in this file.
    #[must_use]
    pub fn log_to(mut self, path: PathBuf) -> Self {
        self.log_to = Some(path);
        self
    }

    /// Lays out home and workspace without starting anything.
    #[must_use]
    pub fn prepare(self) -> Daemon {
        let folder = tempfile::Builder::new()
            .prefix("palyra-")
            .tempdir()
            .expect("a temp folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let own = |path: PathBuf| {
            std::fs::create_dir(&path).expect("a folder");
            chown(&path, self.uid, self.uid).expect("chown");
            path
        };
        let home = own(folder.path().join("home"));
        own(folder.path().join("w"));
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).expect("chmod");
        if !self.config.is_empty() {
            let file = home.join("palyra.toml");
            std::fs::write(&file, &self.config).expect("a config");
            chown(&file, self.uid, self.uid).expect("chown");
        }
        let bins = match self.uid {
            None => bin("palyrad").parent().expect("a folder").to_owned(),
            // Another uid may not be able to reach the build folder.
            Some(_) => copies(&folder.path().join("bin")),
        };
        Daemon {
            child: None,
            folder,
            bins,
            uid: self.uid,
            variables: Vec::new(),
            inherits: None,
        }
    }

    /// Starts it and waits until it answers.
    #[must_use]
    pub fn start(mut self) -> Daemon {
        let log_to = self.log_to.take();
        let mut daemon = self.prepare();
        daemon.start_again(log_to.as_deref());
        daemon
    }
}

fn copies(to: &Path) -> PathBuf {
    std::fs::create_dir(to).expect("a folder");
    for name in ["palyra", "palyrad", "palyra-jail"] {
        // By a program of its own: what this process writes to cannot be run while somebody whom
        // another thread is just starting holds the handle too.
        let copied = Command::new("cp").arg(bin(name)).arg(to).status();
        assert!(copied.expect("cp").success(), "{name} was not copied");
    }
    to.to_owned()
}

impl Daemon {
    /// With defaults, as we are.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// With more to say.
    #[must_use]
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder::default()
    }

    /// A variable for the daemon's own environment, from its next start on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Has the daemon inherit this file as descriptor 9, from its next start on.
    pub fn set_inherited(&mut self, file: PathBuf) {
        self.inherits = Some(file);
    }

    fn palyrad(&self) -> Command {
        let Some(file) = &self.inherits else {
            return self.program("palyrad");
        };
        // A shell, because what Rust opens closes itself.
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", r#"exec "$0" 9<"$1""#]);
        command.arg(self.bins.join("palyrad")).arg(file);
        command
    }

    /// Starts it on the same home; it must not be running.
    pub fn start_again(&mut self, log_to: Option<&Path>) {
        assert!(self.child.is_none(), "it is running");
        let log = match log_to {
            None => Stdio::null(),
            Some(path) => std::fs::File::create(path).expect("a log").into(),
        };
        let mut command = self.palyrad();
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().expect("palyrad starts");
        let socket = self.home().socket();
        eventually("palyrad listens", || {
            if let Some(ended) = child.try_wait().expect("wait") {
                panic!("palyrad ended at once: {ended}");
            }
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        self.child = Some(child);
    }

    /// Its folders.
    #[must_use]
    pub fn home(&self) -> Home {
        Home::in_folder(&self.home_folder())
    }

    /// Its home.
    #[must_use]
    pub fn home_folder(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Where `palyra` remembers what it saw of journals.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A folder to work on.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("w")
    }

    /// The folder that holds home and workspace.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where its programs are.
    #[must_use]
    pub fn bins(&self) -> &Path {
        &self.bins
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }

    /// A program of ours with a plain environment, in the workspace, as the daemon's uid.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.command(&self.bins.join(name))
    }

    /// Any program, in the same way.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let user_home = std::env::var_os("HOME").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", user_home)
            .env("PALYRA_HOME", self.home_folder())
            // What is seen of journals is remembered there, and not for this user.
            .env("XDG_STATE_HOME", self.state_folder())
            .env("NO_COLOR", "1")
            .current_dir(self.workspace());
        if let Some(uid) = self.uid {
            command.env("HOME", self.folder()).uid(uid).gid(uid);
        }
        command
    }

    /// Runs `palyra` with these arguments to its end.
    #[must_use]
    pub fn palyra(&self, arguments: &[&str]) -> Ran {
        let mut command = self.program("palyra");
        command.args(arguments).stdin(Stdio::null());
        command.output().expect("palyra starts").into()
    }

    /// Runs `palyra` with this on its standard input.
    #[must_use]
    pub fn palyra_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        use std::io::Write as _;
        let mut command = self.program("palyra");
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("palyra starts");
        let mut stdin = child.stdin.take().expect("it has an input");
        // Who refuses the arguments does not read the input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("palyra ends").into()
    }

    /// Starts `palyra` with these arguments.
    #[must_use]
    pub fn palyra_in_background(&self, arguments: &[&str]) -> Child {
        let mut command = self.program("palyra");
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("palyra starts")
    }

    /// Starts `palyra` with these arguments in front of a terminal.
    #[must_use]
    pub fn palyra_in_terminal(&self, arguments: &[&str]) -> Terminal {
        self.in_terminal(self.program("palyra").args(arguments))
    }

    /// Starts a program in front of a terminal, as the daemon's uid.
    #[must_use]
    pub fn in_terminal(&self, command: &Command) -> Terminal {
        Terminal::start(command, self.uid)
    }

    /// A connection of its own.
    pub async fn client(&self) -> Client {
        Client::connect(&self.home())
            .await
            .expect("the daemon listens")
    }

    /// Registers an agent on this folder.
    pub fn add_agent_on(&self, name: &str, folder: &Path) {
        let folder = folder.to_str().expect("a path in UTF-8");
        let _ = self
            .palyra(&["agents", "add", name, "--workspace", folder])
            .expect_code(0);
    }

    /// Registers an agent on the workspace.
    pub fn add_agent(&self, name: &str) {
        self.add_agent_on(name, &self.workspace());
    }

    /// The id of the one approval that waits.
    #[must_use]
    pub fn pending_approval(&self) -> String {
        eventually("an approval waits", || {
            let list = self
                .palyra(&["approvals", "list", "--json"])
                .expect_code(0)
                .json();
            list["items"][0]["approval_id"].as_str().map(str::to_owned)
        })
    }

    /// Asks it to end, and waits.
    pub fn stop(&mut self) {
        self.signal("TERM");
        self.wait();
    }

    /// Ends it without asking, and waits.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
        self.wait();
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status()
            .expect("kill");
        assert!(sent.success(), "kill -{name} {pid}");
    }

    /// Waits for its end; gives the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let mut child = self.child.take()?;
        child.wait().expect("wait").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
