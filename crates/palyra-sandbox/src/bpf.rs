//! Classic BPF for system-call filters: rules by number, found by halving.
//!
//! The kernel goes through a new filter once for every system call there is, to learn which are
//! always allowed. A chain of a hundred comparisons makes that the most expensive step of starting a
//! call, so the numbers are searched by halving, and what is not listed is allowed after a handful
//! of steps.

use std::collections::BTreeMap;

use seccompiler::sock_filter;

/// What a filter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Allow,
    /// With this error number.
    Refuse(i32),
    Kill,
}

impl Answer {
    const fn code(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Refuse(errno) => 0x0005_0000 | (errno.unsigned_abs() & 0xffff),
            Self::Kill => 0x8000_0000,
        }
    }
}

/// Something about one argument, of which the lower 32 bits are looked at unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    /// The argument is not this.
    Not(u32),
    /// Of these bits, exactly these are set.
    Masked(u32, u32),
    /// All 64 bits are not zero.
    NotNull,
}

/// All of these hold, each for the argument of that place.
pub(crate) type Rule = Vec<(u32, Is)>;

/// What to answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Whatever its arguments are.
    Always(Answer),
    /// This, if one of the rules holds; otherwise it is allowed.
    If(Vec<Rule>, Answer),
}

/// What a filter says of each call that it says something of.
pub(crate) type Verdicts = BTreeMap<u32, Verdict>;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Where things are in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

/// Bit 30 of a call's number marks the x32 ABI, which shares the native architecture word: its
/// `socket` is `0x4000_0029`.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The program. Calls of another ABI end the process, or are refused where they share ours.
pub(crate) fn program(verdicts: &Verdicts, otherwise: Answer) -> Vec<sock_filter> {
    let mut steps = vec![
        step(LOAD, 0, 0, ARCHITECTURE),
        step(JUMP_IF_EQUAL, 1, 0, NATIVE),
        step(RETURN, 0, 0, Answer::Kill.code()),
        step(LOAD, 0, 0, NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    steps.extend([
        step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT),
        step(RETURN, 0, 0, Answer::Refuse(libc::EPERM).code()),
    ]);
    let all: Vec<(u32, &Verdict)> = verdicts.iter().map(|(number, it)| (*number, it)).collect();
    steps.extend(search(&all, otherwise));
    steps
}

/// Finds the number among these by halving.
fn search(all: &[(u32, &Verdict)], otherwise: Answer) -> Vec<sock_filter> {
    let (left, right) = all.split_at(all.len() / 2);
    match (left, right) {
        ([], []) => vec![step(RETURN, 0, 0, otherwise.code())],
        ([], [(number, verdict), ..]) => {
            let body = body(verdict);
            let mut steps = vec![
                step(JUMP_IF_EQUAL, 0, 1, *number),
                jump(1),
                step(RETURN, 0, 0, otherwise.code()),
            ];
            steps.extend(body);
            steps
        }
        (_, [(middle, _), ..]) => {
            let (below, from) = (search(left, otherwise), search(right, otherwise));
            let mut steps = vec![step(JUMP_IF_AT_LEAST, 0, 1, *middle), jump(below.len())];
            steps.extend(below);
            steps.extend(from);
            steps
        }
        // The right half is never the smaller one.
        ([_, ..], []) => vec![step(RETURN, 0, 0, otherwise.code())],
    }
}

/// Jumps over this many steps.
fn jump(over: usize) -> sock_filter {
    step(JUMP, 0, 0, u32::try_from(over).unwrap_or(u32::MAX))
}

fn body(verdict: &Verdict) -> Vec<sock_filter> {
    match verdict {
        Verdict::Always(answer) => vec![step(RETURN, 0, 0, answer.code())],
        Verdict::If(rules, answer) => {
            let mut steps: Vec<sock_filter> = rules
                .iter()
                .flat_map(|rule| of_rule(rule, *answer))
                .collect();
            steps.push(step(RETURN, 0, 0, Answer::Allow.code()));
            steps
        }
    }
}

/// The answer if all of it holds; otherwise what follows. A condition that does not hold jumps over
/// the rest of the rule.
fn of_rule(rule: &Rule, answer: Answer) -> Vec<sock_filter> {
    let mut steps = vec![step(RETURN, 0, 0, answer.code())];
    for (place, is) in rule.iter().rev() {
        let low = ARGUMENTS + 8 * place + if cfg!(target_endian = "big") { 4 } else { 0 };
        let high = ARGUMENTS + 8 * place + if cfg!(target_endian = "big") { 0 } else { 4 };
        let rest = jump(steps.len());
        let mut this = match is {
            Is::Not(value) => vec![step(LOAD, 0, 0, low), step(JUMP_IF_EQUAL, 0, 1, *value)],
            Is::Masked(mask, value) => vec![
                step(LOAD, 0, 0, low),
                step(AND, 0, 0, *mask),
                step(JUMP_IF_EQUAL, 1, 0, *value),
            ],
            Is::NotNull => vec![
                step(LOAD, 0, 0, low),
                step(JUMP_IF_EQUAL, 0, 3, 0),
                step(LOAD, 0, 0, high),
                step(JUMP_IF_EQUAL, 0, 1, 0),
            ],
        };
        this.push(rest);
        this.append(&mut steps);
        steps = this;
    }
    steps
}

/// Runs a filter as the kernel would.
#[cfg(test)]
pub(crate) mod as_the_kernel {
    use super::*;

    /// What the kernel would answer: the few instructions of classic BPF that occur here.
    pub(crate) fn answer(program: &[sock_filter], arch: u32, number: i64, args: &[u64]) -> u32 {
        run(program, arch, number, args, &mut || ())
    }

    fn run(
        program: &[sock_filter],
        arch: u32,
        number: i64,
        args: &[u64],
        each: &mut impl FnMut(),
    ) -> u32 {
        let mut data = [0_u8; 64];
        data[0..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        for (place, argument) in data[16..].chunks_exact_mut(8).zip(args) {
            place.copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            each();
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

    /// How many instructions a call with no arguments takes.
    pub(crate) fn steps(program: &[sock_filter], arch: u32, number: i64) -> usize {
        let mut count = 0;
        run(program, arch, number, &[], &mut || count += 1);
        count
    }
}
