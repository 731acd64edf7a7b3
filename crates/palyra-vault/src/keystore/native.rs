//! The key in the system's own store: the Keychain of macOS, the credentials of Windows (DPAPI).
//!
//! These stores are asked by name and not all of them can be searched, so an item of its own says
//! which keys of this vault there are. It is written first: it may name a key that was never made,
//! and never misses one that was.

use std::sync::Arc;

use keyring_core::{CredentialStore, Entry, Error};
use zeroize::Zeroizing;

use super::{KeyStore, KeyStoreKind, away, damaged};
use crate::KeyStoreError;
use crate::key::{Key, KeyId};

const KIND: KeyStoreKind = KeyStoreKind::Native;
const SERVICE: &str = "palyra";

/// The keys of one vault as items of the system's store.
pub(super) struct NativeStore {
    store: Arc<CredentialStore>,
    vault: String,
}

impl NativeStore {
    /// The items of this vault in the store that the system has.
    ///
    /// # Errors
    /// The store is not there.
    #[cfg(any(target_os = "macos", windows))]
    pub(super) fn new(vault: &str) -> Result<Self, KeyStoreError> {
        #[cfg(target_os = "macos")]
        let store = apple_native_keyring_store::keychain::Store::new();
        #[cfg(windows)]
        let store = windows_native_keyring_store::Store::new();
        Ok(Self::of(store.map_err(failed)?, vault))
    }

    fn of(store: Arc<CredentialStore>, vault: &str) -> Self {
        Self {
            store,
            vault: vault.to_owned(),
        }
    }

    fn entry(&self, name: &str) -> Result<Entry, KeyStoreError> {
        self.store.build(SERVICE, name, None).map_err(failed)
    }

    fn key(&self, id: &str) -> Result<Entry, KeyStoreError> {
        self.entry(&format!("{}/{id}", self.vault))
    }

    /// The ids of the keys that there may be.
    fn ids(&self) -> Result<Vec<String>, KeyStoreError> {
        match self.entry(&self.vault)?.get_secret() {
            Err(Error::NoEntry) => Ok(Vec::new()),
            Err(error) => Err(failed(error)),
            Ok(list) => {
                let odd = |_| damaged(KIND, "the list of this vault's keys is none");
                let list = String::from_utf8(list).map_err(odd)?;
                Ok(list.lines().map(str::to_owned).collect())
            }
        }
    }

    fn keep_ids(&self, ids: &[String]) -> Result<(), KeyStoreError> {
        let list = self.entry(&self.vault)?;
        list.set_secret(ids.join("\n").as_bytes()).map_err(failed)
    }
}

fn failed(error: Error) -> KeyStoreError {
    match matches!(error, Error::NoStorageAccess(_)) {
        true => KeyStoreError::Locked(KIND),
        false => away(KIND, &error),
    }
}

impl KeyStore for NativeStore {
    fn kind(&self) -> KeyStoreKind {
        KIND
    }

    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError> {
        let found = match self.key(&id.to_string())?.get_secret() {
            Ok(found) => Zeroizing::new(found),
            Err(Error::NoEntry) => {
                return Err(KeyStoreError::NoSuchKey {
                    kind: KIND,
                    id: *id,
                });
            }
            Err(error) => return Err(failed(error)),
        };
        let odd = || damaged(KIND, "an item of this vault is no key");
        let key = Key::from_hex(&found)
            .ok_or_else(odd)?
            .map_err(|error| away(KIND, &error))?;
        (key.id() == *id).then_some(key).ok_or_else(odd)
    }

    fn make(&self) -> Result<Key, KeyStoreError> {
        let key = Key::generate().map_err(|error| away(KIND, &error))?;
        let id = key.id().to_string();
        let mut ids = self.ids()?;
        ids.push(id.clone());
        self.keep_ids(&ids)?;
        let entry = self.key(&id)?;
        entry.set_secret(key.to_hex().as_bytes()).map_err(failed)?;
        self.load(&key.id())
    }

    fn retain(&self, keep: &[KeyId]) -> Result<(), KeyStoreError> {
        let keep: Vec<String> = keep.iter().map(KeyId::to_string).collect();
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.ids()?.into_iter().partition(|id| keep.contains(id));
        for id in &gone {
            match self.key(id)?.delete_credential() {
                Ok(()) | Err(Error::NoEntry) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        match gone.is_empty() {
            true => Ok(()),
            false => self.keep_ids(&kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<CredentialStore> {
        keyring_core::mock::Store::new().unwrap()
    }

    #[test]
    fn keys_are_made_found_and_forgotten_and_each_vault_has_its_own() {
        let memory = memory();
        let one = NativeStore::of(Arc::clone(&memory), "one");
        let other = NativeStore::of(Arc::clone(&memory), "other");
        let (first, second) = (one.make().unwrap(), one.make().unwrap());
        let others = other.make().unwrap();
        assert_eq!(one.load(&first.id()).unwrap().id(), first.id());
        let missing = other.load(&first.id()).err();
        assert!(matches!(missing, Some(KeyStoreError::NoSuchKey { .. })));

        one.retain(&[second.id()]).unwrap();
        one.retain(&[second.id()]).unwrap();
        let gone = one.load(&first.id()).err();
        assert!(matches!(gone, Some(KeyStoreError::NoSuchKey { .. })));
        assert!(one.load(&second.id()).is_ok() && other.load(&others.id()).is_ok());
    }

    #[test]
    fn an_item_that_is_no_key_and_a_store_that_is_shut_are_told_apart() {
        let store = NativeStore::of(memory(), "one");
        let key = store.make().unwrap();
        let entry = store.key(&key.id().to_string()).unwrap();
        entry.set_secret(b"something else").unwrap();
        let odd = store.load(&key.id()).err();
        assert!(matches!(odd, Some(KeyStoreError::Damaged { .. })));

        let shut = Error::NoStorageAccess("shut".into());
        let mock: &keyring_core::mock::Cred = entry.as_any().downcast_ref().unwrap();
        mock.set_error(shut);
        let locked = store.load(&key.id()).err();
        assert!(matches!(locked, Some(KeyStoreError::Locked(_))));
    }
}
