//! The key in the desktop's Secret Service (GNOME Keyring, KWallet, KeePassXC), over D-Bus.
//!
//! Every question has a deadline: a service that hangs must not hang the daemon. A locked
//! collection is not opened behind a person's back; only [`SecretServiceStore::prompting`] lets the
//! service ask them.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;

use secret_service::blocking::{Collection, SecretService};
use secret_service::{EncryptionType, Error};
use zeroize::Zeroizing;

use super::{KeyStore, KeyStoreKind, away, damaged};
use crate::KeyStoreError;
use crate::key::{Key, KeyId};

const KIND: KeyStoreKind = KeyStoreKind::SecretService;
/// How long the service may take; a person who is asked gets longer.
const PATIENCE: Duration = Duration::from_secs(5);
const PERSONS_PATIENCE: Duration = Duration::from_secs(120);

/// The key as an item of the default collection, found by this vault's id and the key's.
#[derive(Debug)]
pub struct SecretServiceStore {
    vault: String,
    prompts: bool,
}

impl SecretServiceStore {
    /// The items of this vault.
    #[must_use]
    pub fn new(vault: &str) -> Self {
        Self {
            vault: vault.to_owned(),
            prompts: false,
        }
    }

    /// The same, and the service may ask the person at the desktop to unlock it.
    #[must_use]
    pub fn prompting(self) -> Self {
        Self {
            prompts: true,
            ..self
        }
    }

    /// Runs `ask` on a thread of its own, for as long as there is patience: the client blocks, and
    /// its own runtime must not meet ours.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Collection<'_>) -> Result<T, KeyStoreError> + Send + 'static,
    ) -> Result<T, KeyStoreError> {
        let prompts = self.prompts;
        let (answer, answered) = mpsc::sync_channel(1);
        let run = move || {
            let _ = answer.send(with_collection(prompts, ask));
        };
        std::thread::Builder::new()
            .name("secret-service".to_owned())
            .spawn(run)
            .map_err(|error| away(KIND, &error))?;
        let patience = if prompts { PERSONS_PATIENCE } else { PATIENCE };
        answered
            .recv_timeout(patience)
            .unwrap_or(Err(KeyStoreError::Slow(KIND)))
    }
}

fn with_collection<T>(
    prompts: bool,
    ask: impl FnOnce(&Collection<'_>) -> Result<T, KeyStoreError>,
) -> Result<T, KeyStoreError> {
    // Diffie-Hellman: the bus sees no key in the clear.
    let service = SecretService::connect(EncryptionType::Dh).map_err(failed)?;
    let collection = service.get_default_collection().map_err(failed)?;
    if collection.is_locked().map_err(failed)? {
        match prompts {
            true => collection.unlock().map_err(failed)?,
            false => return Err(KeyStoreError::Locked(KIND)),
        }
    }
    ask(&collection)
}

fn failed(error: Error) -> KeyStoreError {
    if matches!(error, Error::Locked | Error::Prompt) {
        return KeyStoreError::Locked(KIND);
    }
    match matches!(error, Error::NoResult) {
        true => away(KIND, &"it has no default collection"),
        false => away(KIND, &error),
    }
}

fn attributes<'a>(vault: &'a str, key: Option<&'a str>) -> HashMap<&'a str, &'a str> {
    let all = [("application", "palyra"), ("vault", vault)];
    all.into_iter().chain(key.map(|id| ("key", id))).collect()
}

fn find(collection: &Collection<'_>, vault: &str, id: &KeyId) -> Result<Key, KeyStoreError> {
    let text = id.to_string();
    let items = collection
        .search_items(attributes(vault, Some(&text)))
        .map_err(failed)?;
    let item = items.first().ok_or(KeyStoreError::NoSuchKey {
        kind: KIND,
        id: *id,
    })?;
    let secret = Zeroizing::new(item.get_secret().map_err(failed)?);
    let odd = || damaged(KIND, "an item of this vault is no key");
    let key = Key::from_hex(&secret)
        .ok_or_else(odd)?
        .map_err(|error| away(KIND, &error))?;
    (key.id() == *id).then_some(key).ok_or_else(odd)
}

impl KeyStore for SecretServiceStore {
    fn kind(&self) -> KeyStoreKind {
        KIND
    }

    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError> {
        let (vault, id) = (self.vault.clone(), *id);
        self.ask(move |collection| find(collection, &vault, &id))
    }

    fn make(&self) -> Result<Key, KeyStoreError> {
        let vault = self.vault.clone();
        self.ask(move |collection| {
            let key = Key::generate().map_err(|error| away(KIND, &error))?;
            let id = key.id().to_string();
            collection
                .create_item(
                    "Palyra vault key",
                    attributes(&vault, Some(&id)),
                    key.to_hex().as_bytes(),
                    true,
                    "text/plain",
                )
                .map_err(failed)?;
            find(collection, &vault, &key.id())
        })
    }

    fn retain(&self, keep: &[KeyId]) -> Result<(), KeyStoreError> {
        let vault = self.vault.clone();
        let keep: Vec<String> = keep.iter().map(KeyId::to_string).collect();
        self.ask(move |collection| {
            let items = collection
                .search_items(attributes(&vault, None))
                .map_err(failed)?;
            for item in items {
                let about = item.get_attributes().map_err(failed)?;
                if about.get("key").is_some_and(|id| !keep.contains(id)) {
                    item.delete().map_err(failed)?;
                }
            }
            Ok(())
        })
    }
}
