//! Probes 18 to 20 and 28 to 37: the kernel's own doors.

use std::io::Write;
use std::os::fd::AsRawFd;

use super::answer::{Attack, absent_without, any, ended_well, held};
use super::sys::{self, at, call};

const UNIX: i32 = libc::AF_UNIX;
const STREAM: i32 = libc::SOCK_STREAM;

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("setting", [path]) => setting(path),
        ("peer-into", [path]) => peer_into(path),
        ("running-program", [program]) => running_program(program),
        ("add-key", []) => add_key(),
        ("request-key", []) => request_key(),
        ("keyring", []) => keyring(),
        ("find-key", [name]) => find_key(name),
        ("io-uring", []) => io_uring(),
        ("bpf-map", []) => bpf_map(),
        ("bpf-program", []) => bpf_program(),
        ("perf", []) => perf(),
        ("userfaultfd", []) => userfaultfd(),
        ("userfaultfd-device", []) => userfaultfd_device(),
        ("memfd-exec", []) => memfd_exec(),
        ("i386", []) => i386(),
        ("x32", []) => x32(),
        ("push-key", [bits]) => push_key(bits),
        ("console", [bits]) => console(bits),
        ("set-uid", [program]) => set_uid(program),
        ("who-am-i", []) => who_am_i(),
        _ => return None,
    })
}

/// Opens a file of the kernel for writing, and writes back what it says.
fn setting(path: &str) -> Attack {
    let now = std::fs::read(path).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().write(true).open(path);
    let mut file = opened.map_err(absent_without)?;
    // Settings that list their choices cannot be written back as they read; sysrq must not be.
    if path.ends_with("core_pattern") {
        file.write_all(&now)?;
    }
    Ok(format!("opened {path} for writing"))
}

fn peer_into(path: &str) -> Attack {
    std::fs::File::open(path).map_err(absent_without)?;
    Ok(format!("opened {path}"))
}

/// Keeps a handle of a running program until it has ended, and then opens it for writing.
#[expect(clippy::disallowed_methods, reason = "it is an attacker")]
fn running_program(program: &str) -> Attack {
    let mut child = std::process::Command::new(program)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let exe = sys::path(&format!("/proc/{}/exe", child.id()))?;
    let handle = call!(libc::SYS_openat, libc::AT_FDCWD, &exe, libc::O_PATH);
    let _ = child.kill();
    child.wait()?;
    let handle = sys::owned(handle?);
    let road = format!("/proc/self/fd/{}", handle.as_raw_fd());
    std::fs::OpenOptions::new().write(true).open(road)?;
    Ok(format!("opened {program} for writing"))
}

const SESSION_KEYRING: i32 = -3;
const USER_KEYRING: i32 = -4;

fn add_key() -> Attack {
    let (kind, name, value) = (c"user", c"palyra-attack", b"x");
    let ring = SESSION_KEYRING;
    let key = call!(libc::SYS_add_key, kind, name, at(value), 1_u32, ring)?;
    Ok(format!("key {key}"))
}

fn request_key() -> Attack {
    let (kind, name) = (c"user", c"palyra-nobody-has-this");
    match call!(libc::SYS_request_key, kind, name, 0, 0) {
        Ok(key) => Ok(format!("key {key}")),
        // The kernel looked for it: the door is open.
        Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => Ok("it was asked".to_owned()),
        Err(error) => Err(error.into()),
    }
}

fn keyring() -> Attack {
    const GET_KEYRING_ID: i32 = 0;
    let id = call!(libc::SYS_keyctl, GET_KEYRING_ID, USER_KEYRING, 0)?;
    Ok(format!("keyring {id}"))
}

/// A key that somebody of the same uid keeps.
fn find_key(name: &str) -> Attack {
    const SEARCH: i32 = 10;
    const READ: i32 = 11;
    let (kind, name) = (c"user", sys::path(name)?);
    let key = call!(libc::SYS_keyctl, SEARCH, USER_KEYRING, kind, &name, 0)?;
    let mut value = [0_u8; 64];
    let length = call!(libc::SYS_keyctl, READ, key, sys::into(&mut value), 64)?;
    let value = value.get(..length.min(64) as usize).unwrap_or_default();
    Ok(String::from_utf8_lossy(value).into_owned())
}

fn io_uring() -> Attack {
    let mut parameters = [0_u8; 120];
    let ring = call!(libc::SYS_io_uring_setup, 4_u32, sys::into(&mut parameters))?;
    drop(sys::owned(ring));
    Ok("a ring".to_owned())
}

fn bpf_map() -> Attack {
    const MAP_CREATE: i32 = 0;
    // An array with one entry.
    let attributes: [u32; 18] = [2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let size = size_of_val(&attributes);
    let map = call!(libc::SYS_bpf, MAP_CREATE, at(&attributes), size)?;
    drop(sys::owned(map));
    Ok("a map".to_owned())
}

fn bpf_program() -> Attack {
    const PROG_LOAD: i32 = 5;
    const SOCKET_FILTER: u32 = 1;
    /// `r0 = 0; exit`
    const NOTHING: [u64; 2] = [0xb7, 0x95];
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        program: u64,
        license: u64,
        rest: [u64; 12],
    }
    let load = Load {
        kind: SOCKET_FILTER,
        count: 2,
        program: NOTHING.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        rest: [0; 12],
    };
    let size = size_of::<Load>();
    let program = call!(libc::SYS_bpf, PROG_LOAD, at(&load), size)?;
    drop(sys::owned(program));
    Ok("a program".to_owned())
}

/// Counts its own time; user space only, which most machines let anybody do.
fn perf() -> Attack {
    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
    let mut attributes = [0_u64; 16];
    let size = size_of_val(&attributes) as u64;
    let [kind, config, _, _, _, flags, ..] = &mut attributes;
    *kind = u64::from(SOFTWARE) | size << 32;
    *config = TASK_CLOCK;
    *flags = EXCLUDE_KERNEL_AND_HYPERVISOR;
    let counter = call!(libc::SYS_perf_event_open, at(&attributes), 0, -1, -1, 0)?;
    drop(sys::owned(counter));
    Ok("a counter".to_owned())
}

fn userfaultfd() -> Attack {
    const USER_MODE_ONLY: i32 = 1;
    let tries = [0, USER_MODE_ONLY];
    any(tries.map(|flags| -> Attack {
        let fd = call!(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC)?;
        drop(sys::owned(fd));
        Ok(format!("flags {flags}"))
    }))
}

fn userfaultfd_device() -> Attack {
    const NEW: u64 = 0xaa00;
    let device = std::fs::File::open("/dev/userfaultfd").map_err(absent_without)?;
    let fd = call!(libc::SYS_ioctl, device.as_raw_fd(), NEW, 0)?;
    drop(sys::owned(fd));
    Ok("by its device".to_owned())
}

/// A program that never was a file.
fn memfd_exec() -> Attack {
    let memory = call!(libc::SYS_memfd_create, c"palyra-attack", 0)?;
    let mut file = std::fs::File::from(sys::owned(memory));
    file.write_all(&std::fs::read("/bin/true")?)?;
    let child = match sys::fork()? {
        Some(child) => child,
        None => {
            let argv = [c"true".as_ptr(), std::ptr::null()];
            let none = [std::ptr::null::<libc::c_char>()];
            let (argv, none) = (at(&argv), at(&none));
            let fd = file.as_raw_fd();
            let empty = libc::AT_EMPTY_PATH;
            let failed = call!(libc::SYS_execveat, fd, c"", argv, none, empty);
            let code = failed.map_or_else(|error| error.raw_os_error(), |_| None);
            sys::end(code.unwrap_or(255))
        }
    };
    ended_well(sys::wait(child)?)?;
    Ok("ran".to_owned())
}

/// `socket(AF_UNIX)` by its number in the 32-bit table.
fn i386() -> Attack {
    const SOCKET: i32 = 359;
    let socket = sys::call_i386(SOCKET, [UNIX as u32, STREAM as u32, 0])?;
    drop(sys::owned(socket));
    Ok("a unix socket".to_owned())
}

/// The same by its number in the x32 table.
fn x32() -> Attack {
    let socket = call!(0x4000_0000 + libc::SYS_socket, UNIX, STREAM, 0)?;
    drop(sys::owned(socket));
    Ok("a unix socket".to_owned())
}

fn high(bits: &str, request: u64) -> u64 {
    match bits {
        "high" => request | 0xdead_beef << 32,
        _ => request,
    }
}

/// A terminal of one's own as the controlling one; what is typed into it is what `TIOCSTI` says.
fn push_key(bits: &str) -> Attack {
    let master = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/ptmx")?;
    let unlock = 0_i32;
    let fd = master.as_raw_fd();
    call!(libc::SYS_ioctl, fd, libc::TIOCSPTLCK, at(&unlock))?;
    let child = match sys::fork()? {
        Some(child) => child,
        None => {
            let code =
                push_key_into(fd, bits).map_or_else(|error| error.raw_os_error(), |_| Some(0));
            sys::end(code.unwrap_or(255))
        }
    };
    match sys::wait(child)? {
        // Kernels may have it switched off for everybody (dev.tty.legacy_tiocsti).
        libc::EIO => Err(super::answer::Failed::Absent("EIO".to_owned())),
        how => {
            ended_well(how)?;
            Ok("typed a key".to_owned())
        }
    }
}

fn push_key_into(master: i32, bits: &str) -> std::io::Result<i64> {
    call!(libc::SYS_setsid)?;
    let terminal = call!(libc::SYS_ioctl, master, libc::TIOCGPTPEER, libc::O_RDWR)?;
    call!(libc::SYS_ioctl, terminal, libc::TIOCSCTTY, 0)?;
    let key = *b"x";
    call!(
        libc::SYS_ioctl,
        terminal,
        high(bits, libc::TIOCSTI),
        at(&key)
    )
}

/// Asks a console; where none can be opened, a terminal of one's own, which answers that it is none.
fn console(bits: &str) -> Attack {
    const TIOCLINUX: u64 = 0x541c;
    const SHIFT_STATE: u8 = 6;
    let console = std::fs::File::open("/dev/tty0").or_else(|_| std::fs::File::open("/dev/ptmx"))?;
    let asked = [SHIFT_STATE];
    let fd = console.as_raw_fd();
    call!(libc::SYS_ioctl, fd, high(bits, TIOCLINUX), at(&asked))?;
    Ok("the console answered".to_owned())
}

/// Runs a program that is set-uid root, and compares who that is with who this is. (In a namespace
/// somebody may be called root who is not.)
#[expect(clippy::disallowed_methods, reason = "it is an attacker")]
fn set_uid(program: &str) -> Attack {
    let ran = std::process::Command::new(program)
        .arg("who-am-i")
        .output()?;
    let they = String::from_utf8_lossy(&ran.stdout).into_owned();
    let own = super::answer::line(who_am_i());
    match they.trim_end() == own {
        true => Err(held("NOTHING_GAINED")),
        false => Ok(they),
    }
}

/// The effective uid, and what goes with it.
fn who_am_i() -> Attack {
    let uid = call!(libc::SYS_geteuid)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let capabilities = status.lines().find(|line| line.starts_with("CapEff"));
    Ok(format!("uid {uid} {}", capabilities.unwrap_or_default()))
}
