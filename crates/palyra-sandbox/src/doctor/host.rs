//! What a machine says of itself, as far as remedies depend on it.

use std::path::PathBuf;

/// What a machine says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// Ubuntu's: only programs with a profile get something out of a user namespace.
    pub(crate) apparmor_restricts: bool,
    /// Debian's: user namespaces for root only.
    pub(crate) clone_is_off: bool,
    /// There may be none at all.
    pub(crate) no_namespaces: bool,
    /// A container around us.
    pub(crate) container: bool,
    /// This daemon is root's.
    pub(crate) root: bool,
    /// The program that calls descend from.
    pub(crate) program: PathBuf,
    /// Version 2 of cgroups alone, as systemd mounts it today.
    pub(crate) unified: bool,
}

impl Host {
    pub(crate) fn look() -> Self {
        let says = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let marks = ["/.dockerenv", "/run/.containerenv"];
        Self {
            apparmor_restricts: says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                == "1",
            clone_is_off: says("/proc/sys/kernel/unprivileged_userns_clone") == "0",
            no_namespaces: says("/proc/sys/user/max_user_namespaces") == "0",
            container: marks.iter().any(|mark| std::path::Path::new(mark).exists()),
            root: rustix::process::geteuid().is_root(),
            program: std::env::current_exe().unwrap_or_default(),
            unified: std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
        }
    }
}
