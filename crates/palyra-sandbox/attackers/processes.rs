//! Ways at other processes, and ways to outlive the call.

use std::io::{self, Write};
use std::time::Duration;

use super::{Attack, checked};

pub(crate) fn own() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}

pub(crate) fn parent() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getppid() }
}

pub(crate) fn trace(pid: i32) -> Attack {
    // SAFETY: PTRACE_SEIZE ignores its address; without options data is 0.
    unsafe {
        checked(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0))?;
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
    }
    Ok("traced".to_owned())
}

pub(crate) fn peek(pid: i32, address: usize) -> Attack {
    let mut byte = [0_u8; 8];
    let here = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    let there = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: byte.len(),
    };
    // SAFETY: one local vector with room for eight bytes; the remote address is the kernel's to
    // check.
    let length = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    checked(length as libc::c_long)?;
    Ok(format!("{byte:?}"))
}

pub(crate) fn steal(pid: i32, fd: i32) -> Attack {
    // SAFETY: integers only.
    unsafe {
        let process = checked(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        checked(libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0))?;
    }
    Ok("stolen".to_owned())
}

pub(crate) fn signal(pid: i32) -> Attack {
    signal_with(pid, libc::SIGCONT)
}

pub(crate) fn signal_with(pid: i32, signal: i32) -> Attack {
    // SAFETY: two integers.
    checked(libc::c_long::from(unsafe { libc::kill(pid, signal) }))?;
    std::thread::sleep(Duration::from_millis(200));
    Ok("signalled".to_owned())
}

pub(crate) fn descriptors() -> Attack {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        if let Ok(target) = std::fs::read_link(entry.path()) {
            // The listing itself.
            if !target.starts_with("/proc") {
                all.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    all.sort();
    Ok(all.join(" "))
}

pub(crate) fn about() -> Attack {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let wanted = [
        "Uid",
        "Gid",
        "Groups",
        "NoNewPrivs",
        "Seccomp:",
        "CapEff",
        "CapBnd",
        "SigIgn",
        "SigBlk",
    ];
    let lines = status
        .lines()
        .filter(|line| wanted.iter().any(|name| line.starts_with(name)))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut lines: Vec<String> = lines.collect();
    // SAFETY: no pointers.
    let (session, group) = unsafe { (libc::getsid(0), libc::getpgrp()) };
    lines.push(format!(
        "session {} group {}",
        session == own(),
        group == own()
    ));
    Ok(lines.join("\n"))
}

fn resource(name: &str) -> u32 {
    match name {
        "files" => libc::RLIMIT_NOFILE,
        "file-size" => libc::RLIMIT_FSIZE,
        _ => u32::MAX,
    }
}

/// Raw, so that nothing but the kernel says no.
fn set_limit(pid: i32, resource: u32, value: &libc::rlimit) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::rlimit>();
    // SAFETY: the new limit lives through the call; the old one is not asked for.
    checked(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            resource,
            std::ptr::from_ref(value),
            none,
        )
    })?;
    Ok(())
}

const NOTHING: libc::rlimit = libc::rlimit {
    rlim_cur: 0,
    rlim_max: 0,
};

/// Takes everything of a kind from another process of the same uid.
pub(crate) fn limit(pid: i32, what: &str) -> Attack {
    set_limit(pid, resource(what), &NOTHING)?;
    Ok("limited".to_owned())
}

fn parent_of(pid: i32) -> io::Result<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let parent = rest.split_whitespace().nth(1);
    Ok(parent.and_then(|it| it.parse().ok()).unwrap_or(-1))
}

/// The same to those who watch over this process: three generations up, the supervisor, the spawn
/// server and the daemon. One success is enough.
pub(crate) fn limit_parents(what: &str) -> Attack {
    let mut refused = None;
    let mut pid = parent();
    for _ in 0..3 {
        match limit(pid, what) {
            Ok(_) => return Ok(format!("limited {pid}")),
            Err(error) => refused = Some(error),
        }
        pid = parent_of(pid)?;
    }
    Err(refused.unwrap_or_else(|| io::Error::other("nobody is there")))
}

/// Takes the descriptors from those above, so that they can neither poll nor list children, and
/// leaves somebody behind.
pub(crate) fn cripple(path: &str) -> Attack {
    let crippled = limit_parents("files");
    daemon(path)?;
    crippled
}

/// Not an attack: reading another process's limits.
pub(crate) fn limits_of(pid: i32) -> Attack {
    let mut limit = NOTHING;
    let none = std::ptr::null::<libc::rlimit>();
    // SAFETY: there is room for one limit, and none is set.
    checked(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            libc::RLIMIT_NOFILE,
            none,
            &raw mut limit,
        )
    })?;
    Ok(format!("files={}", limit.rlim_cur))
}

/// Not an attack: a process lowers its own limit, in both ways there are.
pub(crate) fn limit_itself() -> Attack {
    let mut value = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    set_limit(0, libc::RLIMIT_NOFILE, &value)?;
    value.rlim_cur = 32;
    // SAFETY: the limit lives through the call.
    checked(libc::c_long::from(unsafe {
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const value)
    }))?;
    limits_of(0)
}

pub(crate) fn limits() -> String {
    let all = [
        ("cpu", libc::RLIMIT_CPU),
        ("fsize", libc::RLIMIT_FSIZE),
        ("nofile", libc::RLIMIT_NOFILE),
        ("core", libc::RLIMIT_CORE),
        ("as", libc::RLIMIT_AS),
    ];
    let shown = all.map(|(name, resource)| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: there is room for one limit.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        format!("{name}={}/{}", limit.rlim_cur, limit.rlim_max)
    });
    shown.join(" ")
}

pub(crate) fn burn() -> Attack {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(3));
    }
}

/// Writes its pid and hangs.
pub(crate) fn hang(path: &str) -> Attack {
    note(path)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Appends this process's number to a file: the test looks for survivors there.
fn note(path: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?;
    file.write_all(format!("{}\n", own()).as_bytes())
}

fn fork() -> i32 {
    // SAFETY: this program has a single thread.
    unsafe { libc::fork() }
}

fn new_session() {
    // SAFETY: no arguments.
    unsafe { libc::setsid() };
}

/// The classic: session of its own, forked twice, nothing left open.
pub(crate) fn daemon(path: &str) -> Attack {
    if fork() == 0 {
        new_session();
        if fork() == 0 {
            // SAFETY: this process owns nothing that these descriptors are needed for.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
            new_session();
            hang(path)?;
        }
        std::process::exit(0);
    }
    wait_for(path, 1)
}

/// A child that is not ours but our parent's.
pub(crate) fn sibling(path: &str) -> Attack {
    let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as u64;
    // SAFETY: no new stack and no shared memory: this is a fork with another parent.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        new_session();
        hang(path)?;
    }
    wait_for(path, 1)
}

/// A descendant in another session keeps standard output open.
pub(crate) fn hold_output(path: &str) -> Attack {
    if fork() == 0 {
        new_session();
        hang(path)?;
    }
    wait_for(path, 1)?;
    hang(path)
}

fn wait_for(path: &str, count: usize) -> Attack {
    for _ in 0..500 {
        let lines = std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        if lines >= count {
            return Ok("away".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("nobody came"))
}

/// Processes that fork for ever, each in a session of its own; about forty at a time.
pub(crate) fn fork_loop(path: &str) -> Attack {
    note(path)?;
    for _ in 0..40 {
        if fork() == 0 {
            new_session();
            loop {
                if fork() == 0 {
                    new_session();
                    note(path)?;
                    std::thread::sleep(Duration::from_millis(30));
                    std::process::exit(0);
                }
                // SAFETY: nobody needs the statuses.
                while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    hang(path)
}

/// A process that is never the same for long: each one forks its successor and ends.
pub(crate) fn comet(path: &str) -> Attack {
    if fork() == 0 {
        loop {
            new_session();
            note(path)?;
            if fork() != 0 {
                std::process::exit(0);
            }
        }
    }
    wait_for(path, 20)?;
    Ok("away".to_owned())
}

/// Many short-lived orphans, so that whoever inherits them has to clear them away.
pub(crate) fn orphans(count: i32) -> Attack {
    for _ in 0..count {
        if fork() == 0 {
            if fork() == 0 {
                std::process::exit(0);
            }
            std::process::exit(0);
        }
        // SAFETY: nobody needs the status.
        unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
    }
    std::thread::sleep(Duration::from_millis(200));
    let mut zombies = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if stat.contains(") Z ") && stat.contains("palyra-attacker") {
            zombies += 1;
        }
    }
    Ok(format!("zombies {zombies}"))
}

pub(crate) fn spam() -> Attack {
    let line = [b'x'; 64 * 1024];
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    loop {
        out.write_all(&line)?;
        err.write_all(&line)?;
    }
}
