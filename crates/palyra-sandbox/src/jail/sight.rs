//! What a caged process sees of itself, just before it becomes the program.
//!
//! Looking ([`Seen::look`]) reads what the kernel says and tries the doors; judging ([`judge`]) is
//! pure and names the first wall that is missing. Nothing here is copied from the plan.

use std::path::{Path, PathBuf};

use palyra_core::Layer;
use rustix::fs::{OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use super::self_test::{self, Ahead, Tried, layer, missing, outcome};
use super::status::{Status, stands_for, stands_for_all};
use crate::ground::policy::{Guard, Hold};
use crate::landlock::Abi;
use crate::wire::Lent;

/// The namespaces a process is in, as the kernel names them, in the order of [`NAMES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Namespaces([Option<String>; NAMES.len()]);

const NAMES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

impl Namespaces {
    /// Of this process.
    pub(super) fn look() -> Self {
        Self(NAMES.map(|name| {
            let link = std::fs::read_link(Path::new("/proc/self/ns").join(name)).ok()?;
            Some(link.to_string_lossy().into_owned())
        }))
    }
}

/// What the order asked for.
pub(super) struct Expected<'a> {
    pub(super) abi: Abi,
    pub(super) limits: &'a [(Resource, Rlimit)],
    pub(super) lent: Option<Lent>,
    pub(super) isolated_network: bool,
    /// The machine's own namespaces.
    pub(super) outside: &'a Namespaces,
    /// The daemon's uid and gid.
    pub(super) ids: (u32, u32),
    /// As whose a file is seen that was made outside by whom the call runs as, where the map of the
    /// namespace does not tell: `bwrap` makes one inside another.
    pub(super) witness: Option<u32>,
}

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    tried: Tried,
    namespaces: Namespaces,
    status: Status,
    uid_map: String,
    /// Opening for writing what is its own file and what no call is granted: only Landlock can
    /// have refused it.
    own_file: Result<(), Errno>,
    root: Option<StatVfsMountFlags>,
    /// Making a folder in the root.
    in_the_root: Result<(), Errno>,
    /// Whether `..` stays in the root; nothing may lie on top of it.
    root_is_the_top: bool,
    workspace: Option<StatVfsMountFlags>,
    guards: Guarded,
}

/// What came of trying what is held in the workspace.
#[derive(Debug, Clone, Default)]
struct Guarded {
    masked: usize,
    read_only: usize,
    others: usize,
    /// The first one that is not held, and how that was seen.
    open: Option<String>,
}

impl Seen {
    /// Tries everything.
    pub(super) fn look(
        masked: &[PathBuf],
        limits: &[(Resource, Rlimit)],
        workspace: &Path,
        ahead: &Ahead,
    ) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let flags = |path: &Path| rustix::fs::statvfs(path).ok().map(|found| found.f_flag);
        Self {
            tried: Tried::look(masked, limits, ahead),
            namespaces: Namespaces::look(),
            status: Status::parse(&text("/proc/self/status")),
            uid_map: text("/proc/self/uid_map"),
            own_file: self_test::open(Path::new("/proc/self/comm"), OFlags::WRONLY),
            root: flags(Path::new("/")),
            in_the_root: rustix::fs::access("/", rustix::fs::Access::WRITE_OK),
            root_is_the_top: root_is_the_top(),
            workspace: flags(workspace),
            guards: Guarded::default(),
        }
    }

    /// Tries everything that is held in the workspace as well.
    pub(super) fn with_guards<'a>(
        mut self,
        workspace: &Path,
        guards: impl Iterator<Item = &'a Guard>,
    ) -> Self {
        for guard in guards {
            self.guards
                .look(&workspace.join(guard.at.path()), guard.hold);
        }
        self
    }
}

impl Guarded {
    fn look(&mut self, path: &Path, hold: Hold) {
        let refused = match hold {
            Hold::Masked => {
                self.masked += 1;
                self_test::open(path, OFlags::RDONLY) == Err(Errno::ACCESS)
            }
            Hold::ReadOnly => {
                self.read_only += 1;
                rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err()
            }
            Hold::Pinned | Hold::Writable => {
                self.others += 1;
                is_mounted(path)
            }
        };
        if !refused && self.open.is_none() {
            self.open = Some(format!("`{}` is not {hold:?}", path.display()));
        }
    }
}

/// Whether a path is the root of a mount, which can be neither moved nor removed.
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether above the root is the root: the same folder of the same mount.
fn root_is_the_top() -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let id = |path: &str| {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let found = statx(CWD, path, AtFlags::empty(), wanted).ok()?;
        let known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        known.then_some((found.stx_mnt_id, found.stx_ino))
    };
    let root = id("/");
    root.is_some() && id("/..") == root
}

/// The layers, or the first one that is missing.
pub(super) fn judge(expected: &Expected<'_>, seen: &Seen) -> Result<Vec<Layer>, String> {
    let mut layers = vec![
        namespaces(expected, seen)?,
        network(expected, seen)?,
        identity(expected, seen)?,
        root(seen)?,
        workspace(expected, seen)?,
        capabilities(seen)?,
        self_test::no_new_privs(seen.status.no_new_privs == Some(1))?,
        landlock(expected, seen)?,
        seccomp(seen)?,
        seen.tried.limits(expected.limits)?,
        seen.tried.session()?,
    ];
    layers.extend(guards(seen)?);
    layers.extend(seen.tried.whole_call());
    Ok(layers)
}

/// What is held in the workspace; nothing to say when there is nothing.
fn guards(seen: &Seen) -> Result<Option<Layer>, String> {
    let Guarded {
        masked,
        read_only,
        others,
        open,
    } = &seen.guards;
    if let Some(open) = open {
        return Err(missing("a guard", open));
    }
    let text = format!("{masked} masked, {read_only} read-only, {others} pinned; each was tried");
    let any = masked + read_only + others > 0;
    Ok(any.then(|| layer("guards", text)))
}

fn namespaces(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    let mut own = Vec::new();
    let all = NAMES
        .iter()
        .zip(&seen.namespaces.0)
        .zip(&expected.outside.0);
    for ((name, inside), outside) in all {
        if *name == "net" {
            continue;
        }
        match (inside, outside) {
            (Some(inside), Some(outside)) if inside != outside => own.push(inside.clone()),
            (inside, _) => {
                let seen = inside.as_deref().unwrap_or("it cannot be read");
                return Err(missing(&format!("the {name} namespace"), seen));
            }
        }
    }
    let pid = seen.tried.pid;
    if pid != 2 && pid != 3 {
        return Err(missing("the pid namespace", format!("process {pid}")));
    }
    Ok(layer("namespaces", own.join(" ")))
}

fn network(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    let at = NAMES.iter().position(|name| *name == "net").unwrap_or(0);
    let (inside, outside) = (seen.namespaces.0.get(at), expected.outside.0.get(at));
    let inside = inside.and_then(Option::as_deref);
    let outside = outside.and_then(Option::as_deref);
    let same = inside == outside;
    match (inside, expected.isolated_network) {
        (Some(inside), true) if !same && outside.is_some() => {
            Ok(layer("network", format!("isolated, {inside}")))
        }
        (Some(_), false) if same => Ok(layer("network", "the machine's own, unrestricted")),
        (seen, _) => {
            let seen = seen.unwrap_or("it cannot be read");
            Err(missing("the net namespace", seen))
        }
    }
}

fn root(seen: &Seen) -> Result<Layer, String> {
    let flags = seen.root.unwrap_or_else(StatVfsMountFlags::empty);
    if !flags.contains(StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID) {
        return Err(missing("the root", "it can be written to"));
    }
    if seen.in_the_root != Err(Errno::ROFS) {
        return Err(missing("the root", outcome(seen.in_the_root)));
    }
    if !seen.root_is_the_top {
        return Err(missing("the root", "something lies on top of it"));
    }
    Ok(layer(
        "root",
        "its own, in memory, read-only, nothing above it",
    ))
}

fn workspace(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    let flags = seen.workspace.unwrap_or_else(StatVfsMountFlags::empty);
    // NODEV has no name in `rustix`.
    let nodev = StatVfsMountFlags::from_bits_retain(4);
    if !flags.contains(StatVfsMountFlags::NOSUID | nodev) {
        return Err(missing(
            "the workspace",
            "set-id files or devices would count",
        ));
    }
    let how = match expected.lent {
        Some(_) => "nosuid, nodev, files belong to its owner",
        None => "nosuid, nodev",
    };
    Ok(layer("workspace", how))
}

/// Who it is outside: what its namespace says its uid stands for.
fn identity(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    let (uid, gid) = match expected.lent {
        Some(lent) => (lent.owner, lent.group),
        None => expected.ids,
    };
    let status = &seen.status;
    let wrong = |why: &str| missing("the uid", format!("{:?}: {why}", status.uids));
    if let Some(owner) = expected.witness {
        return match owner == uid && uid != 0 && all_are(&status.uids, uid) {
            true if all_are(&status.gids, gid) => Ok(layer(
                "uid",
                format!("{uid}, gid {gid}, and the same outside"),
            )),
            true | false => Err(wrong("not whom the plan names")),
        };
    }
    let outside = stands_for(&seen.uid_map, uid);
    let Some(outside) = outside.filter(|_| stands_for_all(&seen.uid_map).all(|id| id != 0)) else {
        return Err(wrong("root, or nobody that is known, outside"));
    };
    if !all_are(&status.uids, uid) || !all_are(&status.gids, gid) {
        return Err(wrong("not whom the plan names"));
    }
    let Some(lent) = expected.lent else {
        if outside != uid {
            return Err(wrong("not whom the plan names"));
        }
        return Ok(layer("uid", format!("{outside}, gid {gid}")));
    };
    if outside != lent.outside(uid) && outside != lent.owner {
        return Err(wrong("not a lent uid"));
    }
    if !status.groups.is_empty() {
        return Err(wrong("other groups"));
    }
    let text = format!("{outside}, which is {uid} inside; no other groups");
    Ok(layer("uid", text))
}

fn all_are(ids: &[u32], id: u32) -> bool {
    ids.len() == 4 && ids.iter().all(|one| *one == id)
}

fn capabilities(seen: &Seen) -> Result<Layer, String> {
    if seen.status.capabilities != [Some(0); 5] {
        let seen = format!("{:x?}", seen.status.capabilities);
        return Err(missing("dropping capabilities", seen));
    }
    Ok(layer("capabilities", "none, and none can be gained"))
}

fn landlock(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    if seen.own_file != Err(Errno::ACCESS) {
        let seen = format!("writing to its own name: {}", outcome(seen.own_file));
        return Err(missing("landlock", seen));
    }
    seen.tried.masks("a mask")?;
    let (abi, count) = (expected.abi.number(), seen.tried.masked.len());
    let scopes = self_test::scopes(expected.abi);
    let text = format!("abi {abi}, self_tested: a write refused, {count} masked absent{scopes}");
    Ok(layer("landlock", text))
}

fn seccomp(seen: &Seen) -> Result<Layer, String> {
    let text = seen.tried.seccomp(seen.status.seccomp == Some(2))?;
    let filters = seen
        .status
        .filters
        .map_or_else(String::new, |count| format!(", {count} filters in all"));
    Ok(layer("seccomp", text + &filters))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENT: Lent = Lent {
        first: 0x7100_0000,
        owner: 5,
        group: 6,
    };

    fn limit(value: u64) -> Rlimit {
        Rlimit {
            current: Some(value),
            maximum: Some(value),
        }
    }

    fn namespaces(tag: &str) -> Namespaces {
        Namespaces(NAMES.map(|name| Some(format!("{name}:[{tag}]"))))
    }

    fn good() -> Seen {
        let flags = StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID;
        Seen {
            tried: Tried {
                pid: 2,
                session: 2,
                group: 2,
                masked: vec![("/home".into(), Err(Errno::NOENT))],
                unix_socket: Err(Errno::PERM),
                setns: Some(libc::EPERM),
                limits: vec![(Resource::Core, limit(0))],
                cgroup: Some("/palyra-1/call-7".into()),
                whole: "pids 512, memory not limited".into(),
            },
            namespaces: super::tests::namespaces("in"),
            status: Status {
                uids: vec![5; 4],
                gids: vec![6; 4],
                groups: Vec::new(),
                capabilities: [Some(0); 5],
                no_new_privs: Some(1),
                seccomp: Some(2),
                filters: Some(2),
            },
            uid_map: format!("0 {} 65536\n", LENT.first),
            own_file: Err(Errno::ACCESS),
            root: Some(flags),
            in_the_root: Err(Errno::ROFS),
            root_is_the_top: true,
            workspace: Some(StatVfsMountFlags::NOSUID | StatVfsMountFlags::from_bits_retain(4)),
            guards: Guarded {
                masked: 1,
                ..Guarded::default()
            },
        }
    }

    fn judged(seen: &Seen) -> Result<Vec<Layer>, String> {
        let expected = Expected {
            abi: Abi::from_number(7),
            limits: &[(Resource::Core, limit(0))],
            lent: Some(LENT),
            isolated_network: true,
            outside: &super::tests::namespaces("out"),
            ids: (0, 0),
            witness: None,
        };
        judge(&expected, seen)
    }

    #[test]
    fn all_walls_of_a_cage_are_listed() {
        let layers = judged(&good()).unwrap();
        assert_eq!(layers.len(), 14);
        let text = |name: &str| {
            let mut found = layers.iter().filter(|layer| layer.name == name);
            found.next().unwrap().observed.clone()
        };
        assert_eq!(
            text("uid"),
            "1895825413, which is 5 inside; no other groups"
        );
        assert_eq!(text("network"), "isolated, net:[in]");
    }

    /// Each thing that can be seen, seen to be wrong.
    #[test]
    fn each_missing_wall_of_a_cage_is_a_refusal() {
        type Change = fn(&mut Seen);
        let changes: [(&str, Change); 35] = [
            ("a guard", |it| it.guards.open = Some("`.env`".into())),
            ("the user namespace", |it| {
                it.namespaces.0[0] = Some("user:[out]".into())
            }),
            ("the mnt namespace", |it| {
                it.namespaces.0[1] = Some("mnt:[out]".into())
            }),
            ("the pid namespace", |it| {
                it.namespaces.0[2] = Some("pid:[out]".into())
            }),
            ("the net namespace", |it| {
                it.namespaces.0[3] = Some("net:[out]".into())
            }),
            ("the ipc namespace", |it| {
                it.namespaces.0[4] = Some("ipc:[out]".into())
            }),
            ("the uts namespace", |it| {
                it.namespaces.0[5] = Some("uts:[out]".into())
            }),
            ("the cgroup namespace", |it| {
                it.namespaces.0[6] = Some("cgroup:[out]".into())
            }),
            ("the user namespace", |it| it.namespaces.0[0] = None),
            ("the net namespace", |it| it.namespaces.0[3] = None),
            ("the pid namespace", |it| it.tried.pid = 4_711),
            ("the uid", |it| it.uid_map = "0 0 4294967295\n".into()),
            ("the uid", |it| it.uid_map = "5 0 1\n".into()),
            ("the uid", |it| it.uid_map = "5 99 1\n".into()),
            ("the uid", |it| it.uid_map = String::new()),
            ("the uid", |it| it.status.uids = vec![5, 5, 0, 5]),
            ("the uid", |it| it.status.uids = Vec::new()),
            ("the uid", |it| it.status.gids = vec![0; 4]),
            ("the uid", |it| it.status.groups = vec![65_534]),
            ("the root", |it| it.root = Some(StatVfsMountFlags::NOSUID)),
            ("the root", |it| it.root = None),
            ("the root", |it| it.in_the_root = Ok(())),
            ("the root", |it| it.root_is_the_top = false),
            ("the workspace", |it| {
                it.workspace = Some(StatVfsMountFlags::NOSUID)
            }),
            ("the workspace", |it| it.workspace = None),
            ("dropping capabilities", |it| {
                it.status.capabilities[3] = Some(1)
            }),
            ("dropping capabilities", |it| {
                it.status.capabilities[4] = None
            }),
            ("no_new_privs", |it| it.status.no_new_privs = Some(0)),
            ("landlock", |it| it.own_file = Ok(())),
            ("landlock", |it| it.own_file = Err(Errno::ROFS)),
            ("a mask", |it| it.tried.masked[0].1 = Ok(())),
            ("seccomp", |it| it.status.seccomp = Some(0)),
            ("seccomp", |it| it.tried.setns = Some(libc::EBADF)),
            ("a limit", |it| it.tried.limits[0].1 = limit(1)),
            ("a session", |it| it.tried.session = 1),
        ];
        for (wall, change) in changes {
            let mut seen = good();
            change(&mut seen);
            let why = judged(&seen).unwrap_err();
            assert!(why.starts_with(wall), "{wall}: {why}");
        }
    }
}
