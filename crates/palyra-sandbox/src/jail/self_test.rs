//! What both tiers look at just before a process becomes the program, and how that is judged.
//!
//! What only one of them has is in `observe` (Tier-B) and `sight` (Tier-C).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use palyra_core::{Layer, Limits};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::controllers::CallLimits;
use crate::landlock::Abi;
use crate::{cgroup, sys};

/// What is looked at before there is an order, while nobody waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ahead {
    /// The cgroup as the machine names it: behind the walls, `/proc` may be gone, and a namespace
    /// hides the name.
    cgroup: Option<PathBuf>,
    /// What holds for the call as a whole.
    whole: String,
}

impl Ahead {
    pub(super) fn look(whole: &CallLimits) -> Self {
        let cgroup = cgroup::name_of(Path::new("/proc/self/cgroup"));
        Self {
            cgroup: cgroup.ok().flatten(),
            whole: whole.set_usual(),
        }
    }

    /// The same with the limits of an order.
    pub(super) fn with_limits(self, whole: &CallLimits, limits: &Limits) -> Self {
        Self {
            whole: whole.set_for(limits, self.whole),
            ..self
        }
    }
}

/// Doors that were tried, and what is known without trying.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) pid: i32,
    pub(super) session: i32,
    pub(super) group: i32,
    pub(super) masked: Vec<(PathBuf, Result<(), Errno>)>,
    pub(super) unix_socket: Result<(), Errno>,
    pub(super) setns: Option<i32>,
    pub(super) limits: Vec<(Resource, Rlimit)>,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) whole: String,
}

impl Tried {
    pub(super) fn look(masked: &[PathBuf], limits: &[(Resource, Rlimit)], ahead: &Ahead) -> Self {
        let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
        Self {
            pid: number(rustix::process::getpid()),
            session: rustix::process::getsid(None).map_or(0, number),
            group: number(rustix::process::getpgrp()),
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
            cgroup: ahead.cgroup.clone(),
            whole: ahead.whole.clone(),
        }
    }

    /// No masked place opens; `wall` is what should have kept it shut.
    pub(super) fn masks(&self, wall: &str) -> Result<(), String> {
        for (path, result) in &self.masked {
            match result {
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
                other => {
                    let seen = format!("opening `{}`: {}", path.display(), outcome(*other));
                    return Err(missing(wall, seen));
                }
            }
        }
        Ok(())
    }

    /// The filter refuses what it lists.
    pub(super) fn seccomp(&self, filter: bool) -> Result<String, String> {
        if !filter {
            return Err(missing("seccomp", "no filter"));
        }
        if self.setns != Some(libc::EPERM) {
            let seen = format!("entering a namespace: {:?}", self.setns);
            return Err(missing("seccomp", seen));
        }
        if self.unix_socket != Err(Errno::PERM) {
            let seen = outcome(self.unix_socket);
            return Err(missing("seccomp", format!("making a Unix socket: {seen}")));
        }
        Ok("filter, setns and Unix socket refused".to_owned())
    }

    pub(super) fn limits(&self, expected: &[(Resource, Rlimit)]) -> Result<Layer, String> {
        if self.limits != expected {
            return Err(missing("a limit", format!("{:?}", self.limits)));
        }
        Ok(layer("rlimits", limits_text(&self.limits)))
    }

    pub(super) fn session(&self) -> Result<Layer, String> {
        if self.session != self.pid || self.group != self.pid {
            return Err(missing("a session of its own", self.session));
        }
        Ok(layer("session", "own session and process group"))
    }

    /// What holds for the whole call, and the cgroup if it is the call's own: there may be none.
    pub(super) fn whole_call(&self) -> Vec<Layer> {
        let mut layers = vec![layer("whole_call", self.whole.clone())];
        if let Some(cgroup) = &self.cgroup
            && cgroup
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"call-"))
        {
            layers.push(layer("cgroup", cgroup.display().to_string()));
        }
        layers
    }
}

pub(super) fn no_new_privs(set: bool) -> Result<Layer, String> {
    if !set {
        return Err(missing("no_new_privs", "not set"));
    }
    Ok(layer("no_new_privs", "set"))
}

/// What Landlock does besides files, as it is written into a record.
pub(super) const fn scopes(abi: Abi) -> &'static str {
    if abi.has_scopes() {
        ", signals and abstract sockets scoped"
    } else {
        ""
    }
}

pub(super) fn layer(name: &str, observed: impl Into<String>) -> Layer {
    Layer {
        name: name.to_owned(),
        observed: observed.into(),
    }
}

pub(super) fn missing(wall: &str, seen: impl std::fmt::Display) -> String {
    format!("{wall} is not in force: {seen}")
}

pub(super) fn outcome(result: Result<(), Errno>) -> String {
    match result {
        Ok(()) => "it succeeded".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    }
}

pub(super) fn open(path: &Path, how: OFlags) -> Result<(), Errno> {
    let flags = how | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(drop::<OwnedFd>)
}

fn unix_socket() -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(drop::<OwnedFd>)
}

fn limits_text(limits: &[(Resource, Rlimit)]) -> String {
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
