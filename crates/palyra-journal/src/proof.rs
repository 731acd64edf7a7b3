//! Proofs: the Merkle tree over the entries, and the notes that a key signs about it.
//!
//! This part is pure: bytes in, an answer out. It knows RFC 6962 (the tree and its proofs), C2SP
//! signed notes and checkpoints, and how an entry is spelled as a leaf. It knows no file and no
//! database, so whoever verifies runs the same lines as whoever writes.
//!
//! Parsers are strict. What is accepted has exactly one spelling, so a byte that was changed is
//! either refused here or covered by a signature.

mod checkpoint;
mod note;
mod record;
mod tree;

pub use checkpoint::{Checkpoint, NotACheckpoint};
pub use note::{NotAKey, NotANote, Note, SignatureLine, SignerKey, VerifierKey};
pub(crate) use record::LeafStart;
pub use record::{EntryLine, EntryRecord};
pub use tree::{Frontier, Hash, NotAHash, Unproven, consistency, inclusion, root_of, subtree};
pub use tree::{verify_consistency, verify_inclusion};
