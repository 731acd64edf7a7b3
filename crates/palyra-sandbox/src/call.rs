//! One call, seen from the daemon: hand it over, read along, and learn how it ended.
//!
//! The daemon waits for the supervisor's last word and never for a pipe to close: whoever else may
//! hold a pipe's other end (a process outside can open `/proc/PID/fd/1`) delays nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use palyra_core::{Ending, Layer, RunErrorKind};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::doors::Doors;
use crate::input::{FarEnd, Feeding};
use crate::inside::Mark;
use crate::kit::{Folder, Lines};
use crate::live::{Stream, Wait};
use crate::output::{Capture, OutputSink, OutputStream, Shown};
use crate::sandbox::Inner;
use crate::sys;
use crate::tier_c::TierCBackend;
use crate::tier_c::uids::Lease;
use crate::wire::{self, End, Handles, Order, PACKET, Report, Work};

/// How long after its time, or after being told to end it, a supervisor may take.
const GRACE: Duration = Duration::from_secs(30);

/// How often it is looked, 20 ms apart, whether a call whose supervisor was lost is over.
const LOOKS: usize = 250;

/// Why calls end when the sandbox is shut down.
const STOPPING: &str = "the daemon is stopping";

/// How much is read at once.
const AT_ONCE: usize = 64 * 1024;

/// How much is still read after the end: more than a pipe holds by default.
const AFTER_THE_END: usize = 4 << 20;

/// What a call is started with, besides its order.
pub(crate) struct Means {
    /// The ruleset of Tier-B.
    pub(crate) ruleset: Option<OwnedFd>,
    pub(crate) stdin: OwnedFd,
    pub(crate) lines: Lines,
    /// Its temporary folder, if it gets one.
    pub(crate) tmp: Option<Folder>,
    /// Uids that are its own while it lives.
    pub(crate) lease: Option<Lease>,
    pub(crate) sink: Option<OutputSink>,
    /// What it is sent while it runs.
    pub(crate) feeding: Feeding,
    /// How much of each stream is kept.
    pub(crate) keep: u64,
    pub(crate) cancel: CancellationToken,
    /// Who takes the doors of its network.
    pub(crate) doors: Option<mpsc::Sender<Doors>>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) layers: Vec<Layer>,
    pub(crate) ending: Ending,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

impl Outcome {
    pub(crate) fn failed(kind: RunErrorKind, message: impl Into<String>) -> Self {
        Self {
            layers: Vec::new(),
            ending: Ending::Failed {
                kind,
                message: message.into(),
            },
            stdout: Capture::new(OutputStream::Stdout, 0),
            stderr: Capture::new(OutputStream::Stderr, 0),
        }
    }
}

/// Runs an order to its end.
pub(crate) async fn run(inner: &Inner, order: &Order, means: Means) -> Outcome {
    let Means {
        ruleset,
        stdin,
        lines,
        mut tmp,
        lease,
        sink,
        feeding,
        keep,
        cancel,
        doors,
    } = means;
    let live = match start(inner, order, ruleset.as_ref(), &stdin, lines).await {
        Ok(live) => live,
        Err(error) => {
            let message = format!("the call could not be started: {error}");
            return Outcome::failed(RunErrorKind::RuntimeFailure, message);
        }
    };
    let (shown, wait) = match &order.work {
        Work::Process {
            terminal: Some(_), ..
        } => (Shown::All, Wait::Always),
        Work::Process { .. } | Work::File { .. } | Work::Probe => (Shown::Kept, Wait::AMoment),
    };
    // The call has its own copies.
    drop((ruleset, stdin));
    if let Some(tmp) = &mut tmp {
        tmp.hand_over();
    }
    let follow = Follow {
        tmp,
        stdout: Capture::new(OutputStream::Stdout, keep).showing(shown),
        stderr: Capture::new(OutputStream::Stderr, keep),
        stream: Stream::new(sink, wait),
        feeding,
        cancel,
        doors,
    };
    let outcome = live.follow(inner, order.limits.wall, follow).await;
    drop(lease);
    outcome
}

/// What is needed to follow a call to its end.
struct Follow {
    tmp: Option<Folder>,
    stdout: Capture,
    stderr: Capture,
    stream: Stream,
    feeding: Feeding,
    cancel: CancellationToken,
    doors: Option<mpsc::Sender<Doors>>,
}

/// A call that was handed over.
struct Live {
    report: AsyncFd<OwnedFd>,
    stdout: Option<Source>,
    stderr: Option<Source>,
}

/// Where output comes from.
enum Source {
    Pipe(pipe::Receiver),
    /// The call's terminal, which takes the place of standard output.
    Terminal(FarEnd),
}

async fn start(
    inner: &Inner,
    order: &Order,
    ruleset: Option<&OwnedFd>,
    stdin: &OwnedFd,
    lines: Lines,
) -> io::Result<Live> {
    let backend = order.caged.as_ref().map(|caged| caged.backend);
    let wrapped = backend == Some(TierCBackend::LinuxBubblewrap);
    let order = serde_json::to_vec(order)?;
    let in_a_file = (wrapped || order.len() > PACKET)
        .then(|| memory_file(&order))
        .transpose()?;
    let handles = Handles {
        ruleset: ruleset.map(AsFd::as_fd),
        stdin: stdin.as_fd(),
        stdout: lines.stdout.1.as_fd(),
        stderr: lines.stderr.1.as_fd(),
        report: lines.report.1.as_fd(),
        order: in_a_file.as_ref().map(AsFd::as_fd),
    };
    let packet: &[u8] = match in_a_file {
        Some(_) if wrapped => wire::WRAPPED,
        Some(_) => b"f",
        None => &order,
    };
    let caged = backend.is_some() && !wrapped;
    inner.hand_over(caged, packet, &handles.list()).await?;
    // The call's ends of the lines close here; the call has its own.
    Ok(Live {
        report: sys::watch(lines.report.0, Interest::READABLE)?,
        stdout: Some(Source::pipe(lines.stdout.0)?),
        stderr: Some(Source::pipe(lines.stderr.0)?),
    })
}

/// A file in memory with these bytes, to be read from the start.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("palyra", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}

/// What is known so far.
struct Known {
    layers: Vec<Layer>,
    refused: Option<(RunErrorKind, String)>,
    mark: Option<Mark>,
    supervisor: Option<i32>,
    told_to_end: Option<String>,
    /// That nothing is left of a call whose supervisor was lost.
    seen_to_be_over: bool,
}

impl Live {
    async fn follow(mut self, inner: &Inner, wall: Duration, with: Follow) -> Outcome {
        let Follow {
            mut tmp,
            mut stdout,
            mut stderr,
            mut stream,
            mut feeding,
            cancel,
            doors: taker,
        } = with;
        let mut known = Known {
            layers: Vec::new(),
            refused: None,
            mark: None,
            supervisor: None,
            told_to_end: None,
            seen_to_be_over: false,
        };
        // Until every wall stands.
        let mut doors = None;
        let mut buffer = Vec::with_capacity(AT_ONCE);
        let mut packet = vec![0; PACKET];
        // The supervisor keeps the time; this only makes sure that nobody waits for ever.
        let mut give_up = Instant::now() + wall.min(Duration::from_secs(86_400 * 365)) + GRACE;
        let how = loop {
            let free = !stream.is_blocked();
            tokio::select! {
                biased;
                report = next_report(&self.report, &mut packet) => match report {
                    Ok(Some((Report::Ended { how, survivors }, _))) => {
                        break Some((how, survivors));
                    }
                    Ok(Some((Report::Doors { ports }, handles))) => {
                        doors = Doors::from_list(&ports, handles);
                    }
                    Ok(Some((report, handles))) => {
                        let stands = matches!(report, Report::Confined { .. });
                        known.take(report, inner);
                        if stands && let (Some(taker), Some(doors)) = (&taker, doors.take()) {
                            // Whoever does not take them closes them.
                            let _ = taker.try_send(doors);
                        }
                        if let Some(far_end) = handles.into_iter().next().and_then(far_end) {
                            feeding.terminal(Arc::clone(&far_end));
                            self.stdout = Some(Source::Terminal(far_end));
                        }
                    }
                    // Something of ours was left unread; its last word may still be there.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                    Ok(None) | Err(_) => break None,
                },
                () = cancel.cancelled(), if known.told_to_end.is_none() => {
                    known.told_to_end = Some("the call was cancelled".to_owned());
                    give_up = give_up.min(Instant::now() + GRACE);
                    let _ = wire::send(self.report.get_ref(), wire::END_IT, &[]);
                }
                () = inner.stopping.cancelled(), if known.told_to_end.is_none() => {
                    known.told_to_end = Some(STOPPING.to_owned());
                    give_up = give_up.min(Instant::now() + GRACE);
                    let _ = wire::send(self.report.get_ref(), wire::END_IT, &[]);
                }
                // Before what it writes: a flood of that must not keep Ctrl-C from it.
                () = feeding.step(), if feeding.is_busy() => {}
                () = ready(self.stdout.as_ref()), if free && self.stdout.is_some() => {
                    read(&mut self.stdout, &mut buffer, &mut stdout, &mut stream, Source::announced);
                }
                () = ready(self.stderr.as_ref()), if free && self.stderr.is_some() => {
                    read(&mut self.stderr, &mut buffer, &mut stderr, &mut stream, Source::announced);
                }
                () = stream.unblocked(), if !free => {}
                () = tokio::time::sleep_until(give_up) => break None,
            }
        };
        stream.is_over();
        for (source, capture) in [
            (&mut self.stdout, &mut stdout),
            (&mut self.stderr, &mut stderr),
        ] {
            let mut left = AFTER_THE_END;
            while source.is_some() && left > 0 {
                stream.unblocked().await;
                match read(
                    source,
                    &mut buffer,
                    capture,
                    &mut stream,
                    Source::what_is_there,
                ) {
                    0 => break,
                    length => left = left.saturating_sub(length),
                }
            }
            if let Some(marker) = capture.marker_shown() {
                stream.unblocked().await;
                stream.push(marker);
            }
        }
        stream.finish().await;
        if known.told_to_end.is_none() && inner.stopping.is_cancelled() {
            known.told_to_end = Some(STOPPING.to_owned());
        }
        if how.is_none() {
            known.watch_it_end(inner).await;
            // Its supervisor did not live to clear up.
            if let Some(tmp) = &mut tmp {
                tmp.take_back();
            }
        }
        drop(known.mark.take());
        Outcome {
            ending: known.ending(how),
            layers: known.layers,
            stdout,
            stderr,
        }
    }
}

impl Known {
    fn take(&mut self, report: Report, inner: &Inner) {
        match report {
            Report::Confined {
                supervisor,
                session,
                layers,
            } => {
                self.layers = layers;
                self.supervisor = Some(supervisor);
                self.mark = Some(inner.marks.add(supervisor, session));
            }
            Report::Refused { kind, message } => self.refused = Some((kind, message)),
            Report::Doors { .. } | Report::Ended { .. } => {}
        }
    }

    /// Its supervisor is gone without a word: looks whether the spawn server has ended the rest.
    /// Only a cgroup shows that, so for a call that had none it is not known.
    async fn watch_it_end(&mut self, inner: &Inner) {
        let (Some(base), Some(supervisor)) = (&inner.cgroup, self.supervisor) else {
            return;
        };
        if !self.layers.iter().any(|layer| layer.name == "cgroup") {
            return;
        }
        for _ in 0..LOOKS {
            self.seen_to_be_over = base.is_over(supervisor);
            if self.seen_to_be_over {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn ending(&mut self, how: Option<(End, bool)>) -> Ending {
        let failed = |kind, message: &str| Ending::Failed {
            kind,
            message: message.to_owned(),
        };
        if let Some((kind, message)) = self.refused.take() {
            return Ending::Failed { kind, message };
        }
        let broke = RunErrorKind::RuntimeFailure;
        let confined = !self.layers.is_empty();
        match how {
            // It died while the walls were being built: whatever its status says, no program ran.
            Some((End::Exited(_) | End::Signalled(_), _)) if !confined => {
                let kind = RunErrorKind::SandboxDegraded;
                failed(
                    kind,
                    "it ended before its walls stood; its limits may be too low for that",
                )
            }
            Some((_, true)) => failed(broke, "some of its processes could not be killed"),
            Some((End::Exited(code), _)) => Ending::Exited { code },
            Some((End::Signalled(signal), _)) => Ending::Signalled { signal },
            Some((End::TimedOut, _)) => Ending::TimedOut,
            Some((End::Ended | End::ServerLost, _)) => match self.told_to_end.take() {
                Some(reason) => Ending::Cancelled { reason },
                None => failed(broke, "the sandbox helper was killed"),
            },
            Some((End::Unwatched, _)) => failed(
                broke,
                "the call could not be watched over any longer; what it ran was killed",
            ),
            None if !confined => failed(broke, "the call's supervisor was lost before it began"),
            None if self.seen_to_be_over => failed(
                broke,
                "the call's supervisor was lost; what it ran was killed",
            ),
            None => failed(
                broke,
                "the call's supervisor was lost; some of what it ran may still be running",
            ),
        }
    }
}

/// What was reported, and the descriptors that came along.
async fn next_report(
    socket: &AsyncFd<OwnedFd>,
    packet: &mut [u8],
) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
    socket
        .async_io(Interest::READABLE, |socket| {
            wire::receive_with_handles(socket, packet)
        })
        .await
}

/// A descriptor that came with a report: the daemon's end of the call's terminal.
fn far_end(handle: OwnedFd) -> Option<FarEnd> {
    rustix::io::ioctl_fionbio(&handle, true).ok()?;
    let both = Interest::READABLE.add(Interest::WRITABLE);
    sys::watch(handle, both).ok().map(Arc::new)
}

/// Ready when there is something to read; never when there is no source any more.
async fn ready(source: Option<&Source>) {
    match source {
        // An error shows itself again when reading.
        Some(Source::Pipe(pipe)) => drop(pipe.readable().await),
        Some(Source::Terminal(far_end)) => drop(far_end.readable().await),
        None => std::future::pending().await,
    }
}

/// Reads once; how many bytes came. The source is dropped at its end.
fn read(
    source: &mut Option<Source>,
    buffer: &mut Vec<u8>,
    capture: &mut Capture,
    stream: &mut Stream,
    how: impl FnOnce(&Source, &mut Vec<u8>) -> io::Result<usize>,
) -> usize {
    let Some(open) = source.as_ref() else {
        return 0;
    };
    buffer.clear();
    match how(open, buffer) {
        Ok(0) => *source = None,
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
        // A terminal that nobody has open any more says so by an error.
        Err(_) => *source = None,
    }
    if let Some(chunk) = capture.take(buffer) {
        stream.push(chunk);
    }
    buffer.len()
}

impl Source {
    fn pipe(end: OwnedFd) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd_unchecked(end).map(Self::Pipe)
    }

    /// Reads what the event loop has announced.
    fn announced(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read_buf(buffer),
            Self::Terminal(far_end) => {
                far_end.try_io(Interest::READABLE, |end| at_once(end, buffer))
            }
        }
    }

    /// Reads what is there, announced or not: the call's end may be heard of before its last output,
    /// and the event loop says "nothing to read" until it has looked.
    fn what_is_there(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => at_once(pipe, buffer),
            Self::Terminal(far_end) => at_once(far_end.get_ref(), buffer),
        }
    }
}

fn at_once(from: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::read(&from, rustix::buffer::spare_capacity(buffer))
    })?)
}
