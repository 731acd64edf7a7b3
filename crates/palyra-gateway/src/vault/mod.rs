//! The vault, wired: opened at start or left locked, held against the journal, asked for through
//! policy, and never handed to an executor.
//!
//! Two things are committed one after the other, the vault's file and the entry about it. A daemon
//! that ends between the two leaves a vault one generation ahead, which the next start finds and
//! mends. A vault *behind* the journal is an older file: it stays locked until a person says that
//! this is what they want.
//!
//! The journal's keys are in the vault (`keys`): a daemon whose vault is locked reads its journal,
//! and appends and executes nothing.

mod keeper;
mod keys;
mod screening;
mod service;

pub use keeper::{Standing, Unlocking, VaultPlace};
pub use keys::KeyFiles;
pub use service::{Export, Import, Overview, Reveal, SecretValueOut};

pub(crate) use keeper::{VaultKeeper, blocking};

use palyra_core::Digest;
use palyra_core::entry::{Entry, Fold, Recorded, Row};

/// What the journal was last told of the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Committed {
    pub(crate) generation: u64,
    pub(crate) head: Digest,
}

/// The projection `vault`: one row with the last generation.
#[derive(Debug, Clone, Copy, Default)]
pub struct VaultFold;

impl VaultFold {
    pub(crate) const NAME: &'static str = "vault";
    pub(crate) const ONLY: &'static str = "now";
}

impl Fold for VaultFold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        matches!(recorded.entry, Entry::VaultChanged { .. }).then(|| Self::ONLY.to_owned())
    }

    fn fold(&self, _: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let Entry::VaultChanged {
            generation, head, ..
        } = &recorded.entry
        else {
            return None;
        };
        let committed = Committed {
            generation: *generation,
            head: *head,
        };
        Some(Row {
            key: Self::ONLY.to_owned(),
            state: "committed".to_owned(),
            value: serde_json::to_vec(&committed).ok()?,
        })
    }
}
