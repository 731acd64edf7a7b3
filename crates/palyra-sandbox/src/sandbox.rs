//! The sandbox as the gateway sees it: started once, asked for runners, shut down.

use std::path::PathBuf;
use std::sync::Arc;

use palyra_core::Clock;
use tokio_util::sync::CancellationToken;

use crate::output::OutputSink;
use crate::process::{FileRunner, ProcessRunner};

/// What the sandbox needs to know.
#[derive(Clone)]
pub struct SandboxSettings {
    /// The `palyra-jail` binary.
    pub helper: PathBuf,
    /// Folders that no call ever sees, whatever its plan says: the daemon's home.
    pub masked: Vec<PathBuf>,
    /// Where the times in reports come from.
    pub clock: Arc<dyn Clock>,
}

/// The sandbox could not even be set up. (A kernel that lacks a layer is not this: see
/// [`SandboxStatus`].)
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct SandboxUnavailable {
    /// For a person.
    pub why: String,
}

/// Whether a process is inside a call could not be found out; treat it as one that is.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell whether process {pid} is inside a call: {why}")]
pub struct CannotTell {
    /// The process.
    pub pid: i32,
    /// For the log.
    pub why: String,
}

/// What this machine gives.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxStatus {
    /// Whether calls run; otherwise each one is refused.
    pub available: bool,
    /// The kernel's Landlock version; 0 when there is none.
    pub landlock_abi: u32,
    /// Whether a system-call filter was observed in force.
    pub seccomp: bool,
    /// The folder under which calls get a cgroup of their own, where one is writable.
    pub cgroup: Option<PathBuf>,
    /// Why calls are refused; none when they run.
    pub why: Option<String>,
}

/// The sandbox. Clones share one helper.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: SandboxSettings,
    status: SandboxStatus,
}

impl Sandbox {
    /// Starts the helper and finds out, by really trying, which layers this machine has.
    ///
    /// # Errors
    /// The settings make no sense (a masked path that is not absolute).
    pub async fn start(settings: SandboxSettings) -> Result<Self, SandboxUnavailable> {
        Ok(Self {
            inner: Arc::new(Inner {
                settings,
                status: SandboxStatus {
                    available: false,
                    landlock_abi: 0,
                    seccomp: false,
                    cgroup: None,
                    why: Some("not built yet".to_owned()),
                },
            }),
        })
    }

    /// What this machine gives.
    #[must_use]
    pub fn status(&self) -> SandboxStatus {
        self.inner.status.clone()
    }

    /// A runner for processes; what they write also goes to `sink` while they run.
    #[must_use]
    pub fn processes(&self, sink: Option<OutputSink>, cancel: CancellationToken) -> ProcessRunner {
        ProcessRunner::new(self.clone(), sink, cancel)
    }

    /// A runner for file tools.
    #[must_use]
    pub fn files(&self, cancel: CancellationToken) -> FileRunner {
        FileRunner::new(self.clone(), cancel)
    }

    /// Whether this live process is inside a call.
    ///
    /// # Errors
    /// It could not be found out: treat it as "yes".
    pub fn is_inside_a_call(&self, pid: i32) -> Result<bool, CannotTell> {
        Err(CannotTell {
            pid,
            why: "not built yet".to_owned(),
        })
    }

    /// Ends every call and the helper.
    pub async fn shutdown(&self) {}
}
