//! Attacks as a small program: `palyra-attack PROBE [ARGUMENT…]`, one line as its answer.
//!
//! `open WHAT` says that the attack worked and what it got, `held ERRNO` that it was refused, and
//! `absent ERRNO` that this kernel lacks what it aims at. The numbers of the probes are those of the
//! matrix in `palyra_testkit::probes`. Each of them really tries: a probe that works outside and
//! not inside is what the tests look for.

#![expect(unsafe_code, reason = "`sys` makes raw system calls on purpose")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "descriptors, modes and addresses, as the kernel's interface has them"
)]

mod answer;
mod bystander;
mod files;
mod ipc;
mod kernel;
mod mounts;
mod processes;
mod resources;
mod setid;
mod sys;

use std::io::Write;

use answer::{Attack, held};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((probe, arguments)) = words.split_first() else {
        return say("palyra-attack PROBE [ARGUMENT…]");
    };
    say(&answer::line(attack(probe, arguments)));
}

/// Whoever started this may have stopped listening.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn attack(probe: &str, arguments: &[&str]) -> Attack {
    let rooms = [
        files::attack,
        setid::attack,
        kernel::attack,
        mounts::attack,
        processes::attack,
        ipc::attack,
        resources::attack,
        bystander::serve,
    ];
    let found = rooms.iter().find_map(|room| room(probe, arguments));
    found.unwrap_or_else(|| Err(held("NO_SUCH_PROBE")))
}
