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
//! A slot serves one call and is then gone. It is forked *before* it is needed, so that no call
//! waits for a fork.
//!
//! `palyra-jail doctor` is something else: it tries what this machine gives (`doctor`), and ends.

mod children;
mod doctor;
mod files;
mod observe;
mod patch;
mod server;
mod supervisor;
mod target;

use std::process::ExitCode;

/// The helper's `main`: `palyra-jail CGROUP`, where `CGROUP` is a folder or `-`, standard input
/// is the control socket, and standard output a handle of the daemon's temporary folder.
#[must_use]
pub fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "doctor")
    {
        return doctor::main();
    }
    let mut arguments = std::env::args_os().skip(1);
    let (Some(cgroup), None) = (arguments.next(), arguments.next()) else {
        return ExitCode::from(2);
    };
    let cgroup = (cgroup != "-").then_some(cgroup);
    match server::run(cgroup.as_deref().map(std::path::Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
