//! Moving bytes between a call and a host. Small amounts go through the stack, so that an idle
//! connection holds no buffer; once a side moves much, the kernel moves it through a pipe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::ledger::{Meter, Way};
use crate::refusal::{EgressCode, Refusal};
use crate::watch::Watch;

const STEP: usize = 16 * 1024;
/// A side that moved this much is worth a pipe.
const MUCH: usize = 256 * 1024;
const PIPE_SIZE: usize = 512 * 1024;
/// A side that rests this long gives its pipe back.
const REST: Duration = Duration::from_secs(2);
/// The kernel lends a user 64 MiB of pipes before it makes them all tiny.
const MOST_PIPES: usize = 64;

static PIPES: AtomicUsize = AtomicUsize::new(0);

/// Relays until both sides are done. What the client sent before comes first; what it sends is
/// watched when there is a watch.
pub(crate) async fn relay(
    client: &TcpStream,
    first: Vec<u8>,
    upstream: &TcpStream,
    meter: &Meter,
    watch: Option<Watch>,
) -> Result<Ended, Refusal> {
    let out = async {
        let mut side = Side::new(client, upstream, meter, Way::Out, watch);
        if !first.is_empty() {
            side.pass(&first).await?;
        }
        drop(first);
        side.run().await
    };
    let back = async {
        Side::new(upstream, client, meter, Way::In, None)
            .run()
            .await
    };
    tokio::try_join!(out, back)
        .map(|_| Ended::Done)
        .or_else(|stop| match stop {
            Stop::Gone => Ok(Ended::Gone),
            Stop::Refused(refusal) => Err(refusal),
        })
}

/// How a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both sides said that they were done.
    Done,
    /// One went away without a word: the other should not take that for an end.
    Gone,
}

/// Why a side stopped before its end.
enum Stop {
    /// One of them went away: nothing more can be done for the other.
    Gone,
    Refused(Refusal),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Side<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    meter: &'a Meter,
    way: Way,
    watch: Option<Watch>,
}

/// What one step did.
enum Step {
    Moved(usize),
    /// It moved, but the other side did not take all of it.
    Rest(usize, Vec<u8>),
    End,
}

impl<'a> Side<'a> {
    const fn new(
        from: &'a TcpStream,
        to: &'a TcpStream,
        meter: &'a Meter,
        way: Way,
        watch: Option<Watch>,
    ) -> Self {
        Self {
            from,
            to,
            meter,
            way,
            watch,
        }
    }

    /// Until the end of what comes, which is passed on too: the other way may go on.
    async fn run(&mut self) -> Result<(), Stop> {
        let mut moved = 0;
        loop {
            self.from.readable().await?;
            let step = match self.step() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                step => step?,
            };
            match step {
                Step::End => break,
                Step::Moved(count) => {
                    moved += count;
                    self.meter.moved(self.way, count)?;
                }
                Step::Rest(count, rest) => {
                    moved += count;
                    self.look(&rest)?;
                    write_all(self.to, &rest).await?;
                    self.meter.moved(self.way, count)?;
                }
            }
            if moved < MUCH || self.watch.is_some() {
                continue;
            }
            if let Some(pipe) = Pipe::borrow() {
                match Box::pin(self.splice(pipe)).await? {
                    Spliced::End => break,
                    Spliced::Resting => moved = 0,
                }
            }
        }
        rustix::net::shutdown(self.to, rustix::net::Shutdown::Write).map_err(io::Error::from)?;
        Ok(())
    }

    /// Reads what is there and writes what is taken, through the stack.
    fn step(&mut self) -> io::Result<Step> {
        let mut buffer = [0; STEP];
        let count = self.from.try_read(&mut buffer)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(Step::End);
        }
        // With a watch nothing is written before it was looked at.
        let written = match self.watch.is_some() {
            true => 0,
            false => match self.to.try_write(bytes) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            },
        };
        match bytes.get(written..) {
            Some([]) | None => Ok(Step::Moved(count)),
            Some(rest) => Ok(Step::Rest(count, rest.to_vec())),
        }
    }

    fn look(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        watch.look(bytes)?;
        if watch.is_over() {
            self.watch = None;
        }
        Ok(())
    }

    async fn pass(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.look(bytes)?;
        write_all(self.to, bytes).await?;
        Ok(self.meter.moved(self.way, bytes.len())?)
    }

    async fn splice(&self, pipe: Pipe) -> Result<Spliced, Stop> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            // The pipe is empty here, so "would block" is about the socket.
            let fill = || {
                Ok(rustix::pipe::splice(
                    self.from, None, &pipe.put, None, PIPE_SIZE, flags,
                )?)
            };
            let filled = match self.from.try_io(Interest::READABLE, fill) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match tokio::time::timeout(REST, self.from.readable()).await {
                        Ok(ready) => ready?,
                        Err(_) => return Ok(Spliced::Resting),
                    }
                    continue;
                }
                filled => filled?,
            };
            if filled == 0 {
                return Ok(Spliced::End);
            }
            let mut left = filled;
            while left > 0 {
                let drain = || {
                    Ok(rustix::pipe::splice(
                        &pipe.take, None, self.to, None, left, flags,
                    )?)
                };
                left -= match self.to.try_io(Interest::WRITABLE, drain) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.to.writable().await?;
                        continue;
                    }
                    drained => drained?.min(left),
                };
            }
            self.meter.moved(self.way, filled)?;
            // Tokio's budget does not see these calls: others on this thread get their turn.
            tokio::task::consume_budget().await;
        }
    }
}

enum Spliced {
    End,
    Resting,
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One of the few pipes.
struct Pipe {
    take: OwnedFd,
    put: OwnedFd,
}

impl Pipe {
    /// One, while there are any.
    fn borrow() -> Option<Self> {
        let more = |count: usize| (count < MOST_PIPES).then_some(count + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        PIPES.fetch_update(set, fetch, more).ok()?;
        let Ok((take, put)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        else {
            PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // A smaller one does too.
        let _ = rustix::pipe::fcntl_setpipe_size(put.as_fd(), PIPE_SIZE);
        Some(Self { take, put })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that says nothing of why it ends but that it was not an ordinary end.
pub(crate) fn reset(stream: TcpStream) {
    // Closing with nothing lingering sends a reset.
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

/// Why a host could not be reached, without more words than needed.
pub(crate) fn unreachable(what: &str, error: &io::Error) -> Refusal {
    Refusal::new(EgressCode::Unreachable, format!("`{what}`: {error}"))
}
