//! A terminal for one call: made by the target behind its walls, as nobody else's is in reach there.
//!
//! In Tier-C it is the first one of the cage's own `/dev/pts`; in Tier-B one of the machine's. The
//! call keeps the near end, as its controlling terminal. The far end goes to the daemon with the
//! report that the walls stand, and to nobody else: whoever holds it types.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use palyra_core::{Layer, Window};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::self_test::{layer, missing};
use super::target::Refusal;
use crate::wire::Work;

/// Both ends of a terminal.
pub(super) struct Terminal {
    near: OwnedFd,
    far: OwnedFd,
}

impl Terminal {
    /// The terminal that this work is given, if it is given one. This process has to lead its
    /// session, and to have no terminal yet.
    pub(super) fn for_work(work: &Work) -> Result<Option<Self>, Refusal> {
        let window = match work {
            Work::Process { terminal, .. } => *terminal,
            Work::File { .. } | Work::Probe => None,
        };
        window
            .map(|window| {
                Self::make(window).map_err(|error| Refusal::degraded("a terminal", error))
            })
            .transpose()
    }

    fn make(window: Window) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let far = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&far)?;
        // By the far end and not by its name: that may be another one's by now.
        let near = rustix::pty::ioctl_tiocgptpeer(&far, flags)?;
        rustix::termios::tcsetwinsize(&near, size(window))?;
        rustix::process::ioctl_tiocsctty(&near)?;
        Ok(Self { near, far })
    }

    pub(super) fn near_end(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    pub(super) fn far_end(&self) -> BorrowedFd<'_> {
        self.far.as_fd()
    }
}

/// As the kernel has it.
pub(crate) const fn size(window: Window) -> Winsize {
    Winsize {
        ws_row: window.rows,
        ws_col: window.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Standard input is a terminal, and this session's own.
pub(super) fn observe() -> Result<Layer, Refusal> {
    let session = rustix::process::getsid(None);
    let own = rustix::termios::tcgetsid(rustix::stdio::stdin());
    if own.is_err() || own != session {
        let seen = missing("a terminal of its own", format!("{own:?}"));
        let kind = palyra_core::RunErrorKind::SandboxDegraded;
        return Err(Refusal::new(kind, seen));
    }
    Ok(layer(
        "terminal",
        "its own; only the daemon holds the far end",
    ))
}
