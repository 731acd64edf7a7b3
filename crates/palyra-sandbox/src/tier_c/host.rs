//! What this machine has that a call is shown (Tier-C) or can reach (Tier-B): looked at once, when
//! the daemon starts.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::doors::{LaidFile, OWN_ADDRESS};
use crate::landlock::Access;
use crate::surround::Reach;

/// The system's own folders, read-only inside. Nothing of a person's and nothing that changes:
/// no `/home`, `/root`, `/var`, `/run`, `/srv`, `/mnt`, `/sys`.
const SYSTEM: [&str; 11] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
];

/// The devices that are there.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The devices that Tier-B can reach: no terminal by name, for those that exist are somebody's. A call
/// that could open one would read what is typed there, and write what looks like a prompt of ours.
/// `tty` is whichever is one's own: a call leads its session, so it has none but one that was made for
/// it. One that it makes for itself, through `ptmx`, needs no name.
const COMMON_DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];

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
    /// Where names of hosts are looked up, if that is told elsewhere than in the system's folders:
    /// `/etc/resolv.conf` often leads to `/run`.
    pub(crate) resolver: Option<PathBuf>,
    /// What a call finds that reaches hosts through doors of ours: whom to ask for names. At the
    /// places that the machine's own files really are at; one that is not there stays so.
    pub(crate) names: Vec<LaidFile>,
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
        let resolver = Path::new("/etc/resolv.conf").canonicalize().ok();
        let outside = |path: &PathBuf| !SYSTEM.iter().any(|folder| path.starts_with(folder));
        Self {
            system,
            devices,
            resolver: resolver.filter(outside),
            names: names(),
        }
    }

    /// What every process of Tier-B can reach besides its workspace and its temporary folder.
    pub(crate) fn reach(&self, read_only: &[PathBuf]) -> Vec<Reach> {
        let folders = self.system.iter().filter_map(|folder| match folder {
            SystemFolder::Folder(at) => Some(at.as_path()),
            SystemFolder::Link(..) => None,
        });
        // Nobody writes to the kernel's own: whoever may under /sys can leave its cgroup.
        let kernels = [Path::new("/proc"), Path::new("/sys")];
        let read = folders
            .chain(kernels)
            .chain(self.resolver.as_deref())
            .chain(read_only.iter().map(PathBuf::as_path))
            .map(|path| Reach::new(path, Access::Read));
        let devices =
            COMMON_DEVICES.map(|name| Reach::new(Path::new("/dev").join(name), Access::Devices));
        read.chain(devices).collect()
    }

    /// The same with a workspace.
    pub(crate) fn reach_of(&self, workspace: &Path, read_only: &[PathBuf]) -> Vec<Reach> {
        let mut roots = self.reach(read_only);
        roots.push(Reach::new(workspace, Access::Workspace));
        roots
    }
}

fn names() -> Vec<LaidFile> {
    let texts = [
        (
            "/etc/resolv.conf",
            format!("nameserver {OWN_ADDRESS}\noptions timeout:5 attempts:2\n"),
        ),
        // One address: there are clients that take the first and do not try the next.
        (
            "/etc/hosts",
            "127.0.0.1 localhost palyra\n::1 ip6-localhost ip6-loopback\n".to_owned(),
        ),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
             protocols: files\nservices: files\nethers: files\nrpc: files\n"
                .to_owned(),
        ),
    ];
    let laid = texts.into_iter().filter_map(|(path, text)| {
        let at = really(Path::new(path))?;
        Some(LaidFile { at, text })
    });
    laid.collect()
}

/// Where a file really is, or would be: `/etc/resolv.conf` often leads to `/run`, where a container
/// may have nothing. None when there is not even a link.
fn really(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let to = path.parent()?.join(std::fs::read_link(path).ok()?);
    let mut plain = PathBuf::new();
    for part in to.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Normal(_) => plain.push(part),
            Component::Prefix(_) => return None,
        }
    }
    Some(plain)
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
