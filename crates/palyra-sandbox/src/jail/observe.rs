//! The self-test: what is really in force, seen from inside just before the program starts.
//!
//! Looking ([`Observed::look`]) tries the doors; judging ([`judge`]) is pure and names the first
//! wall that is missing.

use std::path::{Path, PathBuf};

use palyra_core::Layer;
use palyra_core::plan::RunAs;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{SecureComputingMode, Uid};

use super::self_test::{self, Ahead, Tried, layer, missing, outcome};
use crate::landlock::Abi;

/// What the order asked for.
pub(super) struct Expected<'a> {
    pub(super) run_as: RunAs,
    pub(super) abi: Abi,
    pub(super) limits: &'a [(Resource, Rlimit)],
}

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    tried: Tried,
    no_new_privs: bool,
    seccomp_filter: bool,
    /// Opening `/`, which any uid may and no call is granted, since it is on the way to every
    /// masked folder: only Landlock can have refused it.
    root_folder: Result<(), Errno>,
    uids: [u32; 2],
    gids: [u32; 2],
    other_groups: usize,
    back_to_root: Result<(), Errno>,
}

impl Observed {
    /// Tries everything.
    pub(super) fn look(masked: &[PathBuf], limits: &[(Resource, Rlimit)], ahead: &Ahead) -> Self {
        let own_groups = rustix::process::getgroups().unwrap_or_default();
        let gid = rustix::process::getgid();
        Self {
            tried: Tried::look(masked, limits, ahead),
            no_new_privs: rustix::thread::no_new_privs().unwrap_or(false),
            seccomp_filter: rustix::thread::secure_computing_mode()
                .is_ok_and(|mode| mode == SecureComputingMode::Filter),
            root_folder: self_test::open(Path::new("/"), OFlags::RDONLY),
            uids: [rustix::process::getuid(), rustix::process::geteuid()].map(|uid| uid.as_raw()),
            gids: [gid, rustix::process::getegid()].map(|gid| gid.as_raw()),
            other_groups: own_groups.iter().filter(|group| **group != gid).count(),
            back_to_root: become_root(),
        }
    }

    /// The session it leads, if it leads one.
    pub(super) const fn session(&self) -> i32 {
        self.tried.session
    }
}

fn become_root() -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
}

/// Looks and judges without meaning it, for [`super::target`]'s rehearsal.
pub(super) fn rehearse(expected: &Expected<'_>, ahead: &Ahead) -> Vec<Layer> {
    let seen = Observed::look(&["/".into()], expected.limits, ahead);
    let _ = std::hint::black_box(judge(expected, &seen));
    let every = [
        landlock(expected, &seen),
        identity(expected, &seen),
        seen.tried.limits(expected.limits),
    ];
    let mut layers: Vec<Layer> = every
        .into_iter()
        .map(|judged| judged.unwrap_or_else(|why| layer("", why)))
        .collect();
    let others = [
        seccomp(&seen),
        self_test::no_new_privs(seen.no_new_privs),
        seen.tried.session(),
    ];
    layers.extend(others.into_iter().flatten());
    layers
}

/// The layers, or the first one that is missing.
pub(super) fn judge(expected: &Expected<'_>, seen: &Observed) -> Result<Vec<Layer>, String> {
    let mut layers = vec![
        landlock(expected, seen)?,
        seccomp(seen)?,
        self_test::no_new_privs(seen.no_new_privs)?,
        identity(expected, seen)?,
        seen.tried.limits(expected.limits)?,
        seen.tried.session()?,
    ];
    layers.extend(seen.tried.whole_call());
    Ok(layers)
}

fn landlock(expected: &Expected<'_>, seen: &Observed) -> Result<Layer, String> {
    if seen.root_folder != Err(Errno::ACCESS) {
        let seen = outcome(seen.root_folder);
        return Err(missing("landlock", format!("opening `/`: {seen}")));
    }
    seen.tried.masks("landlock")?;
    let (abi, count) = (expected.abi.number(), seen.tried.masked.len());
    let scopes = self_test::scopes(expected.abi);
    let text = format!("abi {abi}, open of `/` and {count} masked refused{scopes}");
    Ok(layer("landlock", text))
}

fn seccomp(seen: &Observed) -> Result<Layer, String> {
    let text = seen.tried.seccomp(seen.seccomp_filter)?;
    Ok(layer("seccomp", text))
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
            tried: Tried {
                session: 7,
                pid: 7,
                group: 7,
                masked: vec![
                    ("/home".into(), Err(Errno::ACCESS)),
                    ("/x".into(), Err(Errno::NOENT)),
                ],
                unix_socket: Err(Errno::PERM),
                setns: Some(libc::EPERM),
                limits: vec![(Resource::Core, limit(0))],
                cgroup: Some("/palyra-1/call-7".into()),
                whole: "pids 512, memory not limited".into(),
            },
            no_new_privs: true,
            seccomp_filter: true,
            root_folder: Err(Errno::ACCESS),
            uids: [5, 5],
            gids: [6, 6],
            other_groups: 0,
            back_to_root: Err(Errno::PERM),
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
            let mut seen = good();
            seen.tried.cgroup = cgroup;
            let layers = judged(OWNER, &seen).unwrap();
            assert!(layers.iter().all(|layer| layer.name != "cgroup"));
        }
    }

    #[test]
    fn each_missing_wall_is_a_refusal() {
        type Change = fn(&mut Observed);
        let changes: [(&str, Change); 18] = [
            ("landlock", |it| it.root_folder = Ok(())),
            ("landlock", |it| it.root_folder = Err(Errno::PERM)),
            ("landlock", |it| it.tried.masked[0].1 = Ok(())),
            ("landlock", |it| it.tried.masked[0].1 = Err(Errno::IO)),
            ("seccomp", |it| it.seccomp_filter = false),
            ("seccomp", |it| it.tried.unix_socket = Ok(())),
            ("seccomp", |it| {
                it.tried.unix_socket = Err(Errno::AFNOSUPPORT)
            }),
            ("seccomp", |it| it.tried.setns = Some(libc::EBADF)),
            ("no_new_privs", |it| it.no_new_privs = false),
            ("the uid", |it| it.uids = [5, 0]),
            ("the uid", |it| it.uids = [8, 8]),
            ("the uid", |it| it.gids = [0, 0]),
            ("the uid", |it| it.other_groups = 1),
            ("the uid", |it| it.back_to_root = Ok(())),
            ("a limit", |it| it.tried.limits[0].1 = limit(1)),
            ("a limit", |it| it.tried.limits.clear()),
            ("a session", |it| it.tried.session = 1),
            ("a session", |it| it.tried.group = 1),
        ];
        for (wall, change) in changes {
            let mut seen = good();
            change(&mut seen);
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
