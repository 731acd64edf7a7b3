//! Ways at files that are masked.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Attack, checked};

fn text(path: &str) -> io::Result<CString> {
    CString::new(path).map_err(io::Error::other)
}

pub(crate) fn read(path: &str) -> Attack {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(4_096)
        .read_to_end(&mut bytes)?;
    Ok(format!("read: {}", String::from_utf8_lossy(&bytes)))
}

pub(crate) fn read_link(path: &str) -> Attack {
    Ok(format!("leads to: {}", std::fs::read_link(path)?.display()))
}

pub(crate) fn list(path: &str) -> Attack {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(format!("listed: {}", names.join(" ")))
}

pub(crate) fn create(path: &str) -> Attack {
    std::fs::File::create_new(path)?;
    std::fs::remove_file(path)?;
    Ok("created".to_owned())
}

pub(crate) fn write(path: &str) -> Attack {
    std::fs::OpenOptions::new().write(true).open(path)?;
    Ok("opened for writing".to_owned())
}

pub(crate) fn truncate(path: &str) -> Attack {
    let path = text(path)?;
    // SAFETY: a NUL-terminated path that lives through the call.
    checked(unsafe { libc::syscall(libc::SYS_truncate, path.as_ptr(), 1_i64) })?;
    Ok("truncated".to_owned())
}

pub(crate) fn remove(path: &str) -> Attack {
    std::fs::remove_file(path)?;
    Ok("removed".to_owned())
}

pub(crate) fn rename(from: &str, to: &str) -> Attack {
    std::fs::rename(from, to)?;
    std::fs::rename(to, from)?;
    Ok("renamed and back".to_owned())
}

pub(crate) fn hard_link(from: &str, to: &str) -> Attack {
    std::fs::hard_link(from, to)?;
    let got = read(to);
    std::fs::remove_file(to)?;
    got
}

/// Needs CAP_DAC_READ_SEARCH: root opens a file without any path.
pub(crate) fn open_by_handle(path: &str) -> Attack {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        space: [u8; 128],
    }
    let path = text(path)?;
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        space: [0; 128],
    };
    let mut mount = 0_i32;
    // SAFETY: all pointers are to values that live through the calls; the handle says how much
    // room it has.
    unsafe {
        checked(libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        ))?;
        // Any descriptor on the same file system will do.
        let anchor = checked(libc::c_long::from(libc::open(
            c".".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY,
        )))?;
        let fd = checked(libc::syscall(
            libc::SYS_open_by_handle_at,
            anchor,
            &raw mut handle,
            libc::O_RDONLY,
        ))?;
        let mut file = std::fs::File::from(OwnedFd::from_raw_fd(
            i32::try_from(fd).map_err(io::Error::other)?,
        ));
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(format!("read: {}", String::from_utf8_lossy(&bytes)))
    }
}

/// The new mount API: a detached copy of the mount under a folder.
pub(crate) fn clone_tree(path: &str) -> Attack {
    const OPEN_TREE_CLONE: u32 = 1;
    let folder = text(path)?;
    // SAFETY: a NUL-terminated path that lives through the call.
    let tree = checked(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            folder.as_ptr(),
            OPEN_TREE_CLONE,
        )
    })?;
    read(&format!("/proc/self/fd/{tree}/secret"))
}

pub(crate) fn bind(from: &str, to: &str) -> Attack {
    let (from, target) = (text(from)?, text(to)?);
    // SAFETY: NUL-terminated paths that live through the calls; no type and no data are needed
    // for a bind mount.
    unsafe {
        checked(libc::c_long::from(libc::mount(
            from.as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )))?;
        libc::umount(target.as_ptr());
    }
    Ok("mounted and unmounted".to_owned())
}

/// A node of the device that holds the root file system.
pub(crate) fn make_device(path: &str) -> Attack {
    let name = text(path)?;
    // SAFETY: a NUL-terminated path that lives through the call.
    checked(libc::c_long::from(unsafe {
        libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(7, 0))
    }))?;
    std::fs::remove_file(path)?;
    Ok("made".to_owned())
}

/// Leaves something in the call's temporary folder, so that it has to be cleared away, and puts a
/// link to `target` in the place of that folder (`folder`) or of the one that it is in (`parent`).
/// Says where things are now.
pub(crate) fn swap_tmp(by: &str, target: &str) -> Attack {
    let folder = std::env::var("TMPDIR").map_err(io::Error::other)?;
    let folder = std::path::Path::new(&folder);
    let parent = folder.parent().ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(folder.join("left"), "x")?;
    let swapped = match by {
        "folder" => folder,
        _ => parent,
    };
    let away = swapped.with_extension("away");
    std::fs::rename(swapped, &away)?;
    std::os::unix::fs::symlink(target, swapped)?;
    Ok(format!("{}\n{}", swapped.display(), folder.display()))
}

/// A deep tree with links and locked folders, to be cleared away by somebody else.
pub(crate) fn litter(path: &str) -> Attack {
    std::env::set_current_dir(path)?;
    for _ in 0..200 {
        std::fs::create_dir("deeper")?;
        std::os::unix::fs::symlink("/", "link")?;
        std::fs::write("file", "x")?;
        std::env::set_current_dir("deeper")?;
    }
    std::fs::set_permissions(".", std::os::unix::fs::PermissionsExt::from_mode(0o000))?;
    Ok("littered".to_owned())
}
