//! What is tried, and what the helper says came of it.

use serde::{Deserialize, Serialize};

use super::Needed;

/// One thing that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Landlock,
    Seccomp,
    UserNamespace,
    Namespaces,
    Mounts,
    Proc,
    IdmappedMount,
    Overlay,
    Processes,
    Memory,
    Cpu,
    Bubblewrap,
}

impl What {
    pub(crate) const ALL: [Self; 12] = [
        Self::Landlock,
        Self::Seccomp,
        Self::UserNamespace,
        Self::Namespaces,
        Self::Mounts,
        Self::Proc,
        Self::IdmappedMount,
        Self::Overlay,
        Self::Processes,
        Self::Memory,
        Self::Cpu,
        Self::Bubblewrap,
    ];

    /// The stable word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::UserNamespace => "user_namespace",
            Self::Namespaces => "namespaces",
            Self::Mounts => "mounts",
            Self::Proc => "proc",
            Self::IdmappedMount => "idmapped_mount",
            Self::Overlay => "overlay",
            Self::Processes => "cgroup_pids",
            Self::Memory => "cgroup_memory",
            Self::Cpu => "cgroup_cpu",
            Self::Bubblewrap => "bubblewrap",
        }
    }

    pub(crate) const fn needed(self) -> Needed {
        match self {
            Self::Landlock | Self::Seccomp => Needed::Always,
            Self::UserNamespace | Self::Namespaces | Self::Mounts | Self::Proc => {
                Needed::Namespaces
            }
            Self::IdmappedMount => Needed::For("workspaces that root owns"),
            Self::Overlay => Needed::For("`--overlay`"),
            Self::Processes => Needed::For("a limit on processes"),
            Self::Memory => Needed::For("a limit on memory"),
            Self::Cpu => Needed::For("a share of the CPU"),
            Self::Bubblewrap => Needed::For("the second back end of Tier-C"),
        }
    }
}

/// What came of making it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) what: What,
    #[serde(flatten)]
    pub(crate) ended: Ended,
}

/// What came of making it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub(crate) enum Ended {
    Works {
        found: String,
    },
    Failed {
        /// How far it came.
        step: String,
        errno: i32,
        error: String,
    },
    NotNeeded {
        why: String,
    },
}
