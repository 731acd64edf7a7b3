//! What a call's caller sends it while it runs: bytes, the size of their terminal, the end.
//!
//! At most one piece waits here. Whoever sends more waits in the channel it comes by, so a program
//! that reads nothing costs nobody memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use palyra_core::{Stdin, Window};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::jail::terminal_size;

/// Ctrl-D: what a terminal's user types when they have said everything.
const END_OF_INPUT: u8 = 4;

/// Something that a caller sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fed {
    /// For the program to read.
    Bytes(Vec<u8>),
    /// The caller's terminal is this large now.
    Window(Window),
    /// Nothing more comes.
    End,
}

/// What comes while a call runs.
#[derive(Debug)]
pub struct LiveInput {
    /// How large its terminal is at first, if it gets one.
    pub window: Window,
    /// What comes then.
    pub fed: mpsc::Receiver<Fed>,
}

/// The daemon's end of a call's terminal.
pub(crate) type FarEnd = Arc<AsyncFd<OwnedFd>>;

/// Where it goes.
enum To {
    /// There is nothing to feed, or nobody to read it: what comes is taken and dropped.
    Nobody,
    Pipe(pipe::Sender),
    /// A terminal that is still being made.
    TerminalToCome,
    Terminal(FarEnd),
}

/// Input on its way to a call.
pub(crate) struct Feeding {
    fed: Option<mpsc::Receiver<Fed>>,
    to: To,
    pending: Vec<u8>,
    end_follows: bool,
}

impl Feeding {
    /// Nothing is fed.
    pub(crate) const fn none() -> Self {
        Self {
            fed: None,
            to: To::Nobody,
            pending: Vec::new(),
            end_follows: false,
        }
    }

    /// The call's standard input, and what feeds it; none when it is not fed.
    pub(crate) fn open(
        stdin: &Stdin,
        live: Option<LiveInput>,
    ) -> io::Result<Option<(OwnedFd, Self)>> {
        let (reader, to) = match stdin {
            Stdin::Nothing | Stdin::Text(_) => return Ok(None),
            Stdin::Live => {
                let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&writer, true)?;
                let writer = pipe::Sender::from_owned_fd_unchecked(writer)?;
                (reader, To::Pipe(writer))
            }
            // Its terminal takes the place of this.
            Stdin::Terminal => {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                let nothing = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
                (nothing, To::TerminalToCome)
            }
        };
        let mut feeding = Self {
            fed: live.map(|live| live.fed),
            to,
            ..Self::none()
        };
        if feeding.fed.is_none() {
            feeding.end_follows = true;
        }
        Ok(Some((reader, feeding)))
    }

    /// The call's terminal is there.
    pub(crate) fn terminal(&mut self, far_end: FarEnd) {
        if let To::TerminalToCome = self.to {
            self.to = To::Terminal(far_end);
        }
    }

    /// Nobody reads any more.
    pub(crate) fn stop(&mut self) {
        self.to = To::Nobody;
        self.pending.clear();
    }

    /// Whether there is anything to do or to wait for.
    pub(crate) const fn is_busy(&self) -> bool {
        match self.to {
            To::TerminalToCome => false,
            To::Nobody | To::Pipe(_) | To::Terminal(_) => {
                self.fed.is_some() || !self.pending.is_empty() || self.end_follows
            }
        }
    }

    /// One step: passes on what waits, or takes what comes. May be left and begun again.
    pub(crate) async fn step(&mut self) {
        if !self.pending.is_empty() {
            return self.pass_on().await;
        }
        if self.end_follows {
            self.end_follows = false;
            return self.end();
        }
        let came = match &mut self.fed {
            Some(fed) => fed.recv().await,
            None => std::future::pending().await,
        };
        match came {
            Some(Fed::Bytes(bytes)) => self.pending = bytes,
            Some(Fed::Window(window)) => self.resize(window),
            Some(Fed::End) => self.end_follows = true,
            None => {
                self.fed = None;
                self.end_follows = true;
            }
        }
    }

    async fn pass_on(&mut self) {
        let written = match &self.to {
            To::Nobody | To::TerminalToCome => Ok(self.pending.len()),
            To::Pipe(writer) => match writer.writable().await {
                Ok(()) => writer.try_write(&self.pending),
                Err(error) => Err(error),
            },
            To::Terminal(far_end) => match far_end.writable().await {
                Ok(mut ready) => {
                    let write = |to: &AsyncFd<OwnedFd>| Ok(rustix::io::write(to, &self.pending)?);
                    let would_block = || Err(io::ErrorKind::WouldBlock.into());
                    ready.try_io(write).unwrap_or_else(|_| would_block())
                }
                Err(error) => Err(error),
            },
        };
        match written {
            Ok(length) => drop(self.pending.drain(..length.min(self.pending.len()))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It reads no more. What it writes is another matter.
            Err(_) => self.stop(),
        }
    }

    fn resize(&self, window: Window) {
        match &self.to {
            // The kernel tells the programs in front of it (SIGWINCH).
            To::Terminal(far_end) => {
                let _ = rustix::termios::tcsetwinsize(&**far_end, terminal_size(window));
            }
            To::Nobody | To::Pipe(_) | To::TerminalToCome => {}
        }
    }

    fn end(&mut self) {
        match self.to {
            To::Pipe(_) => self.to = To::Nobody,
            To::Terminal(_) => self.pending.push(END_OF_INPUT),
            To::Nobody | To::TerminalToCome => {}
        }
    }
}
