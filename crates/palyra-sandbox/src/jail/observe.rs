//! The self-test: what is really in force, seen from inside just before the program starts.
//!
//! Looking ([`Observed::look`]) tries the doors; judging ([`judge`]) is pure and names the first
//! wall that is missing.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use palyra_core::Layer;
use palyra_core::plan::RunAs;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{SecureComputingMode, Uid};

use crate::landlock::Abi;
use crate::{cgroup, sys};

/// What the order asked for.
pub(super) struct Expected<'a> {
    pub(super) run_as: RunAs,
    pub(super) abi: Abi,
    pub(super) limits: &'a [(Resource, Rlimit)],
}

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) session: i32,
    pid: i32,
    group: i32,
    no_new_privs: bool,
    seccomp_filter: bool,
    /// Opening `/`, which any uid may and no call is granted, since it is on the way to every
    /// masked folder: only Landlock can have refused it.
    root_folder: Result<(), Errno>,
    masked: Vec<(PathBuf, Result<(), Errno>)>,
    unix_socket: Result<(), Errno>,
    limits: Vec<(Resource, Rlimit)>,
    uids: [u32; 2],
    gids: [u32; 2],
    other_groups: usize,
    back_to_root: Result<(), Errno>,
    setns: Option<i32>,
    cgroup: Option<PathBuf>,
    whole: String,
}

/// What is looked at before there is an order, while nobody waits.
#[derive(Debug, Clone)]
pub(super) struct SeenAhead {
    /// The cgroup this process is in. Looked at before the walls: `/proc` might be behind them.
    cgroup: Option<PathBuf>,
    /// What holds for the call as a whole.
    whole: String,
}

impl SeenAhead {
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

impl Observed {
    /// Tries everything.
    pub(super) fn look(
        masked: &[PathBuf],
        limits: &[(Resource, Rlimit)],
        ahead: SeenAhead,
    ) -> Self {
        let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
        let own_groups = rustix::process::getgroups().unwrap_or_default();
        let gid = rustix::process::getgid();
        Self {
            session: rustix::process::getsid(None).map_or(0, number),
            pid: number(rustix::process::getpid()),
            group: number(rustix::process::getpgrp()),
            no_new_privs: rustix::thread::no_new_privs().unwrap_or(false),
            seccomp_filter: rustix::thread::secure_computing_mode()
                .is_ok_and(|mode| mode == SecureComputingMode::Filter),
            root_folder: open(Path::new("/")),
            masked: masked
                .iter()
                .map(|path| (path.clone(), open(path)))
                .collect(),
            unix_socket: socket(),
            limits: limits
                .iter()
                .map(|(resource, _)| (*resource, rustix::process::getrlimit(*resource)))
                .collect(),
            uids: [rustix::process::getuid(), rustix::process::geteuid()].map(|uid| uid.as_raw()),
            gids: [gid, rustix::process::getegid()].map(|gid| gid.as_raw()),
            other_groups: own_groups.iter().filter(|group| **group != gid).count(),
            back_to_root: become_root(),
            setns: sys::try_setns()
                .err()
                .and_then(|error| error.raw_os_error()),
            cgroup: ahead.cgroup,
            whole: ahead.whole,
        }
    }
}

fn open(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(drop::<OwnedFd>)
}

fn socket() -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(drop::<OwnedFd>)
}

fn become_root() -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
}

/// Looks and judges without meaning it, for [`super::target`]'s rehearsal.
pub(super) fn rehearse(expected: &Expected<'_>, ahead: SeenAhead) -> Vec<Layer> {
    let seen = Observed::look(&["/".into()], expected.limits, ahead);
    let _ = std::hint::black_box(judge(expected, &seen));
    let every = [landlock, identity, limits];
    let mut layers: Vec<Layer> = every
        .into_iter()
        .map(|judge| judge(expected, &seen).unwrap_or_else(|why| layer("", why)))
        .collect();
    layers.extend(
        [seccomp(&seen), no_new_privs(&seen), session(&seen)]
            .into_iter()
            .flatten(),
    );
    layers
}

/// The layers, or the first one that is missing.
pub(super) fn judge(expected: &Expected<'_>, seen: &Observed) -> Result<Vec<Layer>, String> {
    let mut layers = vec![
        landlock(expected, seen)?,
        seccomp(seen)?,
        no_new_privs(seen)?,
        identity(expected, seen)?,
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

fn landlock(expected: &Expected<'_>, seen: &Observed) -> Result<Layer, String> {
    if seen.root_folder != Err(Errno::ACCESS) {
        let seen = tried(seen.root_folder);
        return Err(missing("landlock", format!("opening `/`: {seen}")));
    }
    for (path, result) in &seen.masked {
        match result {
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
            other => {
                let seen = format!("opening `{}`: {}", path.display(), tried(*other));
                return Err(missing("landlock", seen));
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
    let text = format!("abi {abi}, open of `/` and {count} masked refused{scopes}");
    Ok(layer("landlock", text))
}

fn seccomp(seen: &Observed) -> Result<Layer, String> {
    if !seen.seccomp_filter {
        return Err(missing("seccomp", "no filter"));
    }
    if seen.unix_socket != Err(Errno::PERM) {
        let seen = tried(seen.unix_socket);
        return Err(missing("seccomp", format!("making a Unix socket: {seen}")));
    }
    if seen.setns != Some(libc::EPERM) {
        let seen = format!("entering a namespace: {:?}", seen.setns);
        return Err(missing("seccomp", seen));
    }
    Ok(layer("seccomp", "filter, setns and Unix socket refused"))
}

fn no_new_privs(seen: &Observed) -> Result<Layer, String> {
    if !seen.no_new_privs {
        return Err(missing("no_new_privs", "not set"));
    }
    Ok(layer("no_new_privs", "set"))
}

fn identity(expected: &Expected<'_>, seen: &Observed) -> Result<Layer, String> {
    let [uid, effective] = seen.uids;
    let wrong = |why: &str| missing("the uid", format!("{uid}/{effective}: {why}"));
    if uid != effective || seen.gids.iter().any(|gid| *gid != seen.gids[0]) {
        return Err(wrong("real and effective ids differ"));
    }
    let [gid, _] = seen.gids;
    match expected.run_as {
        RunAs::Lent { .. } => Err(wrong("a uid is lent in Tier-C only")),
        RunAs::Daemon | RunAs::Owner { .. } if uid == 0 || seen.back_to_root.is_ok() => {
            Err(wrong("still root"))
        }
        RunAs::Daemon => Ok(layer("uid", format!("{uid}, gid {gid}"))),
        RunAs::Owner {
            uid: owner,
            gid: group,
        } => {
            if (uid, gid) != (owner, group) || seen.other_groups != 0 {
                return Err(wrong("not the workspace's owner alone"));
            }
            Ok(layer(
                "uid",
                format!("{uid}, gid {gid}, no other groups, no way back"),
            ))
        }
    }
}

fn limits(expected: &Expected<'_>, seen: &Observed) -> Result<Layer, String> {
    if seen.limits != expected.limits {
        return Err(missing("a limit", format!("{:?}", seen.limits)));
    }
    Ok(layer("rlimits", limits_text(&seen.limits)))
}

/// Limits as they are written into a record.
pub(super) fn limits_text(limits: &[(Resource, Rlimit)]) -> String {
    let text: Vec<String> = limits
        .iter()
        .map(|(resource, limit)| {
            let name = format!("{resource:?}").to_lowercase();
            limit.maximum.map_or_else(
                || format!("{name} unlimited"),
                |most| format!("{name} {most}"),
            )
        })
        .collect();
    text.join(", ")
}

fn session(seen: &Observed) -> Result<Layer, String> {
    if seen.session != seen.pid || seen.group != seen.pid {
        return Err(missing("a session of its own", seen.session));
    }
    Ok(layer("session", "own session and process group"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(value: u64) -> Rlimit {
        Rlimit {
            current: Some(value),
            maximum: Some(value),
        }
    }

    fn good() -> Observed {
        Observed {
            session: 7,
            pid: 7,
            group: 7,
            no_new_privs: true,
            seccomp_filter: true,
            root_folder: Err(Errno::ACCESS),
            masked: vec![
                ("/home".into(), Err(Errno::ACCESS)),
                ("/x".into(), Err(Errno::NOENT)),
            ],
            unix_socket: Err(Errno::PERM),
            limits: vec![(Resource::Core, limit(0))],
            uids: [5, 5],
            gids: [6, 6],
            other_groups: 0,
            back_to_root: Err(Errno::PERM),
            setns: Some(libc::EPERM),
            cgroup: Some("/palyra-1/call-7".into()),
            whole: "pids 512, memory not limited".into(),
        }
    }

    fn judged(run_as: RunAs, seen: &Observed) -> Result<Vec<Layer>, String> {
        let expected = Expected {
            run_as,
            abi: Abi::from_number(7),
            limits: &[(Resource::Core, limit(0))],
        };
        judge(&expected, seen)
    }

    const OWNER: RunAs = RunAs::Owner { uid: 5, gid: 6 };

    #[test]
    fn all_walls_standing_are_listed() {
        let layers = judged(OWNER, &good()).unwrap();
        let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
        let all = [
            "landlock",
            "seccomp",
            "no_new_privs",
            "uid",
            "rlimits",
            "session",
            "whole_call",
            "cgroup",
        ];
        assert_eq!(names, all);
    }

    #[test]
    fn no_cgroup_is_no_reason_to_refuse_but_is_not_claimed() {
        for cgroup in [None, Some(PathBuf::from("/user.slice"))] {
            let layers = judged(OWNER, &Observed { cgroup, ..good() }).unwrap();
            assert!(layers.iter().all(|layer| layer.name != "cgroup"));
        }
    }

    #[test]
    fn each_missing_wall_is_a_refusal() {
        let knocked_out = [
            (
                "landlock",
                Observed {
                    root_folder: Ok(()),
                    ..good()
                },
            ),
            (
                "landlock",
                Observed {
                    root_folder: Err(Errno::PERM),
                    ..good()
                },
            ),
            (
                "landlock",
                Observed {
                    masked: vec![("/h".into(), Ok(()))],
                    ..good()
                },
            ),
            (
                "landlock",
                Observed {
                    masked: vec![("/h".into(), Err(Errno::IO))],
                    ..good()
                },
            ),
            (
                "seccomp",
                Observed {
                    seccomp_filter: false,
                    ..good()
                },
            ),
            (
                "seccomp",
                Observed {
                    unix_socket: Ok(()),
                    ..good()
                },
            ),
            (
                "seccomp",
                Observed {
                    unix_socket: Err(Errno::AFNOSUPPORT),
                    ..good()
                },
            ),
            (
                "seccomp",
                Observed {
                    setns: Some(libc::EBADF),
                    ..good()
                },
            ),
            (
                "no_new_privs",
                Observed {
                    no_new_privs: false,
                    ..good()
                },
            ),
            (
                "the uid",
                Observed {
                    uids: [5, 0],
                    ..good()
                },
            ),
            (
                "the uid",
                Observed {
                    uids: [8, 8],
                    ..good()
                },
            ),
            (
                "the uid",
                Observed {
                    gids: [0, 0],
                    ..good()
                },
            ),
            (
                "the uid",
                Observed {
                    other_groups: 1,
                    ..good()
                },
            ),
            (
                "the uid",
                Observed {
                    back_to_root: Ok(()),
                    ..good()
                },
            ),
            (
                "a limit",
                Observed {
                    limits: vec![(Resource::Core, limit(1))],
                    ..good()
                },
            ),
            (
                "a limit",
                Observed {
                    limits: Vec::new(),
                    ..good()
                },
            ),
            (
                "a session",
                Observed {
                    session: 1,
                    ..good()
                },
            ),
            ("a session", Observed { group: 1, ..good() }),
        ];
        for (wall, seen) in knocked_out {
            let why = judged(OWNER, &seen).unwrap_err();
            assert!(why.starts_with(wall), "{why}");
        }
    }

    #[test]
    fn nobody_is_root() {
        let root = Observed {
            uids: [0, 0],
            gids: [0, 0],
            back_to_root: Ok(()),
            ..good()
        };
        let lent = RunAs::Lent { uid: 5, gid: 6 };
        for run_as in [RunAs::Daemon, OWNER, lent] {
            assert!(judged(run_as, &root).is_err());
        }
        assert!(judged(RunAs::Daemon, &good()).is_ok());
    }
}
