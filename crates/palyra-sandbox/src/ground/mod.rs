//! The ground a call works on: which names in a workspace are secrets, which are run later by
//! somebody who is not in a call, and what becomes of them.
//!
//! | module | knows |
//! |---|---|
//! | `names` | what a name says |
//! | `root`, `spot` | a workspace by its handle, and places in it |
//! | `survey` | what is in a workspace now |
//! | `policy` | what holds where, with the operator's rules |
//! | `arrivals`, `git` | what may stay of what appeared during a call |
//! | `hints` | why a call may have failed |

pub(crate) mod arrivals;
mod git;
pub(crate) mod hints;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod root;
pub(crate) mod spot;
pub(crate) mod survey;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palyra_core::FileId;

use spot::Spot;
use survey::Survey;

/// How many workspaces are remembered; of others everything is looked at anew.
const MOST_GROUNDS: usize = 32;

/// What is known of the workspaces that were used last.
#[derive(Default)]
pub(crate) struct Grounds(Mutex<Vec<(Which, Ground)>>);

/// Which workspace, and which places of the daemon's in it are left out.
#[derive(PartialEq, Eq)]
struct Which {
    path: PathBuf,
    id: FileId,
    own: Vec<Spot>,
}

/// One workspace. Whoever works on it at the same time looks at it one after the other.
pub(crate) type Ground = Arc<Mutex<Survey>>;

impl Grounds {
    /// What is known of a workspace, `masked` places of the daemon's left out.
    pub(crate) fn of(&self, workspace: &Path, id: FileId, masked: &[PathBuf]) -> Ground {
        let beneath = |path: &PathBuf| Spot::of(path.strip_prefix(workspace).ok()?);
        let own: Vec<Spot> = masked.iter().filter_map(beneath).collect();
        let mut grounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = workspace.to_owned();
        let which = Which { path, id, own };
        let at = grounds.iter().position(|(other, _)| *other == which);
        // The one that was used last is at the end.
        let ground = match at {
            Some(at) => grounds.remove(at).1,
            None => Arc::new(Mutex::new(Survey::new(workspace, id, which.own.clone()))),
        };
        if grounds.len() >= MOST_GROUNDS {
            grounds.remove(0);
        }
        grounds.push((which, Arc::clone(&ground)));
        ground
    }
}

pub(crate) fn lock(ground: &Ground) -> MutexGuard<'_, Survey> {
    ground.lock().unwrap_or_else(PoisonError::into_inner)
}
