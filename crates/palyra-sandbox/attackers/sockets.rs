//! Ways to a socket that does not belong to the call, and around the filter.

use std::io;
use std::mem::{size_of, zeroed};

use super::{Attack, checked};

fn kind_of(name: &str) -> i32 {
    match name {
        "stream" => libc::SOCK_STREAM,
        "datagram" => libc::SOCK_DGRAM,
        "raw" => libc::SOCK_RAW,
        "packet" => libc::SOCK_SEQPACKET,
        _ => -1,
    }
}

/// A path, or an abstract name when it starts with `@`.
fn address(path: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all zeroes is a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_bytes();
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    if bytes.first() == Some(&b'@') {
        address.sun_path[0] = 0;
    }
    let offset = size_of::<libc::sa_family_t>();
    let length = offset + bytes.len() + usize::from(bytes.first() != Some(&b'@'));
    (address, length as libc::socklen_t)
}

pub(crate) fn connect(kind: &str, path: &str) -> Attack {
    let (address, length) = address(path);
    // SAFETY: the address lives through the call and its length is right.
    unsafe {
        let socket = checked(libc::c_long::from(libc::socket(
            libc::AF_UNIX,
            kind_of(kind),
            0,
        )))?;
        checked(libc::c_long::from(libc::connect(
            socket as i32,
            (&raw const address).cast(),
            length,
        )))?;
        let sent = libc::send(socket as i32, c"hello".as_ptr().cast(), 5, 0);
        checked(sent as libc::c_long)?;
    }
    Ok("sent".to_owned())
}

/// A pair is made inside and then pointed outside.
pub(crate) fn pair(kind: &str, path: &str) -> Attack {
    let (address, length) = address(path);
    let mut pair = [0_i32; 2];
    // SAFETY: the pair has room for two descriptors; the address lives through the call.
    unsafe {
        checked(libc::c_long::from(libc::socketpair(
            libc::AF_UNIX,
            kind_of(kind),
            0,
            pair.as_mut_ptr(),
        )))?;
        checked(libc::sendto(
            pair[0],
            c"hello".as_ptr().cast(),
            5,
            0,
            (&raw const address).cast(),
            length,
        ) as libc::c_long)?;
    }
    Ok("sent".to_owned())
}

/// A pair that talks to itself.
pub(crate) fn pair_works(kind: &str) -> Attack {
    let mut pair = [0_i32; 2];
    let mut buffer = [0_u8; 5];
    let kind = kind_of(kind) | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the pair has room for two descriptors, the buffer for five bytes.
    unsafe {
        checked(libc::c_long::from(libc::socketpair(
            libc::AF_UNIX,
            kind,
            0,
            pair.as_mut_ptr(),
        )))?;
        checked(libc::write(pair[0], c"hello".as_ptr().cast(), 5) as libc::c_long)?;
        checked(libc::read(pair[1], buffer.as_mut_ptr().cast(), 5) as libc::c_long)?;
    }
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// Not an attack: other families are allowed.
pub(crate) fn tcp() -> Attack {
    std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok("listening".to_owned())
}

pub(crate) fn io_uring() -> Attack {
    let mut parameters = [0_u8; 120];
    // SAFETY: the parameter block is as long as the kernel's.
    checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 4_u32, parameters.as_mut_ptr()) })?;
    Ok("a ring".to_owned())
}

/// `getpid` of the 32-bit ABI, whose calls have other numbers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn i386() -> Attack {
    let mut result: i64 = 20;
    // SAFETY: an `int 0x80` from 64-bit code enters the 32-bit call table; `getpid` takes no
    // arguments and changes no memory. The kernel may clobber r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-(result as i32)));
    }
    Ok(format!("pid {result}"))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn i386() -> Attack {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// `getpid` of the x32 ABI.
pub(crate) fn x32() -> Attack {
    // SAFETY: `getpid` takes no arguments.
    let pid = checked(unsafe { libc::syscall(0x4000_0000 + libc::SYS_getpid) })?;
    Ok(format!("pid {pid}"))
}
