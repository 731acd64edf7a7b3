//! What happened: the executor's report, and the attestation made from it.

use crate::blob::Commitment;
use crate::digest::PlanSeal;
use crate::id::{AttestationId, CallId};
use crate::time::Timestamp;

/// One protective layer as the executor *found* it, just before the program started.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Layer {
    /// Which, such as `landlock` or `seccomp`.
    pub name: String,
    /// What was seen, such as `abi 7, open of a masked folder refused`.
    pub observed: String,
}

/// Why a process did not run to its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunErrorKind {
    /// A layer is missing on this machine.
    SandboxUnavailable,
    /// A layer did not take, so the program never started.
    SandboxDegraded,
    /// No such program.
    ProgramNotFound,
    /// The program is there but may not be executed.
    ProgramNotExecutable,
    /// The call's input was refused by the executor.
    InvalidInput,
    /// A folder is not the one that was decided about.
    Changed,
    /// The program, or a script that it is given, is not what was decided about.
    ProgramChanged,
    /// A path leaves the workspace or touches the daemon's home.
    WorkspaceScopeDenied,
    /// A path is a secret of the workspace.
    PathMasked,
    /// A path may only be read: it is run later, by somebody who is not in a call.
    PathReadOnly,
    /// Somebody outside replaced a masked file while the call ran, which uncovered it.
    MaskLost,
    /// A host that was asked for may not be reached, or cannot be held to that here.
    EgressDenied,
    /// Something else went wrong while running it.
    RuntimeFailure,
}

impl RunErrorKind {
    /// The stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::SandboxDegraded => "sandbox_degraded",
            Self::ProgramNotFound => "program_not_found",
            Self::ProgramNotExecutable => "program_not_executable",
            Self::InvalidInput => "invalid_input",
            Self::Changed => "changed_since_decided",
            Self::ProgramChanged => "program_changed",
            Self::WorkspaceScopeDenied => "workspace_scope_denied",
            Self::PathMasked => "path_masked",
            Self::PathReadOnly => "path_read_only",
            Self::MaskLost => "mask_lost",
            Self::EgressDenied => "egress_denied",
            Self::RuntimeFailure => "runtime_failure",
        }
    }
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// Its time was over; every descendant was killed.
    TimedOut,
    /// Its caller went away or the daemon stopped; every descendant was killed.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// It never started, or broke on the way.
    Failed {
        /// What kind.
        kind: RunErrorKind,
        /// For a person. It may name what the arguments name, so no record of ours holds it: it
        /// is kept with the output.
        #[serde(skip)]
        message: String,
    },
}

/// What a call did with its network, in numbers. Hosts are among the contents: they may say what
/// arguments say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetworkUse {
    /// Connections that reached a host.
    pub connections: u64,
    /// What was refused: connections, requests, lookups.
    pub refused: u64,
    /// Bytes from the call to hosts.
    pub sent: u64,
    /// Bytes from hosts to the call.
    pub received: u64,
}

/// What an executor saw.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExecutionReport {
    /// Which runner, such as `sandbox_tier_b`.
    pub executor: String,
    /// The enforcement in one word, such as `tier_b` or `none`.
    pub sandbox_enforcement: String,
    /// The layers observed in force.
    pub layers: Vec<Layer>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// Whether output was dropped.
    pub truncated: bool,
    /// Whether it ran under the host's uid 0.
    pub running_as_root: bool,
    /// What went over its network, where it was held to hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkUse>,
}

/// The record of one execution.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ToolAttestation {
    /// Its id.
    pub attestation_id: AttestationId,
    /// The call.
    pub call_id: CallId,
    /// SHA-256 of the output blob: salt first, then the tool's output as canonical JSON.
    pub execution_sha256: Commitment,
    /// When it was executed.
    pub executed_at: Timestamp,
    /// Whether its time was over.
    pub timed_out: bool,
    /// The plan that ran.
    pub plan: PlanSeal,
    /// What was observed.
    #[serde(flatten)]
    pub report: ExecutionReport,
}
