//! The daemon's own keys: sealed as secrets are, each under a data key of its own, and secrets to
//! nobody. No [`SecretRef`](palyra_core::SecretRef) spells one, so none is listed, asked for or
//! injected; only the daemon that opened the vault has them.

use palyra_core::{SecretValue, VaultChange};
use zeroize::Zeroizing;

use crate::backend::{Own, Sealed};
use crate::edit::Edit;
use crate::error::VaultError;
use crate::head::Head;
use crate::seal::{Bound, open, open_data_key, seal};
use crate::vault::{Inner, Opened, Vault};

impl Vault {
    /// A fresh key for something that is not kept here yet.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn random_key() -> Result<SecretValue, VaultError> {
        let mut bytes = vec![0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|error| VaultError::storage(std::io::Error::other(error)))?;
        Ok(SecretValue::new(bytes))
    }

    /// One of the daemon's own keys; `None` when the vault was never given it.
    ///
    /// # Errors
    /// The vault is locked, or what it holds does not open.
    pub fn own(&self, name: &str) -> Result<Option<SecretValue>, VaultError> {
        let inner = self.lock_inner();
        let opened = inner.opened()?;
        let Some(own) = inner.own(name)? else {
            return Ok(None);
        };
        let value = opened.open_own(&inner.meta()?.vault, &own)?;
        Ok(Some(SecretValue::new(value.to_vec())))
    }

    /// Keeps these from now on, each in place of the one of its name: all of them or none.
    ///
    /// # Errors
    /// The vault is locked, or the storage refuses.
    pub fn keep_own(&self, keys: &[(&str, SecretValue)]) -> Result<Head, VaultError> {
        let mut inner = self.lock_inner();
        let mut edit = Edit::begin(&inner, kept(keys.iter().map(|(name, _)| *name)))?;
        for (name, key) in keys {
            edit.own(&inner, name, key)?;
        }
        edit.commit(&mut inner, self.fingerprints())
    }
}

/// The change that keeps these.
pub fn kept<'a>(names: impl Iterator<Item = &'a str>) -> VaultChange {
    VaultChange::KeysKept {
        names: names.map(str::to_owned).collect(),
    }
}

impl Inner {
    pub(crate) fn own(&self, name: &str) -> Result<Option<Own>, VaultError> {
        let found = self.blobs.owned()?;
        Ok(found.into_iter().find(|own| own.name == name))
    }
}

impl Opened {
    pub(crate) fn open_own(
        &self,
        vault: &[u8; 16],
        own: &Own,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let (data, bound) = self.data_key_of(vault, own)?;
        open(&data, &bound, &own.sealed.value).map_err(|_| damaged(own))
    }

    fn data_key_of(
        &self,
        vault: &[u8; 16],
        own: &Own,
    ) -> Result<(Zeroizing<[u8; 32]>, Bound), VaultError> {
        let key = self.key(&own.sealed.key).ok_or_else(|| damaged(own))?;
        let bound = bound(vault, &own.name);
        let data = open_data_key(key.bytes(), &bound, &own.sealed.wrapped);
        Ok((data.map_err(|_| damaged(own))?, bound))
    }

    /// The same, sealed under the key that takes over.
    pub(crate) fn rewrap_own(&self, vault: &[u8; 16], mut own: Own) -> Result<Own, VaultError> {
        let fresh = self.pending.as_ref().ok_or(VaultError::Locked)?;
        if own.sealed.key == fresh.id() {
            return Ok(own);
        }
        let (data, bound) = self.data_key_of(vault, &own)?;
        own.sealed.wrapped =
            seal(fresh.bytes(), &bound, data.as_slice()).map_err(VaultError::storage)?;
        own.sealed.key = fresh.id();
        Ok(own)
    }

    pub(crate) fn seal_own(
        &self,
        vault: &[u8; 16],
        name: &str,
        value: &SecretValue,
    ) -> Result<Own, VaultError> {
        let key = self.pending.as_ref().unwrap_or(&self.active);
        let bound = bound(vault, name);
        let mut data = Zeroizing::new([0; 32]);
        getrandom::fill(data.as_mut_slice())
            .map_err(|error| VaultError::storage(std::io::Error::other(error)))?;
        let sealed =
            |key: &[u8; 32], plain: &[u8]| seal(key, &bound, plain).map_err(VaultError::storage);
        Ok(Own {
            name: name.to_owned(),
            sealed: Sealed {
                key: key.id(),
                wrapped: sealed(key.bytes(), data.as_slice())?,
                value: sealed(&data, value.expose())?,
            },
        })
    }
}

/// Another first word than that of secrets: neither opens in place of the other.
fn bound(vault: &[u8; 16], name: &str) -> Bound {
    Bound::to(&[vault, b"own", name.as_bytes()])
}

fn damaged(own: &Own) -> VaultError {
    VaultError::damaged(format!("the daemon's own key `{}` does not open", own.name))
}
