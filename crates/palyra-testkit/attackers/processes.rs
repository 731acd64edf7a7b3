//! Probes 26, 27, 40 and 44: other processes, and what they hold.

use std::io::{Read, Seek};

use super::answer::{Attack, ended_well, held};
use super::sys::{self, at, call};

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("trace", [pid]) => trace(number(pid)),
        ("trace-own", []) => with_a_child(trace),
        ("peek", [pid, address]) => peek(number(pid), address.parse().unwrap_or(0)),
        ("peek-own", []) => peek_own(),
        ("memory-file", [pid, address]) => memory_file(pid, address.parse().unwrap_or(0)),
        ("steal", [pid, fd]) => steal(number(pid), number(fd)),
        ("steal-own", []) => with_a_child(|child| steal(child, 1)),
        ("signal", [by, pid]) => signal(by, number(pid)),
        ("priority", [pid]) => priority(number(pid)),
        ("list", [half, rest]) => list(&[*half, *rest].concat()),
        _ => return None,
    })
}

fn number(text: &str) -> i32 {
    text.parse().unwrap_or(-1)
}

/// A child that does nothing, for what may not even be done to one's own.
fn with_a_child(attempt: impl FnOnce(i32) -> Attack) -> Attack {
    let child = match sys::fork()? {
        Some(child) => child,
        None => loop {
            std::thread::park();
        },
    };
    let attempted = attempt(child);
    call!(libc::SYS_kill, child, libc::SIGKILL)?;
    let _ = sys::wait(child);
    attempted
}

fn trace(pid: i32) -> Attack {
    call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0)?;
    let _ = call!(libc::SYS_ptrace, libc::PTRACE_INTERRUPT, pid, 0, 0);
    let _ = call!(libc::SYS_ptrace, libc::PTRACE_DETACH, pid, 0, 0);
    Ok("traced".to_owned())
}

fn peek(pid: i32, address: usize) -> Attack {
    let mut got = [0_u8; 16];
    let here = [got.as_mut_ptr() as usize, got.len()];
    let there = [address, got.len()];
    let (here, there) = (at(&here), at(&there));
    call!(libc::SYS_process_vm_readv, pid, here, 1, there, 1, 0)?;
    Ok(String::from_utf8_lossy(&got).into_owned())
}

fn peek_own() -> Attack {
    let there = [7_u8; 16];
    let address = there.as_ptr() as usize;
    with_a_child(|child| peek(child, address))
}

fn memory_file(pid: &str, address: u64) -> Attack {
    let mut file = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    file.seek(std::io::SeekFrom::Start(address))?;
    let mut got = [0_u8; 16];
    file.read_exact(&mut got)?;
    Ok(String::from_utf8_lossy(&got).into_owned())
}

fn steal(pid: i32, fd: i32) -> Attack {
    let process = call!(libc::SYS_pidfd_open, pid, 0)?;
    let stolen = call!(libc::SYS_pidfd_getfd, process, fd, 0)?;
    let mut file = std::fs::File::from(sys::owned(stolen));
    let mut text = String::new();
    if file.rewind().is_ok() {
        let _ = file.read_to_string(&mut text);
    }
    Ok(text)
}

fn signal(by: &str, pid: i32) -> Attack {
    let harmless = libc::SIGCONT;
    match by {
        "kill" => call!(libc::SYS_kill, pid, harmless)?,
        "tgkill" => call!(libc::SYS_tgkill, pid, pid, harmless)?,
        "queue" => {
            /// `SI_QUEUE`
            const QUEUED: i32 = -1;
            let mut information = [0_i32; 32];
            let [signal, _, code, ..] = &mut information;
            (*signal, *code) = (harmless, QUEUED);
            call!(libc::SYS_rt_sigqueueinfo, pid, harmless, at(&information))?
        }
        "pidfd" => {
            let process = call!(libc::SYS_pidfd_open, pid, 0)?;
            call!(libc::SYS_pidfd_send_signal, process, harmless, 0, 0)?
        }
        _ => return Err(held("NO_SUCH_PROBE")),
    };
    Ok("signalled".to_owned())
}

fn priority(pid: i32) -> Attack {
    let of_a_process = 0;
    call!(libc::SYS_setpriority, of_a_process, pid, 19)?;
    Ok("slowed down".to_owned())
}

/// Finds a process outside by its command line.
fn list(mark: &str) -> Attack {
    let found = find("cmdline", mark)?;
    Ok(format!("process {found}"))
}

/// A process other than this one whose file of `/proc` has this text.
pub(crate) fn find(file: &str, text: &str) -> Result<String, super::answer::Failed> {
    let own = std::process::id().to_string();
    let mut last = held("NOT_SEEN");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) || name == own {
            continue;
        }
        match std::fs::read(entry.path().join(file)) {
            Ok(bytes) if String::from_utf8_lossy(&bytes).contains(text) => return Ok(name),
            Ok(_) => {}
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// For the tests of others: a child that has to end well.
pub(crate) fn ends_well(child: i32) -> Attack {
    ended_well(sys::wait(child)?)?;
    Ok(String::new())
}
