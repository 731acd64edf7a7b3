//! Which code of a workspace is copied for a call, so that nobody writes to what runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use palyra_core::plan::FileId;
use palyra_core::{CodePart, Content, Digest};
use serde::{Deserialize, Serialize};

use super::cage::Wanted;
use crate::ground::policy::{Guard, Hold};

/// A file of the workspace that is copied for the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeCopy {
    /// Where in the workspace.
    pub(crate) at: PathBuf,
    /// Which file it was.
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// What was in it.
    pub(crate) content: Digest,
}

/// How much of a workspace's own code is copied; what does not fit is compared and not copied.
const MOST_COPIED: u64 = 256 << 20;

/// The code that lies in the workspace, where another call may write to it while this one starts.
pub(crate) fn copies<'a>(wanted: &'a Wanted<'_>) -> impl Iterator<Item = CodeCopy> + 'a {
    let mut left = MOST_COPIED;
    let mut taken = BTreeSet::new();
    wanted.code.iter().filter_map(move |pinned| {
        match pinned.part {
            CodePart::Program | CodePart::Interpreter | CodePart::Operand => {}
            // The call itself may be what makes it.
            CodePart::Later => return None,
        }
        let (Content::Sha256(content), Some(seen)) = (pinned.content, pinned.seen) else {
            return None;
        };
        let at = pinned.real.strip_prefix(wanted.workspace).ok()?;
        // A copy on top of a mask would show what is masked.
        let is_masked =
            |guard: &Guard| guard.hold == Hold::Masked && at.starts_with(guard.at.path());
        let hidden = wanted
            .masked
            .iter()
            .any(|mask| pinned.real.starts_with(mask));
        if hidden || wanted.guards.iter().any(is_masked) || !wanted.writable {
            return None;
        }
        if at.as_os_str().is_empty() {
            return None;
        }
        left = left.checked_sub(seen.size)?;
        taken.insert(at.to_owned()).then(|| CodeCopy {
            at: at.to_owned(),
            id: seen.file,
            size: seen.size,
            content,
        })
    })
}
