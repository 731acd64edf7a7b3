//! What a file operation would meet if it were done here, for somebody who does it outside.
//!
//! It is a look, not a lock: between it and what is done outside, anything can change. It keeps a
//! client from what no call would be shown, and no more.

use std::path::{Path, PathBuf};

use palyra_core::{FileOperation, FilePlan};

use crate::caged::{self, Hold};
use crate::ground::names;
use crate::ground::policy::{Guard, Hold as Held};
use crate::ground::spot::Spot;
use crate::sandbox::Sandbox;

impl Sandbox {
    /// Why a call would not be let do this, if so. What cannot be told is not let.
    pub async fn would_refuse(&self, plan: &FilePlan) -> Option<String> {
        let path = operand(&plan.operation);
        let Some(at) = really(&plan.workspace, path) else {
            return Some("it leads out of the workspace".to_owned());
        };
        let own = plan.workspace.join(at.path());
        if plan.masked.iter().any(|masked| own.starts_with(masked)) {
            return Some("it belongs to the daemon".to_owned());
        }
        let writes = caged::writes(&plan.operation);
        let hold = Hold {
            workspace: &plan.workspace,
            id: plan.workspace_id,
            masked: &plan.masked,
            rules: &plan.rules,
            writable: writes,
        };
        match hold.look(&self.inner).await {
            Ok(looked) => met(&looked.guards, &at, plan, writes).map(str::to_owned),
            Err(_) => Some("the workspace could not be looked at".to_owned()),
        }
    }
}

fn met(guards: &[Guard], at: &Spot, plan: &FilePlan, writes: bool) -> Option<&'static str> {
    // Whoever reads a folder as a whole reads what is in it.
    let whole = matches!(plan.operation, FileOperation::Read { .. });
    for guard in guards {
        let (inside, around) = (at.is_within(&guard.at), guard.at.is_within(at));
        match guard.hold {
            Held::Masked if inside || (whole && around) => {
                return Some("a secret of the workspace is there, which no call sees");
            }
            Held::ReadOnly if writes && (inside || around) => {
                return Some("it is run later by somebody who is not in a call");
            }
            Held::Masked | Held::ReadOnly | Held::Pinned | Held::Writable => {}
        }
    }
    // What is not there yet is held by its name.
    (writes && names::of_path(at.bytes()).is_some())
        .then_some("its name makes it a secret, or something that is run later")
}

fn operand(operation: &FileOperation) -> &Path {
    match operation {
        FileOperation::Read { path, .. }
        | FileOperation::List { path, .. }
        | FileOperation::Write { path, .. }
        | FileOperation::ApplyPatch { path, .. } => path,
    }
}

/// Where a path beneath the workspace leads, if it stays beneath. The end of it may be missing.
fn really(workspace: &Path, path: &Path) -> Option<Spot> {
    let real = workspace.canonicalize().ok()?;
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut there = workspace.join(path);
    let found = loop {
        // A link that leads nowhere is still a link: whoever writes to it writes elsewhere.
        if let Ok(found) = there.canonicalize() {
            break found;
        }
        if there.symlink_metadata().is_ok() {
            return None;
        }
        missing.push(PathBuf::from(there.file_name()?));
        there.pop();
    };
    let whole = missing.iter().rev().fold(found, |at, name| at.join(name));
    Spot::of(whole.strip_prefix(&real).ok()?)
}
