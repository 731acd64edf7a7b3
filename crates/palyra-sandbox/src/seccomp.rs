//! The system-call filters: lists of refusals, everything else as before.
//!
//! The helper itself lives behind a short list ([`for_helper`]): what no process of ours ever needs.
//! A call gets the whole list ([`for_call`]), in Tier-B and in Tier-C, and a program a little more as
//! its last wall ([`for_program`]). Why each entry is there:
//! [design 0009](../../../docs/design/0009-tier-c.md).
//!
//! Arguments are compared as the kernel reads them: an `int` as 32 bits (a family of
//! `1 << 32 | AF_UNIX` is `AF_UNIX` to it), a pointer as 64.

use seccompiler::BpfProgram;

use crate::bpf::{self, Answer, Is, Rule, Verdict, Verdicts};
use crate::landlock::Abi;

/// The kernel's `SOCK_TYPE_MASK`; the flags for "close on exec" and "do not block" are above it.
const SOCKET_TYPE_MASK: u32 = 0xf;

/// Numbers that `libc` does not have yet. They are the same on every architecture.
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;

const REFUSED: Answer = Answer::Refuse(libc::EPERM);
const ABSENT: Answer = Answer::Refuse(libc::ENOSYS);

/// Whether a program has a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// That of its namespace, or the machine's.
    Some,
    /// None, and no namespace to keep it out of.
    None,
}

/// The filter that the helper and everything it forks lives behind.
pub(crate) fn for_helper(abi: Abi) -> BpfProgram {
    bpf::program(&short_list(abi), Answer::Allow)
}

/// The wall around every call. It refuses nothing that building the other walls takes, so it stands
/// early: the kernel takes longer over it than over all the others.
pub(crate) fn for_call(abi: Abi) -> BpfProgram {
    let mut verdicts = short_list(abi);
    for call in refused_always() {
        verdicts.insert(number(call), Verdict::Always(REFUSED));
    }
    for (call, rules) in by_argument() {
        verdicts.insert(number(call), Verdict::If(rules, REFUSED));
    }
    // What hides its flags in memory, where no filter can look, is not there: programs then use
    // the older calls, whose arguments can be seen.
    verdicts.insert(number(libc::SYS_clone3), Verdict::Always(ABSENT));
    // Its contexts are counted for the whole machine, and one call could take them all.
    verdicts.insert(number(libc::SYS_io_setup), Verdict::Always(ABSENT));
    bpf::program(&verdicts, Answer::Allow)
}

/// What is refused to a program besides, put on last: our own tools resolve paths with `openat2`.
pub(crate) fn for_program(network: Network) -> BpfProgram {
    let mut verdicts = Verdicts::from([(number(libc::SYS_openat2), Verdict::Always(ABSENT))]);
    match network {
        Network::Some => {}
        Network::None => {
            verdicts.insert(number(libc::SYS_socket), Verdict::Always(REFUSED));
        }
    }
    bpf::program(&verdicts, Answer::Allow)
}

/// For the first process of a cage: what waiting, killing, burying and a last word take, and nothing
/// else.
pub(crate) fn for_init() -> BpfProgram {
    let mut allowed = vec![
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_kill,
        libc::SYS_sendmsg,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_munmap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_mremap,
        libc::SYS_futex,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_restart_syscall,
        libc::SYS_prctl,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    allowed.push(libc::SYS_ppoll);
    #[cfg(target_arch = "x86_64")]
    allowed.push(libc::SYS_poll);
    let verdicts = allowed
        .into_iter()
        .map(|call| (number(call), Verdict::Always(Answer::Allow)))
        .collect();
    bpf::program(&verdicts, REFUSED)
}

/// A call's number, or a flag, as the filter compares it.
fn number(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

const fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}

/// A rule for each of these bits being set, besides `also`.
fn any_bit(place: u32, all: &[u32], also: &[(u32, Is)]) -> Vec<Rule> {
    all.iter()
        .map(|bit| {
            let mut rule = also.to_vec();
            rule.push((place, Is::Masked(*bit, *bit)));
            rule
        })
        .collect()
}

/// A rule for each kind of socket but these.
fn other_kinds(usual: &[i32]) -> Vec<Rule> {
    (0..=SOCKET_TYPE_MASK)
        .filter(|kind| usual.iter().all(|usual| bits(*usual) != *kind))
        .map(|kind| vec![(1, Is::Masked(SOCKET_TYPE_MASK, kind))])
        .collect()
}

/// What nothing of ours ever needs.
fn short_list(abi: Abi) -> Verdicts {
    let unix = bits(libc::AF_UNIX);
    // AF_UNIX turns SOCK_RAW into a datagram socket, so only the two kinds that stay connected to
    // each other are left out of the refusals.
    let mut pairs = other_kinds(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET]);
    pairs.push(vec![(0, Is::Not(unix))]);
    // Pid 0 is whoever asks; no new limit means only reading.
    let limits_of_others = vec![(0, Is::Not(0)), (2, Is::NotNull)];
    let unix_sockets = vec![(0, Is::Masked(u32::MAX, unix))];
    let mut verdicts = Verdicts::from(
        [
            (libc::SYS_socket, Verdict::If(vec![unix_sockets], REFUSED)),
            (libc::SYS_socketpair, Verdict::If(pairs, REFUSED)),
            (
                libc::SYS_prlimit64,
                Verdict::If(vec![limits_of_others], REFUSED),
            ),
            (libc::SYS_io_uring_setup, Verdict::Always(REFUSED)),
            (libc::SYS_io_uring_enter, Verdict::Always(REFUSED)),
            (libc::SYS_io_uring_register, Verdict::Always(REFUSED)),
        ]
        .map(|(call, verdict)| (number(call), verdict)),
    );
    if !abi.checks_truncate() {
        verdicts.insert(number(libc::SYS_truncate), Verdict::Always(REFUSED));
    }
    verdicts
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
fn by_argument() -> Vec<(i64, Vec<Rule>)> {
    let mut all = vec![(libc::SYS_socket, sockets())];
    all.extend(namespaces());
    all.extend(set_id_files());
    // Typing into a terminal on somebody's behalf. The kernel reads 32 bits of the request.
    let requests = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = requests.map(|request| {
        let request = u32::try_from(request & 0xffff_ffff).unwrap_or(0);
        vec![(1, Is::Masked(u32::MAX, request))]
    });
    all.push((libc::SYS_ioctl, typing.to_vec()));
    all
}

/// TCP and UDP are all there is: no packets by hand, no netlink, no vsock, none of the families
/// that are there for few and broken often.
fn sockets() -> Vec<Rule> {
    let mut refused = other_kinds(&[libc::SOCK_STREAM, libc::SOCK_DGRAM]);
    let (four, six) = (bits(libc::AF_INET), bits(libc::AF_INET6));
    refused.push(vec![(0, Is::Not(four)), (0, Is::Not(six))]);
    refused
}

/// New namespaces would give a call rights over what is in them.
fn namespaces() -> [(i64, Vec<Rule>); 2] {
    let mut all = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ]
    .map(bits)
    .to_vec();
    let clone = any_bit(0, &all, &[]);
    // In `clone` this bit is a part of the signal's number.
    all.push(bits(libc::CLONE_NEWTIME));
    [
        (libc::SYS_clone, clone),
        (libc::SYS_unshare, any_bit(0, &all, &[])),
    ]
}

/// A set-id file that stays behind in the workspace would be its owner's rights for whoever runs
/// it later, outside; a device node would be the machine's.
fn set_id_files() -> Vec<(i64, Vec<Rule>)> {
    let with_mode = |call: i64, place: u32| (call, any_bit(place, &[0o4000, 0o2000], &[]));
    // Without these flags the last argument of `open` is whatever lay in the register.
    let making = |call: i64, flags: u32, mode: u32| {
        let makes = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY].map(bits);
        let rules = makes
            .into_iter()
            .flat_map(|flag| any_bit(mode, &[0o4000, 0o2000], &[(flags, Is::Masked(flag, flag))]));
        (call, rules.collect())
    };
    let node = |call: i64, place: u32| {
        let (call, mut rules) = with_mode(call, place);
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            rules.push(vec![(place, Is::Masked(libc::S_IFMT, kind))]);
        }
        (call, rules)
    };
    vec![
        with_mode(libc::SYS_fchmod, 1),
        with_mode(libc::SYS_fchmodat, 2),
        with_mode(libc::SYS_fchmodat2, 2),
        with_mode(libc::SYS_mkdirat, 2),
        node(libc::SYS_mknodat, 2),
        making(libc::SYS_openat, 2, 3),
        #[cfg(target_arch = "x86_64")]
        making(libc::SYS_open, 1, 2),
        #[cfg(target_arch = "x86_64")]
        with_mode(libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        with_mode(libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        with_mode(libc::SYS_mkdir, 1),
        #[cfg(target_arch = "x86_64")]
        node(libc::SYS_mknod, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::as_the_kernel::{answer, steps};

    #[cfg(target_arch = "x86_64")]
    const X32_BIT: u32 = 0x4000_0000;

    const NATIVE: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };
    const I386: u32 = 0x4000_0003;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const EPERM: u32 = 0x0005_0000 | 1;

    /// What both filters say: the helper's, and a program's; they agree wherever this is asked.
    fn native<const N: usize>(abi: u32, number: i64, args: [u64; N]) -> u32 {
        let abi = Abi::from_number(abi);
        let short = answer(&for_helper(abi), NATIVE, number, &args);
        let whole = answer(&for_call(abi), NATIVE, number, &args);
        assert_eq!(short, whole, "{number} {args:?}");
        whole
    }

    /// What a program is told.
    fn told<const N: usize>(number: i64, args: [u64; N]) -> u32 {
        told_with(Network::Some, number, args)
    }

    /// It stands behind two filters, and one refusal is enough.
    fn told_with<const N: usize>(network: Network, number: i64, args: [u64; N]) -> u32 {
        let filters = [for_program(network), for_call(Abi::from_number(7))];
        let mut answers = filters.map(|filter| answer(&filter, NATIVE, number, &args));
        answers.sort_by_key(|answer| *answer == ALLOW);
        answers[0]
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
        let filters = [for_helper(abi), for_call(abi), for_program(Network::Some)];
        for program in filters {
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
        let told = |number, args: [u64; 2]| told_with(Network::None, number, args);
        for family in [1, 2, 10, 16] {
            assert_eq!(told(libc::SYS_socket, [family, 1]), EPERM);
        }
        assert_eq!(told(libc::SYS_socketpair, [1, 1]), ALLOW);
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
        let tools = for_call(Abi::from_number(7));
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
        let helper = for_helper(Abi::from_number(7));
        for number in refused_always() {
            assert_eq!(told(number, [0, 0, 0, 0]), EPERM, "{number}");
            assert_eq!(answer(&helper, NATIVE, number, &[0; 4]), ALLOW);
        }
    }

    /// The kernel goes through it once for every call there is.
    #[test]
    fn a_call_that_is_not_listed_is_allowed_after_a_few_steps() {
        let filter = for_call(Abi::from_number(7));
        assert!(filter.len() < 4_096, "{}", filter.len());
        for call in [libc::SYS_read, libc::SYS_futex, libc::SYS_statx, 9_999] {
            assert!(steps(&filter, NATIVE, call) < 40, "{call}");
            assert_eq!(answer(&filter, NATIVE, call, &[0; 6]), ALLOW);
        }
    }

    #[test]
    fn the_first_process_of_a_cage_may_wait_kill_and_speak() {
        let filter = for_init();
        for call in [libc::SYS_wait4, libc::SYS_kill, libc::SYS_exit_group] {
            assert_eq!(answer(&filter, NATIVE, call, &[0; 6]), ALLOW);
        }
        for call in [
            libc::SYS_openat,
            libc::SYS_socket,
            libc::SYS_execve,
            libc::SYS_clone,
            libc::SYS_mount,
            libc::SYS_setresuid,
        ] {
            assert_eq!(answer(&filter, NATIVE, call, &[0; 6]), EPERM);
        }
    }
}
