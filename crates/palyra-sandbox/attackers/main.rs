//! Attacks as a small program: one subcommand each, for the tests.
//!
//! An attack that succeeds prints what it got and ends with 0; one that is refused prints
//! `refused: ERRNO` and ends with 1. Tests run each of them outside the sandbox first, where it
//! has to succeed.

#![expect(unsafe_code, reason = "attackers make raw system calls on purpose")]
#![expect(
    clippy::print_stdout,
    reason = "that is how an attack tells what it got"
)]
#![expect(clippy::exit, reason = "forked processes end where they are")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "descriptors and addresses, as the C interface has them"
)]

mod files;
mod processes;
mod sockets;

use std::io;

type Attack = io::Result<String>;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match attack(&arguments) {
        Ok(got) => {
            println!("{got}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            println!("refused: {}", name(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

fn attack(arguments: &[&str]) -> Attack {
    match arguments {
        ["read", path] => files::read(path),
        ["read-link", path] => files::read_link(path),
        ["list", path] => files::list(path),
        ["create", path] => files::create(path),
        ["write", path] => files::write(path),
        ["truncate", path] => files::truncate(path),
        ["remove", path] => files::remove(path),
        ["rename", from, to] => files::rename(from, to),
        ["hard-link", from, to] => files::hard_link(from, to),
        ["open-by-handle", path] => files::open_by_handle(path),
        ["clone-tree", path] => files::clone_tree(path),
        ["bind", from, to] => files::bind(from, to),
        ["mknod", path] => files::make_device(path),
        ["litter", path] => files::litter(path),
        ["swap-tmp", by, target] => files::swap_tmp(by, target),

        ["unix", kind, path] => sockets::connect(kind, path),
        ["pair", kind, path] => sockets::pair(kind, path),
        ["pair-works", kind] => sockets::pair_works(kind),
        ["tcp"] => sockets::tcp(),
        ["io-uring"] => sockets::io_uring(),
        ["i386"] => sockets::i386(),
        ["x32"] => sockets::x32(),

        ["trace", pid] => processes::trace(number(pid)),
        ["peek", pid, address] => processes::peek(number(pid), address.parse().unwrap_or(0)),
        ["steal", pid, fd] => processes::steal(number(pid), number(fd)),
        ["signal", pid] => processes::signal(number(pid)),
        ["kill-parent"] => processes::signal_with(processes::parent(), libc::SIGKILL),
        ["descriptors"] => processes::descriptors(),
        ["about"] => processes::about(),
        ["limit", pid, resource] => processes::limit(number(pid), resource),
        ["limit-parents", resource] => processes::limit_parents(resource),
        ["limits-of", pid] => processes::limits_of(number(pid)),
        ["limit-itself"] => processes::limit_itself(),
        ["cripple", path] => processes::cripple(path),
        ["limits"] => Ok(processes::limits()),
        ["burn"] => processes::burn(),
        ["hang", path] => processes::hang(path),
        ["exit", code] => std::process::exit(number(code)),
        ["die", signal] => processes::signal_with(processes::own(), number(signal)),
        ["daemon", path] => processes::daemon(path),
        ["sibling", path] => processes::sibling(path),
        ["hold-output", path] => processes::hold_output(path),
        ["fork-loop", path] => processes::fork_loop(path),
        ["comet", path] => processes::comet(path),
        ["orphans", count] => processes::orphans(number(count)),
        ["spam"] => processes::spam(),
        other => Err(io::Error::other(format!("no such attack: {other:?}"))),
    }
}

fn number(text: &str) -> i32 {
    text.parse().unwrap_or(-1)
}

/// What a raw call gave, or why not.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn name(error: &io::Error) -> String {
    let known = [
        (libc::EACCES, "EACCES"),
        (libc::EPERM, "EPERM"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOENT, "ENOENT"),
        (libc::EXDEV, "EXDEV"),
        (libc::EROFS, "EROFS"),
        (libc::ESRCH, "ESRCH"),
        (libc::ENXIO, "ENXIO"),
    ];
    let code = error.raw_os_error().unwrap_or(0);
    let known = known.into_iter().find(|(errno, _)| *errno == code);
    known.map_or_else(|| error.to_string(), |(_, name)| name.to_owned())
}
