//! What a caged process sees of itself, just before it becomes the program.
//!
//! Looking ([`Seen::look`]) reads what the kernel says and tries the doors; judging ([`judge`]) is
//! pure and names the first wall that is missing. Nothing here is copied from the plan.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use palyra_core::Layer;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};

use crate::cgroup;
use crate::landlock::Abi;
use crate::sys;
use crate::wire::Lent;

/// A wall that a broken helper leaves out. Only tests have such a helper; see
/// [`super::main_without`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wall {
    User,
    Processes,
    Mounts,
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

/// The namespaces a process is in, as the kernel names them, in the order of [`NAMES`].
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// What is looked at before there is an order, while nobody waits.
#[derive(Debug, Clone)]
pub(super) struct Ahead {
    /// The cgroup as the machine names it; inside, its own namespace hides the name.
    cgroup: Option<PathBuf>,
    /// What holds for the call as a whole.
    whole: String,
}

impl Ahead {
    /// The same with what is now seen to hold for the whole call.
    pub(super) fn with_limits(self, whole: String) -> Self {
        Self { whole, ..self }
    }

    pub(super) fn look() -> Self {
        let cgroup = cgroup::name_of(Path::new("/proc/self/cgroup"));
        Self {
            cgroup: cgroup.ok().flatten(),
            whole: String::new(),
        }
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
}

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    namespaces: Namespaces,
    status: Status,
    uid_map: String,
    pid: i32,
    session: i32,
    group: i32,
    /// Opening for writing what is its own file and what no call is granted: only Landlock can
    /// have refused it.
    own_file: Result<(), Errno>,
    masked: Vec<(PathBuf, Result<(), Errno>)>,
    unix_socket: Result<(), Errno>,
    setns: Option<i32>,
    limits: Vec<(Resource, Rlimit)>,
    root: Option<StatVfsMountFlags>,
    /// Making a folder in the root.
    in_the_root: Result<(), Errno>,
    /// Whether `..` stays in the root; nothing may lie on top of it.
    root_is_the_top: bool,
    workspace: Option<StatVfsMountFlags>,
    cgroup: Option<PathBuf>,
    whole: String,
}

/// Lines of `/proc/self/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Status {
    uids: Vec<u32>,
    gids: Vec<u32>,
    groups: Vec<u32>,
    /// Inheritable, permitted, effective, bounding, ambient.
    capabilities: [Option<u64>; 5],
    no_new_privs: Option<u32>,
    seccomp: Option<u32>,
    filters: Option<u32>,
}

impl Status {
    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let numbers = |name: &str| -> Vec<u32> {
            let words = value(name).unwrap_or_default().split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let hex = |name: &str| u64::from_str_radix(value(name)?.trim(), 16).ok();
        let one = |name: &str| value(name)?.trim().parse().ok();
        Self {
            uids: numbers("Uid"),
            gids: numbers("Gid"),
            groups: numbers("Groups"),
            capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(hex),
            no_new_privs: one("NoNewPrivs"),
            seccomp: one("Seccomp"),
            filters: one("Seccomp_filters"),
        }
    }
}

impl Seen {
    /// Tries everything.
    pub(super) fn look(
        masked: &[PathBuf],
        limits: &[(Resource, Rlimit)],
        workspace: &Path,
        ahead: &Ahead,
    ) -> Self {
        let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let flags = |path: &Path| rustix::fs::statvfs(path).ok().map(|found| found.f_flag);
        Self {
            namespaces: Namespaces::look(),
            status: Status::parse(&text("/proc/self/status")),
            uid_map: text("/proc/self/uid_map"),
            pid: number(rustix::process::getpid()),
            session: rustix::process::getsid(None).map_or(0, number),
            group: number(rustix::process::getpgrp()),
            own_file: open(Path::new("/proc/self/comm"), OFlags::WRONLY),
            masked: masked
                .iter()
                .map(|path| (path.clone(), open(path, OFlags::RDONLY)))
                .collect(),
            unix_socket: unix_socket(),
            setns: sys::try_setns()
                .err()
                .and_then(|error| error.raw_os_error()),
            limits: limits
                .iter()
                .map(|(resource, _)| (*resource, rustix::process::getrlimit(*resource)))
                .collect(),
            root: flags(Path::new("/")),
            in_the_root: rustix::fs::access("/", rustix::fs::Access::WRITE_OK),
            root_is_the_top: root_is_the_top(),
            workspace: flags(workspace),
            cgroup: ahead.cgroup.clone(),
            whole: ahead.whole.clone(),
        }
    }
}

fn open(path: &Path, how: OFlags) -> Result<(), Errno> {
    let flags = how | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(drop::<OwnedFd>)
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

fn unix_socket() -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(drop::<OwnedFd>)
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
        no_new_privs(seen)?,
        landlock(expected, seen)?,
        seccomp(seen)?,
        limits(expected, seen)?,
        session(seen)?,
        layer("whole_call", seen.whole.clone()),
    ];
    if let Some(cgroup) = &seen.cgroup
        && cgroup
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"call-"))
    {
        layers.push(layer("cgroup", cgroup.display().to_string()));
    }
    Ok(layers)
}

fn layer(name: &str, observed: impl Into<String>) -> Layer {
    Layer {
        name: name.to_owned(),
        observed: observed.into(),
    }
}

fn missing(wall: &str, seen: impl std::fmt::Display) -> String {
    format!("{wall} is not in force: {seen}")
}

fn tried(result: Result<(), Errno>) -> String {
    match result {
        Ok(()) => "it succeeded".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    }
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
    if seen.pid != 2 && seen.pid != 3 {
        return Err(missing(
            "the pid namespace",
            format!("process {}", seen.pid),
        ));
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
        return Err(missing("the root", tried(seen.in_the_root)));
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
    let outside = stands_for(&seen.uid_map, uid);
    let Some(outside) = outside.filter(|_| stands_for_all(&seen.uid_map).all(|id| id != 0)) else {
        return Err(wrong("root, or nobody that is known, outside"));
    };
    let all_are = |ids: &[u32], id: u32| ids.len() == 4 && ids.iter().all(|one| *one == id);
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

/// The lines of a map: the first id inside, the first outside, and how many.
fn lines_of(map: &str) -> impl Iterator<Item = [u32; 3]> {
    map.lines().filter_map(|line| {
        let numbers: Vec<u32> = line
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        numbers.try_into().ok()
    })
}

/// What `id` inside stands for outside.
fn stands_for(map: &str, id: u32) -> Option<u32> {
    lines_of(map).find_map(|[inside, outside, count]| {
        let step = id.checked_sub(inside)?;
        (step < count).then_some(outside + step)
    })
}

/// The first id outside of each line.
fn stands_for_all(map: &str) -> impl Iterator<Item = u32> {
    lines_of(map).map(|[_, outside, _]| outside)
}

fn capabilities(seen: &Seen) -> Result<Layer, String> {
    if seen.status.capabilities != [Some(0); 5] {
        let seen = format!("{:x?}", seen.status.capabilities);
        return Err(missing("dropping capabilities", seen));
    }
    Ok(layer("capabilities", "none, and none can be gained"))
}

fn no_new_privs(seen: &Seen) -> Result<Layer, String> {
    if seen.status.no_new_privs != Some(1) {
        return Err(missing("no_new_privs", "not set"));
    }
    Ok(layer("no_new_privs", "set"))
}

fn landlock(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    if seen.own_file != Err(Errno::ACCESS) {
        let seen = tried(seen.own_file);
        return Err(missing(
            "landlock",
            format!("writing to its own name: {seen}"),
        ));
    }
    for (path, result) in &seen.masked {
        match result {
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
            other => {
                let seen = format!("opening `{}`: {}", path.display(), tried(*other));
                return Err(missing("a mask", seen));
            }
        }
    }
    let abi = expected.abi.number();
    let scopes = if expected.abi.has_scopes() {
        ", signals and abstract sockets scoped"
    } else {
        ""
    };
    let count = seen.masked.len();
    let text = format!("abi {abi}, self_tested: a write refused, {count} masked absent{scopes}");
    Ok(layer("landlock", text))
}

fn seccomp(seen: &Seen) -> Result<Layer, String> {
    if seen.status.seccomp != Some(2) {
        return Err(missing("seccomp", "no filter"));
    }
    if seen.setns != Some(libc::EPERM) {
        let seen = format!("entering a namespace: {:?}", seen.setns);
        return Err(missing("seccomp", seen));
    }
    if seen.unix_socket != Err(Errno::PERM) {
        let seen = tried(seen.unix_socket);
        return Err(missing("seccomp", format!("making a Unix socket: {seen}")));
    }
    let filters = seen
        .status
        .filters
        .map_or_else(String::new, |count| format!(", {count} filters in all"));
    let text = format!("filter, setns and Unix socket refused{filters}");
    Ok(layer("seccomp", text))
}

fn limits(expected: &Expected<'_>, seen: &Seen) -> Result<Layer, String> {
    if seen.limits != expected.limits {
        return Err(missing("a limit", format!("{:?}", seen.limits)));
    }
    Ok(layer("rlimits", super::observe::limits_text(&seen.limits)))
}

fn session(seen: &Seen) -> Result<Layer, String> {
    if seen.session != seen.pid || seen.group != seen.pid {
        return Err(missing("a session of its own", seen.session));
    }
    Ok(layer("session", "own session and process group"))
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
            pid: 2,
            session: 2,
            group: 2,
            own_file: Err(Errno::ACCESS),
            masked: vec![("/home".into(), Err(Errno::NOENT))],
            unix_socket: Err(Errno::PERM),
            setns: Some(libc::EPERM),
            limits: vec![(Resource::Core, limit(0))],
            root: Some(flags),
            in_the_root: Err(Errno::ROFS),
            root_is_the_top: true,
            workspace: Some(StatVfsMountFlags::NOSUID | StatVfsMountFlags::from_bits_retain(4)),
            cgroup: Some("/palyra-1/call-7".into()),
            whole: "pids 512, memory not limited".into(),
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
        };
        judge(&expected, seen)
    }

    #[test]
    fn all_walls_of_a_cage_are_listed() {
        let layers = judged(&good()).unwrap();
        assert_eq!(layers.len(), 13);
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
        let changes: [(&str, Change); 34] = [
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
            ("the pid namespace", |it| it.pid = 4_711),
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
            ("a mask", |it| it.masked[0].1 = Ok(())),
            ("seccomp", |it| it.status.seccomp = Some(0)),
            ("seccomp", |it| it.setns = Some(libc::EBADF)),
            ("a limit", |it| it.limits[0].1 = limit(1)),
            ("a session", |it| it.session = 1),
        ];
        for (wall, change) in changes {
            let mut seen = good();
            change(&mut seen);
            let why = judged(&seen).unwrap_err();
            assert!(why.starts_with(wall), "{wall}: {why}");
        }
    }

    #[test]
    fn the_status_is_read_line_by_line() {
        let text = "Name:\tx Uid:\nUid:\t5\t5\t5\t5\nGroups:\t1 2 \nCapInh:\t0\nCapPrm:\tff\n\
                    NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let status = Status::parse(text);
        assert_eq!(status.uids, [5; 4]);
        assert_eq!(status.groups, [1, 2]);
        assert_eq!(status.capabilities[..2], [Some(0), Some(255)]);
        assert_eq!(status.capabilities[2], None);
        assert_eq!((status.seccomp, status.filters), (Some(2), Some(3)));
        assert_eq!(stands_for("0 100 10\n70000 110 1\n", 70_000), Some(110));
        assert_eq!(stands_for("0 100 10\n", 10), None);
    }
}
