//! Whether the vault is open, and whether it is the one that the journal knows.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use palyra_core::entry::{Entry, Stream};
use palyra_core::{Clock, Denial, DenialCode, Principal, VaultChange};
use palyra_journal::{Expected, JournalStore};
use palyra_vault::keystore::{KeyFile, Passphrase, PassphraseStore, SystemdCredential};
use palyra_vault::{Head, KeyStore, KeyStoreError, KeyStoreKind, SqliteBlobs, Vault, VaultError};

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
}

impl VaultPlace {
    /// A key file in this folder: what is used where nobody chose.
    #[must_use]
    pub const fn key_file(folder: PathBuf) -> Self {
        Self {
            folder,
            keystore: KeyStoreKind::File,
            credentials: None,
        }
    }
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
}

impl VaultKeeper {
    /// Opens what can be opened without a person. Nothing here keeps a daemon from starting.
    pub(crate) async fn open(
        place: VaultPlace,
        journal: JournalStore,
        clock: Arc<dyn Clock>,
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
            place,
            standing: Mutex::new(standing),
            journal,
            clock,
            change: tokio::sync::Mutex::new(()),
        };
        if keeper.vault.is_some()
            && let Err(refusal) = keeper.unlock(None, false, None).await
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

    /// Opens it, or makes it, and holds it against the journal.
    pub(crate) async fn unlock(
        &self,
        passphrase: Option<String>,
        accept_rollback: bool,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.change.lock().await;
        // Asked again while it is open, a missing passphrase must not close it.
        if self.standing() == Standing::Open {
            return Ok(());
        }
        let done = self.try_unlock(passphrase, accept_rollback, by).await;
        match &done {
            Ok(()) => self.stand(Standing::Open),
            Err(refusal) => {
                if let Some(vault) = &self.vault {
                    vault.lock();
                }
                self.stand(standing_of(refusal));
            }
        }
        done
    }

    async fn try_unlock(
        &self,
        passphrase: Option<String>,
        accept_rollback: bool,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        let vault = self.file()?;
        let committed = self.committed()?;
        if !vault.exists() {
            return self.create(vault, committed, passphrase, by).await;
        }
        let prompting = by.is_some();
        let status = vault.status().map_err(refused)?;
        let id = status.map(|status| status.id).unwrap_or_default();
        let store = self.store(passphrase, &id, prompting)?;
        let opening = Arc::clone(&vault);
        blocking(move || opening.unlock(store)).await?;
        let head = current_head(&vault)?;
        match held_against(&head, committed) {
            Held::Same => {}
            Held::Ahead => self.mend(&vault).await?,
            Held::Behind(known) if accept_rollback => {
                let head = blocking({
                    let vault = Arc::clone(&vault);
                    move || vault.accept_rollback(known)
                })
                .await?;
                self.tell(head, VaultChange::RollbackAccepted, by, false)
                    .await?;
            }
            Held::Behind(known) => return Err(rolled_back(head.generation, known)),
        }
        self.settle(&vault).await
    }

    async fn create(
        &self,
        vault: Arc<Vault>,
        committed: Option<Committed>,
        passphrase: Option<String>,
        by: Option<Principal>,
    ) -> Result<(), Refusal> {
        if let Some(committed) = committed {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                "vault_gone",
                format!(
                    "the journal knows a vault of generation {}, and its file is gone",
                    committed.generation
                ),
                "put `vault.db` back from a backup, then `palyra vault unlock`",
            ));
        }
        let id = Vault::new_id().map_err(refused)?;
        let store = self.store(passphrase, &Vault::id_text(&id), by.is_some())?;
        let head = blocking(move || vault.create(id, store)).await?;
        self.tell(head, VaultChange::Created, by, false).await
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

    /// Forgets the keys. Nothing runs until it is opened again.
    pub(crate) async fn lock(&self) -> Result<(), Refusal> {
        let _one_at_a_time = self.change.lock().await;
        self.file()?.lock();
        self.stand(locked("vault_locked", "a person locked it"));
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
