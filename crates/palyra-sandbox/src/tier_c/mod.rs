//! Tier-C: a call in namespaces of its own.
//!
//! [`cage`] says purely what is mounted where; [`host`] finds out once what there is to mount; the
//! helper (`jail::mounts`, `jail::init`, `jail::caged`) builds it.

pub(crate) mod cage;
pub(crate) mod host;
pub(crate) mod uids;

/// What makes the walls of Tier-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierCBackend {
    /// Namespaces made by our own helper.
    LinuxNamespaces,
}

impl TierCBackend {
    /// The executor's name in reports.
    #[must_use]
    pub const fn executor(self) -> &'static str {
        match self {
            Self::LinuxNamespaces => "sandbox_tier_c_linux_namespaces",
        }
    }
}
