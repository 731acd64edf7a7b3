//! The running `palyra-jail`, as the daemon holds it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;
use crate::wire;

/// A spawn server and the socket on which it takes orders.
pub(crate) struct Helper {
    control: AsyncFd<OwnedFd>,
    pub(crate) pid: i32,
    child: Mutex<Option<Child>>,
}

impl Helper {
    /// Starts it with an empty environment, the control socket as its standard input, and nothing
    /// else. No `pre_exec`, so this is `posix_spawn`: the daemon has threads and does not fork.
    pub(crate) fn start(program: &Path, cgroup: Option<&Path>) -> io::Result<Self> {
        let (own, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // Only our end: its end is shared by processes that wait on it.
        rustix::io::ioctl_fionbio(&own, true)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the helper that every tool is run by"
        )]
        let child = std::process::Command::new(program)
            .arg(cgroup.unwrap_or_else(|| Path::new("-")))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            control: sys::watch(own, Interest::WRITABLE)?,
            pid: i32::try_from(child.id()).map_err(io::Error::other)?,
            child: Mutex::new(Some(child)),
        })
    }

    /// Hands over an order. An error means that nobody has it.
    pub(crate) async fn send(&self, order: &[u8], handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            // Trying first saves a turn of the event loop: the socket is hardly ever full.
            match wire::send(self.control.get_ref().as_fd(), order, handles) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.control.writable().await?.clear_ready();
                }
                other => return other,
            }
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_gone(&self) -> bool {
        let mut child = self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match child.as_mut() {
            Some(running) => !matches!(running.try_wait(), Ok(None)),
            None => true,
        }
    }

    /// Closes the control socket, so that it ends every call and then itself, and gives back what
    /// there is to wait for.
    pub(crate) fn close(&self) -> Option<Child> {
        let _ = rustix::net::shutdown(self.control.get_ref(), rustix::net::Shutdown::Both);
        self.child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It ends by itself; somebody has to take note, or it stays as a zombie.
        if let Some(mut child) = self.close() {
            std::thread::spawn(move || child.wait());
        }
    }
}
