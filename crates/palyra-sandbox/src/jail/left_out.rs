//! Walls that a broken helper leaves out. Only tests have such a helper; see [`super::main_without`].

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wall {
    User,
    Processes,
    Mounts,
    Guards,
    Network,
    Ipc,
    HostName,
    Cgroups,
    Identity,
    Limits,
    Session,
    Landlock,
    Capabilities,
    Seccomp,
}

impl Wall {
    /// By the name that a test uses.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Self::User,
            "processes" => Self::Processes,
            "mounts" => Self::Mounts,
            "guards" => Self::Guards,
            "network" => Self::Network,
            "ipc" => Self::Ipc,
            "host-name" => Self::HostName,
            "cgroups" => Self::Cgroups,
            "identity" => Self::Identity,
            "limits" => Self::Limits,
            "session" => Self::Session,
            "landlock" => Self::Landlock,
            "capabilities" => Self::Capabilities,
            "seccomp" => Self::Seccomp,
            _ => return None,
        })
    }
}
