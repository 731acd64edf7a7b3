//! The helper, `palyra-jail`: a small process with a single thread that makes confined ones.
//!
//! Three kinds of process run this code:
//!
//! * the **spawn server** (`server`), started once by the daemon; it keeps a few slots ready;
//! * a **supervisor** per slot (`supervisor`): everything its call starts becomes its child
//!   sooner or later (subreaper), and nothing of that outlives it;
//! * a **target** per slot (`target`): it waits for an order on the control socket, builds the
//!   walls around itself, checks that they stand, and becomes the program or does the file work.
//!
//! In Tier-C a target's place is taken by the first process of a cage (`init`), which builds it
//! (`mounts`) and starts the target as the second one (`caged`).
//!
//! Where only `bwrap` is granted namespaces, a target lets it build the cage (`wrapped`), and the
//! first process in there is this program again (`inner`).
//!
//! What is started is what was decided about: `code` compares it last.
//!
//! Whether the walls stand is looked at by `self_test`: what both tiers have; `observe` and `sight`
//! what only Tier-B and Tier-C have.
//!
//! Who is given a terminal makes it there (`terminal`), and keeps only one end of it.
//!
//! The network of a call that reaches hosts has doors (`doors`), which go to the daemon.
//!
//! A slot serves one call and is then gone. It is forked *before* it is needed, so that no call
//! waits for a fork.
//!
//! What a file tool may do with which name is asked of `watch`.
//!
//! `palyra-jail doctor` is something else: it tries what this machine gives (`doctor`), and ends.

mod caged;
mod children;
mod code;
mod doctor;
mod doors;
mod files;
mod init;
mod inner;
mod left_out;
mod mounts;
mod observe;
mod patch;
mod self_test;
mod server;
mod sight;
mod status;
mod supervisor;
mod target;
mod terminal;
mod watch;
mod wrapped;

pub(crate) use terminal::size as terminal_size;
pub(crate) use wrapped::Wrapping;

use std::process::ExitCode;

use crate::controllers::Base;

/// The helper's `main`: `palyra-jail CGROUP WRAPPING CONTROLLER…`, where `CGROUP` is a folder or `-`,
/// `WRAPPING` says who builds cages and each `CONTROLLER` is as `controllers` spells it. Standard input and standard error are the control
/// sockets of Tier-B and Tier-C, and standard output is a handle of the daemon's temporary folder.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "doctor" => doctor::main(),
        Some(word) if word == inner::WORD => inner::main(words, None),
        Some(_) | None => start(None),
    }
}

/// A helper that leaves out one wall. Only a program of the tests calls this: it shows that nothing
/// runs behind what is left.
#[must_use]
pub fn main_without(wall: &str) -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match (left_out::Wall::named(wall), words.next()) {
        (Some(wall), Some(word)) if word == inner::WORD => inner::main(words, Some(wall)),
        (Some(wall), _) => start(Some(wall)),
        (None, _) => ExitCode::from(2),
    }
}

fn start(missing: Option<left_out::Wall>) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(cgroup) = arguments.next() else {
        return ExitCode::from(2);
    };
    let Some(wrapping) = arguments.next().and_then(|word| Wrapping::of_word(&word)) else {
        return ExitCode::from(2);
    };
    let cgroup = (cgroup != "-").then_some(cgroup);
    let bases: Vec<Base> = arguments.filter_map(|word| Base::of_word(&word)).collect();
    let cgroup = cgroup.as_deref().map(std::path::Path::new);
    match server::run(cgroup, wrapping, &bases, missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
