//! Changing the key-encryption key, so that no crash and no full disk loses anything.
//!
//! The store makes and holds the new key; the vault records that it is to take over; every data key
//! is wrapped anew, some in each commit; then the new key is the key, and the old one is kept until
//! a start has read everything with the new one. Whatever step is the last before a crash, the next
//! start has every key that it needs, and goes on from there.

use std::ops::ControlFlow;

use palyra_core::VaultChange;

use crate::backend::{Stored, Write};
use crate::edit::Edit;
use crate::error::VaultError;
use crate::head::Head;
use crate::key::KeyId;
use crate::seal::{open_data_key, seal};
use crate::vault::{Inner, Vault, integrity_bound};

/// How many data keys are wrapped anew in one commit.
const BATCH: usize = 256;

/// Where a change of the key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The store made the new key and holds it.
    KeyMade,
    /// The vault recorded that it is to take over.
    Begun,
    /// So many data keys were wrapped anew in this commit.
    Rewrapped(usize),
    /// The new key is the key.
    Activated,
    /// The store forgot the old key.
    OldKeyForgotten,
    /// The vault recorded that it did.
    Settled,
}

/// What came of a change of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The key so far.
    pub previous: KeyId,
    /// The key from here on.
    pub key: KeyId,
    /// Where the vault stands.
    pub head: Head,
}

impl Vault {
    /// Changes the key. `watch` is told after each step, and may break off, as a crash would.
    ///
    /// # Errors
    /// The vault is locked, a change is under way, or the store or the storage refuses; what was
    /// done so far stays, and [`settle`](Self::settle) goes on with it.
    pub fn rotate(
        &self,
        watch: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Option<Rotation>, VaultError> {
        let mut inner = self.lock_inner();
        if inner.opened()?.pending.is_some() {
            return Err(VaultError::Rotating);
        }
        let store = std::sync::Arc::clone(&inner.opened()?.store);
        let fresh = store.make()?;
        if fresh.id() == inner.opened()?.active.id() {
            return Err(crate::KeyStoreError::ReadOnly(store.kind()).into());
        }
        if watch(Step::KeyMade).is_break() {
            return Ok(None);
        }
        let key = fresh.id();
        let begun = VaultChange::RotationBegun {
            key: key.to_string(),
        };
        let mut edit = Edit::begin(&inner, begun)?;
        edit.meta.pending = Some(key);
        edit.commit(&mut inner, self.fingerprints())?;
        inner.opened.as_mut().ok_or(VaultError::Locked)?.pending = Some(fresh);
        if watch(Step::Begun).is_break() {
            return Ok(None);
        }
        self.go_on(&mut inner, watch)
    }

    /// Goes on with a change of the key that was cut short, and forgets the old key when the vault
    /// was opened, and every blob read, without it. To be called after a start; the old key goes
    /// only then.
    ///
    /// # Errors
    /// The vault is locked, or the store or the storage refuses.
    pub fn settle(
        &self,
        watch: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Option<Head>, VaultError> {
        let mut inner = self.lock_inner();
        if inner.opened()?.pending.is_some() {
            return Ok(self.go_on(&mut inner, watch)?.map(|done| done.head));
        }
        let Some(previous) = inner.meta()?.previous else {
            return Ok(None);
        };
        let opened = inner.opened()?;
        opened.store.retain(&[opened.active.id()])?;
        if watch(Step::OldKeyForgotten).is_break() {
            return Ok(None);
        }
        let key = previous.to_string();
        let mut edit = Edit::begin(&inner, VaultChange::OldKeyForgotten { key })?;
        edit.meta.previous = None;
        let head = edit.commit(&mut inner, self.fingerprints())?;
        let _ = watch(Step::Settled);
        Ok(Some(head))
    }

    fn go_on(
        &self,
        inner: &mut Inner,
        watch: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Option<Rotation>, VaultError> {
        let mut last: Option<Stored> = None;
        loop {
            let page = inner.blobs.page(last.as_ref(), BATCH)?;
            let Some(end) = page.last().cloned() else {
                break;
            };
            let rewrapped = rewrap(inner, page)?;
            if rewrapped > 0 && watch(Step::Rewrapped(rewrapped)).is_break() {
                return Ok(None);
            }
            last = Some(end);
        }
        let done = self.activate(inner)?;
        let _ = watch(Step::Activated);
        Ok(Some(done))
    }

    fn activate(&self, inner: &mut Inner) -> Result<Rotation, VaultError> {
        let opened = inner.opened()?;
        let fresh = opened.pending.as_ref().ok_or(VaultError::Locked)?;
        let (key, previous) = (fresh.id(), opened.active.id());
        let done = VaultChange::RotationDone {
            key: key.to_string(),
        };
        let mut edit = Edit::begin(inner, done)?;
        let bound = integrity_bound(&edit.meta.vault, &key);
        edit.meta.integrity =
            seal(fresh.bytes(), &bound, opened.integrity.bytes()).map_err(VaultError::storage)?;
        // They are few: all of them in the commit that makes the new key the key.
        for own in inner.blobs.owned()? {
            edit.owned.push(opened.rewrap_own(&edit.meta.vault, own)?);
        }
        edit.meta.active = key;
        edit.meta.pending = None;
        edit.meta.previous = Some(previous);
        let head = edit.commit(inner, self.fingerprints())?;
        let opened = inner.opened.as_mut().ok_or(VaultError::Locked)?;
        if let Some(fresh) = opened.pending.take() {
            opened.active = fresh;
        }
        Ok(Rotation {
            previous,
            key,
            head,
        })
    }
}

/// Wraps these data keys by the new key, in one commit. The head is the same after it: no
/// generation passes.
fn rewrap(inner: &mut Inner, page: Vec<Stored>) -> Result<usize, VaultError> {
    let opened = inner.opened()?;
    let (old, new) = (
        &opened.active,
        opened.pending.as_ref().ok_or(VaultError::Locked)?,
    );
    let meta = inner.meta()?;
    let mut changed = Vec::new();
    for mut stored in page {
        if stored.sealed.key == new.id() {
            continue;
        }
        let bound = stored.bound(&meta.vault);
        let damaged = || VaultError::damaged(format!("`{}` does not open", stored.secret));
        let data = open_data_key(old.bytes(), &bound, &stored.sealed.wrapped);
        let data = data.map_err(|_| damaged())?;
        stored.sealed.wrapped =
            seal(new.bytes(), &bound, data.as_slice()).map_err(VaultError::storage)?;
        stored.sealed.key = new.id();
        changed.push(stored);
    }
    if changed.is_empty() {
        return Ok(0);
    }
    let writes: Vec<Write<'_>> = changed.iter().map(Write::Rewrap).collect();
    let meta = meta.clone();
    inner.blobs.commit(&meta, &writes)?;
    Ok(changed.len())
}
