//! Presence: proof that a person answered, not merely somebody with their uid.
//!
//! A person's key signs what they decided ([`Statement`]). The signature stands in the entry of the
//! decision ([`Signed`]); whoever reads the journal checks it, the fold and the offline verifier alike.

use ed25519_dalek::{Signature, VerifyingKey};

use crate::decision::ApprovalDecision;
use crate::digest::{Digest, RecordedDigest};
use crate::entry::{AnsweredFrom, Entry};
use crate::id::{ApprovalId, CallId, GrantId};
use crate::principal::UserName;

/// What person actions demand, from the mildest to the strictest.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PresenceMode {
    /// Nothing: whoever has the owner's uid and is in no call is the owner.
    #[default]
    Off,
    /// A passphrase, typed at a terminal.
    Passphrase,
    /// A paired device. There are none yet.
    Device,
}

impl PresenceMode {
    /// The word in the configuration and in `palyra status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Passphrase => "passphrase",
            Self::Device => "device",
        }
    }
}

/// What happened to presence.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum PresenceChange {
    /// A passphrase was set: this key signs what the person decides from here on.
    Set {
        /// Its public half.
        key: ApproverKey,
    },
    /// The passphrase was changed; the key stays.
    Changed,
    /// The person ended it, with the passphrase.
    Ended,
    /// It was given up without the passphrase, when the daemon was started.
    GivenUp,
    /// Somebody came with a wrong passphrase.
    Refused,
}

/// The public half of the key that signs a person's decisions; written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApproverKey([u8; 32]);

impl ApproverKey {
    /// The key that these bytes are, if they are a sound one: a weak key signs anything, and a
    /// second spelling of the same point would be a second key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Option<Self> {
        let point = VerifyingKey::from_bytes(&bytes).ok()?;
        (!point.is_weak() && point.to_bytes() == bytes).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether this is the key's signature of what is stated.
    #[must_use]
    pub fn verifies(&self, statement: &Statement<'_>, signature: &ApproverSignature) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            let signature = Signature::from_bytes(&signature.0);
            key.verify_strict(&statement.bytes(), &signature).is_ok()
        })
    }
}

/// A signature by an [`ApproverKey`]; written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApproverSignature([u8; 64]);

impl ApproverSignature {
    /// The signature that these bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }
}

/// A decision's signature, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Signed {
    /// The key.
    pub key: ApproverKey,
    /// Its signature of the [`Statement`].
    pub signature: ApproverSignature,
    /// Digest of the terms of the grant that was given with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Digest>,
}

/// What a person signs: which question, about exactly which call, and their answer with everything
/// that it gives away. A signature of one answer is of no use for another.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    /// The approval.
    pub approval: &'a ApprovalId,
    /// The call that waits.
    pub call: &'a CallId,
    /// Digest of exactly the call that was shown.
    pub digest: &'a RecordedDigest,
    /// The answer.
    pub decision: ApprovalDecision,
    /// Who gives it.
    pub decided_by: &'a UserName,
    /// Why, in their words.
    pub reason: Option<&'a str>,
    /// From where.
    pub from: Option<&'a AnsweredFrom>,
    /// The grant that is given with it.
    pub grant: Option<&'a GrantId>,
    /// Digest of that grant's terms.
    pub terms: Option<&'a Digest>,
}

impl Statement<'_> {
    /// The bytes that are signed: each part with its length, so that no two statements are alike.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let decision = match self.decision {
            ApprovalDecision::Allow => "allow",
            ApprovalDecision::Deny => "deny",
        };
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        let digest = json(serde_json::to_string(self.digest));
        let from = json(serde_json::to_string(&self.from));
        let reason = json(serde_json::to_string(&self.reason));
        let grant = json(serde_json::to_string(&self.grant));
        let terms = json(serde_json::to_string(&self.terms));
        let parts = [
            "palyra decision v1",
            self.approval.as_str(),
            self.call.as_str(),
            &digest,
            decision,
            self.decided_by.as_str(),
            &reason,
            &from,
            &grant,
            &terms,
        ];
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

/// The question that an answer is about.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The approval.
    pub approval: &'a ApprovalId,
    /// The call that waits.
    pub call: &'a CallId,
    /// Digest of exactly that call.
    pub digest: &'a RecordedDigest,
    /// The key that an answer must be signed with, when it must be.
    pub approver: Option<&'a ApproverKey>,
}

impl<'a> Question<'a> {
    /// What a person signs with this answer; nothing when the entry is none.
    #[must_use]
    pub fn statement(&self, answer: &'a Entry, terms: Option<&'a Digest>) -> Option<Statement<'a>> {
        let Entry::ApprovalDecided {
            decision,
            decided_by,
            reason,
            from,
            grant,
            ..
        } = answer
        else {
            return None;
        };
        Some(Statement {
            approval: self.approval,
            call: self.call,
            digest: self.digest,
            decision: *decision,
            decided_by,
            reason: reason.as_deref(),
            from: from.as_deref(),
            grant: grant.as_ref(),
            terms,
        })
    }

    /// Whether this entry is an answer that counts: signed where that is demanded, by the key that
    /// was demanded, and never with a signature that does not hold.
    #[must_use]
    pub fn is_answered_by(&self, answer: &Entry) -> bool {
        let Entry::ApprovalDecided { signed, .. } = answer else {
            return false;
        };
        let Some(signed) = signed.as_deref() else {
            return self.approver.is_none();
        };
        let asked_for = self.approver.is_none_or(|key| *key == signed.key);
        let terms = signed.terms.as_ref();
        asked_for
            && self
                .statement(answer, terms)
                .is_some_and(|said| signed.key.verifies(&said, &signed.signature))
    }
}

/// A text that is no key or signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a key or signature in hexadecimal")]
pub struct NotHex;

fn read_hex<const N: usize>(text: &str) -> Result<[u8; N], NotHex> {
    let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(legal) {
        return Err(NotHex);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| NotHex)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| NotHex)?;
    }
    Ok(bytes)
}

impl std::str::FromStr for ApproverKey {
    type Err = NotHex;
    fn from_str(text: &str) -> Result<Self, NotHex> {
        Self::from_bytes(read_hex(text)?).ok_or(NotHex)
    }
}

impl std::str::FromStr for ApproverSignature {
    type Err = NotHex;
    fn from_str(text: &str) -> Result<Self, NotHex> {
        read_hex(text).map(Self)
    }
}

macro_rules! in_hex {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

in_hex!(ApproverKey);
in_hex!(ApproverSignature);
