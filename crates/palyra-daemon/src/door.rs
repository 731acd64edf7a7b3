//! The door: a Unix socket whose callers are who the kernel says they are.
//!
//! At accept the peer's credentials and its pidfd are taken. Another uid is turned away, and so
//! is any process that lives inside a call: a tool must never become a principal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use nix::sys::socket::{getsockopt, sockopt};
use palyra_core::{Clock, SessionId};
use palyra_gateway::error::RefusalKind;
use palyra_gateway::sessions::Anchor;
use palyra_gateway::{Caller, GatewayService};
use palyra_sandbox::Sandbox;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::problem::Refused;

/// Who is at the door: a caller, or why they are turned away.
pub(crate) type AtTheDoor = Result<Arc<Visitor>, Arc<Refused>>;

/// A caller, and the process they came from.
pub(crate) struct Visitor {
    pub(crate) caller: Caller,
    door: Door,
    pid: i32,
    peer: Peer,
    alone: OnceLock<Option<SessionId>>,
}

impl Visitor {
    /// The caller in a session of their process alone: what serves an agent's client is one session
    /// of that client, whatever terminal it was started from. This only narrows.
    pub(crate) fn alone(&self) -> Caller {
        let session = self.alone.get_or_init(|| {
            let held = hold(self.pid)?;
            // The pid still meant this process when it was held.
            let same = self.peer.is_still_there(self.pid);
            same.then(|| self.door.session_of(held))
        });
        Caller {
            session: session.clone(),
            ..self.caller.clone()
        }
    }
}

/// Listens, replacing a socket that an earlier daemon left behind. The lock must be held.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Ok(()) => tracing::info!(socket = %socket.display(), "replaced a stale socket"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What the door needs to know.
#[derive(Clone)]
pub struct Door {
    /// Where requests go.
    pub router: Router,
    /// Who says which session a caller belongs to.
    pub gateway: GatewayService,
    /// Who is inside a call.
    pub sandbox: Sandbox,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How busy the door is.
    pub traffic: Arc<Traffic>,
}

/// Connections, for deciding when the daemon is idle.
#[derive(Debug)]
pub struct Traffic {
    open: AtomicUsize,
    last: std::sync::Mutex<Instant>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            open: AtomicUsize::new(0),
            last: std::sync::Mutex::new(Instant::now()),
        }
    }
}

impl Traffic {
    /// How long nobody has been connected.
    #[must_use]
    pub fn quiet_for(&self) -> Duration {
        match self.open.load(Ordering::Acquire) {
            0 => self.last().elapsed(),
            _ => Duration::ZERO,
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>) -> Visit {
        self.open.fetch_add(1, Ordering::AcqRel);
        Visit(Arc::clone(self))
    }
}

struct Visit(Arc<Traffic>);

impl Drop for Visit {
    fn drop(&mut self) {
        *self.0.last() = Instant::now();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Door {
    /// Accepts until told to stop; connections end when the last of their requests has.
    pub async fn serve(self, listener: UnixListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (door, stop) = (self.clone(), stop.clone());
                    connections.spawn(async move { door.connection(stream, stop).await });
                }
                // Out of descriptors, say: waiting a moment lets connections end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    async fn connection(self, stream: UnixStream, stop: CancellationToken) {
        let _visit = self.traffic.enter();
        let who: AtTheDoor = self.who(&stream).map(Arc::new).map_err(Arc::new);
        let router = self.router;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(who.clone());
            router.clone().oneshot(request)
        });
        let mut connection = std::pin::pin!(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// Who the kernel says the peer is.
    fn who(&self, stream: &UnixStream) -> Result<Visitor, Refused> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)
            .map_err(|error| unknown(&error.to_string()))?;
        let pid = credentials.pid();
        if pid == 0 {
            // Outside of our pid namespace the kernel has no number for it, and it cannot be told
            // from a tool by looking it up.
            return Err(unknown("it is not in the daemon's pid namespace"));
        }
        let ours = rustix::process::geteuid().as_raw();
        let principal =
            palyra_identity::peer_principal(credentials.uid(), ours).map_err(|error| {
                Refused::new(
                    RefusalKind::Forbidden,
                    "unknown_peer",
                    error.to_string(),
                    "use the daemon of your own user; `palyra exec` starts one",
                )
            })?;
        let peer = Peer::of(stream, pid).map_err(|error| unknown(&error.to_string()))?;
        let inside = self.sandbox.is_inside_a_call(pid);
        let session = match inside {
            // When it is gone already, or cannot be looked at, it belongs to nothing.
            Ok(false) => self.session(pid),
            Ok(true) | Err(_) => None,
        };
        // Asked last: a pid that still belongs to the process at accept was never reused between.
        if !peer.is_still_there(pid) {
            return Err(unknown(
                "the calling process ended before it could be identified",
            ));
        }
        match inside {
            Ok(false) => {
                let caller = Caller::on_new_run(principal, self.clock.as_ref());
                let caller = match session {
                    Some(session) => caller.in_session(session),
                    None => caller,
                };
                Ok(Visitor {
                    caller,
                    door: self.clone(),
                    pid,
                    peer,
                    alone: OnceLock::new(),
                })
            }
            Ok(true) => {
                tracing::warn!(pid, "a process inside a call tried to reach the daemon");
                Err(is_a_tool("this process runs inside a tool call"))
            }
            Err(error) => {
                tracing::warn!(pid, %error, "refused a caller that could not be told from a tool");
                Err(is_a_tool(&error.to_string()))
            }
        }
    }
}

impl Door {
    /// The session of a peer: that of the process that leads its terminal session, while it lives,
    /// else that of the peer itself. A caller cannot choose it: a process leaves its session only for
    /// a new one of its own.
    fn session(&self, pid: i32) -> Option<SessionId> {
        // 0 where the leader is not in our pid namespace, as in a container that was entered from
        // outside: nothing is to be held by that number.
        let leader = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid))).ok()?;
        let held = hold(leader.as_raw()).or_else(|| hold(pid))?;
        Some(self.session_of(held))
    }

    fn session_of(&self, (held, anchor): (OwnedFd, Anchor)) -> SessionId {
        let (session, new) = self.gateway.session_of(anchor);
        if new {
            let gateway = self.gateway.clone();
            tokio::spawn(async move {
                ended(held).await;
                gateway.session_ended(anchor).await;
            });
        }
        session
    }
}

/// A process, held so that its end can be waited for, with what tells it from others of its pid.
fn hold(pid: i32) -> Option<(OwnedFd, Anchor)> {
    let target = rustix::process::Pid::from_raw(pid)?;
    let started = start_time(pid)?;
    let held = rustix::process::pidfd_open(target, rustix::process::PidfdFlags::NONBLOCK).ok()?;
    // The pid meant the same process before and after it was opened, and it has not ended.
    let alive = start_time(pid) == Some(started) && !is_a_zombie(pid);
    alive.then_some((held, Anchor { pid, started }))
}

/// How often it is looked whether a session's process has ended. Nobody new comes from one that has,
/// so this is only how long a connection outlives it.
const LOOKED_AFTER: Duration = Duration::from_millis(200);

/// Returns when the process has ended.
async fn ended(held: OwnedFd) {
    while !has_ended(held.as_fd()) {
        tokio::time::sleep(LOOKED_AFTER).await;
    }
}

/// Whether the process behind a pidfd has ended; one that cannot be told about has.
fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ended = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut ended, Some(&now)) != Ok(0)
}

fn is_a_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, Some(state) if state != "Z" && state != "X")
}

/// The process at the other end, held so that its pid cannot come to mean another.
struct Peer {
    pidfd: OwnedFd,
    /// Only when the pidfd was opened by pid: the start time seen at that moment.
    started: Option<u64>,
}

impl Peer {
    fn of(stream: &UnixStream, pid: i32) -> std::io::Result<Self> {
        match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(pidfd) => {
                return Ok(Self {
                    pidfd,
                    started: None,
                });
            }
            // The option is unknown. Any other error (the peer is gone) must not lead to opening
            // by pid: that pid may be a stranger's by now.
            Err(nix::errno::Errno::ENOPROTOOPT) => {}
            Err(error) => return Err(error.into()),
        }
        // Kernels before 6.5: open by pid, and compare the start time before and after.
        let started = start_time(pid);
        let target = rustix::process::Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(target, flags)?;
        Ok(Self {
            pidfd,
            started: Some(started.ok_or(std::io::ErrorKind::NotFound)?),
        })
    }

    fn is_still_there(&self, pid: i32) -> bool {
        let alive = !has_ended(self.pidfd.as_fd());
        alive
            && self
                .started
                .is_none_or(|started| start_time(pid) == Some(started))
    }
}

/// The 22nd field of `/proc/PID/stat`, counted after the name's last parenthesis.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn is_a_tool(why: &str) -> Refused {
    Refused::new(
        RefusalKind::Forbidden,
        "caller_is_a_tool",
        format!("a process inside a tool call may not speak to the daemon: {why}"),
        "run `palyra` outside of the call",
    )
}

fn unknown(why: &str) -> Refused {
    Refused::new(
        RefusalKind::Forbidden,
        "unknown_peer",
        format!("the calling process could not be identified: {why}"),
        "try again from a process that stays alive until it has its answer",
    )
}
