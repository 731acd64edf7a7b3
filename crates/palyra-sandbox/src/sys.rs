//! The only module with `unsafe`: system calls that neither `std` nor `rustix` offers.
//!
//! Each function is as small as the call it makes. [`fork`] and [`exec`] are used by the helper
//! alone; the daemon has threads and never forks.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What `clone3` takes, up to the field that this room needs.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `CLONE_INTO_CGROUP`: `libc` declares it with a type too narrow to hold it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks; the child runs `child`, ends with its code, and never returns from here.
///
/// With `cgroup`, the child starts its life in it. Writing to `cgroup.procs` instead would take a
/// lock of the whole machine and wait for an RCU grace period.
pub(crate) fn fork(cgroup: Option<BorrowedFd<'_>>, child: impl FnOnce() -> i32) -> io::Result<Pid> {
    fork_into(0, cgroup, child)
}

/// The same, with the child in new namespaces: `CLONE_NEW…` flags.
pub(crate) fn fork_into(
    namespaces: i32,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> i32,
) -> io::Result<Pid> {
    let into_cgroup = if cgroup.is_some() {
        CLONE_INTO_CGROUP
    } else {
        0
    };
    let args = CloneArgs {
        flags: u64::from(namespaces.unsigned_abs()) | into_cgroup,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
        ..CloneArgs::default()
    };
    // SAFETY: `args` lives through the call and its size is passed along. Without CLONE_VM the
    // child owns a copy of this address space and goes on on its own copy of this stack, as after
    // fork(2). The helper has a single thread, so no lock can be held by a thread that is missing
    // in the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid == 0 {
        // A panic must not unwind into the parent's code: there would be two of it.
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        exit(code.unwrap_or(101));
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("clone3 gave no process id"))
}

/// Ends this process without running what was registered to run at its parent's end.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// Becomes another program. Comes back only with the reason why it could not.
pub(crate) fn exec(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: all three are NUL-terminated, the lists end with a null pointer, and what they point
    // to outlives the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Becomes the program that was opened, whatever its path leads to by now. Comes back only with the
/// reason why it could not.
pub(crate) fn exec_opened(program: BorrowedFd<'_>, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: the path is an empty string that ends with NUL, the lists end with a null pointer, and
    // what they point to outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

fn pointers(list: &[CString]) -> Vec<*const libc::c_char> {
    let all = list.iter().map(|text| text.as_ptr());
    all.chain(std::iter::once(std::ptr::null())).collect()
}

/// Marks every descriptor above standard error to be closed by `exec`, whoever opened it.
pub(crate) fn close_all_on_exec() -> io::Result<()> {
    // SAFETY: three integers; nothing is closed now, so no descriptor that is in use goes away.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
    .map(drop)
}

/// Closes every descriptor above standard error. Only at the start of the helper, which owns none.
pub(crate) fn close_all_inherited() -> io::Result<()> {
    // SAFETY: called first thing in the helper's `main`: nothing in this process owns a descriptor
    // above 2 yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) }).map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a `sigset_t` of zero bytes is a valid value, which `sigemptyset` then initialises;
    // `sigaddset` refuses numbers that are no signal.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Blocks `signals` and gives a descriptor that becomes readable when one of them waits.
///
/// After a fork the same descriptor speaks of the child's signals: the kernel looks at whoever
/// polls or reads it.
pub(crate) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` is initialised and lives through both calls; a null old set is allowed.
    let fd = unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives every signal its default action and unblocks all: both survive `exec`, and Rust's own
/// runtime has SIGPIPE ignored.
pub(crate) fn default_signals() {
    /// The kernel's `struct sigaction` with the default action, no flags and an empty mask.
    const DEFAULT: [u64; 4] = [0; 4];
    /// How long the kernel's signal set is.
    const SET: usize = 8;
    let none = set_of(&[]);
    // SAFETY: `DEFAULT` is as long as the kernel's structure on the architectures that there is a
    // filter for; the old action is not asked for. Raw calls, because the C library refuses the
    // two signals that it keeps for itself. `none` lives through the call.
    unsafe {
        for signal in 1..=64 {
            let old = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), old, SET);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Lets a write beyond the file-size limit fail with EFBIG instead of killing the writer.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: `SIG_IGN` is a valid action for SIGXFSZ.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Registers a descriptor with the event loop.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open and the same until it is dropped, which the `AsyncFd` that
    // owns it does last.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest)? })
}

/// What a Landlock ruleset handles: a right that is handled and not granted is refused.
#[repr(C)]
pub(crate) struct RulesetAttr {
    pub(crate) handled_access_fs: u64,
    pub(crate) handled_access_net: u64,
    pub(crate) scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
const LANDLOCK_RULE_PATH_BENEATH: u32 = 1;

/// The kernel's Landlock version; 0 when it has none or keeps it disabled.
pub(crate) fn landlock_abi() -> u32 {
    // SAFETY: a null attribute of size 0 with this flag only asks for the version.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// An empty ruleset.
pub(crate) fn landlock_create_ruleset(attr: &RulesetAttr) -> io::Result<OwnedFd> {
    // SAFETY: `attr` lives through the call and its size is passed along; kernels that know fewer
    // fields take a longer attribute whose rest is zero.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(attr),
            size_of::<RulesetAttr>(),
            0_u32,
        )
    })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Grants `access` to the file, or to everything beneath the folder, that `parent` is a handle of.
pub(crate) fn landlock_add_path(
    ruleset: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    access: u64,
) -> io::Result<()> {
    let attr = PathBeneathAttr {
        allowed_access: access,
        parent_fd: parent.as_raw_fd(),
    };
    // SAFETY: `attr` has the packed layout that this rule type asks for and lives through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const attr,
            0_u32,
        )
    })
    .map(drop)
}

/// Puts this thread, the helper's only one, behind the ruleset. There is no way back.
pub(crate) fn landlock_restrict_self(ruleset: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    // SAFETY: two integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), flags) })
        .map(drop)
}

/// Moves this process, the helper's only thread, into new namespaces.
pub(crate) fn unshare(namespaces: i32) -> io::Result<()> {
    // SAFETY: an integer; no flag here shares less of this process's memory or descriptors.
    check(unsafe { libc::syscall(libc::SYS_unshare, namespaces) }).map(drop)
}

/// What `mount_setattr` takes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

/// Changes the mount that `mount` is a handle of; with `recursive`, those beneath it too.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    recursive: bool,
    attr: &MountAttr,
) -> io::Result<()> {
    const AT_RECURSIVE: i32 = 0x8000;
    let flags = libc::AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty string that ends with NUL; `attr` lives through the call and
    // its size is passed along.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Names this machine, as whoever is in this namespace sees it.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length belong to `name`.
    check(unsafe { libc::syscall(libc::SYS_sethostname, name.as_ptr(), name.len()) }).map(drop)
}

/// Switches the loopback device of this network namespace on.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an `ifreq` of zero bytes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: this request reads an `ifreq` with a name that ends with NUL, and `request` lives
    // through the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(done.into()).map(drop)
}

/// Kills everybody that this process may signal. Only for the first process of a process
/// namespace: these are those of its call, and it is not one of them.
pub(crate) fn kill_everybody() {
    // SAFETY: two integers.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Takes over a descriptor that this process was started with, and lets it end with the next
/// program. Only at the start of the helper, and once for each.
pub(crate) fn adopt(number: i32) -> Option<OwnedFd> {
    // SAFETY: an integer; nothing but a flag changes.
    let open = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: it is open, above standard error, and nothing in this process owns it: the helper calls
    // this first thing, with numbers that are all different.
    (open && number > 2).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Ends this process by a signal, or as a shell would say that it did.
pub(crate) fn end_by(signal: i32) -> i32 {
    // SAFETY: an integer; every signal has its default action here.
    unsafe { libc::raise(signal) };
    128 + signal
}

/// Tries what no call may: to enter another namespace. There is none behind this descriptor, so
/// nothing comes of it where it is not refused either.
pub(crate) fn try_setns() -> io::Result<()> {
    // SAFETY: two integers, and the first is no descriptor.
    check(unsafe { libc::syscall(libc::SYS_setns, -1, 0) }).map(drop)
}
