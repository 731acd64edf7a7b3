//! The daemon's own keys: the one that signs the journal, the one that seals what its entries commit
//! to, and the one of call digests. They are sealed in the vault. Earlier versions had them in files
//! beside it; those are moved, so that a daemon that is killed at any step has each key once:
//!
//! 1. all of them are sealed in the vault, in one commit;
//! 2. the journal is opened with what the vault gives back;
//! 3. at the next opening, when the vault had them from the beginning, the files are overwritten and
//!    removed.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use palyra_core::{DigestKey, SecretValue, VaultChange};
use palyra_journal::{BlobKey, JournalKeys, JournalStore};
use palyra_vault::{Contents, Head, Vault};

use super::keeper::refused;
use crate::error::{Refusal, RefusalKind};

pub(crate) const SIGNING: &str = "journal.signing";
pub(crate) const BLOBS: &str = "journal.blobs";
pub(crate) const DIGESTS: &str = "call.digests";
pub(crate) const ALL: [&str; 3] = [SIGNING, BLOBS, DIGESTS];

/// No key file is longer.
const MOST_BYTES: usize = 4096;

/// Where earlier versions kept the daemon's own keys.
#[derive(Debug, Clone)]
pub struct KeyFiles {
    /// The one that signs the journal.
    pub signing: PathBuf,
    /// The one that seals what its entries commit to.
    pub blobs: PathBuf,
    /// The one of call digests.
    pub digests: PathBuf,
}

impl KeyFiles {
    fn named(&self) -> [(&'static str, &Path); 3] {
        [
            (SIGNING, self.signing.as_path()),
            (BLOBS, self.blobs.as_path()),
            (DIGESTS, self.digests.as_path()),
        ]
    }
}

/// How they are to be opened.
pub(crate) struct Wanted<'a> {
    pub(crate) files: Option<&'a KeyFiles>,
    /// Whether a person goes on without those that are lost or are somebody else's.
    pub(crate) anew: bool,
    /// Whether another key is to sign from now on.
    pub(crate) rotate: bool,
}

/// The keys, and what became of the vault to have them.
pub(crate) struct Opened {
    pub(crate) journal: JournalKeys,
    pub(crate) digests: DigestKey,
    /// What the journal has to be told once it takes entries.
    pub(crate) changed: Option<(Head, VaultChange)>,
    /// The vault had all of them: the files are of no use any more.
    pub(crate) settled: bool,
}

/// Finds the keys in an open vault, moves them there, or makes them where there were none yet.
pub(crate) fn open(
    vault: &Vault,
    journal: &JournalStore,
    wanted: &Wanted<'_>,
) -> Result<Opened, Refusal> {
    let mut found = Vec::new();
    let mut kept = Vec::new();
    for name in ALL {
        let held = vault.own(name).map_err(refused)?;
        let in_vault = held.is_some();
        let key = match (held, wanted.files) {
            (None, Some(files)) => from_file(files, name)?,
            (held, _) => held,
        };
        kept.push(in_vault);
        found.push(key);
    }
    let [signing, blobs, digests]: [Option<SecretValue>; 3] =
        found.try_into().map_err(|_| lost("keys"))?;
    let sealed = journal.has_sealed_blobs()?;
    let blobs = match blobs {
        Some(key) => key,
        None if sealed && !wanted.anew => return Err(lost(BLOBS)),
        None => random()?,
    };
    let digests = digests.map_or_else(random, Ok)?;
    let signer = journal.key();
    let mut keys = match &signing {
        Some(text) => signing_keys(text, &blobs)?,
        None if signer.is_some() && !wanted.anew => return Err(lost(SIGNING)),
        None => JournalKeys::generate()
            .map_err(no_randomness)?
            .sealing_with(blob_key(&blobs)?),
    };
    if let Some(signer) = &signer
        && !keys.follow(signer)
        && !wanted.anew
    {
        return Err(foreign());
    }
    if wanted.rotate {
        keys = keys.rotated().map_err(no_randomness)?;
    }
    let digest_key = DigestKey::from_bytes(bytes(&digests, DIGESTS)?);
    let settled = kept.iter().all(|kept| *kept) && !wanted.rotate;
    let changed = match settled {
        true => None,
        false => {
            let text = SecretValue::new(keys.to_text().into_bytes());
            let all = [(SIGNING, text), (BLOBS, blobs), (DIGESTS, digests)];
            let head = vault.keep_own(&all).map_err(refused)?;
            Some((head, palyra_vault::kept(ALL.into_iter())))
        }
    };
    Ok(Opened {
        journal: keys,
        digests: digest_key,
        changed,
        settled,
    })
}

/// Forgets the key before the one that signs, once the journal recorded that it was replaced.
pub(crate) fn forget_previous(vault: &Vault) -> Result<Option<(Head, VaultChange)>, Refusal> {
    let (Some(signing), Some(blobs)) = (
        vault.own(SIGNING).map_err(refused)?,
        vault.own(BLOBS).map_err(refused)?,
    ) else {
        return Ok(None);
    };
    let Some(alone) = signing_keys(&signing, &blobs)?.without_previous() else {
        return Ok(None);
    };
    let text = SecretValue::new(alone.to_text().into_bytes());
    let head = vault.keep_own(&[(SIGNING, text)]).map_err(refused)?;
    Ok(Some((head, palyra_vault::kept([SIGNING].into_iter()))))
}

/// Which keys of a backup the vault takes: all of them, if the journal waits for just these. A
/// journal that goes on keeps its own.
pub(crate) fn missing(
    journal: &JournalStore,
    contents: &Contents,
) -> Result<Vec<&'static str>, Refusal> {
    if !journal.is_locked() {
        return Ok(Vec::new());
    }
    let (Some(signing), Some(blobs)) = (contents.own(SIGNING), contents.own(BLOBS)) else {
        return Ok(Vec::new());
    };
    let keys = signing_keys(signing, blobs)?;
    match journal.key().is_none_or(|signer| keys.follow(&signer)) {
        true => Ok(ALL
            .into_iter()
            .filter(|name| contents.own(name).is_some())
            .collect()),
        false => Ok(Vec::new()),
    }
}

/// Overwrites and removes the files whose keys the vault holds. One that holds another key is left
/// for a person to look at.
pub(crate) fn wipe(vault: &Vault, files: &KeyFiles) -> Result<(), Refusal> {
    for (name, path) in files.named() {
        let Some(in_file) = read(path)? else { continue };
        let held = vault.own(name).map_err(refused)?;
        // One that was overwritten, and not removed any more.
        let wiped = in_file.expose().iter().all(|byte| *byte == 0);
        if !wiped && held.is_none_or(|held| held.expose() != in_file.expose()) {
            tracing::warn!(file = %path.display(), "is another key than the one in the vault, and of no use; remove it");
            continue;
        }
        match remove(path, in_file.expose().len()) {
            Ok(()) => tracing::info!(file = %path.display(), "removed: the key is in the vault"),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "holds a key that is in the vault, and cannot be removed");
            }
        }
    }
    Ok(())
}

/// The files that are still there.
pub(crate) fn left(files: &KeyFiles) -> Vec<PathBuf> {
    let named = files.named().into_iter().map(|(_, path)| path);
    let there = named.filter(|path| path.symlink_metadata().is_ok());
    there.map(Path::to_owned).collect()
}

fn remove(path: &Path, length: usize) -> std::io::Result<()> {
    if !path.symlink_metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    let mut file = File::options().write(true).open(path)?;
    // The best that can be done from here; a disk may keep old blocks all the same.
    file.write_all(&vec![0; length])?;
    file.sync_all()?;
    std::fs::remove_file(path)?;
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn from_file(files: &KeyFiles, name: &'static str) -> Result<Option<SecretValue>, Refusal> {
    let named = files.named().into_iter().find(|(own, _)| *own == name);
    let Some((_, path)) = named else {
        return Ok(None);
    };
    let Some(key) = read(path)? else {
        return Ok(None);
    };
    let whole = match name {
        // Looked at with the one for blobs, later; here it must be what it was written as.
        SIGNING => signing_keys(&key, &SecretValue::new(vec![0; 32])).is_ok(),
        _ => key.expose().len() == 32,
    };
    whole.then_some(Some(key)).ok_or_else(|| {
        Refusal::new(
            RefusalKind::Unavailable,
            "journal_key_damaged",
            format!("`{}` does not hold a key", path.display()),
            "restore it from a backup, then `palyra vault unlock`",
        )
    })
}

fn read(path: &Path) -> Result<Option<SecretValue>, Refusal> {
    let read = || -> std::io::Result<SecretValue> {
        let file = File::open(path)?;
        let mut bytes = Vec::with_capacity(MOST_BYTES + 1);
        file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(SecretValue::new(bytes))
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Refusal::new(
            RefusalKind::Unavailable,
            "journal_key_unreadable",
            format!("`{}` cannot be read: {error}", path.display()),
            "make it readable for the daemon, then `palyra vault unlock`",
        )),
    }
}

fn signing_keys(text: &SecretValue, blobs: &SecretValue) -> Result<JournalKeys, Refusal> {
    let text = std::str::from_utf8(text.expose()).ok();
    let keys = text.and_then(|text| JournalKeys::from_text(text, blob_key(blobs).ok()?).ok());
    keys.ok_or_else(|| damaged(SIGNING))
}

fn blob_key(key: &SecretValue) -> Result<BlobKey, Refusal> {
    Ok(BlobKey::from_bytes(&bytes(key, BLOBS)?))
}

fn bytes(key: &SecretValue, name: &str) -> Result<[u8; 32], Refusal> {
    key.expose().try_into().map_err(|_| damaged(name))
}

fn random() -> Result<SecretValue, Refusal> {
    Vault::random_key().map_err(refused)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn no_randomness(error: std::io::Error) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "no_randomness",
        format!("the operating system gives no random bytes: {error}"),
        "see the daemon's log, then `palyra vault unlock`",
    )
}

fn damaged(name: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "journal_key_damaged",
        format!("what the vault holds as `{name}` is no key"),
        "put `vault.db` back from a backup, then `palyra vault unlock`",
    )
}

fn lost(name: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "journal_key_lost",
        format!("the journal has entries, and its key `{name}` is nowhere"),
        "bring it back with `palyra vault import FILE`, or go on without it for good with `palyra \
         vault unlock --new-journal-keys`",
    )
}

fn foreign() -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "journal_key_foreign",
        "the key here is not the one that signed this journal, and that one does not vouch for it",
        "put back the vault that belongs to this journal, or go on with this key with `palyra vault \
         unlock --new-journal-keys`",
    )
}
