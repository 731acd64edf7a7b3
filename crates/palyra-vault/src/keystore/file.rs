//! The key in a file with mode 0600. Said plainly: this protects a vault that is copied without its
//! key, and nothing else.

use std::path::PathBuf;

use zeroize::Zeroizing;

use super::{KeyStore, KeyStoreKind, away, damaged};
use crate::KeyStoreError;
use crate::files::Folder;
use crate::key::{Key, KeyId};

const FILE: &str = "vault.key";
const KIND: KeyStoreKind = KeyStoreKind::File;

/// The key in `vault.key`, one line for each.
#[derive(Debug)]
pub struct KeyFile {
    folder: PathBuf,
}

impl KeyFile {
    /// The key file of this folder.
    #[must_use]
    pub fn new(folder: &std::path::Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    fn folder(&self) -> Result<Folder, KeyStoreError> {
        Folder::open(&self.folder).map_err(|error| away(KIND, &error))
    }

    fn keys(&self) -> Result<Vec<Key>, KeyStoreError> {
        let read = self.folder()?.read(FILE);
        let Some(text) = read.map_err(|error| away(KIND, &error))? else {
            return Ok(Vec::new());
        };
        let lines = text.split(|byte| *byte == b'\n');
        lines
            .filter(|line| !line.is_empty())
            .map(|line| match Key::from_hex(line) {
                Some(key) => key.map_err(|error| away(KIND, &error)),
                None => Err(damaged(KIND, "`vault.key` does not hold a key")),
            })
            .collect()
    }

    fn keep(&self, keys: &[&Key]) -> Result<(), KeyStoreError> {
        let mut text = Zeroizing::new(String::with_capacity(keys.len() * 65));
        for key in keys {
            text.push_str(&key.to_hex());
            text.push('\n');
        }
        let written = self.folder()?.write(FILE, text.as_bytes());
        written.map_err(|error| away(KIND, &error))
    }
}

impl KeyStore for KeyFile {
    fn kind(&self) -> KeyStoreKind {
        KIND
    }

    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError> {
        let found = self.keys()?.into_iter().find(|key| key.id() == *id);
        found.ok_or(KeyStoreError::NoSuchKey {
            kind: KIND,
            id: *id,
        })
    }

    fn make(&self) -> Result<Key, KeyStoreError> {
        let fresh = Key::generate().map_err(|error| away(KIND, &error))?;
        let before = self.keys()?;
        let all: Vec<&Key> = before.iter().chain([&fresh]).collect();
        self.keep(&all)?;
        // Read back: a key that was not kept must never wrap anything.
        self.load(&fresh.id())
    }

    fn retain(&self, keep: &[KeyId]) -> Result<(), KeyStoreError> {
        let before = self.keys()?;
        let kept: Vec<&Key> = before
            .iter()
            .filter(|key| keep.contains(&key.id()))
            .collect();
        match kept.len() == before.len() {
            true => Ok(()),
            false => self.keep(&kept),
        }
    }
}
