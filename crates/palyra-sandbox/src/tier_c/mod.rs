//! Tier-C: a call in namespaces of its own.
//!
//! [`cage`] says purely what is mounted where; [`host`] finds out once what there is to mount. Who
//! builds it is a [`TierCBackend`]: our own helper (`jail::mounts`, `jail::init`, `jail::caged`), or
//! `bwrap` ([`bubblewrap`]) with our helper inside (`jail::wrapped`, `jail::inner`). For macOS and
//! Windows there are plans from the same input ([`macos`], [`windows`]), and nothing that runs them.

pub(crate) mod bubblewrap;
pub(crate) mod cage;
pub(crate) mod copies;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod host;
#[cfg_attr(not(test), expect(dead_code, reason = "planned, and run nowhere yet"))]
pub(crate) mod macos;
pub(crate) mod uids;
#[cfg_attr(not(test), expect(dead_code, reason = "planned, and run nowhere yet"))]
pub(crate) mod windows;

/// What makes the walls of Tier-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierCBackend {
    /// Namespaces made by our own helper.
    LinuxNamespaces,
    /// Namespaces made by `bwrap`, for hosts that grant them to nobody else.
    LinuxBubblewrap,
    /// A profile of `sandbox-exec`. Planned, not run.
    MacosSandboxExec,
    /// A Job Object: limits only, no walls. Planned, not run.
    WindowsJobObject,
}

impl TierCBackend {
    /// The executor's name in reports.
    #[must_use]
    pub const fn executor(self) -> &'static str {
        match self {
            Self::LinuxNamespaces => "sandbox_tier_c_linux_namespaces",
            Self::LinuxBubblewrap => "sandbox_tier_c_linux_bubblewrap",
            Self::MacosSandboxExec => "sandbox_tier_c_macos_sandbox_exec",
            Self::WindowsJobObject => "sandbox_tier_c_windows_job_object",
        }
    }
}
