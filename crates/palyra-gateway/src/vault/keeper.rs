//! Whether the vault is open, and whether it is the one that the journal knows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use palyra_core::entry::{Entry, Stream};
use palyra_core::{Clock, Denial, DenialCode, DigestKey, Principal, VaultChange};
use palyra_journal::{Expected, JournalStore};
use palyra_vault::keystore::{KeyFile, Passphrase, PassphraseStore, SystemdCredential};
use palyra_vault::{Head, KeyStore, KeyStoreError, KeyStoreKind, SqliteBlobs, Vault, VaultError};

use super::keys::{self, KeyFiles, Wanted};
use super::{Committed, VaultFold};
use crate::error::{Refusal, RefusalKind};

/// Where the vault is, and where its key.
#[derive(Debug, Clone)]
pub struct VaultPlace {
    /// The folder of its files: ours alone.
    pub folder: PathBuf,
    /// The key store that was chosen.
    pub keystore: KeyStoreKind,
    /// Where systemd puts credentials for this service.
    pub credentials: Option<PathBuf>,
    /// Where earlier versions kept the daemon's own keys.
    pub key_files: Option<KeyFiles>,
    /// Whether another key is to sign the journal from this start on.
    pub rotate_journal_key: bool,
}

impl VaultPlace {
    /// A key file in this folder: what is used where nobody chose.
    #[must_use]
    pub const fn key_file(folder: PathBuf) -> Self {
        Self {
            folder,
            keystore: KeyStoreKind::File,
            credentials: None,
            key_files: None,
            rotate_journal_key: false,
        }
    }
}

/// What somebody who opens the vault said beforehand.
#[derive(Debug, Clone, Default)]
pub struct Unlocking {
    /// The passphrase, where the key store needs one.
    pub passphrase: Option<String>,
    /// An older file, or none where there was one, is taken as it is.
    pub accept_rollback: bool,
    /// Keys of the journal that are lost, or somebody else's, are given up.
    pub new_journal_keys: bool,
}

/// How the vault stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Values can be used.
    Open,
    /// They cannot.
    Locked {
        /// Why, for programs.
        code: &'static str,
        /// Why, for a person.
        why: String,
        /// What to do about it.
        next_step: String,
    },
}

pub(crate) struct VaultKeeper {
    vault: Option<Arc<Vault>>,
    pub(crate) place: VaultPlace,
    standing: Mutex<Standing>,
    journal: JournalStore,
    clock: Arc<dyn Clock>,
    /// Changes of vault and journal happen one after another.
    pub(crate) change: tokio::sync::Mutex<()>,
    /// The key of call digests, while it is at hand.
    digests: RwLock<Option<Arc<DigestKey>>>,
    /// Whether another key is still to sign the journal.
    rotate: AtomicBool,
}

impl VaultKeeper {
    /// Opens what can be opened without a person. Nothing here keeps a daemon from starting.
    pub(crate) async fn open(
        place: VaultPlace,
        journal: JournalStore,
        clock: Arc<dyn Clock>,
        digests: Option<DigestKey>,
    ) -> Self {
        let folder = place.folder.clone();
        let opened = blocking(move || Vault::open(Box::new(SqliteBlobs::open(&folder)?))).await;
        let (vault, standing) = match opened {
            Ok(vault) => (
                Some(Arc::new(vault)),
                locked("vault_locked", "it was not opened yet"),
            ),
            Err(refusal) => (None, standing_of(&refusal)),
        };
        let keeper = Self {
            vault,
            digests: RwLock::new(digests.map(Arc::new)),
            rotate: AtomicBool::new(place.rotate_journal_key),
            place,
            standing: Mutex::new(standing),
            journal,
            clock,
            change: tokio::sync::Mutex::new(()),
        };
        if keeper.vault.is_some()
            && let Err(refusal) = keeper.unlock(Unlocking::default(), None).await
        {
            tracing::warn!(code = refusal.code, why = %refusal, "the vault is locked");
        }
        keeper
    }

    pub(crate) fn standing(&self) -> Standing {
        let standing = self.standing.lock();
        standing.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stand(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// The vault's file, whether it is open or not.
    pub(crate) fn file(&self) -> Result<Arc<Vault>, Refusal> {
        self.vault.clone().ok_or_else(|| self.is_locked())
    }

    /// The vault, when its values can be used.
    pub(crate) fn vault(&self) -> Result<Arc<Vault>, Refusal> {
        match self.standing() {
            Standing::Open => self.file(),
            Standing::Locked { .. } => Err(self.is_locked()),
        }
    }

    fn is_locked(&self) -> Refusal {
        Refusal::denied(self.denial())
    }

    /// Why nothing runs while the vault is locked: arguments cannot be looked through, and nothing
    /// that needs a secret could have it.
    pub(crate) fn denial(&self) -> Denial {
        let (why, next_step) = match self.standing() {
            Standing::Open => ("it is open".to_owned(), "try again".to_owned()),
            Standing::Locked { why, next_step, .. } => (why, next_step),
        };
        Denial::new(
            DenialCode::VaultLocked,
            format!("the vault is locked: {why}"),
            next_step,
        )
    }

    /// The key of call digests, while the vault is open.
    pub(crate) fn digest_key(&self) -> Result<Arc<DigestKey>, Refusal> {
        let key = self.digests.read().unwrap_or_else(PoisonError::into_inner);
        key.clone().ok_or_else(|| self.is_locked())
    }

    fn hold_digests(&self, key: Option<DigestKey>) {
        let mut place = self.digests.write().unwrap_or_else(PoisonError::into_inner);
        *place = key.map(Arc::new);
    }

    /// The vault when its keys are at hand, also while the journal waits for its own.
    pub(crate) fn opened(&self) -> Result<Arc<Vault>, Refusal> {
        let vault = self.file()?;
        let status = vault.status().map_err(refused)?;
        match status.is_some_and(|status| status.open) {
            true => Ok(vault),
            false => Err(self.is_locked()),
        }
    }

    /// Files of earlier versions that still hold keys.
    pub(crate) fn keys_in_files(&self) -> Vec<PathBuf> {
        self.place
            .key_files
            .as_ref()
            .map_or_else(Vec::new, keys::left)
    }

    /// Opens it, or makes it, and holds it against the journal.
    pub(crate) async fn unlock(
        &self,
        how: Unlocking,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.change.lock().await;
        // Asked again while it is open, a missing passphrase must not close it.
        if self.standing() == Standing::Open {
            return Ok(());
        }
        let had_keys = !self.journal.is_locked();
        let done = self.try_unlock(how, by).await;
        self.stands_after(done, had_keys).await
    }

    /// Goes on with an opening for which the journal's keys were missing. To be called with the
    /// right to change.
    pub(crate) async fn go_on(
        &self,
        untold: Vec<(Head, VaultChange)>,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        if self.standing() == Standing::Open {
            return Ok(());
        }
        let done = match self.opened() {
            Ok(vault) => self.finish(&vault, false, untold, by).await,
            Err(refusal) => Err(refusal),
        };
        self.stands_after(done, false).await
    }

    async fn stands_after(&self, done: Result<(), Refusal>, had_keys: bool) -> Result<(), Refusal> {
        match &done {
            Ok(()) => self.stand(Standing::Open),
            Err(refusal) => {
                if !had_keys && !self.journal.is_locked() {
                    self.journal.lock().await?;
                    self.hold_digests(None);
                }
                // A backup that brings the missing keys has to be let in.
                let waits = ["journal_key_lost", "journal_key_foreign"].contains(&refusal.code);
                if let Some(vault) = self.vault.as_ref().filter(|_| !waits) {
                    vault.lock();
                }
                self.stand(standing_of(refusal));
            }
        }
        done
    }

    async fn try_unlock(&self, how: Unlocking, by: Option<Principal>) -> Result<(), Refusal> {
        let vault = self.file()?;
        let committed = self.committed()?;
        let mut untold = Vec::new();
        if !vault.exists() {
            let head = self.create(&vault, committed, &how, by.is_some()).await?;
            untold.push((head, VaultChange::Created));
            return self.finish(&vault, how.new_journal_keys, untold, by).await;
        }
        let status = vault.status().map_err(refused)?;
        if !status.as_ref().is_some_and(|status| status.open) {
            let id = status.map(|status| status.id).unwrap_or_default();
            let store = self.store(how.passphrase, &id, by.is_some())?;
            let opening = Arc::clone(&vault);
            blocking(move || opening.unlock(store)).await?;
        }
        let head = current_head(&vault)?;
        match held_against(&head, committed) {
            Held::Same | Held::Ahead => {}
            Held::Behind(known) if how.accept_rollback => {
                let accepting = Arc::clone(&vault);
                let head = blocking(move || accepting.accept_rollback(known)).await?;
                untold.push((head, VaultChange::RollbackAccepted));
            }
            Held::Behind(known) => return Err(rolled_back(head.generation, known)),
        }
        self.finish(&vault, how.new_journal_keys, untold, by).await
    }

    /// Gives the journal its keys, then tells it what became of the vault meanwhile.
    async fn finish(
        &self,
        vault: &Arc<Vault>,
        anew: bool,
        mut untold: Vec<(Head, VaultChange)>,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        if self.journal.is_locked() {
            let rotate = self.rotate.load(Ordering::Acquire);
            let (opening, journal) = (Arc::clone(vault), self.journal.clone());
            let files = self.place.key_files.clone();
            let opened = crate::policies::blocking(move || {
                let files = files.as_ref();
                keys::open(
                    &opening,
                    &journal,
                    &Wanted {
                        files,
                        anew,
                        rotate,
                    },
                )
            });
            let opened = opened.await??;
            untold.extend(opened.changed);
            self.journal.unlock(opened.journal).await?;
            self.rotate.store(false, Ordering::Release);
            self.hold_digests(Some(opened.digests));
            let (settling, files) = (Arc::clone(vault), self.place.key_files.clone());
            let settled = crate::policies::blocking(move || {
                let forgotten = keys::forget_previous(&settling)?;
                if let Some(files) = files.filter(|_| opened.settled) {
                    keys::wipe(&settling, &files)?;
                }
                Ok::<_, Refusal>(forgotten)
            });
            untold.extend(settled.await??);
        }
        if untold.is_empty() {
            self.mend(vault).await?;
        }
        for (head, change) in untold {
            self.tell(head, change, by.clone(), false).await?;
        }
        self.settle(vault).await
    }

    async fn create(
        &self,
        vault: &Arc<Vault>,
        committed: Option<Committed>,
        how: &Unlocking,
        prompting: bool,
    ) -> Result<Head, Refusal> {
        let known = committed.map_or(0, |committed| committed.generation);
        if known > 0 && !how.accept_rollback {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                "vault_gone",
                format!("the journal knows a vault of generation {known}, and its file is gone"),
                "put `vault.db` and its key back, then `palyra vault unlock`; or begin an empty one \
                 with `palyra vault unlock --accept-rollback`",
            ));
        }
        let id = Vault::new_id().map_err(refused)?;
        let store = self.store(how.passphrase.clone(), &Vault::id_text(&id), prompting)?;
        let creating = Arc::clone(vault);
        blocking(move || creating.create_after(known, id, store)).await
    }

    /// The key store that was chosen, and no other.
    fn store(
        &self,
        passphrase: Option<String>,
        vault: &str,
        prompting: bool,
    ) -> Result<Arc<dyn KeyStore>, Refusal> {
        let folder = &self.place.folder;
        Ok(match self.place.keystore {
            KeyStoreKind::File => Arc::new(KeyFile::new(folder)),
            KeyStoreKind::Passphrase => {
                let given = passphrase.ok_or(KeyStoreError::NoPassphrase);
                let given = given.map_err(|error| refused(error.into()))?;
                Arc::new(PassphraseStore::new(folder, Passphrase::new(given)))
            }
            KeyStoreKind::SecretService => {
                let store = palyra_vault::keystore::SecretServiceStore::new(vault);
                match prompting {
                    true => Arc::new(store.prompting()),
                    false => Arc::new(store),
                }
            }
            KeyStoreKind::SystemdCredential => {
                Arc::new(SystemdCredential::new(self.place.credentials.clone()))
            }
            KeyStoreKind::Native => {
                palyra_vault::keystore::native(vault).map_err(|error| refused(error.into()))?
            }
        })
    }

    /// Finishes a change of the key that was cut short, forgets the old key, removes what ended.
    async fn settle(&self, vault: &Arc<Vault>) -> Result<(), Refusal> {
        let settled = Arc::clone(vault);
        let head = blocking(move || settled.settle(&mut |_| std::ops::ControlFlow::Continue(())));
        if head.await?.is_some() {
            self.mend(vault).await?;
        }
        let (swept, now) = (Arc::clone(vault), self.clock.now());
        if blocking(move || swept.sweep(now)).await?.is_some() {
            self.mend(vault).await?;
        }
        Ok(())
    }

    /// Tells the journal what the vault's last change was, when it was not told.
    pub(crate) async fn mend(&self, vault: &Vault) -> Result<(), Refusal> {
        let status = vault.status().map_err(refused)?;
        let Some(status) = status else {
            return Ok(());
        };
        if held_against(&status.head, self.committed()?) != Held::Ahead {
            return Ok(());
        }
        self.tell(status.head, status.change, None, true).await
    }

    /// Writes the entry about a change that is in the vault's file.
    pub(crate) async fn tell(
        &self,
        head: Head,
        change: VaultChange,
        by: Option<Principal>,
        mended: bool,
    ) -> Result<(), Refusal> {
        let entry = Entry::VaultChanged {
            generation: head.generation,
            head: head.digest(),
            change,
            by,
            mended,
        };
        self.note(entry).await
    }

    /// Writes an entry of the vault's stream.
    pub(crate) async fn note(&self, entry: Entry) -> Result<(), Refusal> {
        let entries = vec![entry];
        self.journal
            .append_if(Stream::Vault, Expected::Any, entries)
            .await?;
        Ok(())
    }

    /// Says that it is locked: from here on nothing new runs.
    pub(crate) fn close(&self) -> Result<(), Refusal> {
        self.file()?;
        self.stand(locked("vault_locked", "a person locked it"));
        Ok(())
    }

    /// Forgets the keys, the journal's among them. Nothing runs until it is opened again.
    pub(crate) async fn lock(&self) -> Result<(), Refusal> {
        let _one_at_a_time = self.change.lock().await;
        self.close()?;
        self.journal.lock().await?;
        self.hold_digests(None);
        self.file()?.lock();
        Ok(())
    }

    fn committed(&self) -> Result<Option<Committed>, Refusal> {
        let row = self.journal.row(VaultFold::NAME, VaultFold::ONLY)?;
        Ok(row.and_then(|row| serde_json::from_slice(&row.value).ok()))
    }
}

/// How a vault's file and the journal relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Same,
    Ahead,
    /// Of a generation that the journal was told later, or told otherwise.
    Behind(u64),
}

fn held_against(head: &Head, committed: Option<Committed>) -> Held {
    match committed {
        None => Held::Ahead,
        Some(known) if head.generation > known.generation => Held::Ahead,
        Some(known) if head.generation == known.generation && head.digest() == known.head => {
            Held::Same
        }
        Some(known) => Held::Behind(known.generation),
    }
}

fn current_head(vault: &Vault) -> Result<Head, Refusal> {
    let status = vault.status().map_err(refused)?;
    let head = status.map(|status| status.head);
    head.ok_or_else(|| refused(VaultError::Locked))
}

fn rolled_back(found: u64, known: u64) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "vault_rolled_back",
        format!(
            "the vault's file is an older one: it is of generation {found}, and the journal was told \
             of generation {known}"
        ),
        "put the newer `vault.db` back, or take this one with `palyra vault unlock --accept-rollback`",
    )
}

fn locked(code: &'static str, why: &str) -> Standing {
    Standing::Locked {
        code,
        why: why.to_owned(),
        next_step: "open it with `palyra vault unlock`".to_owned(),
    }
}

fn standing_of(refusal: &Refusal) -> Standing {
    Standing::Locked {
        code: refusal.code,
        why: refusal.message.clone(),
        next_step: refusal.next_step.clone(),
    }
}

/// A vault's error, as it is answered.
pub(crate) fn refused(error: VaultError) -> Refusal {
    use RefusalKind::{Conflict, Invalid, NotFound, TooLarge, Unavailable};
    let kind = match &error {
        VaultError::NoSuchSecret(_) | VaultError::NoSuchVersion { .. } => NotFound,
        VaultError::Expired { .. } | VaultError::Rotating => Conflict,
        VaultError::EmptyValue | VaultError::Audience(_) => Invalid,
        VaultError::TooLarge { .. } => TooLarge,
        VaultError::KeyStore(KeyStoreError::WrongPassphrase) => RefusalKind::Forbidden,
        VaultError::KeyStore(
            KeyStoreError::NoPassphrase
            | KeyStoreError::ShortPassphrase(_)
            | KeyStoreError::ReadOnly(_),
        ) => Invalid,
        VaultError::Locked
        | VaultError::Damaged { .. }
        | VaultError::InUse
        | VaultError::Full
        | VaultError::Place { .. }
        | VaultError::Newer { .. }
        | VaultError::OtherKeyStore { .. }
        | VaultError::Storage(_)
        | VaultError::KeyStore(
            KeyStoreError::Locked(_)
            | KeyStoreError::Away { .. }
            | KeyStoreError::Slow(_)
            | KeyStoreError::NoSuchKey { .. }
            | KeyStoreError::Damaged { .. },
        ) => Unavailable,
    };
    Refusal::new(kind, error.code(), error.to_string(), error.remedy())
}

/// SQLite, Argon2 and D-Bus block: not on the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, Refusal> {
    crate::policies::blocking(move || work().map_err(refused)).await?
}
