//! The cage of a call in Tier-C, as a plan: what is mounted where, in which order.
//!
//! Everything starts from an empty folder in memory. What is not listed here does not exist inside:
//! the daemon's home, other people's files, sockets and credentials are not forbidden but absent.
//! [`plan`] is pure and compared with a golden file; the helper carries it out step by step.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use palyra_core::Pinned;
use palyra_core::plan::{EgressEnforcementMode, FileId, ProcView};
use serde::{Deserialize, Serialize};

use super::copies::{CodeCopy, copies};
use super::host::{Host, SystemFolder};
use crate::doors::LaidFile;
use crate::ground::policy::Guard;

/// What the cage of one call is made from.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) workspace_id: FileId,
    /// Whether the workspace is to be written to.
    pub(crate) writable: bool,
    pub(crate) home: Option<&'a Path>,
    pub(crate) read_only: &'a [PathBuf],
    /// Every place that has to stay hidden, in canonical spelling.
    pub(crate) masked: &'a [PathBuf],
    /// What is held in the workspace.
    pub(crate) guards: Vec<Guard>,
    /// What runs, as it was decided.
    pub(crate) code: &'a [Pinned],
    pub(crate) egress: EgressEnforcementMode,
    /// The ports at which it reaches hosts, through doors of ours.
    pub(crate) ports: &'a [u16],
    /// What else of ours is laid into it.
    pub(crate) laid: &'a [LaidFile],
    pub(crate) proc: ProcView,
    /// How much the folders in memory may hold.
    pub(crate) scratch: u64,
    /// Without it there is nothing but the workspace: file tools start no program.
    pub(crate) with_system: bool,
}

/// The cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cage {
    /// In this order: what comes later may lie inside what came before.
    pub(crate) steps: Vec<Step>,
    /// Where files can be made, and how freely.
    pub(crate) writable: Vec<(PathBuf, Writing)>,
    pub(crate) isolated_network: bool,
    /// The ports of the doors that are made in its network; none at all without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
    pub(crate) scratch: u64,
}

impl Cage {
    /// Where the workspace is.
    pub(crate) fn workspace(&self) -> &Path {
        let is = |step: &&Step| matches!(step, Step::Workspace { .. });
        let found = self.steps.iter().find(is).and_then(Step::shows);
        found.unwrap_or_else(|| Path::new("/"))
    }

    /// What is held in it.
    pub(crate) fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.steps.iter().filter_map(|step| {
            let Step::Guard(guard) = step else {
                return None;
            };
            Some(guard)
        })
    }

    /// The files of the workspace that are copied.
    pub(crate) fn code(&self) -> impl Iterator<Item = &CodeCopy> {
        self.steps.iter().filter_map(|step| {
            let Step::Code(copy) = step else { return None };
            Some(copy)
        })
    }

    /// What of ours is laid into it.
    pub(crate) fn laid(&self) -> impl Iterator<Item = &LaidFile> {
        self.steps.iter().filter_map(|step| {
            let Step::Laid(file) = step else { return None };
            Some(file)
        })
    }

    /// Whether a copy lies over this file of the workspace.
    pub(crate) fn copies(&self, real: &Path) -> bool {
        let workspace = self.workspace();
        self.code().any(|copy| workspace.join(&copy.at) == real)
    }

    /// Whether something of the machine's is shown at this path.
    pub(crate) fn shows(&self, path: &Path) -> bool {
        shown(&self.steps, path)
    }
}

fn shown(steps: &[Step], path: &Path) -> bool {
    let mut shown = steps.iter().filter_map(Step::shows);
    shown.any(|at| path.starts_with(at))
}

/// How freely files can be made in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Writing {
    /// Files, folders and links; nothing that others would trip over later.
    Workspace,
    /// Sockets and pipes as well: it goes with the call.
    Scratch,
}

/// One thing that is put into the cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A link.
    Link { at: PathBuf, to: PathBuf },
    /// A folder or file of the machine's, for reading.
    Read { at: PathBuf },
    /// The workspace: the folder that was decided about and no other.
    Workspace {
        at: PathBuf,
        id: FileId,
        writable: bool,
    },
    /// A folder in memory.
    Scratch { at: PathBuf, mode: u32 },
    /// A small file of ours, over whatever is there.
    Laid(LaidFile),
    /// A device.
    Device { at: PathBuf },
    /// Terminals of its own.
    Terminals,
    /// The processes inside.
    Proc { full: bool },
    /// A folder on the way to something that is covered: it can be neither moved nor replaced, or the
    /// next call would see under another name what is covered under this one.
    Pin { at: PathBuf },
    /// Something that is there and must not be seen. If it is not there, nobody inside may make it:
    /// the folder it would be in is only shown, if that is below this one.
    Cover {
        at: PathBuf,
        within: Option<PathBuf>,
    },
    /// A file of the workspace that runs: a copy of it, made when the cage is built and only if it is
    /// what was decided about, lies over it and cannot be written to.
    Code(CodeCopy),
    /// Something in the workspace that is masked, read-only or cannot be moved. If it is another one
    /// by now, or somewhere else, there is no cage.
    Guard(Guard),
}

impl Step {
    /// What of the machine's it shows, with everything beneath.
    fn shows(&self) -> Option<&Path> {
        match self {
            Self::Read { at } | Self::Workspace { at, .. } => Some(at),
            Self::Link { .. }
            | Self::Scratch { .. }
            | Self::Laid(_)
            | Self::Device { .. }
            | Self::Terminals
            | Self::Proc { .. }
            | Self::Pin { .. }
            | Self::Cover { .. }
            | Self::Code(_)
            | Self::Guard(_) => None,
        }
    }
}

/// Why there can be no cage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoCage {
    #[error("the workspace `{0}` is the whole machine, or the operating system's")]
    Workspace(PathBuf),
    #[error("`{0}` is the daemon's home or inside it")]
    Masked(PathBuf),
}

/// What `/proc` in full would give away or let be changed.
pub(crate) const COVERED_IN_PROC: [&str; 10] = [
    "sys",
    "sysrq-trigger",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "kallsyms",
    "timer_list",
    "sched_debug",
    "scsi",
];

/// The cage for a call.
pub(crate) fn plan(host: &Host, wanted: &Wanted<'_>) -> Result<Cage, NoCage> {
    let workspace = wanted.workspace;
    can_be_worked_on(workspace, wanted.masked)?;
    let mut steps = Vec::new();
    let mut writable = Vec::new();
    if wanted.with_system {
        system(host, workspace, &mut steps);
        // Without the machine's network there is nobody to ask for names of hosts.
        if !wanted.egress.is_enforced() {
            let resolver = host.resolver.iter().cloned();
            steps.extend(resolver.map(|at| Step::Read { at }));
        }
        if !wanted.ports.is_empty() {
            steps.extend(host.names.iter().cloned().map(Step::Laid));
        }
        scratch(wanted, &mut steps, &mut writable);
        steps.extend(wanted.laid.iter().cloned().map(Step::Laid));
        steps.extend(read_only(wanted, host));
    }
    steps.push(Step::Workspace {
        at: workspace.to_owned(),
        id: wanted.workspace_id,
        writable: wanted.writable,
    });
    if wanted.writable {
        writable.push((workspace.to_owned(), Writing::Workspace));
    }
    let full = wanted.proc == ProcView::Full;
    steps.push(Step::Proc { full });
    if full {
        let at = |name| Path::new("/proc").join(name);
        steps.extend(COVERED_IN_PROC.map(|name| Step::Cover {
            at: at(name),
            within: None,
        }));
    }
    steps.extend(covers(wanted, &steps));
    steps.extend(wanted.guards.iter().cloned().map(Step::Guard));
    steps.extend(copies(wanted).map(Step::Code));
    Ok(Cage {
        steps,
        writable,
        isolated_network: wanted.egress.is_enforced(),
        ports: wanted.ports.to_vec(),
        scratch: wanted.scratch,
    })
}

/// Whether somebody may work there, in whichever tier.
pub(crate) fn can_be_worked_on(workspace: &Path, masked: &[PathBuf]) -> Result<(), NoCage> {
    let kernels = ["/proc", "/sys", "/dev"];
    let is_kernels = kernels.iter().any(|own| workspace.starts_with(own));
    if workspace == Path::new("/") || is_kernels || is_the_systems(workspace) {
        return Err(NoCage::Workspace(workspace.to_owned()));
    }
    if masked.iter().any(|mask| workspace.starts_with(mask)) {
        return Err(NoCage::Masked(workspace.to_owned()));
    }
    Ok(())
}

/// Whether this is the operating system's, and of no project. A daemon of root lends the rights of a
/// folder's owner: whoever writes here owns the machine, and whoever reads here reads its secrets.
pub(crate) fn is_the_systems(workspace: &Path) -> bool {
    const WITH_ALL: [&str; 18] = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc",
        "/boot",
        "/run",
        "/nix",
        "/var/spool",
        "/var/cache",
        "/var/lib/apt",
        "/var/lib/dpkg",
        "/var/lib/pacman",
        "/var/lib/rpm",
        "/var/lib/systemd",
    ];
    const THEMSELVES: [&str; 5] = ["/var", "/var/lib", "/var/log", "/home", "/opt"];
    // Packages leave these to people.
    const PEOPLES: [&str; 2] = ["/usr/local/src", "/usr/src"];
    let is = |folder: &&str| workspace == Path::new(folder);
    let is_in = |folder: &&str| workspace.starts_with(folder) && !is(folder);
    let with_all = WITH_ALL.iter().any(|folder| workspace.starts_with(folder));
    THEMSELVES.iter().any(is) || (with_all && !PEOPLES.iter().any(is_in))
}

fn system(host: &Host, workspace: &Path, steps: &mut Vec<Step>) {
    for folder in &host.system {
        steps.push(match folder {
            SystemFolder::Folder(at) => Step::Read { at: at.clone() },
            SystemFolder::Link(at, to) => Step::Link {
                at: at.clone(),
                to: to.clone(),
            },
        });
    }
    for name in &host.devices {
        steps.push(Step::Device {
            at: Path::new("/dev").join(name),
        });
    }
    steps.push(Step::Terminals);
    let link = |at: &str, to: &str| Step::Link {
        at: at.into(),
        to: to.into(),
    };
    if !workspace.starts_with("/var/tmp") {
        steps.push(link("/var/tmp", "/tmp"));
    }
    steps.extend([
        link("/dev/ptmx", "pts/ptmx"),
        link("/dev/fd", "/proc/self/fd"),
        link("/dev/stdin", "/proc/self/fd/0"),
        link("/dev/stdout", "/proc/self/fd/1"),
        link("/dev/stderr", "/proc/self/fd/2"),
    ]);
}

/// The folders in memory, but not where the workspace is or is above.
fn scratch(wanted: &Wanted<'_>, steps: &mut Vec<Step>, writable: &mut Vec<(PathBuf, Writing)>) {
    let common = [(Path::new("/tmp"), 0o1777), (Path::new("/dev/shm"), 0o1777)];
    let home = wanted.home.filter(|home| home.components().count() > 1);
    for (at, mode) in common.into_iter().chain(home.map(|home| (home, 0o700))) {
        let in_a_read_step = steps
            .iter()
            .any(|step| matches!(step, Step::Read { at: read } if at.starts_with(read)));
        if at.starts_with(wanted.workspace) || in_a_read_step {
            continue;
        }
        steps.push(Step::Scratch {
            at: at.to_owned(),
            mode,
        });
        // A right that Landlock grants on a folder reaches everything beneath, other mounts too.
        let writing = match wanted.workspace.starts_with(at) {
            true => Writing::Workspace,
            false => Writing::Scratch,
        };
        writable.push((at.to_owned(), writing));
    }
}

/// What else is shown: not what the workspace or a system folder shows anyway, and nothing that is
/// above either of them or of a mask.
fn read_only(wanted: &Wanted<'_>, host: &Host) -> Vec<Step> {
    let mut all: Vec<&PathBuf> = wanted.read_only.iter().collect();
    all.sort();
    all.dedup();
    let mut taken: Vec<&Path> = host
        .system
        .iter()
        .filter_map(|folder| match folder {
            SystemFolder::Folder(at) => Some(at.as_path()),
            SystemFolder::Link(..) => None,
        })
        .chain([wanted.workspace])
        .collect();
    let mut steps = Vec::new();
    for path in all {
        let shown = taken.iter().any(|above| path.starts_with(above));
        let hidden = wanted.masked.iter().any(|mask| path.starts_with(mask));
        let root = path.components().count() < 2;
        if shown || hidden || root {
            continue;
        }
        taken.push(path);
        steps.push(Step::Read { at: path.clone() });
    }
    steps
}

/// Masked places that something else in the cage would show, and the folders on the way to them.
fn covers(wanted: &Wanted<'_>, steps: &[Step]) -> Vec<Step> {
    let workspace = wanted.workspace;
    let masked = wanted.masked.iter().filter(|mask| shown(steps, mask));
    // Sorted, so that what is above comes first.
    let mut on_the_way = BTreeSet::new();
    let mut covers = Vec::new();
    for mask in masked {
        let within = wanted.writable && mask.starts_with(workspace);
        if within {
            let above = mask.ancestors().skip(1);
            on_the_way.extend(above.take_while(|at| *at != workspace).map(Path::to_owned));
        }
        covers.push(Step::Cover {
            at: mask.clone(),
            within: within.then(|| workspace.to_owned()),
        });
    }
    let pins = on_the_way.into_iter().map(|at| Step::Pin { at });
    pins.chain(covers).collect()
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;
    use crate::ground::policy::Hold;
    use crate::ground::spot::Spot;

    fn host() -> Host {
        Host {
            system: vec![
                SystemFolder::Folder("/usr".into()),
                SystemFolder::Link("/bin".into(), "usr/bin".into()),
                SystemFolder::Folder("/etc".into()),
            ],
            devices: vec!["null", "zero"],
            resolver: Some("/run/resolve/stub.conf".into()),
            names: vec![LaidFile {
                at: "/run/resolve/stub.conf".into(),
                text: "nameserver 127.66.0.1\n".into(),
            }],
        }
    }

    #[test]
    fn where_hosts_are_looked_up_is_shown_with_the_machines_network_only() {
        let shown = |egress| {
            let wanted = Wanted {
                egress,
                ..wanted("/home/u/work", &[])
            };
            let read = Step::Read {
                at: "/run/resolve/stub.conf".into(),
            };
            plan(&host(), &wanted).unwrap().steps.contains(&read)
        };
        assert!(shown(EgressEnforcementMode::None));
        assert!(shown(EgressEnforcementMode::Preflight));
        assert!(!shown(EgressEnforcementMode::Strict));
    }

    #[test]
    fn with_doors_names_are_asked_of_the_daemon() {
        let laid = |ports: &[u16]| {
            let wanted = Wanted {
                ports,
                ..wanted("/home/u/work", &[])
            };
            let cage = plan(&host(), &wanted).unwrap();
            assert!(cage.isolated_network);
            assert_eq!(cage.ports, ports);
            let is_laid = |step: &&Step| matches!(step, Step::Laid(_));
            cage.steps.iter().filter(is_laid).count()
        };
        assert_eq!(laid(&[443]), 1);
        assert_eq!(laid(&[]), 0);
    }

    const ID: FileId = FileId {
        device: 1,
        inode: 2,
    };

    fn wanted<'a>(workspace: &'a str, masked: &'a [PathBuf]) -> Wanted<'a> {
        Wanted {
            workspace: Path::new(workspace),
            workspace_id: ID,
            writable: true,
            home: Some(Path::new("/home/u")),
            read_only: &[],
            masked,
            guards: Vec::new(),
            code: &[],
            egress: EgressEnforcementMode::Strict,
            ports: &[],
            laid: &[],
            proc: ProcView::Pids,
            scratch: 1 << 20,
            with_system: true,
        }
    }

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    /// The whole of it, as it was last looked at by a person.
    #[test]
    fn the_plan_is_as_it_was_agreed() {
        let masked = paths(&["/home/u/.palyra", "/home/u/work/inner/home", "/run/palyra"]);
        let shown = paths(&[
            "/home/u/.rustup",
            "/home/u/.cargo/bin",
            "/home/u/.cargo/bin/again",
            "/home/u/work/tools",
            "/home/u/.palyra/bin",
            "/usr/lib/x",
            "/",
        ]);
        let guard = |at: &str, inode, hold| Guard {
            at: Spot::of(Path::new(at)).unwrap(),
            id: FileId { device: 1, inode },
            hold,
        };
        let wanted = Wanted {
            guards: vec![
                guard(".env", 3, Hold::Masked),
                guard(".git", 4, Hold::Pinned),
                guard(".git/config", 5, Hold::ReadOnly),
            ],
            read_only: &shown,
            code: &golden::code(),
            proc: ProcView::Full,
            ..wanted("/home/u/work", &masked)
        };
        let made = plan(&host(), &wanted).unwrap();
        let text = serde_json::to_string_pretty(&made).unwrap();
        assert_eq!(
            text,
            include_str!("../../golden/cage.json").trim_end(),
            "{text}"
        );
    }

    #[test]
    fn what_makes_no_cage_is_refused() {
        let masked = paths(&["/home/u/.palyra"]);
        let kernels = ["/", "/proc", "/proc/1", "/sys/fs", "/dev/shm"];
        // As root's, such a folder would be a way to own the machine.
        let systems = [
            "/etc",
            "/etc/cron.d",
            "/usr",
            "/usr/local/bin",
            "/var",
            "/var/lib/dpkg",
        ];
        for workspace in kernels.into_iter().chain(systems) {
            let made = plan(&host(), &wanted(workspace, &masked));
            assert_eq!(made, Err(NoCage::Workspace(workspace.into())));
        }
        for workspace in [
            "/usr/src/x",
            "/opt/x",
            "/var/www",
            "/etcetera",
            "/srv",
            "/var/tmp/x",
        ] {
            assert!(
                plan(&host(), &wanted(workspace, &masked)).is_ok(),
                "{workspace}"
            );
        }
        for workspace in ["/home/u/.palyra", "/home/u/.palyra/blobs"] {
            let made = plan(&host(), &wanted(workspace, &masked));
            assert_eq!(made, Err(NoCage::Masked(workspace.into())));
        }
    }

    /// A home directory as the workspace is the real one, with the masks in it covered.
    #[test]
    fn a_workspace_takes_the_place_of_a_folder_in_memory() {
        let masked = paths(&["/home/u/.palyra"]);
        for workspace in ["/home/u", "/tmp"] {
            let made = plan(&host(), &wanted(workspace, &masked)).unwrap();
            let in_memory = |at: &str| {
                let at = PathBuf::from(at);
                let mut steps = made.steps.iter();
                steps.any(|step| matches!(step, Step::Scratch { at: here, .. } if *here == at))
            };
            assert_eq!(in_memory("/home/u"), workspace == "/tmp");
            assert_eq!(in_memory("/tmp"), workspace != "/tmp");
            let cover = Step::Cover {
                at: "/home/u/.palyra".into(),
                within: Some(workspace.into()),
            };
            assert_eq!(made.steps.contains(&cover), workspace != "/tmp");
        }
    }

    #[test]
    fn a_file_tool_is_shown_its_workspace_and_nothing_else() {
        let reading = Wanted {
            with_system: false,
            writable: false,
            ..wanted("/home/u/work", &[])
        };
        let made = plan(&host(), &reading).unwrap();
        let workspace = Step::Workspace {
            at: "/home/u/work".into(),
            id: ID,
            writable: false,
        };
        assert_eq!(made.steps, [workspace, Step::Proc { full: false }]);
        assert_eq!(made.writable, []);
    }
}
