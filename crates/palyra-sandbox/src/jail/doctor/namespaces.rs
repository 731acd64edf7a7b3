//! Namespaces, and the mounts that are made in them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, mount, mount_bind, mount_change,
    mount_remount, open_tree,
};
use rustix::process::{Pid, WaitOptions};

use super::{AtStep, Bad, Good, Tried, found, useless};
use crate::doctor::remedies::MOUNTING;
use crate::sys::{self, MountAttr};

/// Where things are mounted: it is everywhere, and only these processes see what is on it.
const PLACE: &str = "/tmp";

/// A user namespace with this process's uid mapped to root in it.
fn enter_user_namespace() -> Result<(), Bad> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    sys::unshare(libc::CLONE_NEWUSER).at("a user namespace")?;
    std::fs::write("/proc/self/setgroups", "deny").at("its groups")?;
    let one = |id: u32| format!("0 {id} 1");
    std::fs::write("/proc/self/uid_map", one(uid.as_raw())).at("mapping the uid")?;
    std::fs::write("/proc/self/gid_map", one(gid.as_raw())).at("mapping the gid")
}

/// The same with mounts of its own, of which nobody else hears.
fn enter_mount_namespace() -> Result<(), Bad> {
    enter_user_namespace()?;
    sys::unshare(libc::CLONE_NEWNS).at("a mount namespace")?;
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", apart).at("keeping mounts to itself")
}

fn tmpfs() -> Result<(), Bad> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", PLACE, "tmpfs", plain, c"size=1m").at("a tmpfs")
}

pub(super) fn user() -> Tried {
    enter_user_namespace()?;
    match rustix::process::geteuid().is_root() {
        true => found("made one, and was root in it"),
        false => Err(useless("being root in it", "it is somebody else")),
    }
}

pub(super) fn others() -> Tried {
    enter_user_namespace()?;
    let kinds = [
        ("a mount namespace", libc::CLONE_NEWNS),
        ("a process namespace", libc::CLONE_NEWPID),
        ("a network namespace", libc::CLONE_NEWNET),
        ("an IPC namespace", libc::CLONE_NEWIPC),
        ("a host-name namespace", libc::CLONE_NEWUTS),
        ("a cgroup namespace", libc::CLONE_NEWCGROUP),
    ];
    for (step, kind) in kinds {
        sys::unshare(kind).at(step)?;
    }
    // Making one is allowed where doing anything in it is not (Ubuntu's profile for those who have
    // none), so something is done.
    sys::set_host_name("palyra").at("naming the machine in it")?;
    found("mount, pid, net, ipc, uts and cgroup")
}

pub(super) fn mounts() -> Tried {
    enter_mount_namespace()?;
    tmpfs()?;
    let inside = Path::new(PLACE).join("usr");
    std::fs::create_dir(&inside).at("a folder in it")?;
    mount_bind("/usr", &inside).at("a bind mount")?;
    let sealed = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(&inside, sealed, c"").at("making it read-only")?;
    match File::create_new(inside.join("palyra-doctor")) {
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => {}
        Err(error) => return Err(error).at("writing to what is read-only"),
        Ok(_) => return Err(useless("writing to what is read-only", "it was allowed")),
    }
    std::env::set_current_dir(PLACE).at("entering it")?;
    rustix::process::pivot_root(".", ".").at("another root")?;
    found("a tmpfs, a read-only bind mount and another root")
}

/// In a process namespace of its own, which begins with the next child.
pub(super) fn proc() -> Tried {
    enter_mount_namespace()?;
    sys::unshare(libc::CLONE_NEWPID).at("a process namespace")?;
    let errors = in_a_child(|| {
        let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", plain, c"subset=pid").map_or_else(raw, |()| {
            match (
                Path::new("/proc/1").exists(),
                Path::new("/proc/sys").exists(),
            ) {
                (true, false) => 0,
                _ => 255,
            }
        })
    })?;
    match errors {
        0 => found("/proc with nothing but its own processes"),
        255 => Err(useless("looking into it", "the machine is still in it")),
        errno => Err(io::Error::from_raw_os_error(errno)).at(MOUNTING),
    }
}

pub(super) fn overlay() -> Tried {
    enter_mount_namespace()?;
    tmpfs()?;
    for name in ["upper", "work", "all"] {
        std::fs::create_dir(Path::new(PLACE).join(name)).at("a folder for it")?;
    }
    let layers = c"lowerdir=/usr,upperdir=/tmp/upper,workdir=/tmp/work,userxattr";
    let all = Path::new(PLACE).join("all");
    mount("overlay", &all, "overlay", MountFlags::empty(), layers).at(MOUNTING)?;
    File::create_new(all.join("palyra-doctor")).at("writing to it")?;
    found("what was written went to the upper layer")
}

/// A copy of a mount in which one owner stands for another.
pub(super) fn idmapped() -> Tried {
    if !rustix::process::geteuid().is_root() {
        let why = "this daemon is not root's".to_owned();
        return Ok(Good::NotNeeded(why));
    }
    let (until, keep) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at("a pipe")?;
    let (ready, is_ready) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at("a pipe")?;
    let child = sys::fork(None, || {
        drop(keep);
        let made = sys::unshare(libc::CLONE_NEWUSER).is_ok();
        let _ = rustix::io::write(&is_ready, &[u8::from(made)]);
        let _ = File::from(until).read(&mut [0]);
        0
    })
    .at("a process to hold the mapping")?;
    let mut made = [0];
    let _ = File::from(ready).read(&mut made);
    let tried = mapping_of(child).and_then(|mapping| idmap(&mapping));
    let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    tried?;
    found(format!("a copy of {PLACE} with other owners"))
}

fn mapping_of(holder: Pid) -> Result<OwnedFd, Bad> {
    let folder = format!("/proc/{}", holder.as_raw_nonzero());
    for map in ["uid_map", "gid_map"] {
        // Which number is another's does not matter here.
        std::fs::write(format!("{folder}/{map}"), "0 2000000000 1").at("a mapping")?;
    }
    Ok(File::open(format!("{folder}/ns/user"))
        .at("a mapping")?
        .into())
}

fn idmap(mapping: &OwnedFd) -> Result<(), Bad> {
    const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = open_tree(CWD, PLACE, flags).at("a copy of a mount")?;
    let attr = MountAttr {
        set: MOUNT_ATTR_IDMAP,
        userns: u64::from(mapping.as_raw_fd().unsigned_abs()),
        ..MountAttr::default()
    };
    sys::mount_setattr(copy.as_fd(), false, &attr).at("other owners in it")
}

fn raw(error: rustix::io::Errno) -> i32 {
    error.raw_os_error()
}

/// What a child that was just born in a new process namespace ends with.
fn in_a_child(work: impl FnOnce() -> i32) -> Result<i32, Bad> {
    let child = sys::fork(None, work).at("a process in it")?;
    let ended = rustix::process::waitpid(Some(child), WaitOptions::empty()).at("its end")?;
    let code = ended.and_then(|(_, status)| status.exit_status());
    code.ok_or_else(|| useless("its end", "it was killed"))
}
