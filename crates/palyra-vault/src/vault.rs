//! [`Vault`]: the secrets, locked or open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use palyra_core::{SecretRef, SecretValue, Timestamp, VaultChange};
use zeroize::Zeroizing;

use crate::backend::{BlobBackend, Latest, Meta, Stored};
use crate::edit::{Edit, spelled};
use crate::error::VaultError;
use crate::fingerprints::Fingerprints;
use crate::head::{Head, HeadKey, add};
use crate::key::{Key, KeyId};
use crate::keystore::{KeyStore, KeyStoreKind};
use crate::record::{NewSecret, Summary, VersionInfo};
use crate::seal::{Bound, open, open_data_key, open_key, seal};

/// Ended versions that one sweep removes.
const MOST_SWEPT: usize = 256;

/// Sealed secrets. Names, ages and audiences can be read while it is locked; values cannot.
pub struct Vault {
    inner: Mutex<Inner>,
    fingerprints: RwLock<Option<Fingerprints>>,
}

pub(crate) struct Inner {
    pub(crate) blobs: Box<dyn BlobBackend>,
    pub(crate) meta: Option<Meta>,
    pub(crate) opened: Option<Opened>,
}

/// What is there while the vault is open.
pub(crate) struct Opened {
    pub(crate) active: Key,
    /// The one that takes over, while the key is being changed.
    pub(crate) pending: Option<Key>,
    pub(crate) integrity: Key,
    pub(crate) head: HeadKey,
    pub(crate) store: Arc<dyn KeyStore>,
}

/// How the vault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Which vault.
    pub id: String,
    /// Where its key is.
    pub keystore: KeyStoreKind,
    /// Which key wraps.
    pub key: KeyId,
    /// Whether values can be read.
    pub open: bool,
    /// The key that takes over, while it is being changed.
    pub pending: Option<KeyId>,
    /// The key before, which is kept until a clean start.
    pub previous: Option<KeyId>,
    /// Whether the key is kept out of the swap; unknown while locked.
    pub memory_locked: Option<bool>,
    /// Where it stands.
    pub head: Head,
    /// What the last change was.
    pub change: VaultChange,
    /// Which of the daemon's own keys it holds.
    pub own: Vec<String>,
}

impl Vault {
    /// The vault in this storage, locked.
    ///
    /// # Errors
    /// The storage cannot be read.
    pub fn open(blobs: Box<dyn BlobBackend>) -> Result<Self, VaultError> {
        let meta = blobs.meta()?;
        Ok(Self {
            inner: Mutex::new(Inner {
                blobs,
                meta,
                opened: None,
            }),
            fingerprints: RwLock::default(),
        })
    }

    /// A random id for a new vault.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn new_id() -> Result<[u8; 16], VaultError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| VaultError::storage(std::io::Error::other(error)))?;
        Ok(id)
    }

    /// How key stores name a vault.
    #[must_use]
    pub fn id_text(id: &[u8; 16]) -> String {
        format!("{:032x}", u128::from_be_bytes(*id))
    }

    /// Whether a vault was made here.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.lock_inner().meta.is_some()
    }

    /// Makes an empty vault whose key this store makes and holds. It is open.
    ///
    /// # Errors
    /// There is one already, or the store or the storage refuses.
    pub fn create(&self, id: [u8; 16], store: Arc<dyn KeyStore>) -> Result<Head, VaultError> {
        self.create_after(0, id, store)
    }

    /// The same, in place of one that is gone: its generations go on after the last that is known.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_after(
        &self,
        known: u64,
        id: [u8; 16],
        store: Arc<dyn KeyStore>,
    ) -> Result<Head, VaultError> {
        let mut inner = self.lock_inner();
        if inner.meta.is_some() {
            return Err(VaultError::damaged("a vault is here already"));
        }
        let active = store.make()?;
        let integrity = Key::generate().map_err(VaultError::storage)?;
        let head = HeadKey::of(&integrity).map_err(VaultError::storage)?;
        let bound = integrity_bound(&id, &active.id());
        let mut meta = Meta {
            vault: id,
            keystore: store.kind(),
            active: active.id(),
            pending: None,
            previous: None,
            integrity: seal(active.bytes(), &bound, integrity.bytes())
                .map_err(VaultError::storage)?,
            head: Head::EMPTY,
            change: String::new(),
        };
        meta.head.generation = known + 1;
        meta.change = spelled(&VaultChange::Created)?;
        head.sign(&mut meta);
        inner.blobs.commit(&meta, &[])?;
        let fingerprints = Fingerprints::of(&integrity).map_err(VaultError::storage)?;
        inner.opened = Some(Opened {
            active,
            pending: None,
            integrity,
            head,
            store,
        });
        let head = meta.head;
        inner.meta = Some(meta);
        drop(inner);
        self.set_fingerprints(Some(fingerprints));
        Ok(head)
    }

    /// Opens it: loads the key, and looks at every blob whether it belongs to what was signed.
    ///
    /// # Errors
    /// The store does not give the key, the key is another one, or the storage is damaged.
    pub fn unlock(&self, store: Arc<dyn KeyStore>) -> Result<(), VaultError> {
        let mut inner = self.lock_inner();
        if inner.opened.is_some() {
            return Ok(());
        }
        let meta = inner.meta()?.clone();
        if store.kind() != meta.keystore {
            return Err(VaultError::OtherKeyStore {
                recorded: meta.keystore,
                asked: store.kind(),
            });
        }
        let active = store.load(&meta.active)?;
        let bound = integrity_bound(&meta.vault, &meta.active);
        let integrity = open_key(active.bytes(), &bound, &meta.integrity)
            .map_err(|_| VaultError::damaged("the head's key does not open"))?;
        let head = HeadKey::of(&integrity).map_err(VaultError::storage)?;
        if !head.verifies(&meta) {
            return Err(VaultError::damaged(
                "the head does not fit: the file was changed by somebody else",
            ));
        }
        let pending = meta.pending.map(|id| store.load(&id)).transpose()?;
        let opened = Opened {
            active,
            pending,
            integrity,
            head,
            store,
        };
        let fingerprints = inspect(inner.blobs.as_ref(), &meta, &opened)?;
        inner.opened = Some(opened);
        drop(inner);
        self.set_fingerprints(Some(fingerprints));
        Ok(())
    }

    /// Forgets the keys and every fingerprint.
    pub fn lock(&self) {
        self.lock_inner().opened = None;
        self.set_fingerprints(None);
    }

    /// How it is; `None` when there is none yet.
    ///
    /// # Errors
    /// The storage is damaged.
    pub fn status(&self) -> Result<Option<Status>, VaultError> {
        let inner = self.lock_inner();
        let Some(meta) = &inner.meta else {
            return Ok(None);
        };
        let change = serde_json::from_str(&meta.change)
            .map_err(|_| VaultError::damaged("the last change cannot be read"))?;
        Ok(Some(Status {
            id: Self::id_text(&meta.vault),
            keystore: meta.keystore,
            key: meta.active,
            open: inner.opened.is_some(),
            pending: meta.pending,
            previous: meta.previous,
            memory_locked: inner
                .opened
                .as_ref()
                .map(|opened| opened.active.is_locked()),
            head: meta.head,
            change,
            own: inner
                .blobs
                .owned()?
                .into_iter()
                .map(|own| own.name)
                .collect(),
        }))
    }

    /// Stores a new version, durably.
    ///
    /// # Errors
    /// The vault is locked, the value or its audience is none, or the storage refuses.
    pub fn put(&self, new: &NewSecret, now: Timestamp) -> Result<(u64, Head), VaultError> {
        let mut inner = self.lock_inner();
        let latest = inner.blobs.latest(&new.secret)?;
        let version = latest.map_or(0, |latest| latest.version) + 1;
        let change = VaultChange::Put {
            secret: new.secret.clone(),
            version,
        };
        let mut edit = Edit::begin(&inner, change)?;
        edit.put(&inner, new, now)?;
        let head = edit.commit(&mut inner, &self.fingerprints)?;
        Ok((version, head))
    }

    /// A value: the newest version, or this one.
    ///
    /// # Errors
    /// The vault is locked, there is no such secret or version, it ended, or it is damaged.
    pub fn get(
        &self,
        secret: &SecretRef,
        version: Option<u64>,
        now: Timestamp,
    ) -> Result<(SecretValue, VersionInfo), VaultError> {
        let inner = self.lock_inner();
        let opened = inner.opened()?;
        let stored = inner.find(secret, version)?;
        if let Some(at) = stored.expires_at.filter(|at| *at <= now) {
            return Err(VaultError::Expired {
                secret: secret.clone(),
                at,
            });
        }
        let value = opened.open(&inner.meta()?.vault, &stored)?;
        Ok((SecretValue::new(value.to_vec()), stored.info()?))
    }

    /// The newest version of each secret after `after`, without values.
    ///
    /// # Errors
    /// The storage cannot be read.
    pub fn list(&self, after: Option<&SecretRef>, most: usize) -> Result<Vec<Summary>, VaultError> {
        let found = self.lock_inner().blobs.list(after, most)?;
        let summary = |stored: Stored| {
            Ok(Summary {
                latest: stored.info()?,
                secret: stored.secret,
            })
        };
        found.into_iter().map(summary).collect()
    }

    /// Every version of a secret, the newest first, without values.
    ///
    /// # Errors
    /// There is no such secret, or the storage cannot be read.
    pub fn versions(&self, secret: &SecretRef) -> Result<Vec<VersionInfo>, VaultError> {
        let inner = self.lock_inner();
        inner.live(secret)?;
        let found = inner.blobs.versions(secret)?;
        found.iter().map(Stored::info).collect()
    }

    /// Deletes a secret with all its versions.
    ///
    /// # Errors
    /// The vault is locked, there is no such secret, or the storage refuses.
    pub fn delete(&self, secret: &SecretRef) -> Result<Head, VaultError> {
        let mut inner = self.lock_inner();
        let change = VaultChange::Deleted {
            secret: secret.clone(),
        };
        let mut edit = Edit::begin(&inner, change)?;
        let latest = inner.live(secret)?;
        for stored in inner.blobs.versions(secret)? {
            edit.remove(&inner, stored)?;
        }
        let gone = Latest {
            live: false,
            ..latest
        };
        edit.latest(&inner, secret, Some(latest), gone)?;
        edit.commit(&mut inner, &self.fingerprints)
    }

    /// Removes versions that ended. Nothing happens, and no generation passes, when there are none.
    ///
    /// # Errors
    /// The vault is locked, or the storage refuses.
    pub fn sweep(&self, now: Timestamp) -> Result<Option<Head>, VaultError> {
        let mut inner = self.lock_inner();
        let ended = inner.blobs.ended(now, MOST_SWEPT)?;
        if ended.is_empty() {
            return Ok(None);
        }
        let versions = ended.len() as u64;
        let mut edit = Edit::begin(&inner, VaultChange::Swept { versions })?;
        for stored in ended {
            let secret = stored.secret.clone();
            let newest = inner
                .blobs
                .latest(&secret)?
                .filter(|latest| latest.version == stored.version && latest.live);
            edit.remove(&inner, stored)?;
            if let Some(latest) = newest {
                let gone = Latest {
                    live: false,
                    ..latest
                };
                edit.latest(&inner, &secret, Some(latest), gone)?;
            }
        }
        edit.commit(&mut inner, &self.fingerprints).map(Some)
    }

    /// Takes the file as it is, although the journal was told of a later generation: goes on after
    /// that one.
    ///
    /// # Errors
    /// The vault is locked, or the storage refuses.
    pub fn accept_rollback(&self, known: u64) -> Result<Head, VaultError> {
        let mut inner = self.lock_inner();
        let mut edit = Edit::begin(&inner, VaultChange::RollbackAccepted)?;
        edit.meta.head.generation = edit.meta.head.generation.max(known + 1);
        edit.commit(&mut inner, &self.fingerprints)
    }

    /// Whether a value of the vault stands in this text. `None` while it is locked.
    #[must_use]
    pub fn recognises(&self, text: &[u8]) -> Option<bool> {
        let known = self
            .fingerprints
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|known| known.found_in(text))
    }

    pub(crate) fn lock_inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn fingerprints(&self) -> &RwLock<Option<Fingerprints>> {
        &self.fingerprints
    }

    fn set_fingerprints(&self, to: Option<Fingerprints>) {
        let mut place = self
            .fingerprints
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = to;
    }
}

impl Inner {
    pub(crate) fn meta(&self) -> Result<&Meta, VaultError> {
        self.meta.as_ref().ok_or(VaultError::Locked)
    }

    pub(crate) fn opened(&self) -> Result<&Opened, VaultError> {
        self.opened.as_ref().ok_or(VaultError::Locked)
    }

    fn live(&self, secret: &SecretRef) -> Result<Latest, VaultError> {
        let latest = self.blobs.latest(secret)?.filter(|latest| latest.live);
        latest.ok_or_else(|| VaultError::NoSuchSecret(secret.clone()))
    }

    fn find(&self, secret: &SecretRef, version: Option<u64>) -> Result<Stored, VaultError> {
        let latest = self.live(secret)?;
        let wanted = version.unwrap_or(latest.version);
        match (self.blobs.get(secret, wanted)?, version) {
            (Some(stored), _) => Ok(stored),
            (None, Some(version)) => Err(VaultError::NoSuchVersion {
                secret: secret.clone(),
                version,
            }),
            (None, None) => Err(VaultError::damaged(format!(
                "the newest version of `{secret}` is gone"
            ))),
        }
    }
}

impl Opened {
    /// The key that wrapped this.
    pub(crate) fn key(&self, id: &KeyId) -> Option<&Key> {
        std::iter::once(&self.active)
            .chain(&self.pending)
            .find(|key| key.id() == *id)
    }

    pub(crate) fn open(
        &self,
        vault: &[u8; 16],
        stored: &Stored,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let damaged = || {
            VaultError::damaged(format!(
                "`{}` version {} does not open",
                stored.secret, stored.version
            ))
        };
        let key = self.key(&stored.sealed.key).ok_or_else(damaged)?;
        let bound = stored.bound(vault);
        let data = open_data_key(key.bytes(), &bound, &stored.sealed.wrapped);
        let data = data.map_err(|_| damaged())?;
        open(&data, &bound, &stored.sealed.value).map_err(|_| damaged())
    }
}

/// Looks at everything once: whether the sum is the one that was signed, and what is to be
/// recognised.
fn inspect(
    blobs: &dyn BlobBackend,
    meta: &Meta,
    opened: &Opened,
) -> Result<Fingerprints, VaultError> {
    let mut fingerprints = Fingerprints::of(&opened.integrity).map_err(VaultError::storage)?;
    let (mut sum, mut versions) = ([0; 32], 0);
    blobs.each(&mut |stored| {
        add(&mut sum, &opened.head.version(&stored));
        versions += 1;
        fingerprints.add(&opened.open(&meta.vault, &stored)?);
        Ok(())
    })?;
    blobs.each_latest(&mut |secret, latest| {
        add(&mut sum, &opened.head.latest(secret, latest));
        Ok(())
    })?;
    for own in blobs.owned()? {
        add(&mut sum, &opened.head.own(&own));
        opened.open_own(&meta.vault, &own)?;
    }
    match (sum, versions) == (meta.head.sum, meta.head.versions) {
        true => Ok(fingerprints),
        false => Err(VaultError::damaged(
            "secrets were added, taken away or put back by somebody else",
        )),
    }
}

pub(crate) fn integrity_bound(vault: &[u8; 16], key: &KeyId) -> Bound {
    Bound::to(&[vault, b"integrity", key.as_bytes()])
}
