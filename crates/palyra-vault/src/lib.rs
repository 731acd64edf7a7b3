//! The vault: sealed secrets, and the one key that opens them.
//!
//! This room knows *how a secret is kept*: a data key for each version of a secret, wrapped by one
//! key-encryption key ([`KeyStore`] holds it), the blobs in one embedded database ([`BlobBackend`]),
//! a keyed head over all of them with a generation that only grows, the change of the
//! key-encryption key that no crash can lose data in, fingerprints by which a value is recognised
//! without being kept, and the backup that other tools can read.
//!
//! It knows nothing about who may have a secret, about HTTP, or about logs: no value and no key is
//! ever part of an error, and the types that hold them cannot be printed.

#![deny(unsafe_code)]

mod approver;
mod backend;
mod backup;
mod edit;
mod error;
mod files;
mod fingerprints;
mod head;
mod key;
pub mod keystore;
mod own;
mod record;
mod rotation;
mod seal;
mod sqlite;
mod sys;
mod vault;

pub use approver::{ApproverSigner, ApproverStore};
pub use backend::{BlobBackend, Latest, Meta, Own, Sealed, Stored, Write};
pub use backup::{BadBackup, Contents, Opener, Restored, Wrapping};
pub use error::{KeyStoreError, VaultError};
pub use fingerprints::{Fingerprints, SHORTEST};
pub use head::Head;
pub use key::{Key, KeyId};
pub use keystore::{KeyStore, KeyStoreKind};
pub use own::kept;
pub use record::{NewSecret, Summary, VersionInfo};
pub use rotation::{Rotation, Step};
pub use sqlite::SqliteBlobs;
pub use vault::{Status, Vault};
