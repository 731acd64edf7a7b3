//! The keys that sign for a journal, and how one takes over from another.

use std::sync::Arc;

use crate::blobs::BlobKey;
use crate::proof::{Hash, NotAKey, NotANote, Note, SignerKey, VerifierKey};

/// The key that signs a journal's checkpoints, the one before it while that is still needed to
/// vouch for its successor, and the one that seals blobs. It cannot be printed, copied or serialised by accident.
pub struct JournalKeys {
    current: SignerKey,
    previous: Option<SignerKey>,
    blobs: Arc<BlobKey>,
}

impl JournalKeys {
    /// Fresh keys. The one for blobs is nowhere else: who stores these takes one of their own
    /// ([`sealing_with`](Self::sealing_with)).
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> std::io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
        let current = SignerKey::from_seed(&new_origin()?, &seed).map_err(std::io::Error::other)?;
        Ok(Self {
            current,
            previous: None,
            blobs: Arc::new(BlobKey::generate()?),
        })
    }

    /// The same, with this key for blobs.
    #[must_use]
    pub fn sealing_with(self, blobs: BlobKey) -> Self {
        Self {
            blobs: Arc::new(blobs),
            ..self
        }
    }

    /// The keys that [`to_text`](Self::to_text) wrote, and the one that seals blobs.
    ///
    /// # Errors
    /// It is something else.
    pub fn from_text(text: &str, blobs: BlobKey) -> Result<Self, NotAKey> {
        let mut lines = text.lines().map(SignerKey::from_secret);
        let current = lines.next().ok_or(NotAKey::Spelling)??;
        let previous = lines.next().transpose()?;
        match lines.next() {
            None => Ok(Self {
                current,
                previous,
                blobs: Arc::new(blobs),
            }),
            Some(_) => Err(NotAKey::Spelling),
        }
    }

    /// The keys that sign as text, for a file that only the daemon may read.
    #[must_use]
    pub fn to_text(&self) -> String {
        let previous = self.previous.iter().map(SignerKey::to_secret);
        std::iter::once(self.current.to_secret())
            .chain(previous)
            .map(|line| line + "\n")
            .collect()
    }

    /// A fresh key, and this one to vouch for it: the journal records the change when it is opened
    /// with these.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn rotated(self) -> std::io::Result<Self> {
        Ok(Self {
            previous: Some(self.current),
            blobs: self.blobs,
            ..Self::generate()?
        })
    }

    /// Only the key that signs. Once the journal recorded that it took over, the old one is of use to
    /// nobody but a thief; `None` when there is no old one.
    #[must_use]
    pub fn without_previous(self) -> Option<Self> {
        self.previous.is_some().then_some(Self {
            previous: None,
            ..self
        })
    }

    /// Whether the one who signed last is among these: the key itself, or the one that vouches for
    /// it. With others the journal goes on as well, and says that nobody vouches for them.
    #[must_use]
    pub fn follow(&self, signer: &VerifierKey) -> bool {
        let is = |key: &SignerKey| {
            let renamed = SignerKey::from_secret(&key.to_secret());
            let renamed = renamed.and_then(|key| key.named(signer.name()));
            renamed.is_ok_and(|key| key.verifier() == *signer)
        };
        is(&self.current) || self.previous.as_ref().is_some_and(is)
    }

    /// The key that seals blobs.
    pub(crate) fn blobs(&self) -> Arc<BlobKey> {
        Arc::clone(&self.blobs)
    }

    /// The keys under the name of a journal that has one.
    pub(crate) fn named(self, origin: &str) -> Result<(SignerKey, Option<SignerKey>), NotAKey> {
        let previous = self.previous.map(|key| key.named(origin)).transpose()?;
        Ok((self.current.named(origin)?, previous))
    }

    /// The keys under their own name, which becomes that of a new journal.
    pub(crate) fn split(self) -> (SignerKey, Option<SignerKey>) {
        (self.current, self.previous)
    }
}

/// A name for a new key and the journal that it begins. Random, so that no checkpoint of another
/// journal is taken for one of this.
fn new_origin() -> std::io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let number = u64::from_be_bytes(bytes);
    Ok(format!("palyra-journal/{number:016x}"))
}

/// A key takes over: what both of them sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handover<'a> {
    /// Entries before the one that records this,
    pub(crate) size: u64,
    /// and the root over them.
    pub(crate) root: Hash,
    /// The key so far.
    pub(crate) previous: &'a VerifierKey,
    /// The key from here on.
    pub(crate) next: &'a VerifierKey,
}

impl Handover<'_> {
    /// The note, signed by the new key, and by the old one if it is at hand.
    pub(crate) fn sign(
        &self,
        next: &SignerKey,
        previous: Option<&SignerKey>,
    ) -> Result<Note, NotANote> {
        let keys: Vec<&SignerKey> = previous.into_iter().chain([next]).collect();
        Note::sign(&self.text(), &keys)
    }

    /// Whether the old key vouches for the new one; the new one must have signed in any case.
    pub(crate) fn vouched(&self, note: &Note) -> Result<bool, NotANote> {
        if note.signed_by(self.next)? != self.text() {
            return Err(NotANote::Malformed);
        }
        match note.signed_by(self.previous) {
            Ok(_) => Ok(true),
            Err(NotANote::Unsigned { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn text(&self) -> String {
        format!(
            "palyra journal key v1\n{}\n{}\n{}\n{}\n",
            self.size, self.root, self.previous, self.next
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<JournalKeys, NotAKey> {
        JournalKeys::from_text(text, BlobKey::from_bytes(&[1; 32]))
    }

    #[test]
    fn keys_are_kept_as_text_and_the_old_one_beside_the_new() {
        let keys = JournalKeys::generate().unwrap();
        let text = keys.to_text();
        let rotated = keys.rotated().unwrap().to_text();
        let again = read(&rotated).unwrap();
        assert_eq!(again.to_text(), rotated);
        assert!(rotated.ends_with(&text) && rotated.len() == 2 * text.len());
        assert!(read(&text).unwrap().without_previous().is_none());
        let alone = again.without_previous().unwrap().to_text();
        assert!(rotated.starts_with(&alone) && alone.len() == text.len());
        for wrong in ["", "x\n", &format!("{rotated}{text}"), &text.repeat(3)] {
            assert!(read(wrong).is_err());
        }
    }

    #[test]
    fn a_handover_is_vouched_for_or_not_but_never_by_somebody_else() {
        let key = |byte| SignerKey::from_seed("o", &[byte; 32]).unwrap();
        let (old, new, other) = (key(1), key(2), key(3));
        let (previous, next) = (old.verifier(), new.verifier());
        let handover = Handover {
            size: 7,
            root: Hash::empty(),
            previous: &previous,
            next: &next,
        };
        let signed = |by| handover.vouched(&handover.sign(&new, by).unwrap());
        assert_eq!(signed(Some(&old)), Ok(true));
        assert_eq!(signed(None), Ok(false));
        assert_eq!(signed(Some(&other)), Ok(false));
        let elsewhere = Handover {
            size: 8,
            ..handover.clone()
        };
        let note = elsewhere.sign(&new, Some(&old)).unwrap();
        assert!(handover.vouched(&note).is_err(), "about another place");
        let note = handover.sign(&old, None).unwrap();
        assert!(handover.vouched(&note).is_err(), "the new key agrees to it");
    }
}
