//! One change of the vault: gathered, signed and committed whole.

use std::sync::{PoisonError, RwLock};

use palyra_core::{SecretRef, SecretValue, Timestamp, VaultChange};
use zeroize::Zeroizing;

use crate::backend::{Latest, Meta, Own, Sealed, Stored, Write};
use crate::error::VaultError;
use crate::fingerprints::Fingerprints;
use crate::head::{Head, add, subtract};
use crate::record::{MOST_VERSIONS, NewSecret};
use crate::seal::seal;
use crate::vault::Inner;

/// One change of the vault, gathered and then committed whole.
pub(crate) struct Edit {
    pub(crate) meta: Meta,
    puts: Vec<Stored>,
    removed: Vec<(SecretRef, u64)>,
    latest: Vec<(SecretRef, Latest)>,
    pub(crate) owned: Vec<Own>,
    /// Values whose fingerprints come and go with it.
    learned: Vec<Zeroizing<Vec<u8>>>,
    forgotten: Vec<Zeroizing<Vec<u8>>>,
}

impl Edit {
    pub(crate) fn begin(inner: &Inner, change: VaultChange) -> Result<Self, VaultError> {
        inner.opened()?;
        let mut meta = inner.meta()?.clone();
        meta.head.generation += 1;
        meta.change = spelled(&change)?;
        Ok(Self {
            meta,
            puts: Vec::new(),
            removed: Vec::new(),
            latest: Vec::new(),
            owned: Vec::new(),
            learned: Vec::new(),
            forgotten: Vec::new(),
        })
    }

    /// A new version of a secret, and the oldest one gone when there are too many.
    pub(crate) fn put(
        &mut self,
        inner: &Inner,
        new: &NewSecret,
        now: Timestamp,
    ) -> Result<(), VaultError> {
        new.check()?;
        let opened = inner.opened()?;
        let before = inner.blobs.latest(&new.secret)?;
        let version = before.map_or(0, |latest| latest.version) + 1;
        // While the key is being changed, what is new is wrapped by the new one already.
        let key = opened.pending.as_ref().unwrap_or(&opened.active);
        let mut stored = Stored {
            secret: new.secret.clone(),
            version,
            created_at: now,
            expires_at: new.expires_at,
            audience: serde_json::to_string(&new.audience).map_err(VaultError::storage)?,
            sealed: Sealed {
                key: key.id(),
                wrapped: Vec::new(),
                value: Vec::new(),
            },
        };
        let bound = stored.bound(&self.meta.vault);
        let mut data = Zeroizing::new([0; 32]);
        getrandom::fill(data.as_mut_slice())
            .map_err(|error| VaultError::storage(std::io::Error::other(error)))?;
        let sealed = |key: &[u8; 32], plain: &[u8]| seal(key, &bound, plain);
        stored.sealed.value = sealed(&data, new.value.expose()).map_err(VaultError::storage)?;
        stored.sealed.wrapped =
            sealed(key.bytes(), data.as_slice()).map_err(VaultError::storage)?;
        add(&mut self.meta.head.sum, &opened.head.version(&stored));
        self.meta.head.versions += 1;
        self.learned
            .push(Zeroizing::new(new.value.expose().to_vec()));
        let latest = Latest {
            version,
            live: true,
        };
        self.latest(inner, &new.secret, before, latest)?;
        if let Some(oldest) = version.checked_sub(MOST_VERSIONS).filter(|old| *old > 0)
            && let Some(stored) = inner.blobs.get(&new.secret, oldest)?
        {
            self.remove(inner, stored)?;
        }
        self.puts.push(stored);
        Ok(())
    }

    /// One of the daemon's own keys, in place of the one of its name.
    pub(crate) fn own(
        &mut self,
        inner: &Inner,
        name: &str,
        value: &SecretValue,
    ) -> Result<(), VaultError> {
        let opened = inner.opened()?;
        if let Some(before) = inner.own(name)? {
            subtract(&mut self.meta.head.sum, &opened.head.own(&before));
        }
        let own = opened.seal_own(&self.meta.vault, name, value)?;
        add(&mut self.meta.head.sum, &opened.head.own(&own));
        self.owned.push(own);
        Ok(())
    }

    pub(crate) fn remove(&mut self, inner: &Inner, stored: Stored) -> Result<(), VaultError> {
        let opened = inner.opened()?;
        subtract(&mut self.meta.head.sum, &opened.head.version(&stored));
        self.meta.head.versions = self.meta.head.versions.saturating_sub(1);
        self.forgotten.push(opened.open(&self.meta.vault, &stored)?);
        self.removed.push((stored.secret, stored.version));
        Ok(())
    }

    pub(crate) fn latest(
        &mut self,
        inner: &Inner,
        secret: &SecretRef,
        before: Option<Latest>,
        after: Latest,
    ) -> Result<(), VaultError> {
        let head = &inner.opened()?.head;
        if let Some(before) = before {
            subtract(&mut self.meta.head.sum, &head.latest(secret, before));
        }
        add(&mut self.meta.head.sum, &head.latest(secret, after));
        self.latest.push((secret.clone(), after));
        Ok(())
    }

    pub(crate) fn commit(
        mut self,
        inner: &mut Inner,
        fingerprints: &RwLock<Option<Fingerprints>>,
    ) -> Result<Head, VaultError> {
        inner.opened()?.head.sign(&mut self.meta);
        let puts = self.puts.iter().map(Write::Put);
        let removed = self.removed.iter();
        let removed = removed.map(|(secret, version)| Write::Remove(secret, *version));
        let latest = self.latest.iter();
        let latest = latest.map(|(secret, latest)| Write::Latest(secret, *latest));
        let owned = self.owned.iter().map(Write::Own);
        let writes: Vec<Write<'_>> = puts.chain(removed).chain(latest).chain(owned).collect();
        if let Err(error) = inner.blobs.commit(&self.meta, &writes) {
            // A commit that failed may still have happened: what is there now counts.
            if let Ok(Some(meta)) = inner.blobs.meta() {
                inner.meta = Some(meta);
            }
            return Err(error);
        }
        let mut known = fingerprints.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_mut() {
            self.learned.iter().for_each(|value| known.add(value));
            self.forgotten.iter().for_each(|value| known.remove(value));
        }
        let head = self.meta.head;
        inner.meta = Some(self.meta);
        Ok(head)
    }
}

pub(crate) fn spelled(change: &VaultChange) -> Result<String, VaultError> {
    serde_json::to_string(change).map_err(VaultError::storage)
}
