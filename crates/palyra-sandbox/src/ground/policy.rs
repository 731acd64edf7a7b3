//! What holds where in a workspace: what was found in it, and the operator's rules.

use std::collections::BTreeMap;

use palyra_core::{FileId, FsAccess, FsRule};
use serde::{Deserialize, Serialize};

use super::names;
use super::root::Root;
use super::spot::Spot;
use super::survey::{Found, Survey, What};

/// More are not covered one by one.
const MOST_GUARDS: usize = 8_192;

/// Something in a workspace that is held in a cage, and which file or folder it was when it was
/// looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guard {
    pub(crate) at: Spot,
    pub(crate) id: FileId,
    pub(crate) hold: Hold,
}

/// How it is held. What comes later is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hold {
    /// It can be neither moved nor replaced.
    Pinned,
    /// It can be written to, whatever holds above it.
    Writable,
    /// It can be read.
    ReadOnly,
    /// It can be listed.
    Masked,
}

/// A workspace cannot be held together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the workspace has {0} names to guard, and {MOST_GUARDS} are possible; mask whole folders with \
     `[[files]]` rules in `palyra.toml`, or work on a part of it"
)]
pub(crate) struct TooMany(usize);

/// What calls may do with the files of a workspace: what is masked or read-only by its name, and
/// the operator's rules, of which the one with the most specific path decides.
#[derive(Debug, Clone, Copy)]
pub struct SandboxProcessRunnerPolicy<'a> {
    rules: &'a [FsRule],
}

impl<'a> SandboxProcessRunnerPolicy<'a> {
    /// The policy with these rules.
    #[must_use]
    pub const fn new(rules: &'a [FsRule]) -> Self {
        Self { rules }
    }

    /// What calls may do with a path beneath a workspace, by its name alone.
    ///
    /// A rule that makes something writable says that nothing beneath it is a secret. One that makes
    /// it read-only says nothing about secrets.
    pub(crate) fn access(&self, at: &Spot, usual: FsAccess) -> FsAccess {
        let rule = FsRule::most_specific(self.rules, at.path());
        match (rule.map(|rule| rule.access), usual) {
            (None, usual) => usual,
            (Some(FsAccess::Writable), _) => FsAccess::Writable,
            (Some(FsAccess::Masked), _) | (_, FsAccess::Masked) => FsAccess::Masked,
            (Some(FsAccess::ReadOnly), FsAccess::ReadOnly | FsAccess::Writable) => {
                FsAccess::ReadOnly
            }
        }
    }

    /// Everything that is held, what is above first. Where nothing can be written, only what is
    /// masked.
    pub(crate) fn guards(
        &self,
        survey: &Survey,
        root: &Root,
        writable: bool,
    ) -> Result<Vec<Guard>, TooMany> {
        let mut held = Held::default();
        for found in survey.found() {
            let hold = match self.access(&found.at, usual_access(found.what)) {
                FsAccess::Masked => Hold::Masked,
                FsAccess::ReadOnly => Hold::ReadOnly,
                FsAccess::Writable if found.what == What::GitFolder => Hold::Pinned,
                FsAccess::Writable => continue,
            };
            held.pin_the_way(&found, survey, root);
            held.add(found.at, found.id, hold);
        }
        for rule in self.rules {
            let hold = match rule.access {
                FsAccess::Masked => Hold::Masked,
                FsAccess::ReadOnly => Hold::ReadOnly,
                FsAccess::Writable => Hold::Writable,
            };
            // What is not there, or lies outside, or is the workspace itself, cannot be held.
            if let Some(at) = Spot::of(&rule.path)
                && !at.bytes().is_empty()
                && let Some(id) = root.id(&at)
            {
                held.add(at, id, hold);
            }
        }
        held.finish(writable)
    }
}

/// What calls may do with what was found, unless a rule says otherwise.
const fn usual_access(what: What) -> FsAccess {
    match what {
        What::Secret | What::Key | What::Closed => FsAccess::Masked,
        What::RunsLater | What::GitConfig | What::GitHooks | What::GitPointer => FsAccess::ReadOnly,
        What::GitFolder => FsAccess::Writable,
    }
}

#[derive(Default)]
struct Held(BTreeMap<Spot, (FileId, Hold)>);

impl Held {
    fn add(&mut self, at: Spot, id: FileId, hold: Hold) {
        let entry = self.0.entry(at).or_insert((id, hold));
        entry.1 = entry.1.max(hold);
    }

    /// Folders without which nobody would know it again: one whose name makes it a secret, and those
    /// on the way to what only a link leads to. If a call could rename them, the next one would read
    /// what is in them.
    fn pin_the_way(&mut self, found: &Found, survey: &Survey, root: &Root) {
        let mut above = found.at.parent();
        let all = survey.is_target(&found.at);
        while let Some(folder) = above.filter(|folder| !folder.bytes().is_empty()) {
            if !all && !names::lends_meaning(folder.name()) {
                return;
            }
            above = folder.parent();
            if let Some(id) = root.id(&folder) {
                self.add(folder, id, Hold::Pinned);
            }
        }
    }

    fn finish(self, writable: bool) -> Result<Vec<Guard>, TooMany> {
        let mut guards: Vec<Guard> = Vec::with_capacity(self.0.len());
        let mut masked: Vec<Spot> = Vec::new();
        for (at, (id, hold)) in self.0 {
            // What is beneath a mask is not there.
            if masked.iter().rev().any(|mask| at.is_within(mask)) {
                continue;
            }
            match hold {
                Hold::Masked => masked.push(at.clone()),
                Hold::Pinned | Hold::Writable | Hold::ReadOnly if !writable => continue,
                Hold::Pinned | Hold::Writable | Hold::ReadOnly => {}
            }
            guards.push(Guard { at, id, hold });
        }
        match guards.len() {
            many if many > MOST_GUARDS => Err(TooMany(many)),
            _ => Ok(guards),
        }
    }
}
