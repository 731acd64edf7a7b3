//! Probes 55 to 61: using up the machine, and outliving the call. Each of them is bounded by its
//! own arguments, so that a control outside does no harm.

use std::io::Write;
use std::time::Duration;

use super::answer::{Attack, Failed};
use super::processes::ends_well;
use super::sys::{self, call};

const MIB: usize = 1 << 20;

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("forks", [count]) => forks(number(count)),
        ("memory", [mib]) => memory(number(mib)),
        ("fill", [folder, mib]) => fill(folder, number(mib)),
        ("spam", [mib]) => spam(number(mib)),
        ("outlive", [_mark]) => outlive(),
        ("hold-output", [_mark]) => hold_output(),
        ("hang", [_mark]) => hang(),
        _ => return None,
    })
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or(0)
}

/// So many processes at the same time; all of them are ended again.
fn forks(count: usize) -> Attack {
    let mut children = Vec::new();
    let mut refused = None;
    while children.len() < count {
        match sys::fork() {
            Ok(Some(child)) => children.push(child),
            Ok(None) => loop {
                std::thread::park();
            },
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    for child in &children {
        let _ = call!(libc::SYS_kill, *child, libc::SIGKILL);
        let _ = sys::wait(*child);
    }
    match refused {
        None => Ok(format!("{count} processes")),
        Some(error) => match Failed::from(error) {
            Failed::Held(why) => Err(Failed::Held(format!("{why} after {}", children.len()))),
            absent @ Failed::Absent(_) => Err(absent),
        },
    }
}

/// In a child, so that there is somebody to tell when it is killed.
fn memory(mib: usize) -> Attack {
    let child = match sys::fork()? {
        Some(child) => child,
        None => {
            // Written to, so that it is really there.
            let all: Vec<Vec<u8>> = (0..mib).map(|_| vec![1; MIB]).collect();
            std::hint::black_box(&all);
            sys::end(0)
        }
    };
    ends_well(child)?;
    Ok(format!("{mib} MiB of memory"))
}

/// So much in one folder, in files of 16 MiB; all of it is removed again.
fn fill(folder: &str, mib: usize) -> Attack {
    let folder = format!("{folder}/palyra-fill-{}", std::process::id());
    std::fs::create_dir(&folder)?;
    let filled = fill_with(&folder, mib);
    std::fs::remove_dir_all(&folder)?;
    filled
}

fn fill_with(folder: &str, mib: usize) -> Attack {
    let piece = vec![1_u8; MIB];
    for file in 0..mib.div_ceil(16) {
        let mut file = std::fs::File::create_new(format!("{folder}/{file}"))?;
        for _ in 0..16 {
            file.write_all(&piece)?;
        }
    }
    Ok(format!("{mib} MiB of files"))
}

/// Output that does not end by itself; nobody waits for more than this.
fn spam(mib: usize) -> Attack {
    let piece = vec![b'x'; MIB];
    let mut out = std::io::stdout().lock();
    for _ in 0..mib {
        out.write_all(&piece)?;
    }
    out.write_all(b"\n")?;
    Ok(format!("{mib} MiB of output"))
}

/// Does nothing for longer than any test lasts. Tests know it by the mark in its arguments.
fn hang() -> ! {
    for _ in 0..600 {
        std::thread::sleep(Duration::from_secs(1));
    }
    sys::end(0)
}

/// A session of its own, forked twice, nothing left open.
fn outlive() -> Attack {
    match sys::fork()? {
        Some(child) => {
            ends_well(child)?;
            Ok("away".to_owned())
        }
        None => {
            let _ = call!(libc::SYS_setsid);
            match sys::fork() {
                Ok(Some(_)) => sys::end(0),
                Err(error) => sys::end(error.raw_os_error().unwrap_or(255)),
                Ok(None) => {}
            }
            let _ = call!(libc::SYS_close_range, 0, u32::MAX, 0);
            let _ = call!(libc::SYS_setsid);
            hang()
        }
    }
}

/// A descendant in another session keeps standard output open, and so does this one.
fn hold_output() -> Attack {
    if sys::fork()?.is_none() {
        call!(libc::SYS_setsid)?;
        hang();
    }
    if sys::fork()?.is_none() {
        hang();
    }
    hang();
}
