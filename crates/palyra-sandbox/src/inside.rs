//! Whether a process is inside a call.
//!
//! Everything a call starts stays below the spawn server in the tree of processes (each supervisor
//! is a subreaper, and so is the server), so the question is whether the server, or the supervisor
//! of a live call, is among a process's ancestors. Session and cgroup of live calls are looked at
//! too: they still answer when the server was killed and the tree is just being cut up.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::cgroup;

/// How often a walk is tried again when processes end under it.
const TRIES: usize = 32;

/// More ancestors than any process has.
const MOST_ANCESTORS: usize = 4_096;

/// Whom a call's processes descend from, or what they share.
#[derive(Debug, Default, Clone)]
struct Marks {
    /// The spawn server and the supervisors of live calls.
    processes: HashSet<i32>,
    /// Sessions of live calls.
    sessions: HashSet<i32>,
}

/// The marks of what is alive now.
#[derive(Debug, Default, Clone)]
pub(crate) struct LiveMarks(Arc<Mutex<Marks>>);

/// A live call's marks, taken back when the call is over.
pub(crate) struct Mark {
    live: LiveMarks,
    process: i32,
    session: Option<i32>,
}

impl LiveMarks {
    fn lock(&self) -> std::sync::MutexGuard<'_, Marks> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Marks a call by its supervisor and its session, if that is known.
    pub(crate) fn add(&self, supervisor: i32, session: Option<i32>) -> Mark {
        let mut marks = self.lock();
        marks.processes.insert(supervisor);
        marks.sessions.extend(session);
        Mark {
            live: self.clone(),
            process: supervisor,
            session,
        }
    }

    /// Marks a spawn server.
    pub(crate) fn add_server(&self, pid: i32) -> Mark {
        self.lock().processes.insert(pid);
        Mark {
            live: self.clone(),
            process: pid,
            session: None,
        }
    }

    /// Whether `pid` is inside a call, or why that cannot be said.
    pub(crate) fn cover(&self, pid: i32, cgroups: Option<&Path>) -> Result<bool, String> {
        let marks = self.lock().clone();
        is_inside(pid, &marks, cgroups)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut marks = self.live.lock();
        marks.processes.remove(&self.process);
        if let Some(session) = self.session {
            marks.sessions.remove(&session);
        }
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: i32,
    session: i32,
    started: u64,
}

/// Reads it.
pub(crate) fn stat(pid: i32) -> io::Result<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// `pid (name) state ppid pgrp session … starttime …`; the name may hold blanks and parentheses,
/// so what counts is after the last one.
fn parse(text: &[u8]) -> Option<Stat> {
    let end_of_name = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end_of_name + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Stat {
        parent,
        session,
        started,
    })
}

/// The answer, or why there is none.
fn is_inside(pid: i32, marks: &Marks, cgroups: Option<&Path>) -> Result<bool, String> {
    if pid <= 0 {
        return Err("it is in another process namespace".to_owned());
    }
    let mut why = String::new();
    for _ in 0..TRIES {
        match walk(pid, marks) {
            Ok(true) => return Ok(true),
            Ok(false) => return in_a_cgroup(pid, cgroups),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn in_a_cgroup(pid: i32, cgroups: Option<&Path>) -> Result<bool, String> {
    let Some(cgroups) = cgroups else {
        return Ok(false);
    };
    let name = cgroup::name_of(Path::new(&format!("/proc/{pid}/cgroup")))
        .map_err(|error| format!("its cgroup cannot be read: {error}"))?;
    Ok(name.is_some_and(|name| name.starts_with(cgroups)))
}

/// One walk up to the first process.
///
/// A parent that ends while we look is the danger: its number may already be a stranger's, and the
/// walk would go on outside. So after reading a parent, its child is read again: if it still has
/// that parent, the parent was its own.
fn walk(pid: i32, marks: &Marks) -> Result<bool, String> {
    let read = |pid| stat(pid).map_err(|error| format!("process {pid} cannot be read: {error}"));
    let first = read(pid)?;
    let (mut here, mut seen) = (pid, first);
    for _ in 0..MOST_ANCESTORS {
        if marks.processes.contains(&here) || marks.sessions.contains(&seen.session) {
            return Ok(true);
        }
        if seen.parent == 0 {
            if read(pid)?.started != first.started {
                return Err("the process was replaced by another".to_owned());
            }
            return Ok(false);
        }
        let parent = read(seen.parent)?;
        if read(here)? != seen {
            return Err(format!("process {here} changed while it was looked at"));
        }
        (here, seen) = (seen.parent, parent);
    }
    Err("it has too many ancestors".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_rest() {
        let text = b"12 (x) S 1 (y) R 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5555 1 2 3";
        let stat = parse(text).unwrap();
        assert_eq!((stat.parent, stat.session, stat.started), (7, 9, 5555));
        assert!(parse(b"12 (x S 1").is_none());
    }

    #[test]
    fn ancestors_and_sessions_count() {
        let own = i32::try_from(std::process::id()).unwrap();
        let parent = stat(own).unwrap().parent;
        let of = |processes: &[i32], sessions: &[i32]| Marks {
            processes: processes.iter().copied().collect(),
            sessions: sessions.iter().copied().collect(),
        };
        assert_eq!(is_inside(own, &of(&[], &[]), None), Ok(false));
        assert_eq!(is_inside(own, &of(&[parent], &[]), None), Ok(true));
        assert_eq!(is_inside(own, &of(&[own], &[]), None), Ok(true));
        let session = stat(own).unwrap().session;
        assert_eq!(is_inside(own, &of(&[], &[session]), None), Ok(true));
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_judged() {
        assert!(is_inside(i32::MAX, &Marks::default(), None).is_err());
        assert!(is_inside(0, &Marks::default(), None).is_err());
    }
}
