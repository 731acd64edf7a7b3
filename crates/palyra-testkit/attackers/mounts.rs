//! Probes 21 to 25 and 35: namespaces and mounts.

use std::os::fd::AsRawFd;

use super::answer::{Attack, any, ended_well};
use super::sys::{self, at, call};

const HERE: i32 = libc::AT_FDCWD;
const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
const CHILD_ENDS: u64 = libc::SIGCHLD as u64;

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("unshare-user", []) => in_a_child(|| call!(libc::SYS_unshare, NEW_USER).map(drop)),
        ("clone-user", []) => clone_user(),
        ("clone3-user", []) => clone3_user(),
        ("unshare-net", []) => {
            in_a_child(|| call!(libc::SYS_unshare, libc::CLONE_NEWNET).map(drop))
        }
        ("mount-in-userns", [place]) => mount_in_userns(place),
        ("mount", [place]) => mount(place),
        ("umount", [place]) => umount(place),
        ("fsopen", []) => one(call!(libc::SYS_fsopen, c"tmpfs", 0)),
        ("fspick", []) => one(call!(libc::SYS_fspick, HERE, c"/proc", 0)),
        ("open-tree", []) => one(call!(libc::SYS_open_tree, HERE, c".", 1)),
        ("move-mount", [place]) => move_mount(place),
        ("mount-setattr", []) => mount_setattr(),
        ("chroot", []) => in_a_child(|| call!(libc::SYS_chroot, c".").map(drop)),
        ("pivot-root", [place]) => pivot_root(place),
        ("setns", []) => setns(),
        _ => return None,
    })
}

fn one(result: std::io::Result<i64>) -> Attack {
    drop(sys::owned(result?));
    Ok("a handle".to_owned())
}

/// Tries it in a child, so that nothing here changes.
fn in_a_child(attempt: impl FnOnce() -> std::io::Result<()>) -> Attack {
    let child = match sys::fork()? {
        Some(child) => child,
        None => {
            let code = attempt().map_or_else(|error| error.raw_os_error(), |()| Some(0));
            sys::end(code.unwrap_or(255))
        }
    };
    ended_well(sys::wait(child)?)?;
    Ok("done".to_owned())
}

fn clone_user() -> Attack {
    let flags = NEW_USER | CHILD_ENDS;
    let child = call!(libc::SYS_clone, flags, 0, 0, 0, 0)?;
    if child == 0 {
        sys::end(0);
    }
    sys::wait(child as i32)?;
    Ok("a namespace".to_owned())
}

/// The flags are in memory, where a filter cannot read them.
fn clone3_user() -> Attack {
    let mut arguments = [0_u64; 11];
    let [flags, _, _, _, signal, ..] = &mut arguments;
    *flags = NEW_USER;
    *signal = CHILD_ENDS;
    let size = size_of_val(&arguments);
    let child = call!(libc::SYS_clone3, at(&arguments), size)?;
    if child == 0 {
        sys::end(0);
    }
    sys::wait(child as i32)?;
    Ok("a namespace".to_owned())
}

fn tmpfs_on(place: &str) -> std::io::Result<()> {
    let place = sys::path(place)?;
    call!(libc::SYS_mount, c"none", &place, c"tmpfs", 0, 0)?;
    Ok(())
}

fn mount_in_userns(place: &str) -> Attack {
    in_a_child(|| {
        let both = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
        call!(libc::SYS_unshare, both)?;
        tmpfs_on(place)
    })
}

fn mount(place: &str) -> Attack {
    tmpfs_on(place)?;
    let place = sys::path(place)?;
    call!(libc::SYS_umount2, &place, libc::MNT_DETACH)?;
    Ok("mounted and unmounted".to_owned())
}

/// Uncovers what a mount covers. Outside, one is made first.
fn umount(place: &str) -> Attack {
    let made = tmpfs_on(place).is_ok();
    let place = match made {
        true => place,
        false => "/proc",
    };
    let place = sys::path(place)?;
    call!(libc::SYS_umount2, &place, libc::MNT_DETACH)?;
    Ok("unmounted".to_owned())
}

/// A file system of one's own, made and attached with the new calls alone.
fn move_mount(place: &str) -> Attack {
    const CREATE: u32 = 6;
    const EMPTY_FROM: u32 = 4;
    let place = sys::path(place)?;
    // Without a handle the call itself is still tried.
    let made = || -> std::io::Result<_> {
        let context = sys::owned(call!(libc::SYS_fsopen, c"tmpfs", 0)?);
        call!(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, 0, 0, 0)?;
        Ok(sys::owned(call!(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            0,
            0
        )?))
    };
    let mount = made();
    let from = mount.as_ref().map_or(-1, |it| it.as_raw_fd());
    call!(libc::SYS_move_mount, from, c"", HERE, &place, EMPTY_FROM)?;
    call!(libc::SYS_umount2, &place, libc::MNT_DETACH)?;
    Ok("attached and detached".to_owned())
}

/// Changes a copy of a mount; without a copy, tries the mount itself.
fn mount_setattr() -> Attack {
    /// What to set, to clear, propagation, and a user namespace.
    const NO_DEVICES: [u64; 4] = [4, 0, 0, 0];
    let size = size_of_val(&NO_DEVICES);
    let change = at(&NO_DEVICES);
    match call!(libc::SYS_open_tree, HERE, c".", 1) {
        Ok(tree) => {
            let tree = sys::owned(tree);
            let empty = libc::AT_EMPTY_PATH;
            let fd = tree.as_raw_fd();
            call!(libc::SYS_mount_setattr, fd, c"", empty, change, size)?;
        }
        Err(_) => {
            call!(libc::SYS_mount_setattr, HERE, c"/", 0, change, size)?;
        }
    }
    Ok("changed a mount".to_owned())
}

fn pivot_root(place: &str) -> Attack {
    in_a_child(|| {
        let prepared = || -> std::io::Result<()> {
            const PRIVATE: u64 = libc::MS_REC | libc::MS_PRIVATE;
            call!(libc::SYS_unshare, libc::CLONE_NEWNS)?;
            call!(libc::SYS_mount, c"none", c"/", 0, PRIVATE, 0)?;
            tmpfs_on(place)
        };
        // Refused already: the call itself is still tried.
        let _ = prepared();
        let place = sys::path(place)?;
        call!(libc::SYS_pivot_root, &place, &place).map(drop)
    })
}

fn setns() -> Attack {
    let kinds = ["net", "mnt", "user", "pid"];
    any(kinds.map(|kind| {
        in_a_child(|| {
            let own = std::fs::File::open(format!("/proc/self/ns/{kind}"))?;
            call!(libc::SYS_setns, own.as_raw_fd(), 0).map(drop)
        })
    }))
}
