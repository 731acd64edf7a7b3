//! Checkpoints, as C2SP specifies them: which journal, how long it is, and its root.

use std::str::FromStr;

use crate::proof::note::{NotANote, Note, SignerKey, VerifierKey};
use crate::proof::tree::Hash;

/// What a checkpoint says. Its text is signed as a [`Note`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which journal: the name of the keys that sign for it.
    pub origin: String,
    /// How many entries it has.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Hash,
}

/// Why something is not a checkpoint, or not one to believe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotACheckpoint {
    /// It is not spelled as one.
    #[error("it is not a checkpoint")]
    Malformed,
    /// It is not signed as it should be.
    #[error(transparent)]
    Note(#[from] NotANote),
}

impl Checkpoint {
    /// This checkpoint, signed.
    ///
    /// # Errors
    /// The origin is not one.
    pub fn sign(&self, key: &SignerKey) -> Result<Note, NotANote> {
        Note::sign(&self.to_string(), &[key])
    }

    /// What a note says, if this key signed it and it is about the key's own journal.
    ///
    /// # Errors
    /// It did not, or it says something else.
    pub fn signed_by(note: &Note, key: &VerifierKey) -> Result<Self, NotACheckpoint> {
        let checkpoint: Self = note.signed_by(key)?.parse()?;
        (checkpoint.origin == key.name())
            .then_some(checkpoint)
            .ok_or(NotACheckpoint::Malformed)
    }

    /// What a note says, whoever signed it.
    ///
    /// # Errors
    /// It is not about a checkpoint.
    pub fn unverified(note: &Note) -> Result<Self, NotACheckpoint> {
        note.text().parse()
    }
}

impl std::fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.size, self.root)
    }
}

impl FromStr for Checkpoint {
    type Err = NotACheckpoint;
    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let wrong = || NotACheckpoint::Malformed;
        // Lines of extensions are allowed by the specification and never written by us.
        let lines: Vec<&str> = text.split('\n').collect();
        let [origin, size, root, ""] = lines.as_slice() else {
            return Err(wrong());
        };
        let checkpoint = Self {
            origin: (*origin).to_owned(),
            size: size.parse().map_err(|_| wrong())?,
            root: root.parse().map_err(|_| wrong())?,
        };
        // Leading zeros and signs would be second spellings.
        let one_spelling = !origin.is_empty() && checkpoint.to_string() == text;
        one_spelling.then_some(checkpoint).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> SignerKey {
        SignerKey::from_seed(name, &[7; 32]).unwrap()
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            origin: "palyra-journal/0".to_owned(),
            size: 20_852_163,
            root: "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
                .parse()
                .unwrap(),
        }
    }

    /// The text of the example in c2sp.org/tlog-checkpoint.
    #[test]
    fn the_published_example() {
        let text = "example.com/behind-the-sofa\n20852163\n\
                    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let parsed: Checkpoint = text.parse().unwrap();
        assert_eq!(parsed.origin, "example.com/behind-the-sofa");
        assert_eq!(parsed.size, 20_852_163);
        assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn only_the_journals_own_key_signs_for_it() {
        let note = checkpoint().sign(&key("palyra-journal/0")).unwrap();
        let own = key("palyra-journal/0").verifier();
        assert_eq!(Checkpoint::signed_by(&note, &own), Ok(checkpoint()));
        let other = key("palyra-journal/1");
        assert!(Checkpoint::signed_by(&note, &other.verifier()).is_err());
        let note = checkpoint().sign(&other).unwrap();
        assert_eq!(
            Checkpoint::signed_by(&note, &other.verifier()),
            Err(NotACheckpoint::Malformed),
            "well signed, about somebody else's journal"
        );
    }

    #[test]
    fn there_is_one_spelling() {
        let root = checkpoint().root;
        for wrong in [
            String::new(),
            "o\n1\n".to_owned(),
            format!("\n1\n{root}\n"),
            format!("o\n01\n{root}\n"),
            format!("o\n+1\n{root}\n"),
            format!("o\n-1\n{root}\n"),
            format!("o\n \n{root}\n"),
            format!("o\n18446744073709551616\n{root}\n"),
            format!("o\n1\n{root}"),
            format!("o\n1\n{root}\nextension\n"),
            format!("o\n1\n{root}\n\n"),
            "o\n1\nAAAA\n".to_owned(),
        ] {
            assert!(wrong.parse::<Checkpoint>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn no_changed_byte_is_accepted() {
        let (note, own) = (
            checkpoint()
                .sign(&key("palyra-journal/0"))
                .unwrap()
                .to_string(),
            key("palyra-journal/0").verifier(),
        );
        let accepts = |bytes: &[u8]| {
            let note = std::str::from_utf8(bytes).ok()?.parse::<Note>().ok()?;
            Checkpoint::signed_by(&note, &own).ok()
        };
        assert!(accepts(note.as_bytes()).is_some());
        for place in 0..note.len() {
            for bit in 0..8 {
                let mut bytes = note.as_bytes().to_vec();
                bytes[place] ^= 1 << bit;
                assert!(accepts(&bytes).is_none(), "byte {place} bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "\\PC*|[a-z]{0,3}\n[0-9]{0,21}\n[A-Za-z0-9+/=]{0,50}\n") {
            if let Ok(checkpoint) = text.parse::<Checkpoint>() {
                prop_assert_eq!(checkpoint.to_string(), text);
            }
        }
    }
}
