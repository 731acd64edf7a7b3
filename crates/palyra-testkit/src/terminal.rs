//! A terminal to sit in front of: a real one, whose other end the test holds.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::eventually;

/// A program in a terminal of its own.
pub struct Terminal {
    far: std::fs::File,
    near: OwnedFd,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    /// How much of what is seen was waited for already.
    read: usize,
}

impl Terminal {
    /// Starts it in front of a terminal of 30 lines of 100 characters.
    #[must_use]
    pub fn start(command: &Command, uid: Option<u32>) -> Self {
        let (far, near) = pair();
        let terminal = Self {
            child: in_front_of(&near, command, uid),
            seen: Arc::default(),
            far,
            near,
            read: 0,
        };
        terminal.resize(30, 100);
        let mut from = terminal.far.try_clone().expect("a copy");
        let seen = Arc::clone(&terminal.seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // An error: everybody has left it.
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                seen.lock().expect("the screen").extend(&buffer[..length]);
            }
        });
        terminal
    }

    /// Types.
    pub fn keys(&mut self, keys: &str) {
        self.far.write_all(keys.as_bytes()).expect("it takes keys");
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(line);
        self.keys("\r");
    }

    /// Waits until this is written, after what was waited for before.
    pub fn sees(&mut self, text: &str) {
        let mut found = None;
        let seen = Arc::clone(&self.seen);
        let from = self.read;
        for _ in 0..3_000 {
            let seen = seen.lock().expect("the screen");
            let rest = String::from_utf8_lossy(&seen[from..]).into_owned();
            drop(seen);
            found = rest.find(text).map(|at| from + at + text.len());
            if found.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        match found {
            Some(end) => self.read = end,
            None => panic!("`{text}` was not written: {}", self.all()),
        }
    }

    /// All that was ever written.
    #[must_use]
    pub fn all(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("the screen")).into_owned()
    }

    /// Changes its size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&self.far, size).expect("a size");
    }

    /// How it treats what is typed.
    #[must_use]
    pub fn modes(&self) -> String {
        format!("{:?}", rustix::termios::tcgetattr(&self.near))
    }

    /// Its name outside.
    #[must_use]
    pub fn name(&self) -> String {
        let name = rustix::termios::ttyname(&self.near, Vec::new()).expect("a name");
        name.into_string().expect("a name in UTF-8")
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        eventually("the program ends", || self.child.try_wait().expect("wait"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a new terminal.
#[must_use]
pub fn pair() -> (std::fs::File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let far = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::unlockpt(&far).expect("unlocked");
    let near = rustix::pty::ioctl_tiocgptpeer(&far, flags).expect("its other end");
    (far.into(), near)
}

/// By `setsid`, which makes it the program's controlling one and then becomes the program.
fn in_front_of(near: &OwnedFd, command: &Command, uid: Option<u32>) -> Child {
    let mut whole = Command::new("setsid");
    whole.arg("--ctty").arg(command.get_program());
    whole.args(command.get_args()).env_clear();
    whole.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let Some(folder) = command.get_current_dir() {
        whole.current_dir(folder);
    }
    whole.env("TERM", "xterm");
    if let Some(uid) = uid {
        whole.uid(uid).gid(uid);
    }
    let end = || near.as_fd().try_clone_to_owned().expect("a copy");
    whole.stdin(end()).stdout(end()).stderr(end());
    whole.spawn().expect("setsid starts")
}
