//! The system-call filters: lists of refusals, everything else as before.
//!
//! The helper itself lives behind a short list ([`for_helper`]): what no process of ours ever needs.
//! A call gets the whole list ([`for_call`]) as its last wall, in Tier-B and in Tier-C. Why each
//! entry is on it: [design 0009](../../../docs/design/0009-tier-c.md).
//!
//! Arguments are compared as the kernel reads them: an `int` as 32 bits (a family of
//! `1 << 32 | AF_UNIX` is `AF_UNIX` to it), a pointer as 64.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use crate::landlock::Abi;

/// Bit 30 of a call's number marks the x32 ABI, which shares the native architecture word.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// The kernel's `SOCK_TYPE_MASK`; the flags for "close on exec" and "do not block" are above it.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Numbers that `libc` does not have yet. They are the same on every architecture.
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;

/// A filter that could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the system-call filter cannot be built: {0}")]
pub(crate) struct NoFilter(#[from] BackendError);

/// Who makes the system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A program.
    Program,
    /// A program without a network namespace that is to have no network either.
    OfflineProgram,
    /// A file tool of ours, which resolves paths with `openat2`.
    FileTool,
}

/// The filter that the helper and everything it forks lives behind.
pub(crate) fn for_helper(abi: Abi) -> Result<BpfProgram, NoFilter> {
    program(short_list(abi)?, &[])
}

/// The last wall of a call.
pub(crate) fn for_call(abi: Abi, caller: Caller) -> Result<BpfProgram, NoFilter> {
    // What hides its flags in memory, where no filter can look, is not there: programs then use
    // the older calls, whose arguments can be seen.
    let absent: &[i64] = match caller {
        Caller::Program | Caller::OfflineProgram => &[libc::SYS_clone3, libc::SYS_openat2],
        Caller::FileTool => &[libc::SYS_clone3],
    };
    let mut rules = short_list(abi)?;
    for number in refused_always() {
        rules.insert(number, Vec::new());
    }
    rules.extend(by_argument()?);
    if caller == Caller::OfflineProgram {
        rules.insert(libc::SYS_socket, Vec::new());
    }
    program(rules, absent)
}

fn program(rules: Rules, absent: &[i64]) -> Result<BpfProgram, NoFilter> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refuse.clone(),
        std::env::consts::ARCH.try_into()?,
    )?;
    let checked: BpfProgram = filter.try_into()?;
    let mut program = before_the_rules(refuse.into(), absent);
    program.extend(checked);
    Ok(program)
}

/// `seccompiler` compares the architecture word (another one kills the process) but knows nothing
/// of x32, which has the native word and its own numbers: `0x4000_0029` is `socket` too. So a
/// check of the number goes in front, and with it the calls that are to look absent: a filter of
/// `seccompiler`'s has a single answer for all its rules.
fn before_the_rules(refuse: u32, absent: &[i64]) -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS at offset 0
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut steps = vec![step(LOAD_NUMBER, 0, 0, 0)];
    #[cfg(target_arch = "x86_64")]
    {
        const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
        steps.push(step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT));
        steps.push(step(RETURN, 0, 0, refuse));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = refuse;
    let not_there: u32 = SeccompAction::Errno(libc::ENOSYS.unsigned_abs()).into();
    for number in absent.iter().filter_map(|it| u32::try_from(*it).ok()) {
        steps.push(step(JUMP_IF_EQUAL, 0, 1, number));
        steps.push(step(RETURN, 0, 0, not_there));
    }
    steps
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn number(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

/// One condition on 32 bits of an argument.
fn when(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}

/// A rule for each of these bits being set, besides `also`.
fn any_bit(
    argument: u8,
    bits: impl IntoIterator<Item = u64>,
    also: &[SeccompCondition],
) -> Result<Vec<SeccompRule>, BackendError> {
    bits.into_iter()
        .map(|bit| {
            let mut all = also.to_vec();
            all.push(when(argument, SeccompCmpOp::MaskedEq(bit), bit)?);
            SeccompRule::new(all)
        })
        .collect()
}

/// What nothing of ours ever needs.
fn short_list(abi: Abi) -> Result<Rules, BackendError> {
    let unix = number(libc::AF_UNIX);
    let alone = |condition| SeccompRule::new(vec![condition]);
    let mut pairs = vec![alone(when(0, SeccompCmpOp::Ne, unix)?)?];
    for kind in 0..=SOCKET_TYPE_MASK {
        // AF_UNIX turns SOCK_RAW into a datagram socket, so only the two kinds that stay
        // connected to each other are left out of the refusals.
        let stays_connected =
            kind == number(libc::SOCK_STREAM) || kind == number(libc::SOCK_SEQPACKET);
        if !stays_connected {
            let of_this_kind = SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK);
            pairs.push(alone(when(1, of_this_kind, kind)?)?);
        }
    }

    // Pid 0 is whoever asks; no new limit means only reading.
    let limits_of_others = SeccompRule::new(vec![
        when(0, SeccompCmpOp::Ne, 0)?,
        SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?,
    ])?;

    let mut rules: Rules = BTreeMap::from([
        (
            libc::SYS_socket,
            vec![alone(when(0, SeccompCmpOp::Eq, unix)?)?],
        ),
        (libc::SYS_socketpair, pairs),
        (libc::SYS_prlimit64, vec![limits_of_others]),
        (libc::SYS_io_uring_setup, Vec::new()),
        (libc::SYS_io_uring_enter, Vec::new()),
        (libc::SYS_io_uring_register, Vec::new()),
    ]);
    if !abi.checks_truncate() {
        rules.insert(libc::SYS_truncate, Vec::new());
    }
    Ok(rules)
}

/// Refused to a call whatever the arguments.
fn refused_always() -> Vec<i64> {
    let mut all = vec![
        // Other processes' memory and descriptors.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        // Large and often broken parts of the kernel that no build needs.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_fanotify_init,
        libc::SYS_lookup_dcookie,
        // Keys of the session that the daemon was started in.
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // The view of files: the old mount call, the new ones, other roots, handles.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        SYS_OPEN_TREE_ATTR,
        SYS_FILE_SETATTR,
        libc::SYS_open_by_handle_at,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        // Other namespaces.
        libc::SYS_setns,
        // The machine itself.
        libc::SYS_reboot,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_acct,
        libc::SYS_syslog,
        libc::SYS_vhangup,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_nfsservctl,
        // Memory of others on other nodes.
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
    ];
    #[cfg(target_arch = "x86_64")]
    all.extend([
        libc::SYS_kexec_file_load,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_uselib,
        libc::SYS_ustat,
        libc::SYS_sysfs,
        libc::SYS__sysctl,
    ]);
    #[cfg(target_arch = "aarch64")]
    all.push(libc::SYS_kexec_file_load);
    all
}

/// Refused to a call with certain arguments.
fn by_argument() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    sockets(&mut rules)?;
    namespaces(&mut rules)?;
    set_id_files(&mut rules)?;
    // Typing into a terminal on somebody's behalf. The kernel reads 32 bits of the request.
    let requests = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = requests
        .into_iter()
        .map(|request| {
            let request = request & 0xffff_ffff;
            SeccompRule::new(vec![when(1, SeccompCmpOp::Eq, request)?])
        })
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, typing);
    Ok(rules)
}

/// TCP and UDP are all there is: no packets by hand, no netlink, no vsock, none of the families
/// that are there for few and broken often.
fn sockets(rules: &mut Rules) -> Result<(), BackendError> {
    let neither = SeccompRule::new(vec![
        when(0, SeccompCmpOp::Ne, number(libc::AF_INET))?,
        when(0, SeccompCmpOp::Ne, number(libc::AF_INET6))?,
    ])?;
    let mut refused = vec![neither];
    let of_this_kind = || SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK);
    for kind in 0..=SOCKET_TYPE_MASK {
        let usual = kind == number(libc::SOCK_STREAM) || kind == number(libc::SOCK_DGRAM);
        if !usual {
            refused.push(SeccompRule::new(vec![when(1, of_this_kind(), kind)?])?);
        }
    }
    rules.insert(libc::SYS_socket, refused);
    Ok(())
}

/// New namespaces would give a call rights over what is in them.
fn namespaces(rules: &mut Rules) -> Result<(), BackendError> {
    let all = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ]
    .map(number);
    rules.insert(libc::SYS_clone, any_bit(0, all, &[])?);
    // In `clone` this bit is a part of the signal's number.
    let time = [number(libc::CLONE_NEWTIME)];
    rules.insert(
        libc::SYS_unshare,
        any_bit(0, all.into_iter().chain(time), &[])?,
    );
    Ok(())
}

/// A set-id file that stays behind in the workspace would be its owner's rights for whoever runs
/// it later, outside; a device node would be the machine's.
fn set_id_files(rules: &mut Rules) -> Result<(), BackendError> {
    let set_id = || [0o4000, 0o2000];
    let mut add = |call, argument, also: &[SeccompCondition]| -> Result<(), BackendError> {
        let more = any_bit(argument, set_id(), also)?;
        rules.entry(call).or_default().extend(more);
        Ok(())
    };
    add(libc::SYS_fchmod, 1, &[])?;
    add(libc::SYS_fchmodat, 2, &[])?;
    add(libc::SYS_fchmodat2, 2, &[])?;
    add(libc::SYS_mkdirat, 2, &[])?;
    add(libc::SYS_mknodat, 2, &[])?;
    // Without these flags the last argument of `open` is whatever lay in the register.
    let makes = |argument: u8, flag: i32| {
        let flag = number(flag);
        when(argument, SeccompCmpOp::MaskedEq(flag), flag)
    };
    for flag in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
        add(libc::SYS_openat, 3, &[makes(2, flag)?])?;
        #[cfg(target_arch = "x86_64")]
        add(libc::SYS_open, 2, &[makes(1, flag)?])?;
    }
    #[cfg(target_arch = "x86_64")]
    {
        add(libc::SYS_chmod, 1, &[])?;
        add(libc::SYS_creat, 1, &[])?;
        add(libc::SYS_mkdir, 1, &[])?;
        add(libc::SYS_mknod, 1, &[])?;
    }
    let nodes: &[(i64, u8)] = &[
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ];
    for (call, argument) in nodes {
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            let of_this_kind = SeccompCmpOp::MaskedEq(u64::from(libc::S_IFMT));
            let rule = SeccompRule::new(vec![when(*argument, of_this_kind, u64::from(kind))?])?;
            rules.entry(*call).or_default().push(rule);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };
    const I386: u32 = 0x4000_0003;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const EPERM: u32 = 0x0005_0000 | 1;

    /// What the kernel would answer: the few instructions of classic BPF that occur here.
    fn answer(program: &[sock_filter], arch: u32, number: i64, args: &[u64]) -> u32 {
        let mut data = [0_u8; 64];
        data[0..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        for (place, argument) in data[16..].chunks_exact_mut(8).zip(args) {
            place.copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    let from = usize::try_from(step.k).unwrap();
                    accumulator = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
                }
                0x54 => accumulator &= step.k,
                0x05 => at += usize::try_from(step.k).unwrap(),
                0x15 => at += jump(accumulator == step.k),
                0x25 => at += jump(accumulator > step.k),
                0x35 => at += jump(accumulator >= step.k),
                0x06 => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// What both filters say: the helper's, and a program's; they agree wherever this is asked.
    fn native<const N: usize>(abi: u32, number: i64, args: [u64; N]) -> u32 {
        let abi = Abi::from_number(abi);
        let short = answer(&for_helper(abi).unwrap(), NATIVE, number, &args);
        let whole = answer(
            &for_call(abi, Caller::Program).unwrap(),
            NATIVE,
            number,
            &args,
        );
        assert_eq!(short, whole, "{number} {args:?}");
        whole
    }

    /// What a program is told.
    fn told<const N: usize>(number: i64, args: [u64; N]) -> u32 {
        let filter = for_call(Abi::from_number(7), Caller::Program).unwrap();
        answer(&filter, NATIVE, number, &args)
    }

    #[test]
    fn unix_sockets_are_refused_and_others_are_not() {
        let unix = u64::try_from(libc::AF_UNIX).unwrap();
        let inet = u64::try_from(libc::AF_INET).unwrap();
        for kind in [1, 2, 1 | 0o2_000_000] {
            assert_eq!(native(7, libc::SYS_socket, [unix, kind]), EPERM);
            assert_eq!(native(7, libc::SYS_socket, [inet, kind]), ALLOW);
        }
        for kind in [3, 5] {
            assert_eq!(native(7, libc::SYS_socket, [unix, kind]), EPERM);
        }
        // The kernel takes an int: the upper half does not make it another family.
        assert_eq!(native(7, libc::SYS_socket, [1 << 32 | unix, 1]), EPERM);
    }

    #[test]
    fn only_pairs_that_stay_connected_are_allowed() {
        let flags = u64::try_from(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).unwrap();
        for kind in 0..16 {
            let expected = if kind == 1 || kind == 5 { ALLOW } else { EPERM };
            for kind in [kind, kind | flags, 1 << 32 | kind] {
                assert_eq!(
                    native(7, libc::SYS_socketpair, [1, kind]),
                    expected,
                    "{kind:#x}"
                );
                assert_eq!(native(7, libc::SYS_socketpair, [2, kind]), EPERM);
            }
        }
    }

    #[test]
    fn io_uring_is_refused_and_the_rest_is_not() {
        for number in [
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
        ] {
            assert_eq!(native(7, number, [0, 0]), EPERM);
        }
        for number in [libc::SYS_openat, libc::SYS_execve, libc::SYS_connect] {
            assert_eq!(native(7, number, [1, 1]), ALLOW);
        }
    }

    #[test]
    fn only_ones_own_limits_can_be_set() {
        let set = |pid: u64, new: u64| native(7, libc::SYS_prlimit64, [pid, 7, new, 0]);
        assert_eq!(set(0, 0x7fff_0000_1000), ALLOW);
        assert_eq!(set(0, 0), ALLOW);
        assert_eq!(set(4_711, 0), ALLOW);
        // The kernel takes an int: the upper half does not make it another process.
        assert_eq!(set(1 << 32, 1), ALLOW);
        // A pointer counts as a whole.
        for new in [1, 1 << 32, 0x7fff_0000_0000, u64::MAX] {
            for pid in [1, 4_711, 1 << 32 | 4_711, u64::from(u32::MAX)] {
                assert_eq!(set(pid, new), EPERM, "{pid} {new:#x}");
            }
        }
    }

    #[test]
    fn truncate_is_refused_only_where_landlock_does_not_look() {
        assert_eq!(native(2, libc::SYS_truncate, [0, 0]), EPERM);
        assert_eq!(native(3, libc::SYS_truncate, [0, 0]), ALLOW);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn other_abis_are_refused_whatever_they_call() {
        let abi = Abi::from_number(7);
        let filters = [
            for_helper(abi),
            for_call(abi, Caller::Program),
            for_call(abi, Caller::FileTool),
        ];
        for program in filters.map(Result::unwrap) {
            for number in [0, 20, 102, 359, 425] {
                assert_eq!(answer(&program, I386, number, &[2, 1]), KILL);
                let x32 = i64::from(X32_BIT) + number;
                assert_eq!(answer(&program, NATIVE, x32, &[2, 1]), EPERM);
            }
            assert_eq!(answer(&program, NATIVE, 0xffff_ffff, &[0, 0]), EPERM);
        }
    }

    #[test]
    fn only_tcp_and_udp_are_left() {
        for family in 0..64 {
            let expected = if family == 2 || family == 10 {
                ALLOW
            } else {
                EPERM
            };
            for kind in [1, 2, 1 | 0o4_000] {
                assert_eq!(
                    told(libc::SYS_socket, [family, kind]),
                    expected,
                    "{family} {kind}"
                );
                let padded = 1 << 32 | family;
                assert_eq!(told(libc::SYS_socket, [padded, kind]), expected);
            }
            for kind in [0, 3, 4, 5, 6, 10] {
                assert_eq!(told(libc::SYS_socket, [family, kind]), EPERM);
            }
        }
    }

    #[test]
    fn without_a_network_there_are_no_sockets_but_pairs() {
        let filter = for_call(Abi::from_number(7), Caller::OfflineProgram).unwrap();
        for family in [1, 2, 10, 16] {
            assert_eq!(
                answer(&filter, NATIVE, libc::SYS_socket, &[family, 1]),
                EPERM
            );
        }
        assert_eq!(
            answer(&filter, NATIVE, libc::SYS_socketpair, &[1, 1]),
            ALLOW
        );
    }

    #[test]
    fn namespaces_cannot_be_made_however_they_are_asked_for() {
        const ENOSYS: u32 = 0x0005_0000 | 38;
        for bit in [7, 17, 25, 26, 27, 28, 29, 30] {
            let flags = 1_u64 << bit;
            assert_eq!(told(libc::SYS_unshare, [flags]), EPERM, "{bit}");
            assert_eq!(told(libc::SYS_unshare, [flags | 1 << 32 | 0x400]), EPERM);
            if bit != 7 {
                assert_eq!(told(libc::SYS_clone, [flags | 17]), EPERM, "{bit}");
                assert_eq!(told(libc::SYS_clone, [flags | 1 << 40 | 17]), EPERM);
            }
        }
        // A fork, a thread, sharing less of one's own.
        assert_eq!(told(libc::SYS_clone, [0x0120_0011]), ALLOW);
        assert_eq!(told(libc::SYS_clone, [0x003d_0f00]), ALLOW);
        assert_eq!(told(libc::SYS_unshare, [0x400]), ALLOW);
        assert_eq!(told(libc::SYS_setns, [3, 0]), EPERM);
        assert_eq!(told(libc::SYS_clone3, [0, 88]), ENOSYS);
        assert_eq!(told(libc::SYS_openat2, [0, 0]), ENOSYS);
        let tools = for_call(Abi::from_number(7), Caller::FileTool).unwrap();
        assert_eq!(answer(&tools, NATIVE, libc::SYS_openat2, &[0, 0]), ALLOW);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn no_call_makes_a_set_id_file_or_a_device() {
        let (create, tmpfile) = (0o100, 0o20_000_000);
        for bit in [0o4000, 0o2000, 0o6000] {
            for mode in [bit | 0o755, 1 << 32 | bit, bit | 0o170_000] {
                assert_eq!(told(libc::SYS_chmod, [0, mode]), EPERM, "{mode:o}");
                assert_eq!(told(libc::SYS_fchmod, [0, mode]), EPERM);
                assert_eq!(told(libc::SYS_fchmodat, [0, 0, mode]), EPERM);
                assert_eq!(told(libc::SYS_fchmodat2, [0, 0, mode, 0]), EPERM);
                assert_eq!(told(libc::SYS_creat, [0, mode]), EPERM);
                assert_eq!(told(libc::SYS_mkdir, [0, mode]), EPERM);
                assert_eq!(told(libc::SYS_mkdirat, [0, 0, mode]), EPERM);
                assert_eq!(told(libc::SYS_mknod, [0, mode, 0]), EPERM);
                assert_eq!(told(libc::SYS_mknodat, [0, 0, mode, 0]), EPERM);
                for flags in [create, tmpfile, create | 0o1_001, tmpfile | 0o200_002] {
                    assert_eq!(told(libc::SYS_open, [0, flags, mode]), EPERM);
                    assert_eq!(told(libc::SYS_openat, [0, 0, flags, mode]), EPERM);
                }
                // Nothing is made, so the mode is only what lay in the register.
                assert_eq!(told(libc::SYS_open, [0, 0, mode]), ALLOW);
                assert_eq!(told(libc::SYS_openat, [0, 0, 0o200_000, mode]), ALLOW);
            }
        }
        for mode in [0o755, 0o1777, 0] {
            assert_eq!(told(libc::SYS_chmod, [0, mode]), ALLOW);
            assert_eq!(told(libc::SYS_openat, [0, 0, create, mode]), ALLOW);
            assert_eq!(told(libc::SYS_mkdirat, [0, 0, mode]), ALLOW);
        }
        for node in [0o020_666, 0o060_666] {
            assert_eq!(told(libc::SYS_mknodat, [0, 0, node, 0]), EPERM);
            assert_eq!(told(libc::SYS_mknod, [0, node, 0]), EPERM);
        }
        assert_eq!(told(libc::SYS_mknodat, [0, 0, 0o100_644, 0]), ALLOW);
    }

    #[test]
    fn nobody_types_on_behalf_of_others() {
        for request in [0x5412, 0x541c] {
            for padded in [request, 1 << 32 | request, 0xffff_ffff_0000_0000 | request] {
                assert_eq!(told(libc::SYS_ioctl, [0, padded, 0]), EPERM);
            }
        }
        assert_eq!(told(libc::SYS_ioctl, [0, 0x5413, 0]), ALLOW);
    }

    #[test]
    fn the_rest_of_the_list_is_refused_to_calls_and_not_to_the_helper() {
        let helper = for_helper(Abi::from_number(7)).unwrap();
        for number in refused_always() {
            assert_eq!(told(number, [0, 0, 0, 0]), EPERM, "{number}");
            assert_eq!(answer(&helper, NATIVE, number, &[0; 4]), ALLOW);
        }
    }
}
