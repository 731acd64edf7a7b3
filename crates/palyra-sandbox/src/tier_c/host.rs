//! What this machine has that a call in Tier-C is shown: looked at once, when the daemon starts.

use std::io;
use std::path::{Path, PathBuf};

/// The system's own folders, read-only inside. Nothing of a person's and nothing that changes:
/// no `/home`, `/root`, `/var`, `/run`, `/srv`, `/mnt`, `/sys`.
const SYSTEM: [&str; 11] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
];

/// The devices that are there.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Folders of a home directory that hold programs and what they need, and no credentials. Git's own
/// settings are not among them: addresses in there may carry tokens.
const TOOLCHAINS: [&str; 30] = [
    ".asdf",
    ".bun/bin",
    ".cargo/bin",
    ".cargo/git",
    ".cargo/registry",
    ".deno/bin",
    ".ghcup",
    ".config/git/ignore",
    ".julia/artifacts",
    ".julia/compiled",
    ".julia/juliaup",
    ".julia/packages",
    ".julia/registries",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/pnpm",
    ".local/share/rtx",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".volta",
    "go",
];

/// One of the system's folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SystemFolder {
    /// A folder.
    Folder(PathBuf),
    /// A link, such as `/bin` on most systems today, and where it leads.
    Link(PathBuf, PathBuf),
}

/// What the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) system: Vec<SystemFolder>,
    pub(crate) devices: Vec<&'static str>,
}

impl Host {
    pub(crate) fn look() -> Self {
        let system = SYSTEM
            .into_iter()
            .filter_map(|path| system_folder(Path::new(path)).ok().flatten())
            .collect();
        let devices = DEVICES
            .into_iter()
            .filter(|name| Path::new("/dev").join(name).exists())
            .collect();
        Self { system, devices }
    }
}

fn system_folder(path: &Path) -> io::Result<Option<SystemFolder>> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_symlink() {
        let to = std::fs::read_link(path)?;
        return Ok(Some(SystemFolder::Link(path.to_owned(), to)));
    }
    Ok(found
        .is_dir()
        .then(|| SystemFolder::Folder(path.to_owned())))
}

/// What of a home directory a call in Tier-C is shown for reading: toolchains that are there, and
/// git's settings.
#[must_use]
pub fn usual_read_only(home: &Path) -> Vec<PathBuf> {
    TOOLCHAINS
        .into_iter()
        .map(|name| home.join(name))
        // A link is left out: what it leads to is shown if it is on the list itself.
        .filter(|path| std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink()))
        .collect()
}
