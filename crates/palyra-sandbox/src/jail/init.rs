//! The first process of a cage: waits for an order, builds the cage, starts the target as the
//! second process, and buries what ends.
//!
//! It is forked into a process namespace (and, where the daemon is not root, a user namespace) of
//! its own before there is an order. The end of this process is the end of everything in the
//! namespace: the kernel sees to that.
//!
//! Two ways lead to the same cage:
//!
//! * **an ordinary user's daemon**: the user namespace comes first, because it gives the rights to
//!   build the rest; inside, everybody keeps the daemon's uid;
//! * **a root daemon**: this process builds with root's own rights, and the target gets a user
//!   namespace in which the workspace's owner stands for a uid that nobody has. The mounts then
//!   belong to the machine's own user namespace, so no right inside is a right over them.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use palyra_core::RunErrorKind;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use super::caged::{self, Caged};
use super::left_out::Wall;
use super::self_test::Ahead;
use super::server::Shared;
use super::target::{self, DID_NOT_RUN, Refusal};
use super::{mounts, supervisor};
use crate::controllers::CallLimits;
use crate::landlock::{self, Abi, Ruleset};
use crate::sys;
use crate::tier_c::cage::{Cage, Step};
use crate::tier_c::uids::ORDINARY;
use crate::wire::{self, Assignment, CagedOrder, Handles, Lent, Order, PACKET};

/// A uid and a gid outside.
type Ids = (u32, u32);

/// The namespaces that this process is forked into.
pub(super) fn namespaces() -> i32 {
    if rustix::process::geteuid().is_root() {
        libc::CLONE_NEWPID
    } else {
        libc::CLONE_NEWPID | libc::CLONE_NEWUSER
    }
}

/// A cage cannot even be begun here: takes an order and says so.
pub(super) fn run_without(shared: &Shared, link: &OwnedFd, why: &io::Error) -> i32 {
    let mut packet = vec![0; PACKET];
    match take_order(shared, link, &mut packet) {
        Ok((_, handles)) => target::refuse(&handles.report, unavailable(why)),
        Err(code) => code,
    }
}

fn unavailable(why: &io::Error) -> Refusal {
    let message = format!(
        "this machine gives no namespaces: {why}; on Ubuntu allow it with `sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0`, elsewhere see `sysctl \
         user.max_user_namespaces kernel.unprivileged_userns_clone`"
    );
    Refusal::new(RunErrorKind::SandboxUnavailable, message)
}

/// Its life. The result is its exit code.
pub(super) fn run(shared: &Shared, supervisor: Pid, link: &OwnedFd, whole: &CallLimits) -> i32 {
    let root = rustix::process::geteuid().is_root();
    if tie_to(link).is_err() || rustix::process::setsid().is_err() {
        return DID_NOT_RUN;
    }
    // Where that fails there is no limit, and the record says so.
    let _ = whole.join();
    let own = if root { Ok(()) } else { keep_own_ids(shared) };
    sys::default_signals();
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let ahead = Ahead::look(whole);
    let mut packet = vec![0; PACKET];
    caged::rehearse(&mut packet, &ahead);
    let (order, handles) = match take_order(shared, link, &mut packet) {
        Ok(taken) => taken,
        Err(code) => return code,
    };
    if let Err(error) = own {
        return target::refuse(&handles.report, unavailable(&error));
    }
    // Whoever is not the first of its namespace does not end it by ending, and would kill others.
    if rustix::process::getpid() != Pid::INIT {
        let refusal = Refusal::degraded("the process namespace", "it is not the first in it");
        return target::refuse(&handles.report, refusal);
    }
    let Some(caged) = &order.caged else {
        let message = "the order is not for a cage";
        let refusal = Refusal::new(RunErrorKind::RuntimeFailure, message);
        return target::refuse(&handles.report, refusal);
    };
    let ahead = ahead.with_limits(whole, &order.limits);
    let call = Caged {
        basis: &shared.basis,
        supervisor,
        order: &order,
        caged,
        handles: &handles,
        ahead: &ahead,
        witness: None,
    };
    let begun = match root {
        true => begin_as_root(&call, link),
        false => begin_as_user(&call),
    };
    match begun {
        Ok(child) => {
            drop((order, handles));
            bury(child, link)
        }
        Err(refusal) => target::refuse(&handles.report, refusal),
    }
}

/// Waits for an order and passes on to the supervisor what it has to know of it.
fn take_order(
    shared: &Shared,
    link: &OwnedFd,
    packet: &mut [u8],
) -> Result<(Order, Handles<OwnedFd>), i32> {
    let Ok(Some((length, handles))) = wire::receive(&shared.caged_control, packet) else {
        return Err(0);
    };
    let handles = Handles::from_list(handles, false).ok_or(DID_NOT_RUN)?;
    let inline = packet.get(..length).unwrap_or_default();
    let order = target::parse(inline, handles.order.as_ref()).map_err(|error| {
        let message = format!("the order cannot be read: {error}");
        let refusal = Refusal::new(RunErrorKind::RuntimeFailure, message);
        target::refuse(&handles.report, refusal)
    })?;
    let assignment = serde_json::to_vec(&Assignment::of(&order)).map_err(|_| DID_NOT_RUN)?;
    wire::send(link, &assignment, &[handles.report.as_fd()]).map_err(|_| DID_NOT_RUN)?;
    Ok((order, handles))
}

/// This process dies when its supervisor does. A change of uid clears the setting.
fn tie_to(link: &OwnedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // From inside its namespace a process cannot see its parent; the link's other end can be.
    let mut watched = [PollFd::new(link, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut watched, Some(&now))?;
    let [link] = watched;
    if link.revents().is_empty() {
        Ok(())
    } else {
        Err(io::Error::other("the supervisor is gone"))
    }
}

/// In its new user namespace everybody stays who they were.
fn keep_own_ids(shared: &Shared) -> io::Result<()> {
    // The files that say so belong to whoever may read this process's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let write = |name: &str, text: &str| {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(Path::new("/proc/self").join(name));
        file?.write_all(text.as_bytes())
    };
    let (uid, gid) = shared.basis.ids;
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1\n"))?;
    write("gid_map", &format!("{gid} {gid} 1\n"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The namespaces that both processes of a cage share. The network is the target's own affair: it
/// takes longest to make, and is made while this process puts the files together.
fn rest_of_the_namespaces(missing: Option<Wall>) -> Result<(), Refusal> {
    let all = [
        (Wall::Mounts, libc::CLONE_NEWNS),
        (Wall::Ipc, libc::CLONE_NEWIPC),
        (Wall::HostName, libc::CLONE_NEWUTS),
        (Wall::Cgroups, libc::CLONE_NEWCGROUP),
    ];
    // The mount namespace is never left out: the machine's own would be rebuilt.
    let wanted = |wall: Wall| missing != Some(wall) || wall == Wall::Mounts;
    let flags = all
        .into_iter()
        .filter(|(wall, _)| wanted(*wall))
        .fold(0, |flags, (_, flag)| flags | flag);
    sys::unshare(flags).map_err(|error| unavailable(&error))?;
    if flags & libc::CLONE_NEWUTS != 0 {
        sys::set_host_name("palyra").map_err(|error| Refusal::degraded("the host name", error))?;
    }
    mounts::cut_off()
}

fn begin_as_user(call: &Caged<'_>) -> Result<Pid, Refusal> {
    let cage = &call.caged.cage;
    rest_of_the_namespaces(call.basis.missing)?;
    let (wait, go) = pipe()?;
    let child = sys::fork(None, || caged::run(call, &wait))
        .map_err(|error| Refusal::degraded("a process", error))?;
    let parts = mounts::Parts {
        workspace: workspace_of(cage)?,
        processes: mounts::processes(full_proc(cage))?,
        owner: None,
    };
    build(call, parts)?;
    confine_itself(call)?;
    say_go(&go)?;
    Ok(child)
}

fn build(call: &Caged<'_>, parts: mounts::Parts) -> Result<(), Refusal> {
    if call.basis.missing == Some(Wall::Mounts) {
        return Ok(());
    }
    let unguarded = call.basis.missing == Some(Wall::Guards);
    mounts::build(&call.caged.cage, parts, unguarded)
}

pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), Refusal> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| Refusal::degraded("a pipe", error))
}

/// The cage is built and this process is confined: the target may go on.
pub(super) fn say_go(go: &OwnedFd) -> Result<(), Refusal> {
    let said = rustix::io::write(go, b"g");
    said.map(drop)
        .map_err(|error| Refusal::degraded("a pipe", error))
}

fn begin_as_root(call: &Caged<'_>, link: &OwnedFd) -> Result<Pid, Refusal> {
    let CagedOrder { cage, lent, .. } = call.caged;
    let lent = lent.ok_or_else(|| {
        let message = "a root daemon runs nothing as root: the order lends no uid";
        Refusal::new(RunErrorKind::InvalidInput, message)
    })?;
    rest_of_the_namespaces(call.basis.missing)?;
    let processes = mounts::processes(full_proc(cage))?;
    let tree = workspace_of(cage)?;
    let (child, go, ids) = start_lent(call, lent, &processes, &tree)?;
    let parts = mounts::Parts {
        workspace: tree,
        processes,
        owner: Some(ids),
    };
    build(call, parts)?;
    become_lent(ids).map_err(|error| Refusal::degraded("the first process's uid", error))?;
    tie_to(link).map_err(|error| Refusal::degraded("the tie to the supervisor", error))?;
    confine_itself(call)?;
    say_go(&go)?;
    Ok(child)
}

/// Starts the target under a uid that nobody has, and shows it the workspace as its own. Where the
/// file system cannot do that, it runs as the workspace's owner, who is not root.
fn start_lent(
    call: &Caged<'_>,
    lent: Lent,
    processes: &OwnedFd,
    tree: &OwnedFd,
) -> Result<(Pid, OwnedFd, Ids), Refusal> {
    let unmapped = call.basis.missing == Some(Wall::Identity);
    let (child, go) = start_in_user_namespace(call)?;
    let number = child.as_raw_nonzero().get();
    let degraded = |error: io::Error| Refusal::degraded("the user namespace", error);
    let map = |id: u32| match id < ORDINARY {
        true => format!("0 {} {ORDINARY}\n", lent.first),
        // Beyond the ordinary ones there is one more.
        false => format!("0 {} {ORDINARY}\n{id} {} 1\n", lent.first, lent.outside(id)),
    };
    let (uids, gids) = (map(lent.owner), map(lent.group));
    write_maps(processes, number, &uids, &gids).map_err(degraded)?;
    let ids = (lent.outside(lent.owner), lent.outside(lent.group));
    if unmapped {
        return Ok((child, go, ids));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let userns = rustix::fs::openat(processes, format!("{number}/ns/user"), flags, Mode::empty());
    let mapped = userns
        .map_err(io::Error::from)
        .and_then(|userns| mounts::map_ids(tree, &userns));
    let why = match mapped {
        Ok(()) => return Ok((child, go, ids)),
        Err(why) => why,
    };
    if lent.owner == 0 {
        let message = format!(
            "the file system of the workspace cannot show its files as another uid's ({why}), and \
             its owner is root; work on a folder of an ordinary user, or on ext4, xfs, btrfs or \
             tmpfs"
        );
        return Err(Refusal::new(RunErrorKind::SandboxUnavailable, message));
    }
    let _ = rustix::process::kill_process(child, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    let (child, go) = start_in_user_namespace(call)?;
    let number = child.as_raw_nonzero().get();
    let same = |id: u32| format!("{id} {id} 1\n");
    write_maps(processes, number, &same(lent.owner), &same(lent.group)).map_err(degraded)?;
    Ok((child, go, (lent.owner, lent.group)))
}

fn start_in_user_namespace(call: &Caged<'_>) -> Result<(Pid, OwnedFd), Refusal> {
    let (wait, go) = pipe()?;
    let namespace = match call.basis.missing {
        Some(Wall::User) => 0,
        _ => libc::CLONE_NEWUSER,
    };
    let child = sys::fork_into(namespace, None, || caged::run(call, &wait))
        .map_err(|error| unavailable(&error))?;
    Ok((child, go))
}

/// Says whom the uids and gids inside stand for outside.
fn write_maps(processes: &OwnedFd, child: i32, uids: &str, gids: &str) -> io::Result<()> {
    let write = |name: &str, text: &str| -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let path = format!("{child}/{name}");
        let file = rustix::fs::openat(processes, path, flags, Mode::empty())?;
        rustix::io::write(file, text.as_bytes())?;
        Ok(())
    };
    write("gid_map", gids)?;
    write("uid_map", uids)
}

fn workspace_of(cage: &Cage) -> Result<OwnedFd, Refusal> {
    for step in &cage.steps {
        if let Step::Workspace { at, id, .. } = step {
            return mounts::workspace(at, *id);
        }
    }
    let message = "the order names no workspace";
    Err(Refusal::new(RunErrorKind::RuntimeFailure, message))
}

fn full_proc(cage: &Cage) -> bool {
    let full = |step: &Step| matches!(step, Step::Proc { full: true });
    cage.steps.iter().any(full)
}

/// A root daemon's own rights end here.
fn become_lent((uid, gid): Ids) -> io::Result<()> {
    drop_bounding_set()?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// From here on this process only waits and buries: it keeps no right to anything else. It must
/// still be able to kill what is left, so signals are not scoped.
pub(super) fn confine_itself(call: &Caged<'_>) -> Result<(), Refusal> {
    let abi = Abi::from_number(call.order.landlock_abi);
    let confined = || -> io::Result<()> {
        drop_bounding_set()?;
        drop_capabilities()?;
        let nothing = Ruleset::without_scopes(abi)?;
        landlock::restrict_self(nothing.into_fd(), abi)?;
        call.basis.filters.put_on_init().map_err(io::Error::other)
    };
    confined().map_err(|error| Refusal::degraded("the first process's own walls", error))
}

/// No program started from here on gets a capability.
pub(super) fn drop_bounding_set() -> io::Result<()> {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // Beyond the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Nor does this process keep one.
pub(super) fn drop_capabilities() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

/// Waits for the target, burying whatever else ends meanwhile; then kills and buries the rest, and
/// says how it ended. The supervisor need not wait for the mounts and the network to be taken down.
pub(super) fn bury(target: Pid, link: &OwnedFd) -> i32 {
    let how = loop {
        match wait() {
            Some((pid, status)) if pid == target => break supervisor::end_of(status),
            Some(_) => {}
            None => return DID_NOT_RUN,
        }
    };
    sys::kill_everybody();
    while wait().is_some() {}
    let _ = wire::send_value(link, &how);
    0
}

fn wait() -> Option<(Pid, WaitStatus)> {
    rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::empty()))
        .ok()
        .flatten()
}
