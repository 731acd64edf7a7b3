//! The keys while they are at hand, and how they come and go under a running writer.
//!
//! A journal without its keys is read as ever: entries, rows and proofs need only what is public.
//! It takes nothing, and what is sealed stays sealed. The tree is the writer's alone, so a change
//! of keys is laid down here and made by whoever has the turn, between two groups.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::blobs::BlobKey;
use crate::error::JournalError;
use crate::keys::JournalKeys;
use crate::proof::{SignerKey, VerifierKey};

/// What there is while the keys are at hand.
pub(crate) struct Held {
    pub(crate) signer: Arc<SignerKey>,
    pub(crate) blobs: Arc<BlobKey>,
}

/// The keys, or none; shared by the handles of a journal and its writer.
#[derive(Default)]
pub(crate) struct Keyring {
    held: RwLock<Option<Arc<Held>>>,
    /// Who signs, also when the key is not at hand; `None` for a journal that has no tree yet.
    known: RwLock<Option<VerifierKey>>,
    change: Mutex<Change>,
}

#[derive(Default)]
enum Change {
    #[default]
    Nothing,
    /// These from now on, or none.
    Wanted(Option<Box<JournalKeys>>),
    Made(Result<(), JournalError>),
}

impl Keyring {
    pub(crate) fn held(&self) -> Result<Arc<Held>, JournalError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.clone().ok_or(JournalError::Keyless)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.is_none()
    }

    pub(crate) fn hold(&self, held: Option<Held>) {
        if let Some(held) = &held {
            self.knows(held.signer.verifier());
        }
        let mut place = self.held.write().unwrap_or_else(PoisonError::into_inner);
        *place = held.map(Arc::new);
    }

    pub(crate) fn known(&self) -> Option<VerifierKey> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    pub(crate) fn knows(&self, signer: VerifierKey) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(signer);
    }

    /// Asks whoever writes for other keys.
    pub(crate) fn want(&self, keys: Option<JournalKeys>) {
        *self.change() = Change::Wanted(keys.map(Box::new));
    }

    /// What is asked for, once.
    pub(crate) fn wanted(&self) -> Option<Option<Box<JournalKeys>>> {
        let mut change = self.change();
        match std::mem::take(&mut *change) {
            Change::Wanted(keys) => Some(keys),
            other @ (Change::Nothing | Change::Made(_)) => {
                *change = other;
                None
            }
        }
    }

    pub(crate) fn made(&self, outcome: Result<(), JournalError>) {
        *self.change() = Change::Made(outcome);
    }

    /// What came of it; `None` while nobody got to it.
    pub(crate) fn outcome(&self) -> Option<Result<(), JournalError>> {
        let mut change = self.change();
        match std::mem::take(&mut *change) {
            Change::Made(outcome) => Some(outcome),
            other @ (Change::Nothing | Change::Wanted(_)) => {
                *change = other;
                None
            }
        }
    }

    fn change(&self) -> MutexGuard<'_, Change> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
