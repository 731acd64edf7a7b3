//! The running `palyra-jail`, as the daemon holds it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::controllers::Base;
use crate::jail::Wrapping;
use crate::sys;
use crate::wire;

/// The helper's program, read once when the daemon starts and kept where nothing can change it.
///
/// A call may be able to write to the file it came from (a build folder of its own uid); a helper
/// that is started again must not be what a call put there, because it runs outside of every wall.
pub(crate) struct Image(OwnedFd);

impl Image {
    pub(crate) fn read(program: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(program)?;
        let usual = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels that know the flag may be told to refuse programs in memory without it.
        let image = rustix::fs::memfd_create("palyra-jail", usual | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create("palyra-jail", usual))?;
        let mut file = std::fs::File::from(image);
        io::Write::write_all(&mut file, &bytes)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Self(file.into()))
    }

    /// What starts it, with an empty environment. No `pre_exec`, so this is `posix_spawn`: the
    /// daemon has threads and does not fork.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the helper that every tool is run by"
    )]
    pub(crate) fn command(&self) -> std::process::Command {
        // Its name to the process that is about to become it.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let mut command = std::process::Command::new(path);
        command.arg0("palyra-jail").env_clear().current_dir("/");
        command
    }
}

/// A spawn server and the sockets on which it takes orders.
pub(crate) struct Helper {
    control: AsyncFd<OwnedFd>,
    caged: AsyncFd<OwnedFd>,
    pub(crate) pid: i32,
    child: Mutex<Option<Child>>,
}

impl Helper {
    /// Starts it with the control sockets as its standard input and error, a handle of the daemon's
    /// temporary folder as its standard output, and nothing else.
    pub(crate) fn start(
        image: &Image,
        cgroup: Option<&Path>,
        wrapping: Wrapping,
        controllers: &[Base],
        temp: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let (own, far) = control_pair()?;
        let (own_caged, far_caged) = control_pair()?;
        let child = image
            .command()
            .arg(cgroup.unwrap_or_else(|| Path::new("-")))
            .arg(wrapping.word())
            .args(controllers.iter().map(Base::word))
            .stdin(Stdio::from(far))
            .stdout(temp.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::from(far_caged))
            .spawn()?;
        Ok(Self {
            control: sys::watch(own, Interest::WRITABLE)?,
            caged: sys::watch(own_caged, Interest::WRITABLE)?,
            pid: i32::try_from(child.id()).map_err(io::Error::other)?,
            child: Mutex::new(Some(child)),
        })
    }

    /// Hands over an order, to be carried out in a cage or not. An error means that nobody has it.
    pub(crate) async fn send(
        &self,
        caged: bool,
        order: &[u8],
        handles: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let control = if caged { &self.caged } else { &self.control };
        loop {
            // Trying first saves a turn of the event loop: the socket is hardly ever full.
            match wire::send(control.get_ref().as_fd(), order, handles) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    control.writable().await?.clear_ready();
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

    /// Ends it at once; nobody waits for what it does.
    pub(crate) fn kill(&self) {
        let mut child = self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(mut running) = child.take() {
            let _ = running.kill();
            let _ = running.wait();
        }
    }

    /// Closes the control socket, so that it ends every call and then itself, and gives back what
    /// there is to wait for.
    pub(crate) fn close(&self) -> Option<Child> {
        for control in [&self.control, &self.caged] {
            let _ = rustix::net::shutdown(control.get_ref(), rustix::net::Shutdown::Both);
        }
        self.child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    }
}

/// Our end and the helper's. Only ours does not block: its end is shared by processes that wait.
fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (own, far) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&own, true)?;
    Ok((own, far))
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It ends by itself; somebody has to take note, or it stays as a zombie.
        if let Some(mut child) = self.close() {
            std::thread::spawn(move || child.wait());
        }
    }
}
