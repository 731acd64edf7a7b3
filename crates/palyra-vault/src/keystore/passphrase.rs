//! The key in a file that a passphrase seals: Argon2id makes guesses dear, and the file says how
//! dear, so that it can be made dearer later.

use std::path::PathBuf;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{KeyStore, KeyStoreKind, away, damaged};
use crate::KeyStoreError;
use crate::files::Folder;
use crate::key::{Key, KeyId};
use crate::seal::{Bound, open_key, seal};

const FILE: &str = "vault.passphrase";
const KIND: KeyStoreKind = KeyStoreKind::Passphrase;
/// 64 MiB twice over: about an eighth of a second where this was measured.
pub(crate) const MEMORY: u32 = 64 * 1024;
pub(crate) const PASSES: u32 = 2;
/// A file that asks for more is not ours: it would have the daemon run out of memory.
const MOST_MEMORY: u32 = 1024 * 1024;
const MOST_PASSES: u32 = 64;
/// The fewest characters.
pub(crate) const SHORTEST: usize = 8;

/// A passphrase on its way to the store: it cannot be printed or copied.
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// The key sealed by a passphrase. What the passphrase was turned into is kept in a locked page
/// while the vault is open, for a change of the key; the passphrase itself is not.
pub struct PassphraseStore {
    folder: PathBuf,
    passphrase: Passphrase,
    stretched: Mutex<Option<(Vec<u8>, Key)>>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    kdf: String,
    memory: u32,
    passes: u32,
    salt: String,
    keys: Vec<String>,
}

impl PassphraseStore {
    /// The store of this folder, with the passphrase that opens it.
    #[must_use]
    pub fn new(folder: &std::path::Path, passphrase: Passphrase) -> Self {
        Self {
            folder: folder.to_owned(),
            passphrase,
            stretched: Mutex::default(),
        }
    }

    /// Whether this folder has one.
    ///
    /// # Errors
    /// The folder is not ours alone.
    pub fn exists(folder: &std::path::Path) -> Result<bool, KeyStoreError> {
        let folder = Folder::open(folder).map_err(|error| away(KIND, &error))?;
        let found = folder.check(FILE).map_err(|error| away(KIND, &error))?;
        Ok(found.is_some())
    }

    fn read(&self) -> Result<Option<Kept>, KeyStoreError> {
        let folder = Folder::open(&self.folder).map_err(|error| away(KIND, &error))?;
        let Some(bytes) = folder.read(FILE).map_err(|error| away(KIND, &error))? else {
            return Ok(None);
        };
        let kept: Kept = serde_json::from_slice(&bytes)
            .map_err(|_| damaged(KIND, "`vault.passphrase` cannot be read"))?;
        let sane = is_sane(&kept.kdf, kept.memory, kept.passes);
        sane.then_some(Some(kept)).ok_or_else(|| {
            damaged(
                KIND,
                "`vault.passphrase` asks for another way of opening it",
            )
        })
    }

    fn write(&self, kept: &Kept) -> Result<(), KeyStoreError> {
        let folder = Folder::open(&self.folder).map_err(|error| away(KIND, &error))?;
        let bytes = serde_json::to_vec(kept).map_err(|error| away(KIND, &error))?;
        folder
            .write(FILE, &bytes)
            .map_err(|error| away(KIND, &error))
    }

    /// Runs `with` the key that the passphrase becomes with this salt.
    fn stretched<T>(
        &self,
        kept: &Kept,
        with: impl FnOnce(&Key) -> Result<T, KeyStoreError>,
    ) -> Result<T, KeyStoreError> {
        let salt = decode(&kept.salt)?;
        let mut place = self
            .stretched
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((known, key)) = &*place
            && *known == salt
        {
            return with(key);
        }
        let key = stretch(self.passphrase.text(), &salt, kept.memory, kept.passes)?;
        let done = with(&key);
        *place = Some((salt, key));
        done
    }

    fn opened(&self, kept: &Kept) -> Result<Vec<Key>, KeyStoreError> {
        self.stretched(kept, |stretched| {
            let open = |text: &String| {
                let blob = decode(text)?;
                open_key(stretched.bytes(), &bound(), &blob)
                    .map_err(|_| KeyStoreError::WrongPassphrase)
            };
            kept.keys.iter().map(open).collect()
        })
    }
}

impl KeyStore for PassphraseStore {
    fn kind(&self) -> KeyStoreKind {
        KIND
    }

    fn load(&self, id: &KeyId) -> Result<Key, KeyStoreError> {
        let missing = KeyStoreError::NoSuchKey {
            kind: KIND,
            id: *id,
        };
        let Some(kept) = self.read()? else {
            return Err(missing);
        };
        let found = self.opened(&kept)?.into_iter().find(|key| key.id() == *id);
        found.ok_or(missing)
    }

    fn make(&self) -> Result<Key, KeyStoreError> {
        let mut kept = match self.read()? {
            Some(kept) => {
                // Nobody adds a key under another passphrase.
                self.opened(&kept)?;
                kept
            }
            None if self.passphrase.text().chars().count() < SHORTEST => {
                return Err(KeyStoreError::ShortPassphrase(SHORTEST));
            }
            None => {
                let mut salt = [0; 16];
                getrandom::fill(&mut salt).map_err(|error| away(KIND, &error))?;
                Kept {
                    kdf: "argon2id".to_owned(),
                    memory: MEMORY,
                    passes: PASSES,
                    salt: STANDARD.encode(salt),
                    keys: Vec::new(),
                }
            }
        };
        let fresh = Key::generate().map_err(|error| away(KIND, &error))?;
        let sealed = self.stretched(&kept, |stretched| {
            seal(stretched.bytes(), &bound(), fresh.bytes()).map_err(|error| away(KIND, &error))
        })?;
        kept.keys.push(STANDARD.encode(sealed));
        self.write(&kept)?;
        self.load(&fresh.id())
    }

    fn retain(&self, keep: &[KeyId]) -> Result<(), KeyStoreError> {
        let Some(mut kept) = self.read()? else {
            return Ok(());
        };
        let opened = self.opened(&kept)?;
        let before = kept.keys.len();
        let mut ids = opened.iter().map(Key::id);
        kept.keys
            .retain(|_| ids.next().is_some_and(|id| keep.contains(&id)));
        match kept.keys.len() == before {
            true => Ok(()),
            false => self.write(&kept),
        }
    }
}

/// Whether a file asks for what we do, and for no more than this machine has.
pub(crate) fn is_sane(kdf: &str, memory: u32, passes: u32) -> bool {
    kdf == "argon2id" && (8..=MOST_MEMORY).contains(&memory) && (1..=MOST_PASSES).contains(&passes)
}

fn bound() -> Bound {
    Bound::to(&[b"passphrase"])
}

fn decode(text: &str) -> Result<Vec<u8>, KeyStoreError> {
    STANDARD
        .decode(text)
        .map_err(|_| damaged(KIND, "`vault.passphrase` cannot be read"))
}

/// The key that a passphrase becomes with this salt.
pub(crate) fn stretch(
    text: &str,
    salt: &[u8],
    memory: u32,
    passes: u32,
) -> Result<Key, KeyStoreError> {
    let failed = |error: argon2::Error| away(KIND, &error);
    let params = argon2::Params::new(memory, passes, 1, Some(32)).map_err(failed)?;
    let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut out = Zeroizing::new([0; 32]);
    argon
        .hash_password_into(text.as_bytes(), salt, out.as_mut_slice())
        .map_err(failed)?;
    Key::take(&mut out).map_err(|error| away(KIND, &error))
}
