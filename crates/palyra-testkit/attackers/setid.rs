//! Probe 17: leaving a set-id file, a file with capabilities or a FIFO behind, by every call that
//! can make one.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use super::answer::{Attack, Failed, held};
use super::files::MARK;
use super::sys::{self, at, call};

const HERE: i32 = libc::AT_FDCWD;
const SET_ID: u32 = 0o6755;
const PLAIN: u32 = 0o755;
/// Newer than what `libc` knows on every machine.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    let [path] = arguments else { return None };
    Some(match (probe, probe.strip_prefix("leave-")) {
        ("capabilities-of", _) => capabilities_of(path),
        ("map-old", _) => map_old(path),
        (_, Some(by)) => leave(by, path),
        (_, None) => return None,
    })
}

/// Writes to a set-id file that is there already, through memory: only writes by `write` and its
/// like take the bits away.
fn map_old(name: &str) -> Attack {
    let old = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name)?;
    // No more than there is: another length is set by a call that takes the bits away.
    let length = MARK.len();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let (fd, shared) = (old.as_raw_fd(), libc::MAP_SHARED);
    let address = call!(libc::SYS_mmap, 0, length, both, shared, fd, 0)?;
    let (read, mut write) = io::pipe()?;
    write.write_all(MARK)?;
    // The kernel copies it there.
    call!(libc::SYS_read, read.as_raw_fd(), address, length)?;
    call!(libc::SYS_munmap, address, length)?;
    look("map-old", name, &sys::path(name)?)
}

/// Not an attack: whether a file has capabilities.
fn capabilities_of(name: &str) -> Attack {
    let (path, attribute) = (sys::path(name)?, c"security.capability");
    let length = call!(libc::SYS_getxattr, &path, attribute, 0, 0)?;
    Ok(format!("{length} bytes"))
}

fn leave(by: &str, name: &str) -> Attack {
    call!(libc::SYS_umask, 0)?;
    let path = sys::path(name)?;
    make(by, name, &path)?;
    look(by, name, &path)
}

fn make(by: &str, name: &str, path: &CString) -> Result<(), Failed> {
    let flags = libc::O_CREAT | libc::O_RDWR | libc::O_EXCL;
    match by {
        "chmod" => {
            plain_file(name)?;
            #[cfg(target_arch = "x86_64")]
            call!(libc::SYS_chmod, path, SET_ID)?;
            #[cfg(not(target_arch = "x86_64"))]
            return Err(Failed::Absent("ENOSYS".to_owned()));
        }
        "fchmod" => {
            let file = plain_file(name)?;
            call!(libc::SYS_fchmod, file.as_raw_fd(), SET_ID)?;
        }
        "fchmodat" => {
            plain_file(name)?;
            call!(libc::SYS_fchmodat, HERE, path, SET_ID)?;
        }
        "fchmodat2" => {
            plain_file(name)?;
            call!(FCHMODAT2, HERE, path, SET_ID, libc::AT_SYMLINK_NOFOLLOW)?;
        }
        "fchmodat2-empty" => {
            let file = plain_file(name)?;
            let empty = c"";
            call!(
                FCHMODAT2,
                file.as_raw_fd(),
                empty,
                SET_ID,
                libc::AT_EMPTY_PATH
            )?;
        }
        "proc-fd" => {
            let file = plain_file(name)?;
            let road = sys::path(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            call!(libc::SYS_fchmodat, HERE, &road, SET_ID)?;
        }
        #[cfg(target_arch = "x86_64")]
        "open" => drop(sys::owned(call!(libc::SYS_open, path, flags, SET_ID)?)),
        #[cfg(target_arch = "x86_64")]
        "creat" => drop(sys::owned(call!(libc::SYS_creat, path, SET_ID)?)),
        "openat" => drop(sys::owned(call!(
            libc::SYS_openat,
            HERE,
            path,
            flags,
            SET_ID
        )?)),
        "openat2" => {
            let how = [flags as u64, u64::from(SET_ID), 0];
            let size = size_of_val(&how);
            drop(sys::owned(call!(
                libc::SYS_openat2,
                HERE,
                path,
                at(&how),
                size
            )?));
        }
        "tmpfile" => {
            let nameless = libc::O_TMPFILE | libc::O_RDWR;
            let file = call!(libc::SYS_openat, HERE, c".", nameless, SET_ID)?;
            let file = sys::owned(file);
            let road = sys::path(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            let follow = libc::AT_SYMLINK_FOLLOW;
            call!(libc::SYS_linkat, HERE, &road, HERE, path, follow)?;
        }
        #[cfg(target_arch = "x86_64")]
        "mknod" => drop(call!(libc::SYS_mknod, path, libc::S_IFREG | SET_ID, 0)?),
        "mknodat" => drop(call!(
            libc::SYS_mknodat,
            HERE,
            path,
            libc::S_IFREG | SET_ID,
            0
        )?),
        // The kernel drops the bits of a new folder, so they are set afterwards.
        "folder" => {
            call!(libc::SYS_mkdirat, HERE, path, SET_ID)?;
            call!(libc::SYS_fchmodat, HERE, path, SET_ID)?;
        }
        "fifo" => drop(call!(
            libc::SYS_mknodat,
            HERE,
            path,
            libc::S_IFIFO | 0o666,
            0
        )?),
        "capabilities" => {
            plain_file(name)?;
            capabilities(libc::SYS_setxattr, path)?;
        }
        "capabilities-at" => {
            plain_file(name)?;
            capabilities_at(path)?;
        }
        #[cfg(not(target_arch = "x86_64"))]
        "open" | "creat" | "mknod" => return Err(Failed::Absent("ENOSYS".to_owned())),
        _ => return Err(held("NO_SUCH_PROBE")),
    }
    Ok(())
}

fn plain_file(name: &str) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(PLAIN).open(name)
}

/// `cap_setuid` for whoever runs it, as the kernel stores it (version 2).
const CAP_SETUID: [u32; 5] = [0x0200_0001, 1 << 7, 0, 0, 0];

fn capabilities(number: libc::c_long, path: &CString) -> io::Result<()> {
    let name = c"security.capability";
    let size = size_of_val(&CAP_SETUID);
    call!(number, path, name, at(&CAP_SETUID), size, 0)?;
    Ok(())
}

fn capabilities_at(path: &CString) -> io::Result<()> {
    let name = c"security.capability";
    let size = size_of_val(&CAP_SETUID) as u64;
    let value = std::ptr::from_ref(&CAP_SETUID) as u64;
    let arguments = [value, size];
    let length = size_of_val(&arguments);
    call!(SETXATTRAT, HERE, path, 0, name, at(&arguments), length)?;
    Ok(())
}

/// What is really there now: a call that succeeds may still have dropped the bits.
fn look(by: &str, name: &str, path: &CString) -> Attack {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = std::fs::symlink_metadata(name)?;
    let there = match by {
        "fifo" => found.file_type().is_fifo(),
        "capabilities" | "capabilities-at" => {
            let attribute = c"security.capability";
            call!(libc::SYS_getxattr, path, attribute, 0, 0).is_ok()
        }
        _ => found.mode() & 0o6000 != 0,
    };
    match there {
        true => Ok(format!("left with mode {:o}", found.mode())),
        false => Err(held("STRIPPED")),
    }
}
