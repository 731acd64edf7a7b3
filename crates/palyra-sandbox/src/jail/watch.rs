//! What a file tool may do with a path in the workspace, and the words for what it may not.
//!
//! In a cage the mounts hold what is guarded; here it is said why. Names are looked at as well: a new
//! `.env` is not made at all, and where there are no mounts (Tier-B) this is what holds.

use std::path::Path;

use palyra_core::{FsAccess, FsRule, RunErrorKind};

use super::target::Refusal;
use crate::ground::names::{self, Nature};
use crate::ground::policy::{Guard, Hold, SandboxProcessRunnerPolicy};
use crate::ground::spot::Spot;

/// What a file says that is certainly no key: a new one may be made.
const NO_KEY: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// What is watched.
pub(super) struct Watch<'a> {
    policy: SandboxProcessRunnerPolicy<'a>,
    guards: Vec<&'a Guard>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(rules: &'a [FsRule]) -> Self {
        Self {
            policy: SandboxProcessRunnerPolicy::new(rules),
            guards: Vec::new(),
        }
    }

    /// The same with what the cage holds.
    pub(super) fn with_guards(self, guards: Vec<&'a Guard>) -> Self {
        Self { guards, ..self }
    }

    /// Whether its name does not tell what a file is.
    pub(super) fn needs_content(&self, at: &Spot) -> bool {
        matches!(names::of_path(at.bytes()), Some(Nature::MayBeKey(_)))
    }

    /// Whether a path may be read, with that content.
    pub(super) fn reading(&self, at: &Spot, content: &[u8]) -> Result<(), Refusal> {
        match self.access(at, content) {
            FsAccess::Masked => Err(masked(at)),
            FsAccess::ReadOnly | FsAccess::Writable => Ok(()),
        }
    }

    /// Whether a path may be written.
    pub(super) fn writing(&self, at: &Spot) -> Result<(), Refusal> {
        match self.access(at, NO_KEY) {
            FsAccess::Masked => Err(masked(at)),
            FsAccess::ReadOnly => Err(read_only(at)),
            FsAccess::Writable => Ok(()),
        }
    }

    /// Why the kernel refused it, if that was for us.
    pub(super) fn why(&self, at: &Spot) -> Option<Refusal> {
        let held = |guard: &&&Guard| at.is_within(&guard.at);
        let guard = self.guards.iter().rfind(held)?;
        match guard.hold {
            Hold::Masked => Some(masked(at)),
            Hold::ReadOnly => Some(read_only(at)),
            Hold::Pinned | Hold::Writable => None,
        }
    }

    fn access(&self, at: &Spot, content: &[u8]) -> FsAccess {
        let usual = match names::of_path(at.bytes()) {
            Some(Nature::Secret | Nature::Key) => FsAccess::Masked,
            Some(Nature::MayBeKey(kind)) if kind.is_secret(content) => FsAccess::Masked,
            Some(Nature::MayBeKey(_)) => FsAccess::Writable,
            Some(Nature::RunsLater) => FsAccess::ReadOnly,
            None => FsAccess::Writable,
        };
        self.policy.access(at, usual)
    }
}

/// A path as it was given, if it stays beneath without `..`.
pub(super) fn as_given(path: &Path) -> Option<Spot> {
    Spot::of(path)
}

fn masked(at: &Spot) -> Refusal {
    let message = format!(
        "`{at}` is masked, as secrets are: no call reads or writes it; if it is none, a person can \
         allow it with a `[[files]]` rule in `palyra.toml`"
    );
    Refusal::new(RunErrorKind::PathMasked, message)
}

fn read_only(at: &Spot) -> Refusal {
    let message = format!(
        "`{at}` can only be read: programs outside of any call run what it says; a person can \
         change it, or allow it with a `[[files]]` rule in `palyra.toml`"
    );
    Refusal::new(RunErrorKind::PathReadOnly, message)
}
