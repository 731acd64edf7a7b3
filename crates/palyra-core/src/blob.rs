//! Blobs: what a journal entry commits to without containing it.
//!
//! Arguments, facts and output are stored beside the journal, each with a salt of its own. An
//! entry holds the salted commitment, so a blob can be erased later without breaking anything
//! that was recorded, and what was erased cannot be guessed from what is left.

use crate::digest::Digest;

/// What a blob holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlobKind {
    /// The canonical arguments of a call, environment values included.
    Arguments,
    /// Everything that policy saw when it decided.
    Facts,
    /// What the tool gave back.
    Output,
    /// The texts of a policy set: the baseline's and every file's.
    Policies,
}

impl BlobKind {
    /// The name in storage.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arguments => "arguments",
            Self::Facts => "facts",
            Self::Output => "output",
            Self::Policies => "policies",
        }
    }
}

/// A salted commitment to a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Commitment(pub Digest);

/// Bytes with the salt they are committed under.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob {
    /// What it holds.
    pub kind: BlobKind,
    /// 16 random bytes, this blob's own.
    pub salt: [u8; 16],
    /// The content.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// A blob under a fresh salt.
    #[must_use]
    pub fn new(kind: BlobKind, bytes: Vec<u8>) -> Self {
        let mut salt = [0; 16];
        #[expect(
            clippy::expect_used,
            reason = "an unsalted commitment must never be written"
        )]
        getrandom::fill(&mut salt).expect("the operating system gives random bytes");
        Self { kind, salt, bytes }
    }

    /// What an entry records in its place.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        let parts: [&[u8]; 3] = [self.kind.as_str().as_bytes(), &self.salt, &self.bytes];
        Commitment(Digest::of_parts("palyra blob v1", &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_different_commitments() {
        let one = Blob::new(BlobKind::Output, b"yes".to_vec());
        let other = Blob::new(BlobKind::Output, b"yes".to_vec());
        assert_ne!(one.commitment(), other.commitment());
        assert_eq!(one.commitment(), one.clone().commitment());
    }
}
