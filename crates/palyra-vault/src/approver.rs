//! The key that signs what a person decides: sealed by a passphrase of its own, in a file beside the
//! vault. Who has only the file, or only the vault, signs nothing.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use palyra_core::{ApproverKey, ApproverSignature, Statement};

use crate::KeyStoreError;
use crate::files::Folder;
use crate::key::Key;
use crate::keystore::passphrase::{MEMORY, PASSES, SHORTEST, is_sane, stretch};
use crate::keystore::{KeyStoreKind, Passphrase, away, damaged};
use crate::seal::{Bound, open_key, seal};

const FILE: &str = "presence.key";
const KIND: KeyStoreKind = KeyStoreKind::Passphrase;

/// A person's key while it can be used. Its bytes lie in a locked page and cannot be printed or
/// copied.
pub struct ApproverSigner(Key);

impl ApproverSigner {
    /// Its public half.
    ///
    /// # Errors
    /// It is no key that signatures can be checked with.
    pub fn key(&self) -> Result<ApproverKey, KeyStoreError> {
        let public = self.signing().verifying_key().to_bytes();
        ApproverKey::from_bytes(public).ok_or_else(|| damaged(KIND, "it is no key that signs"))
    }

    /// Signs what is stated.
    #[must_use]
    pub fn sign(&self, statement: &Statement<'_>) -> ApproverSignature {
        let signature = self.signing().sign(&statement.bytes());
        ApproverSignature::from_bytes(signature.to_bytes())
    }

    /// Overwritten when it goes, which is at once.
    fn signing(&self) -> SigningKey {
        SigningKey::from_bytes(self.0.bytes())
    }
}

/// The file with the sealed key.
#[derive(Debug, Clone)]
pub struct ApproverStore {
    folder: PathBuf,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    kdf: String,
    memory: u32,
    passes: u32,
    salt: String,
    key: String,
}

impl ApproverStore {
    /// The one in this folder, which is ours alone.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// A fresh key under this passphrase, in place of whatever was there.
    ///
    /// # Errors
    /// The passphrase is too short, or the file cannot be written.
    pub fn make(&self, passphrase: &Passphrase) -> Result<ApproverSigner, KeyStoreError> {
        let fresh = Key::generate().map_err(|error| away(KIND, &error))?;
        self.keep(&ApproverSigner(fresh), passphrase)?;
        self.open(passphrase)
    }

    /// The same key under another passphrase.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn keep(
        &self,
        signer: &ApproverSigner,
        passphrase: &Passphrase,
    ) -> Result<(), KeyStoreError> {
        if passphrase.text().chars().count() < SHORTEST {
            return Err(KeyStoreError::ShortPassphrase(SHORTEST));
        }
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(|error| away(KIND, &error))?;
        let stretched = stretch(passphrase.text(), &salt, MEMORY, PASSES)?;
        let sealed = seal(stretched.bytes(), &bound(), signer.0.bytes());
        let sealed = sealed.map_err(|error| away(KIND, &error))?;
        let kept = Kept {
            kdf: "argon2id".to_owned(),
            memory: MEMORY,
            passes: PASSES,
            salt: STANDARD.encode(salt),
            key: STANDARD.encode(sealed),
        };
        let bytes = serde_json::to_vec(&kept).map_err(|error| away(KIND, &error))?;
        let folder = Folder::open(&self.folder).map_err(|error| away(KIND, &error))?;
        folder
            .write(FILE, &bytes)
            .map_err(|error| away(KIND, &error))
    }

    /// The key, by its passphrase.
    ///
    /// # Errors
    /// The passphrase is wrong, or there is no such file, or it is damaged.
    pub fn open(&self, passphrase: &Passphrase) -> Result<ApproverSigner, KeyStoreError> {
        let folder = Folder::open(&self.folder).map_err(|error| away(KIND, &error))?;
        let read = folder.read(FILE).map_err(|error| away(KIND, &error))?;
        let bytes = read.ok_or_else(|| away(KIND, &format!("`{FILE}` is gone")))?;
        let unreadable = || damaged(KIND, "`presence.key` cannot be read");
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
        if !is_sane(&kept.kdf, kept.memory, kept.passes) {
            return Err(damaged(
                KIND,
                "`presence.key` asks for another way of opening it",
            ));
        }
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| unreadable());
        let (salt, sealed) = (decode(&kept.salt)?, decode(&kept.key)?);
        let stretched = stretch(passphrase.text(), &salt, kept.memory, kept.passes)?;
        let opened = open_key(stretched.bytes(), &bound(), &sealed);
        opened
            .map(ApproverSigner)
            .map_err(|_| KeyStoreError::WrongPassphrase)
    }
}

fn bound() -> Bound {
    Bound::to(&[b"approver"])
}
