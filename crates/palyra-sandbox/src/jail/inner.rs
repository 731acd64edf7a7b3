//! `palyra-jail inner`: the first process of a cage that `bwrap` built.
//!
//! It finds the namespaces and mounts made, no capabilities left, and does what a cage of our own
//! gets besides: it starts the target (`caged`), which puts on the limits, Landlock and the filter
//! and looks whether everything stands; then it only waits and buries.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use palyra_core::RunErrorKind;
use rustix::process::{DumpableBehavior, Pid};

use super::caged::{self, Caged};
use super::init;
use super::left_out::Wall;
use super::server::Basis;
use super::target::{self, Refusal};
use super::wrapped::{BEGUN, Given};
use crate::landlock::Abi;
use crate::sys;
use crate::tier_c::cage::{Cage, Step};
use crate::wire::{self, Handles};

/// What it is called by.
pub(super) const WORD: &str = "inner";

/// Its life, with the numbers of what it is handed: the link, what it is given, the order, the report
/// socket, and the call's standard input, output and error.
pub(super) fn main(
    numbers: impl Iterator<Item = std::ffi::OsString>,
    missing: Option<Wall>,
) -> ExitCode {
    let handed: Option<Vec<OwnedFd>> = numbers
        .map(|word| word.to_str()?.parse().ok().and_then(sys::adopt))
        .collect();
    let handed = handed.and_then(|all| <[OwnedFd; 7]>::try_from(all).ok());
    let Some([link, given, order, report, stdin, stdout, stderr]) = handed else {
        return ExitCode::from(2);
    };
    let handles = Handles {
        stdin,
        stdout,
        stderr,
        report,
        ruleset: None,
        order: Some(order),
    };
    let code = match run(&link, &given, &handles, missing) {
        Ok(child) => {
            drop(handles);
            init::bury(child, &link)
        }
        Err(refusal) => target::refuse(&handles.report, refusal),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn run(
    link: &OwnedFd,
    given: &OwnedFd,
    handles: &Handles<OwnedFd>,
    missing: Option<Wall>,
) -> Result<Pid, Refusal> {
    let broke = |error: io::Error| Refusal::degraded("the helper inside", error);
    wire::send(link, BEGUN, &[]).map_err(broke)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| broke(error.into()))?;
    if rustix::process::getpid() != Pid::INIT {
        let refusal = Refusal::degraded("the process namespace", "it is not the first in it");
        return Err(refusal);
    }
    sys::default_signals();
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let witness = rustix::fs::fstat(given).map_err(|error| broke(error.into()))?;
    let known: Given = target::parse_file(given).map_err(broke)?;
    let order = target::parse(&[], handles.order.as_ref()).map_err(broke)?;
    let missing_cage = || Refusal::degraded("the order", "it is not for a cage");
    let caged = order.caged.as_ref().ok_or_else(missing_cage)?;
    is_the_workspace(&caged.cage)?;
    let abi = Abi::of_this_kernel().unwrap_or(Abi::from_number(1));
    let basis = Basis::new(abi, known.namespaces, known.ids, missing);
    let call = Caged {
        basis: &basis,
        supervisor: Pid::from_raw(known.supervisor).unwrap_or(Pid::INIT),
        order: &order,
        caged,
        handles,
        ahead: &known.ahead,
        witness: Some(witness.st_uid),
    };
    start(&call)
}

fn start(call: &Caged<'_>) -> Result<Pid, Refusal> {
    let (wait, go) = init::pipe()?;
    let child = sys::fork(None, || caged::run(call, &wait))
        .map_err(|error| Refusal::degraded("a process", error))?;
    init::confine_itself(call)?;
    init::say_go(&go)?;
    Ok(child)
}

/// `bwrap` follows a path, which may lead elsewhere by now: what it found is compared.
fn is_the_workspace(cage: &Cage) -> Result<(), Refusal> {
    for step in &cage.steps {
        if let Step::Workspace { at, id, .. } = step {
            let found = crate::program::look_at_folder(at);
            return match found {
                Ok(found) if found.id == *id => Ok(()),
                Ok(_) => Err(target::changed("the workspace", at)),
                Err(error) => {
                    let message = format!("the workspace `{}`: {error}", at.display());
                    Err(Refusal::new(RunErrorKind::InvalidInput, message))
                }
            };
        }
    }
    Err(Refusal::degraded("the order", "it names no workspace"))
}
