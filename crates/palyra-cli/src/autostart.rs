//! Starting a daemon for a person who has none running.
//!
//! Only `exec` and `call` come here, never with `--as`, and only when nothing listens: a socket
//! that may not be reached means that a daemon is there, or that we run inside a call. The daemon
//! is the binary next to ours, gets a cleared environment, and is started under a lock so that two
//! commands at once start one. It detaches itself, logs to a file and ends when it idles.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use palyra_api::wire::Health;
use palyra_api::{Client, ClientError, Home};

use crate::exit::Meaning;
use crate::failure::Failure;
use crate::folders;
use crate::output::Output;
use crate::safe;

/// What the daemon may see of our environment; anything else could be meant for the program.
const KEPT: [&str; 10] = [
    "HOME",
    "PALYRA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    // Where the vault's key store is: the session's bus, or what systemd handed over.
    "DBUS_SESSION_BUS_ADDRESS",
    "CREDENTIALS_DIRECTORY",
    "PATH",
    "LANG",
    "TZ",
];
/// How long a daemon may take to become ready, or another command to start one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at the socket.
const PAUSE: Duration = Duration::from_millis(10);
/// Silence longer than this is explained.
const SILENCE: Duration = Duration::from_secs(1);
/// The code of a daemon that is not there although it was started.
const NOT_STARTED: &str = "daemon_not_started";
/// How much of the log explains a failed start.
const LOG_LINES: usize = 8;

/// Starts a daemon for this home, or finds that somebody else just did.
///
/// # Errors
/// None may be started here, or it did not start.
pub async fn start(home: &Home, output: &Output) -> Result<Client, Failure> {
    folders::check_owner(home).map_err(unreachable)?;
    let daemon = sibling()?;
    folders::create(home).map_err(unreachable)?;
    let mut wait = Wait::new(output);
    // Held until the daemon answers, so that whoever waits for it finds a daemon.
    let _lock = lock(home, &mut wait).await?;
    if let Some(client) = ready(home).await? {
        return Ok(client);
    }
    let log = folders::private_file()
        .create(true)
        .append(true)
        .open(home.log());
    let log = log.map_err(|error| unreachable(folders::unusable(&home.log(), &error)))?;
    let logged = log.metadata().map_or(0, |log| log.len());
    let mut child = spawn(&daemon, log)?;
    let client = until_ready(home, &mut child, &mut wait)
        .await
        .map_err(|failure| explained(failure, &home.log(), logged, output))?;
    output.note(&format!(
        "started a daemon (pid {}); it ends after 30 idle minutes; its log is `{}`",
        child.id(),
        safe::line(&home.log().display().to_string())
    ));
    Ok(client)
}

/// The `palyrad` that was built and installed with this `palyra`.
fn sibling() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let daemon = own.map(|own| own.with_file_name("palyrad"));
    match daemon {
        Ok(daemon) if daemon.is_file() => Ok(daemon),
        Ok(daemon) => Err(not_started(
            format!(
                "no daemon is running, and there is no `{}` to start",
                daemon.display()
            ),
            "start `palyrad` yourself, or install it next to `palyra`",
        )),
        Err(error) => Err(not_started(
            format!("no daemon is running, and this program cannot find itself: {error}"),
            "start `palyrad` yourself",
        )),
    }
}

/// The lock under which one command at a time starts a daemon.
async fn lock(home: &Home, wait: &mut Wait<'_>) -> Result<File, Failure> {
    use rustix::fs::{FlockOperation, flock};
    let path = home.start_lock();
    let file = folders::private_file().create(true).write(true).open(&path);
    let file = file.map_err(|error| unreachable(folders::unusable(&path, &error)))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(unreachable(folders::unusable(&path, &error.into()))),
        }
        if !wait.on("another command to start the daemon").await {
            let message = format!("`{}` is held by another command", path.display());
            return Err(not_started(
                message,
                "wait for it to end, or end it, then try again",
            ));
        }
    }
}

/// Its standard error is the log: a daemon whose configuration is wrong ends before it has one.
fn spawn(daemon: &Path, log: File) -> Result<Child, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the daemon itself, from next to this binary; no tool runs here"
    )]
    let mut command = Command::new(daemon);
    command
        .arg("--detached")
        .env_clear()
        .envs(kept(|name| std::env::var_os(name)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().map_err(|error| {
        not_started(
            format!("`{}` could not be started: {error}", daemon.display()),
            "start `palyrad` yourself to see why",
        )
    })
}

fn kept(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    KEPT.iter()
        .filter_map(|name| lookup(name).map(|value| (*name, value)))
        .collect()
}

async fn until_ready(
    home: &Home,
    child: &mut Child,
    wait: &mut Wait<'_>,
) -> Result<Client, Failure> {
    loop {
        // Looked at first: a daemon that answers and then ends still explains itself by the log.
        let ended = child.try_wait().ok().flatten();
        if let Some(client) = ready(home).await? {
            return Ok(client);
        }
        // A daemon that forks to detach leaves with success; only failure ends the wait.
        if let Some(status) = ended.filter(|status| !status.success()) {
            return Err(not_started(
                format!("the daemon ended at once ({status})"),
                "run `palyrad` in the foreground to see why",
            ));
        }
        if !wait.on("the daemon to become ready").await {
            return Err(not_started(
                format!("the daemon was not ready within {} s", PATIENCE.as_secs()),
                "run `palyrad` in the foreground to see why",
            ));
        }
    }
}

/// A client of a daemon that answers; `None` while nothing listens.
async fn ready(home: &Home) -> Result<Option<Client>, Failure> {
    let mut client = match Client::connect(home).await {
        Ok(client) => client,
        Err(ClientError::NoDaemon { .. }) => return Ok(None),
        Err(
            error @ (ClientError::Forbidden { .. }
            | ClientError::Refused { .. }
            | ClientError::Broken(_)),
        ) => return Err(error.into()),
    };
    let health = tokio::time::timeout(PATIENCE, client.get::<Health>("/healthz")).await;
    match health {
        Ok(Ok(_)) => Ok(Some(client)),
        Ok(Err(ClientError::NoDaemon { .. } | ClientError::Broken(_))) => Ok(None),
        Ok(Err(error @ (ClientError::Forbidden { .. } | ClientError::Refused { .. }))) => {
            Err(error.into())
        }
        Err(_) => Ok(None),
    }
}

/// Waiting, with a deadline and a word about it when it takes long.
struct Wait<'a> {
    output: &'a Output,
    since: Instant,
    explained: Option<&'static str>,
}

impl<'a> Wait<'a> {
    fn new(output: &'a Output) -> Self {
        Self {
            output,
            since: Instant::now(),
            explained: None,
        }
    }

    /// Pauses; `false` when patience is over.
    async fn on(&mut self, what: &'static str) -> bool {
        tokio::time::sleep(PAUSE).await;
        if self.since.elapsed() > SILENCE && self.explained != Some(what) {
            self.explained = Some(what);
            self.output.note(&format!("waiting for {what}…"));
        }
        self.since.elapsed() < PATIENCE
    }
}

/// Shows what a daemon that did not start wrote to its log.
fn explained(failure: Failure, log: &Path, from: u64, output: &Output) -> Failure {
    let lines = last_lines(log, from).unwrap_or_default();
    if failure.code != NOT_STARTED || lines.is_empty() {
        return failure;
    }
    let name = log.display().to_string();
    output.say(&format!("the end of `{}`:", safe::line(&name)));
    for line in lines {
        output.say(&format!("  {line}"));
    }
    Failure {
        hint: "mend what its log says, then try again".to_owned(),
        ..failure
    }
}

/// The last lines after `from`, harmless to a terminal.
fn last_lines(log: &Path, from: u64) -> std::io::Result<Vec<String>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(
        from.min(length).max(length.saturating_sub(64 << 10)),
    ))?;
    let mut bytes = Vec::new();
    file.take(64 << 10).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = safe::lines(&text).collect();
    let skipped = lines.len().saturating_sub(LOG_LINES);
    Ok(lines.into_iter().skip(skipped).collect())
}

fn not_started(message: String, hint: &str) -> Failure {
    Failure::new(Meaning::Unreachable, NOT_STARTED, message, hint)
}

/// Whatever kept a daemon from starting, nothing has run.
fn unreachable(failure: Failure) -> Failure {
    Failure {
        meaning: Meaning::Unreachable,
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_it_needs_is_kept() {
        let set = [
            "HOME",
            "PATH",
            "LD_PRELOAD",
            "AWS_SECRET_ACCESS_KEY",
            "RUST_LOG",
            "TZ",
        ];
        let kept = kept(|name| set.contains(&name).then(|| OsString::from("x")));
        let names: Vec<&str> = kept.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["HOME", "PATH", "TZ"]);
    }

    #[test]
    fn the_log_of_this_start_only_and_harmless() {
        let scratch = tempfile::tempdir().unwrap();
        let log = scratch.path().join("log");
        let old = "from before\n";
        std::fs::write(&log, format!("{old}one\n\u{1b}[31mtwo\n")).unwrap();
        let lines = last_lines(&log, old.len() as u64).unwrap();
        assert_eq!(lines, ["one", r"\u{1b}[31mtwo"]);
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        std::fs::write(&log, many).unwrap();
        let lines = last_lines(&log, 0).unwrap();
        assert_eq!(
            (lines.len(), lines.last().unwrap().as_str()),
            (LOG_LINES, "99")
        );
        assert!(last_lines(&scratch.path().join("none"), 0).is_err());
    }
}
