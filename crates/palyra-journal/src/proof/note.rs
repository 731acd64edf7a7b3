//! Signed notes, as C2SP specifies them: a text, an empty line, and lines with signatures.
//!
//! ```text
//! any text that ends with a newline
//!
//! — name base64(key hash, signature)
//! ```
//!
//! Keys are Ed25519 and are spelled as the Go module `sumdb/note` spells them, so notes and keys
//! of ours can be checked with tools that are not ours.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::Digest as _;

/// The algorithm byte of an Ed25519 key.
const ED25519: u8 = 1;

/// What a signature line begins with: a dash of the long kind, and a space.
const DASH: &str = "\u{2014} ";

/// The most signatures that are looked at.
const MAX_SIGNATURES: usize = 100;

/// The longest note that is looked at.
const MAX_BYTES: usize = 1 << 20;

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAKey {
    /// The parts are not there, or not spelled as they must be.
    #[error("a key is `NAME+HASH+BASE64`, such as `palyra journal checkpoint` prints")]
    Spelling,
    /// A name with a space or a plus, or none.
    #[error("a key's name has no spaces and no `+`")]
    Name,
    /// Not Ed25519.
    #[error("only Ed25519 keys are known here")]
    Algorithm,
    /// The hash belongs to another key or name: something was changed.
    #[error("the key's hash does not belong to it")]
    Hash,
    /// Not a point that anybody should trust.
    #[error("the key is not a usable Ed25519 key")]
    Weak,
}

/// The key that signatures are verified with; written `NAME+HASH+BASE64`.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: VerifyingKey,
}

impl VerifierKey {
    /// Whose.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first bytes of the hash over name and key: which of somebody's keys it is.
    #[must_use]
    pub fn hash(&self) -> [u8; 4] {
        hash_of(&self.name, &self.key)
    }

    /// Whether this is the key's signature of these bytes.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        self.key.verify_strict(message, &signature).is_ok()
    }

    fn new(name: &str, key: &[u8]) -> Result<Self, NotAKey> {
        if !is_name(name) {
            return Err(NotAKey::Name);
        }
        let key: &[u8; 32] = key.try_into().map_err(|_| NotAKey::Spelling)?;
        let point = VerifyingKey::from_bytes(key).map_err(|_| NotAKey::Weak)?;
        // A second spelling of the same point would be a second key, and a weak one signs anything.
        if point.is_weak() || point.to_bytes() != *key {
            return Err(NotAKey::Weak);
        }
        Ok(Self {
            name: name.to_owned(),
            key: point,
        })
    }
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hash = u32::from_be_bytes(self.hash());
        let key = with_algorithm(self.key.as_bytes());
        write!(f, "{}+{hash:08x}+{}", self.name, STANDARD.encode(key))
    }
}

impl std::fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for VerifierKey {
    type Err = NotAKey;
    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let (name, hash, key) = parts(text)?;
        let key = Self::new(name, &key)?;
        (u32::from_be_bytes(key.hash()) == hash)
            .then_some(key)
            .ok_or(NotAKey::Hash)
    }
}

/// The key that signs. It cannot be printed, copied or serialised.
pub struct SignerKey {
    name: String,
    key: SigningKey,
}

impl SignerKey {
    /// The key with this seed.
    ///
    /// # Errors
    /// The name has a space or a plus, or there is none.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, NotAKey> {
        if !is_name(name) {
            return Err(NotAKey::Name);
        }
        Ok(Self {
            name: name.to_owned(),
            key: SigningKey::from_bytes(seed),
        })
    }

    /// The same key under another name, which makes it another key to whoever verifies.
    ///
    /// # Errors
    /// The name has a space or a plus, or there is none.
    pub fn named(self, name: &str) -> Result<Self, NotAKey> {
        Self::from_seed(name, self.key.as_bytes())
    }

    /// Reads `PRIVATE+KEY+NAME+HASH+BASE64`.
    ///
    /// # Errors
    /// It is spelled differently, or the hash belongs to another key.
    pub fn from_secret(text: &str) -> Result<Self, NotAKey> {
        let text = text.strip_prefix("PRIVATE+KEY+");
        let (name, hash, seed) = parts(text.ok_or(NotAKey::Spelling)?)?;
        let seed: &[u8; 32] = seed.as_slice().try_into().map_err(|_| NotAKey::Spelling)?;
        let key = Self::from_seed(name, seed)?;
        (u32::from_be_bytes(key.verifier().hash()) == hash)
            .then_some(key)
            .ok_or(NotAKey::Hash)
    }

    /// `PRIVATE+KEY+NAME+HASH+BASE64`: the secret itself, for the file that keeps it.
    #[must_use]
    pub fn to_secret(&self) -> String {
        let hash = u32::from_be_bytes(self.verifier().hash());
        let seed = STANDARD.encode(with_algorithm(self.key.as_bytes()));
        format!("PRIVATE+KEY+{}+{hash:08x}+{seed}", self.name)
    }

    /// Whose.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key that its signatures are verified with.
    #[must_use]
    pub fn verifier(&self) -> VerifierKey {
        VerifierKey {
            name: self.name.clone(),
            key: self.key.verifying_key(),
        }
    }

    /// Its signature of these bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

/// One line below a note's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureLine {
    /// Who is said to have signed.
    pub name: String,
    /// With which of their keys.
    pub hash: [u8; 4],
    /// The signature, in the algorithm of that key.
    pub signature: Vec<u8>,
}

/// Why a note was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotANote {
    /// It is not a text with signatures below.
    #[error("it is not a signed note")]
    Malformed,
    /// The key did not sign it.
    #[error("it is not signed with the key `{key}`")]
    Unsigned {
        /// The key's name and hash.
        key: String,
    },
    /// A line says that the key signed it, and it did not.
    #[error("the signature is not one of the key `{key}`")]
    Forged {
        /// The key's name and hash.
        key: String,
    },
}

/// A text with the signatures below it. Having one says nothing: ask [`Note::signed_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<SignatureLine>,
}

impl Note {
    /// Signs a text.
    ///
    /// # Errors
    /// The text does not end with a newline, or holds control characters.
    pub fn sign(text: &str, keys: &[&SignerKey]) -> Result<Self, NotANote> {
        if !is_text(text) || keys.is_empty() {
            return Err(NotANote::Malformed);
        }
        let line = |key: &&SignerKey| SignatureLine {
            name: key.name.clone(),
            hash: key.verifier().hash(),
            signature: key.sign(text.as_bytes()).to_vec(),
        };
        Ok(Self {
            text: text.to_owned(),
            signatures: keys.iter().map(line).collect(),
        })
    }

    /// The text, with its last newline: what the signatures are about.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures, true or not.
    #[must_use]
    pub fn signatures(&self) -> &[SignatureLine] {
        &self.signatures
    }

    /// The text, if this key signed it.
    ///
    /// # Errors
    /// It did not, or a line claims so and is wrong.
    pub fn signed_by(&self, key: &VerifierKey) -> Result<&str, NotANote> {
        let words = || format!("{}+{:08x}", key.name, u32::from_be_bytes(key.hash()));
        let hash = key.hash();
        let mut lines = self
            .signatures
            .iter()
            .filter(|line| line.name == key.name && line.hash == hash)
            .peekable();
        if lines.peek().is_none() {
            return Err(NotANote::Unsigned { key: words() });
        }
        let verifies = |line: &SignatureLine| {
            let signature: Option<&[u8; 64]> = line.signature.as_slice().try_into().ok();
            signature.is_some_and(|signature| key.verifies(self.text.as_bytes(), signature))
        };
        lines
            .all(verifies)
            .then_some(self.text.as_str())
            .ok_or_else(|| NotANote::Forged { key: words() })
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.text)?;
        for line in &self.signatures {
            let signature = STANDARD.encode([&line.hash, line.signature.as_slice()].concat());
            writeln!(f, "{DASH}{} {signature}", line.name)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Note {
    type Err = NotANote;
    fn from_str(note: &str) -> Result<Self, NotANote> {
        if note.len() > MAX_BYTES {
            return Err(NotANote::Malformed);
        }
        // The text may hold empty lines itself; the last one is the divide.
        let (text, lines) = note.rsplit_once("\n\n").ok_or(NotANote::Malformed)?;
        let text = format!("{text}\n");
        let lines = lines.strip_suffix('\n').ok_or(NotANote::Malformed)?;
        let signatures = lines
            .split('\n')
            .map(signature)
            .collect::<Option<Vec<_>>>()
            .ok_or(NotANote::Malformed)?;
        let legal = is_text(&text) && signatures.len() <= MAX_SIGNATURES;
        legal
            .then_some(Self { text, signatures })
            .ok_or(NotANote::Malformed)
    }
}

fn signature(line: &str) -> Option<SignatureLine> {
    let (name, signature) = line.strip_prefix(DASH)?.split_once(' ')?;
    let bytes = STANDARD.decode(signature).ok()?;
    let (hash, signature) = bytes.split_first_chunk::<4>()?;
    (is_name(name) && !signature.is_empty()).then(|| SignatureLine {
        name: name.to_owned(),
        hash: *hash,
        signature: signature.to_vec(),
    })
}

/// Name, hash and key of `NAME+HASH+BASE64`.
fn parts(text: &str) -> Result<(&str, u32, Vec<u8>), NotAKey> {
    let (name, rest) = text.split_once('+').ok_or(NotAKey::Spelling)?;
    let (hash, key) = rest.split_once('+').ok_or(NotAKey::Spelling)?;
    let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hash.len() != 8 || !hash.bytes().all(legal) {
        return Err(NotAKey::Spelling);
    }
    let hash = u32::from_str_radix(hash, 16).map_err(|_| NotAKey::Spelling)?;
    let mut key = STANDARD.decode(key).map_err(|_| NotAKey::Spelling)?;
    match key.first() {
        Some(&ED25519) => {
            key.remove(0);
            Ok((name, hash, key))
        }
        Some(_) => Err(NotAKey::Algorithm),
        None => Err(NotAKey::Spelling),
    }
}

fn with_algorithm(key: &[u8; 32]) -> Vec<u8> {
    [&[ED25519], key.as_slice()].concat()
}

fn hash_of(name: &str, key: &VerifyingKey) -> [u8; 4] {
    let mut hash = sha2::Sha256::new();
    hash.update(name.as_bytes());
    hash.update(b"\n");
    hash.update(with_algorithm(key.as_bytes()));
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, ..] = digest;
    [a, b, c, d]
}

/// Whether this can be a key's name.
fn is_name(name: &str) -> bool {
    let legal = |char: char| !char.is_whitespace() && !char.is_control() && char != '+';
    !name.is_empty() && name.chars().all(legal)
}

/// Whether this can be a note's text.
fn is_text(text: &str) -> bool {
    text.ends_with('\n') && text.chars().all(|char| char == '\n' || char >= ' ')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // From the tests and the documentation of golang.org/x/mod/sumdb/note.
    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const SECRET: &str =
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const TEXT: &str = "If you think cryptography is the answer to your problem,\n\
                        then you don't know what your problem is.\n";
    const SIGNED: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\n\
        — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    fn key() -> VerifierKey {
        KEY.parse().unwrap()
    }

    fn accepts(note: &[u8]) -> bool {
        std::str::from_utf8(note)
            .ok()
            .and_then(|note| note.parse::<Note>().ok())
            .is_some_and(|note| note.signed_by(&key()).is_ok())
    }

    #[test]
    fn the_published_note() {
        let secret = SignerKey::from_secret(SECRET).unwrap();
        assert_eq!(secret.to_secret(), SECRET);
        assert_eq!(secret.verifier().to_string(), KEY);
        let note = Note::sign(TEXT, &[&secret]).unwrap();
        assert_eq!(note.to_string(), SIGNED);
        let note: Note = SIGNED.parse().unwrap();
        assert_eq!(note.signed_by(&key()), Ok(TEXT));
        assert_eq!(note.to_string(), SIGNED);
    }

    #[test]
    fn a_key_that_was_changed_or_cut_is_none() {
        assert_eq!(key().to_string(), KEY);
        for from in 0..=KEY.len() {
            for to in from..=KEY.len() {
                let part = KEY.get(from..to).unwrap();
                assert_eq!(part.parse::<VerifierKey>().is_ok(), part == KEY);
            }
        }
        for place in 0..KEY.len() {
            for mask in [1, 0x20, 0x80] {
                let mut bytes = KEY.as_bytes().to_vec();
                bytes[place] ^= mask;
                let changed = String::from_utf8_lossy(&bytes);
                assert!(changed.parse::<VerifierKey>().is_err(), "{changed}");
            }
        }
        // From the same tests: the hash fits, the length or the algorithm does not.
        for wrong in [
            "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
            "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        ] {
            assert!(wrong.parse::<VerifierKey>().is_err());
        }
    }

    #[test]
    fn a_weak_key_is_refused() {
        // The neutral point: a signature of zeros would verify for any text.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert_eq!(VerifierKey::new("x", &neutral), Err(NotAKey::Weak));
        // The same point spelled beyond the prime.
        let mut spelled = [0xff; 32];
        (spelled[0], spelled[31]) = (0xee, 0x7f);
        assert_eq!(VerifierKey::new("x", &spelled), Err(NotAKey::Weak));
    }

    #[test]
    fn no_changed_byte_and_no_cut_is_accepted() {
        assert!(accepts(SIGNED.as_bytes()));
        for place in 0..SIGNED.len() {
            for bit in 0..8 {
                let mut bytes = SIGNED.as_bytes().to_vec();
                bytes[place] ^= 1 << bit;
                assert!(!accepts(&bytes), "byte {place} bit {bit}");
            }
            assert!(!accepts(&SIGNED.as_bytes()[..place]));
            let mut less = SIGNED.as_bytes().to_vec();
            less.remove(place);
            assert!(!accepts(&less), "without byte {place}");
        }
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let line = SIGNED.rsplit_once("\n\n").unwrap().1;
        for wrong in [
            String::new(),
            TEXT.to_owned(),
            format!("{TEXT}\n"),
            format!("{TEXT}{line}"),
            format!("{TEXT}\n\n{line}").trim_end().to_owned(),
            format!("{TEXT}\n{}", line.replace('\u{2014}', "-")),
            format!("{TEXT}\n{}", line.replace("PeterNeumann", "Peter Neumann")),
            format!("{TEXT}\n{}", line.replace('=', "")),
            format!("{TEXT}\n{line} "),
            format!("{TEXT}\n{line}{TEXT}"),
            format!("a\rb\n\n{line}"),
            format!("a\n\n{}", line.repeat(MAX_SIGNATURES + 1)),
        ] {
            assert_eq!(wrong.parse::<Note>(), Err(NotANote::Malformed), "{wrong:?}");
        }
        assert!(Note::sign("no newline", &[]).is_err());
    }

    #[test]
    fn a_wrong_line_beside_a_right_one_spoils_the_note() {
        let right = SIGNED.rsplit_once("\n\n").unwrap().1;
        let wrong = right.replace("ZJku", "ZJkv");
        for lines in [format!("{right}{wrong}"), format!("{wrong}{right}")] {
            let note: Note = format!("{TEXT}\n{lines}").parse().unwrap();
            assert!(matches!(
                note.signed_by(&key()),
                Err(NotANote::Forged { .. })
            ));
        }
        let others = right.replace("PeterNeumann", "SomebodyElse");
        let note: Note = format!("{TEXT}\n{others}{right}").parse().unwrap();
        assert!(note.signed_by(&key()).is_ok(), "other people's are theirs");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in "\\PC*|[\u{2014} \nA-Za-z0-9+/=]{0,200}") {
            let _ = text.parse::<VerifierKey>();
            let _ = SignerKey::from_secret(&text);
            if let Ok(note) = text.parse::<Note>() {
                prop_assert_eq!(note.to_string(), text, "one spelling");
            }
        }

        #[test]
        fn a_note_with_changes_is_not_accepted(
            changes in prop::collection::vec((0..SIGNED.len(), any::<u8>()), 1..4),
        ) {
            let mut bytes = SIGNED.as_bytes().to_vec();
            for (place, byte) in changes {
                bytes[place] = byte;
            }
            prop_assert_eq!(accepts(&bytes), bytes == SIGNED.as_bytes());
        }
    }
}
