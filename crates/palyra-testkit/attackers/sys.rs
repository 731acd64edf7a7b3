//! The one room of the attackers with `unsafe`: raw system calls, on purpose.
//!
//! The C library would refuse or rewrite some of what is tried here, so nothing stands between an
//! attack and the kernel. Arguments are integers, or pointers that come from references which live
//! through the call; a wrong one spoils nothing but this short-lived process, which holds nothing.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// One argument, as wide as a register.
#[derive(Clone, Copy)]
pub(crate) struct Arg(u64);

impl From<i32> for Arg {
    fn from(value: i32) -> Self {
        Self(i64::from(value) as u64)
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self(value as u64)
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<usize> for Arg {
    fn from(value: usize) -> Self {
        Self(value as u64)
    }
}

impl From<&CStr> for Arg {
    fn from(text: &CStr) -> Self {
        Self(text.as_ptr() as u64)
    }
}

impl From<&CString> for Arg {
    fn from(text: &CString) -> Self {
        Self(text.as_ptr() as u64)
    }
}

/// The address of something the kernel reads.
pub(crate) fn at<T: ?Sized>(value: &T) -> Arg {
    Arg(std::ptr::from_ref(value).cast::<u8>() as u64)
}

/// The address of something the kernel writes.
pub(crate) fn into<T: ?Sized>(value: &mut T) -> Arg {
    Arg(std::ptr::from_mut(value).cast::<u8>() as u64)
}

/// Makes a system call: `call!(libc::SYS_openat, folder, path, flags)`.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::make($number, &[$($crate::sys::Arg::from($argument)),*])
    };
}
pub(crate) use call;

/// The call with this number.
pub(crate) fn make(number: libc::c_long, arguments: &[Arg]) -> io::Result<i64> {
    let mut all = [0_u64; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument.0;
    }
    let [a, b, c, d, e, f] = all;
    // SAFETY: see the module: pointers are to values that the caller holds through the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}

/// A descriptor that the kernel has just given out.
pub(crate) fn owned(fd: i64) -> OwnedFd {
    // SAFETY: it is the result of the call just made, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Forks: `None` in the child.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this program has a single thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child)),
    }
}

/// Ends this process at once.
pub(crate) fn end(code: i32) -> ! {
    // SAFETY: it takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// How a child ended: its exit code, or the signal as a negative number.
pub(crate) fn wait(child: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: there is room for one status.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFSIGNALED(status) {
        -libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    })
}

/// A call of the 32-bit table, whose numbers are others.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_i386(number: i32, arguments: [u32; 3]) -> io::Result<i64> {
    let mut result = i64::from(number);
    let [a, b, c] = arguments;
    // SAFETY: `int 0x80` from 64-bit code enters the 32-bit table; these calls take integers. The
    // compiler keeps rbx for itself, so it is put back; the kernel may clobber r8 to r11.
    unsafe {
        std::arch::asm!(
            "push rbx",
            "mov ebx, edi",
            "int 0x80",
            "pop rbx",
            inlateout("rax") result,
            in("edi") a, in("ecx") b, in("edx") c,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match result as i32 {
        error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
        value => Ok(i64::from(value)),
    }
}

/// Other machines have no 32-bit table of this kind.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn call_i386(_: i32, _: [u32; 3]) -> io::Result<i64> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// A path for the kernel.
pub(crate) fn path(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(io::Error::other)
}
