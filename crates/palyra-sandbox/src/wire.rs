//! What the daemon and the helper say to each other.
//!
//! An order travels on the control socket (one packet: the order as JSON, or nothing when it is too
//! long for a packet and comes in a memory file) together with the descriptors of [`Handles`].
//! Everything about that call then goes over its own report socket: [`Report`]s one way, a single
//! byte meaning "end it" the other way; its closing means the same.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use palyra_core::plan::{FileId, ProgramId, RunAs};
use palyra_core::{CodePart, Content, FileOperation, FsRule, Layer, Limits, RunErrorKind, Window};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::doors::MOST_PORTS;
use crate::tier_c::TierCBackend;
use crate::tier_c::cage::Cage;
use crate::tier_c::uids::ORDINARY;

/// The longest packet; a longer order comes in a memory file.
pub(crate) const PACKET: usize = 32 * 1024;

/// Why there is no cage when something in the workspace is no longer what was seen there. The daemon
/// looks again and tries again.
pub(crate) const MOVED: &str = "what is guarded in the workspace keeps changing";

/// Says "end this call" on a report socket.
pub(crate) const END_IT: &[u8] = b"k";

/// Says that the order in the memory file is for a cage that another program builds. It goes to the
/// targets of Tier-B, and there is no ruleset with it.
pub(crate) const WRAPPED: &[u8] = b"w";

/// The most descriptors that any packet carries.
const MOST_HANDLES: usize = 3 + MOST_PORTS;

/// What to do, and behind which walls.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) work: Work,
    pub(crate) run_as: RunAs,
    pub(crate) limits: Limits,
    pub(crate) landlock_abi: u32,
    /// What the self-test tries to open.
    pub(crate) masked: Vec<PathBuf>,
    /// The call's own temporary folder, removed by its supervisor.
    pub(crate) tmp: Option<CallTmp>,
    /// The cage it runs in, in Tier-C.
    pub(crate) caged: Option<CagedOrder>,
}

/// A cage, and whom a root daemon runs it as.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CagedOrder {
    /// Who builds it.
    pub(crate) backend: TierCBackend,
    pub(crate) cage: Cage,
    pub(crate) lent: Option<Lent>,
}

/// Uids that nobody has, and whose files the call's own are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// The first of a block.
    pub(crate) first: u32,
    pub(crate) owner: u32,
    pub(crate) group: u32,
}

impl Lent {
    /// What `id` inside stands for outside.
    pub(crate) const fn outside(self, id: u32) -> u32 {
        self.first + if id < ORDINARY { id } else { ORDINARY }
    }
}

/// A call's temporary folder: where the call finds it, and which folder was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallTmp {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
}

/// What to do behind the walls.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Nothing: only see whether they stand.
    Probe,
    /// Become a program.
    Process {
        argv: Vec<String>,
        env: Vec<(String, String)>,
        cwd: PathBuf,
        /// Without a network, where no namespace sees to that.
        offline: bool,
        /// What was decided about; anything else is not started.
        decided: Decided,
        /// The terminal that it is given, if it is given one.
        terminal: Option<Window>,
    },
    /// Carry out a file operation and write its result to standard output.
    File {
        workspace: PathBuf,
        /// The folder that was decided about.
        workspace_id: FileId,
        operation: FileOperation,
        /// What may be done with which files, besides what is usual.
        rules: Vec<FsRule>,
    },
}

/// What exactly a process was decided to be and to start in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Decided {
    /// The program first, then what a script names as its interpreter, then what they are given.
    pub(crate) code: Vec<CodeCheck>,
    pub(crate) cwd: FileId,
}

/// One file of a call's code, to be compared before anything starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CodeCheck {
    pub(crate) path: PathBuf,
    pub(crate) part: CodePart,
    pub(crate) content: Content,
    pub(crate) seen: Option<ProgramId>,
    /// Nobody but root can change it or what its path leads to: looking at it is enough.
    pub(crate) fixed: bool,
    /// A copy lies over it.
    pub(crate) copied: bool,
}

/// What the waiting target hands on to its supervisor, with the report socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) wall_ms: u64,
    pub(crate) run_as: RunAs,
    pub(crate) tmp: Option<CallTmp>,
}

impl Assignment {
    pub(crate) fn of(order: &Order) -> Self {
        Self {
            wall_ms: u64::try_from(order.limits.wall.as_millis()).unwrap_or(u64::MAX),
            run_as: order.run_as,
            tmp: order.tmp.clone(),
        }
    }
}

/// What happened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// From the target: every wall stands. What follows is the program's own doing. The other end
    /// of its terminal, if it has one, comes along.
    Confined {
        supervisor: i32,
        /// Its session, where that has the same number outside.
        session: Option<i32>,
        layers: Vec<Layer>,
    },
    /// From the target: it has a network of its own, and these are its doors. They come along: first
    /// those for names, then the proxy, then one for each of these ports.
    Doors { ports: Vec<u16> },
    /// From the target: it did not do its work.
    Refused { kind: RunErrorKind, message: String },
    /// From the supervisor, last: nothing of the call is left.
    Ended {
        how: End,
        /// Processes that would not die in time, which must be said aloud.
        survivors: bool,
    },
}

/// How the target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    /// Because the daemon asked, or is gone.
    Ended,
    /// Because the spawn server is gone.
    ServerLost,
    /// Because its supervisor could not watch over it any longer.
    Unwatched,
}

/// The descriptors of an order, in the order in which they travel.
#[derive(Debug)]
pub(crate) struct Handles<F> {
    pub(crate) stdin: F,
    pub(crate) stdout: F,
    pub(crate) stderr: F,
    pub(crate) report: F,
    /// The Landlock ruleset of Tier-B. A cage makes its own, inside.
    pub(crate) ruleset: Option<F>,
    /// The order, when it did not fit into the packet.
    pub(crate) order: Option<F>,
}

impl<'a> Handles<BorrowedFd<'a>> {
    pub(crate) fn list(&self) -> Vec<BorrowedFd<'a>> {
        let fixed = [self.stdin, self.stdout, self.stderr, self.report];
        let rest = self.ruleset.into_iter().chain(self.order);
        fixed.into_iter().chain(rest).collect()
    }
}

impl Handles<OwnedFd> {
    pub(crate) fn from_list(list: Vec<OwnedFd>, with_ruleset: bool) -> Option<Self> {
        let mut all = list.into_iter();
        let handles = Self {
            stdin: all.next()?,
            stdout: all.next()?,
            stderr: all.next()?,
            report: all.next()?,
            ruleset: match with_ruleset {
                true => Some(all.next()?),
                false => None,
            },
            order: all.next(),
        };
        all.next().is_none().then_some(handles)
    }
}

/// Sends one packet with descriptors.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(io::Error::other("too many descriptors for a packet"));
    }
    let parts = [IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends one value.
pub(crate) fn send_value(socket: impl AsFd, value: &impl Serialize) -> io::Result<()> {
    send(socket, &serde_json::to_vec(value)?, &[])
}

/// Receives one packet; none at the end of the conversation.
///
/// What does not fit is an error, never a shorter packet; the descriptors that came are closed.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(&socket, &mut parts, &mut ancillary, flags)
        })?
    };
    let mut handles = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            handles.extend(came);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a packet did not fit",
        ));
    }
    if received.bytes == 0 && handles.is_empty() {
        return Ok(None);
    }
    Ok(Some((received.bytes, handles)))
}

/// Receives one value; none at the end of the conversation.
pub(crate) fn receive_value<T: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<T>> {
    Ok(receive_with_handles(socket, buffer)?.map(|(value, _)| value))
}

/// The same, with the descriptors that came along.
pub(crate) fn receive_with_handles<T: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some((length, handles)) = receive(socket, buffer)? else {
        return Ok(None);
    };
    let bytes = buffer.get(..length).unwrap_or_default();
    let value = serde_json::from_slice(bytes)?;
    Ok(Some((value, handles)))
}
