//! The journal that a backup would replace, compared with it: not by length, but by whether one
//! history continues the other.

use std::path::Path;

use palyra_journal::proof::Note;
use palyra_journal::verify::{Completeness, Report, Trust, verify};
use palyra_journal::{Beyond, beyond};

/// How the journal in place stands to a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InPlace {
    /// There is none, or the backup has all of it.
    Contained,
    /// It goes on where the backup ends.
    Ahead,
    /// It is another history.
    Forked {
        /// The two still agree after this many entries.
        after: u64,
        /// They do not any more after this many.
        by: u64,
    },
    /// What it holds cannot be told.
    Unreadable {
        /// Why.
        why: String,
    },
}

impl InPlace {
    /// Compares a journal with a backup that was found to be whole.
    pub(super) fn compare(journal: &Path, backup: &Path, found: &Report) -> Self {
        match journal.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::Contained,
            Ok(_) | Err(_) => {}
        }
        let here = match against(journal, found) {
            Ok(here) if here.fault_count == 0 => here,
            Ok(here) => {
                let first = here.faults.first().map(ToString::to_string);
                let why = format!("it does not verify: {}", first.unwrap_or_default());
                return Self::Unreadable { why };
            }
            Err(why) => return Self::Unreadable { why },
        };
        match here.completeness {
            Completeness::Forked { after, by } => Self::Forked { after, by },
            Completeness::Complete { .. } | Completeness::Unknown if here.last > found.last => {
                Self::Ahead
            }
            Completeness::Complete { .. } | Completeness::Unknown => Self::Contained,
            // It is shorter. Whether it is a beginning of the backup, the backup tells.
            Completeness::Cut { .. } => match against(backup, &here).map(|it| it.completeness) {
                Ok(Completeness::Forked { after, by }) => Self::Forked { after, by },
                Ok(
                    Completeness::Complete { .. }
                    | Completeness::Unknown
                    | Completeness::Cut { .. },
                ) => Self::Contained,
                Err(why) => Self::Unreadable { why },
            },
        }
    }

    /// What has to be accepted, with its code; `None` when nothing of it is lost.
    pub(super) fn objection(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Contained => None,
            Self::Ahead => Some(("backup_older", "the backup is older".to_owned())),
            Self::Forked { after, by } => Some((
                "backup_forked",
                format!(
                    "the journal in place is another history than the backup: they part somewhere \
                     in entries {} to {by}",
                    after + 1
                ),
            )),
            Self::Unreadable { why } => Some((
                "journal_unreadable",
                format!(
                    "the journal in place cannot be read, so what is lost cannot be told: {why}"
                ),
            )),
        }
    }

    /// What is in it and not in the backup, as far as it can be told.
    pub(super) fn lost(&self, journal: &Path, backup_ends: u64) -> Option<Beyond> {
        let after = match self {
            Self::Contained | Self::Unreadable { .. } => return None,
            Self::Ahead => backup_ends,
            Self::Forked { after, .. } => *after,
        };
        beyond(journal, after).ok().flatten()
    }
}

/// Looks at one with the last checkpoint of the other in hand.
fn against(file: &Path, other: &Report) -> Result<Report, String> {
    let mut trust = Trust::nobody();
    if let Some(head) = &other.head {
        let note: Note = head.parse().map_err(|_| "its checkpoint".to_owned())?;
        trust = trust.pinned(note).map_err(|error| error.to_string())?;
    }
    let looked = tokio::task::block_in_place(|| verify(file, &trust));
    looked.map_err(|error| error.to_string())
}
