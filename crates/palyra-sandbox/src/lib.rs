//! The room where plans are carried out: processes of Tier-B and Tier-C, and file tools.
//!
//! It knows how to build the walls around a call and how to observe that they stand; it decides
//! nothing and stores no secrets. A plan arrives through the corridor ([`ProcessRunner`],
//! [`FileRunner`]), is handed to `palyra-jail`, and comes back as a report of what was seen.
//!
//! ```text
//! daemon ── control socket ──▶ palyra-jail: spawn server, one thread
//!    ▲                              ├─ supervisor (subreaper) ── target, waiting for an order
//!    └──── report socket ◀──────────┴─ supervisor ── target: walls, self-test, exec
//! ```
//!
//! The daemon never forks: it has threads and may be large. The helper is started once, is small
//! and has a single thread, so forking it is cheap and what happens between fork and exec may
//! allocate.
//!
//! | module | knows |
//! |---|---|
//! | [`Sandbox`], `probing` | starting, trying what the machine gives, shutting down |
//! | `process`, `caged`, `files` | plans → orders, what was seen → reports |
//! | `tier_c` | what a call in Tier-C is shown, as a pure plan; lent uids |
//! | `call`, `helper`, `wire` | one call from the daemon's side, and the protocol |
//! | `output`, `live`, `input` | what a call writes and reads, while it runs and afterwards |
//! | `walls`, `surround`, `masks`, `landlock` | what a call may reach in the file system |
//! | `program`, `pins`, `roots` | which program, under which uid, and what is in the files that run |
//! | `seccomp`, `bpf` | which system calls it may not make |
//! | `ground` | what in a workspace is a secret or runs later, and what becomes of it |
//! | `doors` | the sockets by which a call reaches the hosts it may reach |
//! | `lookout` | masks that are lost while a call runs |
//! | `quarantine` | where names go that appeared during a call |
//! | `inside` | whether a process belongs to a call |
//! | `kit`, `tmp`, `cgroup` | what a call is given and what is cleared away after it |
//! | `controllers` | limits on a whole call, where cgroups hold them |
//! | `doctor` | what this machine gives, and what to do about what it does not |
//! | [`jail`] | the helper itself |
//! | `sys` | the `unsafe` parts |

mod bpf;
mod caged;
mod call;
mod cgroup;
mod controllers;
mod doctor;
mod doors;
mod files;
mod ground;
mod helper;
mod input;
mod inside;
#[doc(hidden)]
pub mod jail;
mod kit;
mod landlock;
mod live;
mod lookout;
mod masks;
mod output;
mod outside;
mod pins;
mod probing;
mod process;
mod program;
mod quarantine;
mod roots;
mod sandbox;
mod seccomp;
mod surround;
#[expect(
    unsafe_code,
    reason = "system calls that neither std nor rustix offers"
)]
mod sys;
mod tier_c;
mod tmp;
mod walls;
mod wire;

pub use doctor::{Check, CheckState, DoctorReport, Needed, examine};
pub use doors::{Doors, LaidFile, MOST_PORTS, OWN_ADDRESS, Outlet, PROXY};
pub use files::FileRunner;
pub use ground::policy::SandboxProcessRunnerPolicy;
pub use ground::root::text_of;
pub use input::{Fed, LiveInput};
pub use output::{OutputChunk, OutputSink, OutputStream};
pub use pins::{CodeWanted, MoreCode, PinProblem, read_code};
pub use process::{ProcessRunner, With, run_constrained_process};
pub use program::{
    FolderFound, ProgramProblem, RootsFolder, look_at_folder, program_id, resolve_program, run_as,
};
pub use quarantine::{CannotRestore, Quarantine, Quarantined};
pub use sandbox::{CannotTell, Sandbox, SandboxSettings, SandboxStatus, SandboxUnavailable};
pub use tier_c::TierCBackend;
pub use tier_c::host::usual_read_only;
