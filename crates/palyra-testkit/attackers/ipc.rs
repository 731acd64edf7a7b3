//! Probes 38, 39 and 41 to 43: what leaks in, and who listens.

use std::io::{Read, Seek};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use super::answer::{Attack, any, held};
use super::processes::find;
use super::sys::{self, call};

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("inherited", []) => inherited(),
        ("descriptors-of-parent", []) => descriptors_of_parent(),
        ("own-environment", [half, rest]) => own_environment(&[*half, *rest].concat()),
        ("others-environment", [half, rest]) => {
            let secret = [*half, *rest].concat();
            find("environ", &secret).map(|pid| format!("in process {pid}"))
        }
        ("others-arguments", [half, rest]) => {
            let secret = [*half, *rest].concat();
            find("cmdline", &secret).map(|pid| format!("in process {pid}"))
        }
        ("shared-memory", [key]) => shared_memory(key),
        ("message-queue", [key]) => message_queue(key),
        ("posix-queue", [name]) => posix_queue(name),
        ("abstract", [name]) => abstract_socket(name),
        ("pathname", [stream, datagram]) => pathname(stream, datagram),
        _ => return None,
    })
}

/// Descriptors above standard error, and what can be read from them.
fn inherited() -> Attack {
    for fd in 3..1_024 {
        if call!(libc::SYS_fcntl, fd, libc::F_GETFD).is_err() {
            continue;
        }
        let mut file = std::fs::File::from(sys::owned(fd));
        let mut text = String::new();
        let _ = file.rewind();
        let _ = file.read_to_string(&mut text);
        return Ok(format!("descriptor {fd}: {text}"));
    }
    Err(held("EBADF"))
}

/// What whoever started this has open: in a call, those who watch over it.
fn descriptors_of_parent() -> Attack {
    let parent = call!(libc::SYS_getppid)?;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{parent}/fd"))? {
        all.push(std::fs::read_link(entry?.path())?.display().to_string());
    }
    match all.is_empty() {
        true => Err(held("NOTHING_OPEN")),
        false => Ok(all.join(" ")),
    }
}

fn own_environment(secret: &str) -> Attack {
    let all = std::fs::read("/proc/self/environ")?;
    match String::from_utf8_lossy(&all).contains(secret) {
        true => Ok("in the environment".to_owned()),
        false => Err(held("NOT_THERE")),
    }
}

fn shared_memory(key: &str) -> Attack {
    let key: i32 = key.parse().map_err(|_| held("BAD_ARGUMENT"))?;
    let segment = call!(libc::SYS_shmget, key, 0, 0)?;
    let address = call!(libc::SYS_shmat, segment, 0, 0)?;
    let got = copy_out(address);
    call!(libc::SYS_shmdt, address)?;
    got
}

/// Sixteen bytes at an address, by having the kernel copy them.
fn copy_out(address: i64) -> Attack {
    let (mut read, write) = std::io::pipe()?;
    use std::os::fd::AsRawFd;
    call!(libc::SYS_write, write.as_raw_fd(), address, 16)?;
    let mut got = [0_u8; 16];
    read.read_exact(&mut got)?;
    Ok(String::from_utf8_lossy(&got).into_owned())
}

fn message_queue(key: &str) -> Attack {
    let key: i32 = key.parse().map_err(|_| held("BAD_ARGUMENT"))?;
    let queue = call!(libc::SYS_msgget, key, 0)?;
    Ok(format!("queue {queue}"))
}

fn posix_queue(name: &str) -> Attack {
    let name = sys::path(name)?;
    let queue = call!(libc::SYS_mq_open, &name, libc::O_RDWR, 0, 0)?;
    drop(sys::owned(queue));
    Ok("opened".to_owned())
}

fn abstract_socket(name: &str) -> Attack {
    let address = SocketAddr::from_abstract_name(name)?;
    any([
        UnixStream::connect_addr(&address).map(|_| "connected".to_owned()),
        UnixDatagram::unbound()
            .and_then(|socket| socket.send_to_addr(b"x", &address))
            .map(|_| "sent".to_owned()),
    ]
    .map(|tried| tried.map_err(Into::into)))
}

fn pathname(stream: &str, datagram: &str) -> Attack {
    any([
        UnixStream::connect(stream).map(|_| "connected".to_owned()),
        UnixDatagram::unbound()
            .and_then(|socket| socket.send_to(b"x", datagram))
            .map(|_| "sent".to_owned()),
        UnixDatagram::pair()
            .and_then(|(socket, _other)| socket.connect(datagram))
            .map(|()| "pointed a pair at it".to_owned()),
    ]
    .map(|tried| tried.map_err(Into::into)))
}
