//! One call's attestation as one file that proves itself.
//!
//! ```text
//! envelope    DSSE, signed by the journal's key, around the in-toto statement
//! entries     the call's record, line by line, each with its inclusion proof
//! checkpoint  the signed root that the proofs lead to
//! key         who signed
//! ```
//!
//! The statement must be what the entries give, so the signature of the envelope vouches for nothing
//! that the journal does not hold. The file has one spelling.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_core::Timestamp;
use palyra_core::json::canonical_bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body;
use crate::error::JournalError;
use crate::proof::{Checkpoint, EntryLine, Hash, Note, SignerKey, VerifierKey, verify_inclusion};
use crate::statement::{NoStatement, Step, statement};

const FORMAT: &str = "palyra.attestation.v1";

/// What in-toto statements are called in an envelope.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// An attestation that can be handed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttestationFile {
    checkpoint: String,
    entries: Vec<ProvenEntry>,
    envelope: Envelope,
    format: String,
    key: String,
}

/// An entry and that it is in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProvenEntry {
    pub(crate) line: String,
    pub(crate) path: Vec<Hash>,
}

/// A DSSE envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeSignature {
    keyid: String,
    sig: String,
}

/// Why an attestation does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAttested {
    /// It is not spelled as one.
    #[error("it is not an attestation of `palyra attest export`")]
    Malformed,
    /// The checkpoint is not signed by the key in the file.
    #[error("its checkpoint does not hold: {0}")]
    Checkpoint(String),
    /// An entry is not in the journal that the checkpoint is about.
    #[error("entry {seq} is not in the journal that was signed")]
    Entry {
        /// Its place.
        seq: u64,
    },
    /// The entries are no record of an execution.
    #[error(transparent)]
    Statement(#[from] NoStatement),
    /// The statement says something else than the entries.
    #[error("its statement is not what the entries say")]
    Differs,
    /// The envelope is not signed by the key in the file.
    #[error("its statement is not signed by the key in it")]
    Unsigned,
}

/// What an attestation shows. Whether to believe the key is up to whoever asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attested {
    /// The in-toto statement.
    pub statement: Value,
    /// Who signed.
    #[serde(serialize_with = "as_text")]
    pub key: VerifierKey,
    /// The journal, and how long it was.
    #[serde(skip)]
    pub checkpoint: Checkpoint,
}

fn as_text<S: serde::Serializer>(key: &VerifierKey, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(key)
}

impl AttestationFile {
    /// Puts a file together and signs its statement.
    pub(crate) fn new(
        entries: Vec<ProvenEntry>,
        checkpoint: &Note,
        key: &SignerKey,
    ) -> Result<Self, JournalError> {
        let said = statement(&steps(&entries).map_err(|error| damaged(&error))?)
            .map_err(|error| damaged(&error.into()))?;
        let payload = canonical_bytes(&said);
        let verifier = key.verifier();
        let signature = EnvelopeSignature {
            keyid: key_id(&verifier),
            sig: STANDARD.encode(key.sign(&signed_bytes(&payload))),
        };
        Ok(Self {
            checkpoint: checkpoint.to_string(),
            entries,
            envelope: Envelope {
                payload: STANDARD.encode(payload),
                payload_type: PAYLOAD_TYPE.to_owned(),
                signatures: vec![signature],
            },
            format: FORMAT.to_owned(),
            key: verifier.to_string(),
        })
    }

    /// The file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Texts and lists of texts have a spelling.
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut bytes = canonical_bytes(&value);
        bytes.push(b'\n');
        bytes
    }

    /// Reads a file that has the one spelling.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotAttested> {
        let file: Self = serde_json::from_slice(bytes).map_err(|_| NotAttested::Malformed)?;
        (file.format == FORMAT && file.to_bytes() == bytes)
            .then_some(file)
            .ok_or(NotAttested::Malformed)
    }

    /// What it shows, once everything in it was checked.
    ///
    /// # Errors
    /// What does not hold.
    pub fn verify(&self) -> Result<Attested, NotAttested> {
        let key: VerifierKey = self.key.parse().map_err(|_| NotAttested::Malformed)?;
        let wrong = |error: &dyn std::fmt::Display| NotAttested::Checkpoint(error.to_string());
        let note: Note = self.checkpoint.parse().map_err(|error| wrong(&error))?;
        let checkpoint = Checkpoint::signed_by(&note, &key).map_err(|error| wrong(&error))?;
        for entry in &self.entries {
            entry.verify(&checkpoint)?;
        }
        let said = statement(&steps(&self.entries)?)?;
        let payload = STANDARD
            .decode(&self.envelope.payload)
            .map_err(|_| NotAttested::Malformed)?;
        if payload != canonical_bytes(&said) || self.envelope.payload_type != PAYLOAD_TYPE {
            return Err(NotAttested::Differs);
        }
        self.envelope.signed_by(&key, &payload)?;
        Ok(Attested {
            statement: said,
            key,
            checkpoint,
        })
    }
}

impl ProvenEntry {
    fn verify(&self, checkpoint: &Checkpoint) -> Result<(), NotAttested> {
        let line = EntryLine::parse(self.line.as_bytes()).ok_or(NotAttested::Malformed)?;
        let seq = line.record().seq;
        let outside = NotAttested::Entry { seq };
        let index = seq.checked_sub(1).ok_or_else(|| outside.clone())?;
        let leaf = Hash::leaf(self.line.as_bytes());
        verify_inclusion(&leaf, index, checkpoint.size, &self.path, &checkpoint.root)
            .map_err(|_| outside)
    }
}

impl Envelope {
    fn signed_by(&self, key: &VerifierKey, payload: &[u8]) -> Result<(), NotAttested> {
        let [only] = self.signatures.as_slice() else {
            return Err(NotAttested::Unsigned);
        };
        let signature = STANDARD.decode(&only.sig).ok();
        let signature: Option<[u8; 64]> = signature.and_then(|bytes| bytes.try_into().ok());
        let holds = signature.is_some_and(|signature| {
            only.keyid == key_id(key) && key.verifies(&signed_bytes(payload), &signature)
        });
        holds.then_some(()).ok_or(NotAttested::Unsigned)
    }
}

fn steps(entries: &[ProvenEntry]) -> Result<Vec<Step>, NotAttested> {
    let step = |entry: &ProvenEntry| {
        let line = EntryLine::parse(entry.line.as_bytes())?;
        let record = line.record();
        Some(Step {
            stream: record.stream.to_owned(),
            revision: record.revision,
            at: Timestamp::from_millis(record.at),
            entry: body::decode(record.seq, record.body).ok()?,
        })
    };
    let steps: Option<Vec<Step>> = entries.iter().map(step).collect();
    steps.ok_or(NotAttested::Malformed)
}

/// What DSSE signs: the type and the payload, each with its length.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "DSSEv1 {} {PAYLOAD_TYPE} {} ",
        PAYLOAD_TYPE.len(),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}

/// Which key, as the signature lines of notes name it.
fn key_id(key: &VerifierKey) -> String {
    format!("{}+{:08x}", key.name(), u32::from_be_bytes(key.hash()))
}

fn damaged(error: &NotAttested) -> JournalError {
    JournalError::corrupt(error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the DSSE specification, with its own type.
    #[test]
    fn the_length_of_each_part_is_signed() {
        let signed = signed_bytes(b"hello world");
        let text = "DSSEv1 28 application/vnd.in-toto+json 11 hello world";
        assert_eq!(String::from_utf8_lossy(&signed), text);
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_file(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(AttestationFile::parse(&bytes).is_err());
        }

        #[test]
        fn no_document_breaks_the_file(
            text in r#"\{"checkpoint":"[a-z\\n]{0,9}","entries":\[\],"envelope":\{"payload":"[A-Za-z=]{0,9}","payloadType":"x","signatures":\[\]\},"format":"palyra.attestation.v1","key":"[a-z+]{0,9}"\}"#,
        ) {
            if let Ok(file) = AttestationFile::parse(format!("{text}\n").as_bytes()) {
                prop_assert!(file.verify().is_err());
            }
        }
    }
}
