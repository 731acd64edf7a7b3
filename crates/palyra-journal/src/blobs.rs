//! Blobs as they lie in the file: sealed with a key of their own.
//!
//! ```text
//! sealed  0x01, then XChaCha20-Poly1305 over (salt, bytes)
//!         nonce       the first 24 bytes of the commitment
//!         associated  the kind and the commitment
//! ```
//!
//! The commitment is a hash over a fresh salt and the content, so no nonce is used for two
//! contents, and sealing the same blob twice gives the same bytes. The salt is sealed as well:
//! with the salt in hand, somebody could guess a short content from its commitment.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use palyra_core::{Blob, BlobKind, Commitment, Digest};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as NoSuchKind, StrDeserializer};

use crate::batch::Committed;
use crate::error::JournalError;
use crate::schema;

/// How the rest is sealed.
const VERSION: u8 = 1;
const SALT: usize = 16;
const TAG: usize = 16;

/// The largest blob that is taken; far beyond any output cap and far below SQLite's own limit.
const MAX_BYTES: usize = 256 << 20;

/// The key that seals blobs. It cannot be printed, copied or serialised.
pub struct BlobKey {
    cipher: XChaCha20Poly1305,
    /// For keys of appends, which must not be guessed from records either.
    once: Digest,
    fingerprint: String,
}

/// A blob as it is stored.
pub(crate) struct Sealed {
    pub(crate) commitment: Commitment,
    pub(crate) kind: BlobKind,
    pub(crate) bytes: Vec<u8>,
}

/// What is left of a blob.
#[derive(Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is there, and is what was committed to.
    Whole(Blob),
    /// It was erased.
    Erased,
    /// It is there and does not open: somebody changed it, or it was sealed with another key.
    Unreadable,
    /// There never was one.
    Unknown,
}

impl BlobKey {
    /// The key from its stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let digest = Digest::of_parts("palyra blob key v1", &[bytes]).to_string();
        Self {
            cipher: XChaCha20Poly1305::new(bytes.into()),
            once: Digest::of_parts("palyra append once key v1", &[bytes]),
            fingerprint: digest.chars().skip("sha256:".len()).take(16).collect(),
        }
    }

    /// A fresh key, which nobody can store.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Tells keys apart without telling anything about them.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The key of an append as it is recorded.
    pub(crate) fn once(&self, key: &str) -> Digest {
        let parts: [&[u8]; 2] = [self.once.as_bytes(), key.as_bytes()];
        Digest::of_parts("palyra append once v1", &parts)
    }

    /// Seals a blob. This is for the appender's thread: the writer's time is everybody's.
    pub(crate) fn seal(&self, committed: &Committed) -> Result<Sealed, JournalError> {
        let Committed { commitment, blob } = committed;
        let too_large = || JournalError::TooLarge {
            bytes: blob.bytes.len(),
            limit: MAX_BYTES,
        };
        if blob.bytes.len() > MAX_BYTES {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(1 + SALT + blob.bytes.len() + TAG);
        bytes.push(VERSION);
        bytes.extend_from_slice(&blob.salt);
        bytes.extend_from_slice(&blob.bytes);
        let kind = blob.kind.as_str();
        let (_, content) = bytes.split_at_mut(1);
        let tag = self
            .cipher
            .encrypt_inout_detached(
                &nonce(commitment),
                &associated(kind, commitment),
                InOutBuf::from(content),
            )
            .map_err(|_| too_large())?;
        bytes.extend_from_slice(&tag);
        Ok(Sealed {
            commitment: *commitment,
            kind: blob.kind,
            bytes,
        })
    }

    /// Opens what was sealed, if it is what was committed to.
    pub(crate) fn open(&self, commitment: &Commitment, kind: &str, sealed: &[u8]) -> Option<Blob> {
        let content = sealed.strip_prefix(&[VERSION])?;
        let (content, tag) = content.split_last_chunk::<TAG>()?;
        let mut content = content.to_vec();
        self.cipher
            .decrypt_inout_detached(
                &nonce(commitment),
                &associated(kind, commitment),
                InOutBuf::from(content.as_mut_slice()),
                &Tag::from(*tag),
            )
            .ok()?;
        let (salt, bytes) = content.split_first_chunk::<SALT>()?;
        let blob = Blob {
            kind: kind_of(kind)?,
            salt: *salt,
            bytes: bytes.to_vec(),
        };
        (blob.commitment() == *commitment).then_some(blob)
    }
}

impl std::fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobKey").finish_non_exhaustive()
    }
}

fn nonce(commitment: &Commitment) -> XNonce {
    let mut nonce = XNonce::default();
    for (to, from) in nonce.iter_mut().zip(commitment.0.as_bytes()) {
        *to = *from;
    }
    nonce
}

fn associated(kind: &str, commitment: &Commitment) -> Vec<u8> {
    let domain: &[u8] = b"palyra sealed blob v1\0";
    // The commitment has one length, so no two pairs run together.
    [domain, commitment.0.as_bytes(), kind.as_bytes()].concat()
}

fn kind_of(kind: &str) -> Option<BlobKind> {
    let kind: StrDeserializer<'_, NoSuchKind> = kind.into_deserializer();
    BlobKind::deserialize(kind).ok()
}

/// Stores a blob, unless it is there.
pub(crate) fn insert(connection: &Connection, sealed: &Sealed) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "INSERT INTO blobs (commitment, kind, sealed) VALUES (?1, ?2, ?3)
             ON CONFLICT (commitment) DO NOTHING",
        )?
        .execute(params![
            sealed.commitment.0.as_bytes(),
            sealed.kind.as_str(),
            sealed.bytes
        ])
        .map(drop)
}

/// Empties a blob for good; what is left says that there was one.
pub(crate) fn erase(connection: &Connection, blob: &Commitment) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached("UPDATE blobs SET sealed = NULL WHERE commitment = ?1")?
        .execute([blob.0.as_bytes().as_slice()])
        .map(drop)
}

/// Whether any blob is sealed; those of earlier versions are not.
pub(crate) fn any_sealed(connection: &Connection) -> Result<bool, JournalError> {
    if schema::has_open_blobs(connection)? {
        return Ok(false);
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM blobs WHERE sealed IS NOT NULL)";
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

/// One blob, as far as it is kept. Without the key only what is gone can be told.
pub(crate) fn read(
    connection: &Connection,
    key: Option<&BlobKey>,
    commitment: &Commitment,
) -> Result<Kept, JournalError> {
    let stored: Option<(String, Option<Vec<u8>>)> = connection
        .prepare_cached("SELECT kind, sealed FROM blobs WHERE commitment = ?1")?
        .query_row([commitment.0.as_bytes().as_slice()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(match stored {
        None => Kept::Unknown,
        Some((_, None)) => Kept::Erased,
        Some((kind, Some(sealed))) => key
            .ok_or(JournalError::Keyless)?
            .open(commitment, &kind, &sealed)
            .map_or(Kept::Unreadable, Kept::Whole),
    })
}

/// Says so when the key is not the one that sealed the newest blob.
pub(crate) fn warn_of_another_key(
    connection: &Connection,
    key: &BlobKey,
) -> Result<(), JournalError> {
    let newest: Option<(Vec<u8>, String, Vec<u8>)> = connection
        .query_row(
            "SELECT commitment, kind, sealed FROM blobs
             WHERE sealed IS NOT NULL ORDER BY id DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((commitment, kind, sealed)) = newest else {
        return Ok(());
    };
    let opens =
        commitment_of(&commitment).is_some_and(|it| key.open(&it, &kind, &sealed).is_some());
    if !opens {
        tracing::warn!(
            "arguments and output of the past do not open: the key is another one than they were \
             sealed with; restore it with `palyra vault import`, or erase them"
        );
    }
    Ok(())
}

/// The commitment that these bytes are.
pub(crate) fn commitment_of(bytes: &[u8]) -> Option<Commitment> {
    Some(Commitment(Digest::from_bytes(bytes.try_into().ok()?)))
}

/// Seals what an earlier version left open. It is done whole, when the file is opened: as long as
/// one argument lies there in the clear, the promise is not kept.
pub(crate) fn upgrade(connection: &mut Connection, key: &BlobKey) -> Result<(), JournalError> {
    if !schema::has_open_blobs(connection)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "DROP TRIGGER blobs_are_never_changed; ALTER TABLE blobs RENAME TO open_blobs;",
    )?;
    schema::add_sealed_blobs(&transaction)?;
    let mut statement = transaction
        .prepare("SELECT id, commitment, kind, salt, bytes FROM open_blobs ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let damaged = || JournalError::corrupt(format!("blob {id} makes no sense"));
        let filed: Vec<u8> = row.get(1)?;
        let (kind, salt): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let blob = Blob {
            kind: kind_of(&kind).ok_or_else(damaged)?,
            salt: salt.try_into().map_err(|_| damaged())?,
            bytes: row.get(4)?,
        };
        // Under what it is filed, also if it is something else: sealing forgives nothing.
        let committed = Committed {
            commitment: commitment_of(&filed).ok_or_else(damaged)?,
            blob: std::sync::Arc::new(blob),
        };
        let sealed = key.seal(&committed)?;
        transaction
            .prepare_cached(
                "INSERT INTO blobs (id, commitment, kind, sealed) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![id, filed, kind, sealed.bytes])?;
    }
    drop(rows);
    drop(statement);
    transaction.execute_batch("DROP TABLE open_blobs;")?;
    schema::blobs_are_sealed(&transaction)?;
    transaction.commit()?;
    // Dropped pages are zeroed (`secure_delete`); the log still has them as they were.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> BlobKey {
        BlobKey::from_bytes(&[byte; 32])
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_nothing_else() {
        let blob = Blob::new(BlobKind::Arguments, b"a secret".to_vec());
        let committed = Committed::from(blob.clone());
        let sealed = key(1).seal(&committed).unwrap();
        let opened =
            |key: &BlobKey, kind: &str, bytes: &[u8]| key.open(&committed.commitment, kind, bytes);
        assert!(opened(&key(1), "arguments", &sealed.bytes) == Some(blob));
        assert!(opened(&key(2), "arguments", &sealed.bytes).is_none());
        assert!(opened(&key(1), "output", &sealed.bytes).is_none());
        for place in 0..sealed.bytes.len() {
            let mut changed = sealed.bytes.clone();
            changed[place] ^= 1;
            assert!(opened(&key(1), "arguments", &changed).is_none(), "{place}");
        }
        for cut in 0..sealed.bytes.len() {
            assert!(opened(&key(1), "arguments", &sealed.bytes[..cut]).is_none());
        }
    }

    #[test]
    fn neither_content_nor_salt_is_seen_and_each_blob_is_sealed_its_own_way() {
        let seal = |bytes: &[u8]| {
            let committed = Committed::from(Blob::new(BlobKind::Output, bytes.to_vec()));
            let sealed = key(1).seal(&committed).unwrap();
            (committed, sealed.bytes)
        };
        let shows = |sealed: &[u8], what: &[u8]| sealed.windows(what.len()).any(|w| w == what);
        let (committed, sealed) = seal(b"swordfish");
        assert!(!shows(&sealed, b"swordfish"));
        assert!(!shows(&sealed, &committed.blob.salt));
        // The same content again: other bytes, so that equal outputs cannot be told.
        let (_, again) = seal(b"swordfish");
        assert_ne!(sealed.get(1..), again.get(1..));
        assert_eq!(key(1).seal(&committed).unwrap().bytes, sealed);
    }

    #[test]
    fn a_key_is_told_apart_and_never_shown() {
        assert_ne!(key(1).fingerprint(), key(2).fingerprint());
        assert_eq!(key(1).fingerprint().len(), 16);
        assert_eq!(format!("{:?}", key(1)), "BlobKey { .. }");
    }
}
