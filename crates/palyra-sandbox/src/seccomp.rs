//! The system-call filter: a short list of refusals, everything else as before.
//!
//! | call | refused | why |
//! |---|---|---|
//! | any, of another ABI | always | i386 and x32 have other numbers and `socketcall`: a way around |
//! | `socket` | `AF_UNIX` | the daemon, D-Bus, docker and ssh-agent listen there |
//! | `socketpair` | all but `AF_UNIX` stream and seqpacket | a datagram socket can be pointed elsewhere with `connect` or `sendto` |
//! | `io_uring_*` | always | it makes sockets without making system calls |
//! | `prlimit64` | setting another process's limits | by uid alone a call could set the daemon's and its supervisor's; reading them stays, and so does setting one's own (`setrlimit`) |
//! | `truncate` | where Landlock does not check it (before ABI 3) | it empties a file that cannot be opened |
//!
//! Arguments are compared as the kernel reads them: an `int` as 32 bits (a family of
//! `1 << 32 | AF_UNIX` is `AF_UNIX` to it), a pointer as 64.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::landlock::Abi;

/// Bit 30 of a call's number marks the x32 ABI, which shares the native architecture word.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// The kernel's `SOCK_TYPE_MASK`; the flags for "close on exec" and "do not block" are above it.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// A filter that could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the system-call filter cannot be built: {0}")]
pub(crate) struct NoFilter(#[from] seccompiler::BackendError);

/// Builds the program, once per helper.
pub(crate) fn program(abi: Abi) -> Result<BpfProgram, NoFilter> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(
        rules(abi)?,
        SeccompAction::Allow,
        refuse.clone(),
        std::env::consts::ARCH.try_into()?,
    )?;
    let checked: BpfProgram = filter.try_into()?;
    let mut program = before_the_rules(refuse.into());
    program.extend(checked);
    Ok(program)
}

/// `seccompiler` compares the architecture word (another one kills the process) but knows nothing
/// of x32, which has the native word and its own numbers: `0x4000_0029` is `socket` too. So a
/// check of the number goes in front.
fn before_the_rules(refuse: u32) -> BpfProgram {
    #[cfg(target_arch = "x86_64")]
    {
        const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS at offset 0
        const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
        const RETURN: u16 = 0x06; // BPF_RET | BPF_K
        let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
        vec![
            step(LOAD_NUMBER, 0, 0, 0),
            step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT),
            step(RETURN, 0, 0, refuse),
        ]
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = refuse;
        Vec::<sock_filter>::new()
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(abi: Abi) -> Result<Rules, seccompiler::BackendError> {
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let when = |argument, compare, value| -> Result<SeccompRule, seccompiler::BackendError> {
        let one = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)?;
        SeccompRule::new(vec![one])
    };

    let mut pairs = vec![when(0, SeccompCmpOp::Ne, unix)?];
    for kind in 0..=SOCKET_TYPE_MASK {
        // AF_UNIX turns SOCK_RAW into a datagram socket, so only the two kinds that stay
        // connected to each other are left out of the refusals.
        let stays_connected = kind == u64::from(libc::SOCK_STREAM.unsigned_abs())
            || kind == u64::from(libc::SOCK_SEQPACKET.unsigned_abs());
        if !stays_connected {
            pairs.push(when(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK), kind)?);
        }
    }

    // Pid 0 is whoever asks; no new limit means only reading.
    let limits_of_others = SeccompRule::new(vec![
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?,
        SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?,
    ])?;

    let mut rules: Rules = BTreeMap::from([
        (libc::SYS_socket, vec![when(0, SeccompCmpOp::Eq, unix)?]),
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

    fn native<const N: usize>(abi: u32, number: i64, args: [u64; N]) -> u32 {
        answer(
            &program(Abi::from_number(abi)).unwrap(),
            NATIVE,
            number,
            &args,
        )
    }

    #[test]
    fn unix_sockets_are_refused_and_others_are_not() {
        let unix = u64::try_from(libc::AF_UNIX).unwrap();
        let inet = u64::try_from(libc::AF_INET).unwrap();
        for kind in [1, 2, 3, 5, 1 | 0o2_000_000] {
            assert_eq!(native(7, libc::SYS_socket, [unix, kind]), EPERM);
            assert_eq!(native(7, libc::SYS_socket, [inet, kind]), ALLOW);
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
        for number in [
            libc::SYS_openat,
            libc::SYS_execve,
            libc::SYS_clone3,
            libc::SYS_connect,
        ] {
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
        let program = program(Abi::from_number(7)).unwrap();
        for number in [0, 20, 102, 359, 425] {
            assert_eq!(answer(&program, I386, number, &[2, 1]), KILL);
            let x32 = i64::from(X32_BIT) + number;
            assert_eq!(answer(&program, NATIVE, x32, &[2, 1]), EPERM);
        }
        assert_eq!(answer(&program, NATIVE, 0xffff_ffff, &[0, 0]), EPERM);
    }
}
