//! What front doors ask of the vault, each asked of policy first and recorded.

use std::sync::Arc;

use palyra_core::entry::{Entry, Recorded, Stream};
use palyra_core::{
    Facts, Injection, InjectionTable, Principal, SecretAccess, SecretRef, SecretValue, VaultChange,
};
use palyra_policy::{Action, PolicyRequest, PolicyRequestContext, Resource};
use palyra_vault::keystore::Passphrase;
use palyra_vault::{
    BadBackup, Head, NewSecret, Opener, Rotation, Status, Summary, Vault, VersionInfo, Wrapping,
};

use super::keeper::{Standing, Unlocking, blocking, refused};
use super::keys;
use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// How the vault is.
#[derive(Debug, Clone)]
pub struct Overview {
    /// What its file says; `None` while there is none that can be read.
    pub status: Option<Status>,
    /// The key store that was chosen.
    pub keystore: palyra_vault::KeyStoreKind,
    /// Whether values can be used.
    pub standing: Standing,
    /// Files of earlier versions that still hold the daemon's own keys.
    pub keys_in_files: Vec<std::path::PathBuf>,
}

/// What somebody wants to see.
#[derive(Debug, Clone)]
pub struct Reveal {
    /// Which secret.
    pub secret: SecretRef,
    /// Which version; the newest when absent.
    pub version: Option<u64>,
    /// Whether the person who asks said yes to seeing it, on the spot.
    pub confirmed: bool,
}

/// A value on its way to the one who may see it.
pub struct SecretValueOut {
    /// The value.
    pub value: SecretValue,
    /// What is known of it.
    pub info: VersionInfo,
}

/// How a backup is sealed.
pub enum Export {
    /// For these age keys.
    Recipients(Vec<String>),
    /// By a passphrase.
    Passphrase(String),
}

/// Where secrets come from.
pub enum Import {
    /// A backup and the age key that opens it.
    WithIdentity(Vec<u8>, SecretValue),
    /// A backup and its passphrase.
    WithPassphrase(Vec<u8>, String),
    /// Secrets as they are.
    Secrets(Vec<NewSecret>),
}

impl GatewayService {
    /// The time by the gateway's clock.
    #[must_use]
    pub fn now(&self) -> palyra_core::Timestamp {
        self.0.clock.now()
    }

    /// How the vault is.
    ///
    /// # Errors
    /// Policy forbids it.
    pub fn vault_overview(&self, caller: &Caller) -> Result<Overview, Refusal> {
        self.allowed(caller, Action::DaemonStatus, Resource::Daemon)?;
        let vault = self.0.vault.file().ok();
        let status = vault.and_then(|vault| vault.status().ok().flatten());
        Ok(Overview {
            keystore: status
                .as_ref()
                .map_or(self.0.vault.place.keystore, |status| status.keystore),
            status,
            standing: self.0.vault.standing(),
            keys_in_files: self.0.vault.keys_in_files(),
        })
    }

    /// Opens the vault, or makes it when there is none.
    ///
    /// # Errors
    /// Policy forbids it, or the key store does not give the key.
    pub async fn unlock_vault(&self, caller: &Caller, how: Unlocking) -> Result<Overview, Refusal> {
        self.allowed(caller, Action::VaultManage, Resource::Daemon)?;
        let by = Some(caller.principal.clone());
        self.0.vault.unlock(how, by).await?;
        self.wake().await?;
        self.vault_overview(caller)
    }

    /// Locks it: what runs and waits is ended and recorded, the keys are forgotten, and nothing runs
    /// until it is opened again.
    ///
    /// # Errors
    /// Policy forbids it, or there is none.
    pub async fn lock_vault(&self, caller: &Caller) -> Result<Overview, Refusal> {
        self.allowed(caller, Action::VaultManage, Resource::Daemon)?;
        self.0.vault.close()?;
        self.0.presence.forget_all();
        self.end_live_calls().await;
        self.0.vault.lock().await?;
        self.vault_overview(caller)
    }

    /// Stores a new version of a secret.
    ///
    /// # Errors
    /// Policy forbids it, the vault is locked, or the value is none.
    pub async fn put_secret(
        &self,
        caller: &Caller,
        new: NewSecret,
    ) -> Result<VersionInfo, Refusal> {
        let secret = new.secret.clone();
        self.allowed(caller, Action::VaultPut, Resource::Secret(secret.clone()))?;
        let now = self.0.clock.now();
        let stored = move |vault: &Vault| {
            let (version, head) = vault.put(&new, now)?;
            let (secret, info) = (
                new.secret.clone(),
                VersionInfo {
                    version,
                    created_at: now,
                    expires_at: new.expires_at,
                    audience: new.audience.clone(),
                },
            );
            Ok((head, VaultChange::Put { secret, version }, info))
        };
        self.change_vault(caller, stored).await
    }

    /// Shows a value to the person who asks and said yes to it. It is recorded before it leaves.
    ///
    /// # Errors
    /// Policy forbids it, nobody said yes, the vault is locked, or there is no such secret.
    pub async fn reveal_secret(
        &self,
        caller: &Caller,
        wanted: Reveal,
    ) -> Result<SecretValueOut, Refusal> {
        let secret = wanted.secret.clone();
        let person = matches!(caller.principal, Principal::User { .. });
        self.may_see(caller, person, &secret)?;
        if !person || !wanted.confirmed {
            return Err(Refusal::new(
                RefusalKind::Forbidden,
                "presence_needed",
                format!("`{secret}` is shown only to a person who says yes to it on the spot"),
                format!("run `palyra vault get {secret}` at a terminal, and answer it"),
            ));
        }
        self.present(caller, "see a secret").await?;
        let (vault, now) = (self.0.vault.vault()?, self.0.clock.now());
        let (asked, version) = (secret.clone(), wanted.version);
        let (value, info) = blocking(move || vault.get(&asked, version, now)).await?;
        self.accessed(caller, secret, info.version, SecretAccess::Revealed, None)
            .await?;
        Ok(SecretValueOut { value, info })
    }

    /// Whether policy lets them see it. Where it wants a person asked first, that is said: nobody can
    /// be asked about anything but a call, and what was not asked is not shown.
    fn may_see(&self, caller: &Caller, person: bool, secret: &SecretRef) -> Result<(), Refusal> {
        let on = || Resource::Secret(secret.clone());
        let Err(refusal) = self.allowed(caller, Action::VaultGet, on()) else {
            return Ok(());
        };
        let asks = person && self.allowed(caller, Action::VaultGetAsk, on()).is_ok();
        match asks {
            false => Err(refusal),
            true => Err(Refusal::new(
                RefusalKind::Forbidden,
                "reveal_needs_approval",
                format!(
                    "policy wants somebody asked before `{secret}` is shown, and approvals are about calls"
                ),
                "let `vault.get` be permitted for whoever may see it; their yes on the spot stays needed",
            )),
        }
    }

    /// The secrets that this caller may know of, without values.
    ///
    /// # Errors
    /// Policy forbids every one, or the vault cannot be read.
    pub fn secrets(
        &self,
        caller: &Caller,
        after: Option<&SecretRef>,
        most: usize,
    ) -> Result<Vec<Summary>, Refusal> {
        let vault = self.0.vault.file()?;
        let every = self.allowed(caller, Action::VaultList, Resource::Daemon);
        let found = vault.list(after, most).map_err(refused)?;
        let Err(refusal) = every else {
            return Ok(found);
        };
        let may = |summary: &Summary| {
            let on = Resource::Secret(summary.secret.clone());
            self.allowed(caller, Action::VaultList, on).is_ok()
        };
        let own: Vec<Summary> = found.into_iter().filter(may).collect();
        match own.is_empty() {
            true => Err(Refusal {
                message: format!(
                    "no policy lets `{}` see the names of secrets",
                    caller.principal
                ),
                ..refusal
            }),
            false => Ok(own),
        }
    }

    /// Every version of a secret, without values.
    ///
    /// # Errors
    /// Policy forbids it, or there is no such secret.
    pub fn secret_versions(
        &self,
        caller: &Caller,
        secret: &SecretRef,
    ) -> Result<Vec<VersionInfo>, Refusal> {
        self.allowed(caller, Action::VaultList, Resource::Secret(secret.clone()))?;
        self.0.vault.file()?.versions(secret).map_err(refused)
    }

    /// Deletes a secret with all its versions.
    ///
    /// # Errors
    /// Policy forbids it, the vault is locked, or there is no such secret.
    pub async fn delete_secret(&self, caller: &Caller, secret: SecretRef) -> Result<(), Refusal> {
        self.allowed(
            caller,
            Action::VaultDelete,
            Resource::Secret(secret.clone()),
        )?;
        let deleted = move |vault: &Vault| {
            let head = vault.delete(&secret)?;
            Ok((head, VaultChange::Deleted { secret }, ()))
        };
        self.change_vault(caller, deleted).await
    }

    /// Changes the key-encryption key.
    ///
    /// # Errors
    /// Policy forbids it, the vault is locked, or the key store refuses.
    pub async fn rotate_vault_key(&self, caller: &Caller) -> Result<Rotation, Refusal> {
        self.allowed(caller, Action::VaultRotate, Resource::Daemon)?;
        let rotated = |vault: &Vault| {
            let done = vault.rotate(&mut |_| std::ops::ControlFlow::Continue(()))?;
            let done = done.ok_or(palyra_vault::VaultError::Rotating)?;
            let key = done.key.to_string();
            Ok((done.head, VaultChange::RotationDone { key }, done))
        };
        self.change_vault(caller, rotated).await
    }

    /// Every newest value, sealed as an age file. Each is recorded before any leaves.
    ///
    /// # Errors
    /// Policy forbids it, nobody said yes, the vault is locked, or nobody could read the backup.
    pub async fn export_vault(
        &self,
        caller: &Caller,
        export: Export,
        confirmed: bool,
    ) -> Result<Vec<u8>, Refusal> {
        self.allowed(caller, Action::VaultExport, Resource::Daemon)?;
        if !confirmed {
            return Err(Refusal::new(
                RefusalKind::Forbidden,
                "presence_needed",
                "every value leaves the vault with a backup: a person says yes to it on the spot",
                "run `palyra vault export FILE --recipient age1…` at a terminal, and answer it",
            ));
        }
        self.present(caller, "take secrets out").await?;
        let (vault, now) = (self.0.vault.vault()?, self.0.clock.now());
        let wrapping = match export {
            Export::Recipients(keys) => Wrapping::Recipients(keys),
            Export::Passphrase(text) => Wrapping::Passphrase(Passphrase::new(text)),
        };
        let exporting = Arc::clone(&vault);
        let file = move || exporting.export(&wrapping, now).map_err(bad_backup);
        let file = crate::policies::blocking(file).await??;
        let mut after = None;
        loop {
            let page = vault.list(after.as_ref(), 256).map_err(refused)?;
            let Some(last) = page.last() else { break };
            after = Some(last.secret.clone());
            for one in page {
                let (secret, version) = (one.secret, one.latest.version);
                self.accessed(caller, secret, version, SecretAccess::Exported, None)
                    .await?;
            }
        }
        Ok(file)
    }

    /// Stores what a backup or a list holds, all of it or nothing. How many.
    ///
    /// # Errors
    /// Policy forbids one of them, the backup does not open, or the vault is locked.
    pub async fn import_secrets(&self, caller: &Caller, import: Import) -> Result<u64, Refusal> {
        if let Import::Secrets(new) = &import {
            for one in new {
                let on = Resource::Secret(one.secret.clone());
                self.allowed(caller, Action::VaultPut, on)?;
            }
        } else {
            // What is inside is known only once it is open: for whoever may store anything.
            self.allowed(caller, Action::VaultPut, Resource::Daemon)?;
        }
        let one_at_a_time = self.0.vault.change.lock().await;
        // Also while the journal waits for its keys: they may be in the backup.
        let (vault, now) = (self.0.vault.opened()?, self.0.clock.now());
        let journal = self.0.journal.clone();
        let waits = journal.is_locked();
        if !waits {
            self.0.vault.mend(&vault).await?;
        }
        let storing = Arc::clone(&vault);
        let restore = move |file: &[u8], opener: &Opener| {
            let contents = Vault::read_backup(file, opener).map_err(bad_backup)?;
            let own = keys::missing(&journal, &contents)?;
            match waits && own.is_empty() {
                true => Err(not_the_keys()),
                false => vault.restore(&contents, &own, now).map_err(refused),
            }
        };
        let restored = crate::policies::blocking(move || match import {
            Import::Secrets(_) if waits => Err(not_the_keys()),
            Import::Secrets(new) => storing.put_all(&new, now).map_err(refused),
            Import::WithIdentity(file, key) => restore(&file, &Opener::Identity(key)),
            Import::WithPassphrase(file, text) => {
                restore(&file, &Opener::Passphrase(Passphrase::new(text)))
            }
        });
        let restored = restored.await??;
        let change = VaultChange::Imported {
            secrets: restored.secrets,
        };
        let by = Some(caller.principal.clone());
        match waits {
            true => {
                self.0
                    .vault
                    .go_on(vec![(restored.head, change)], by)
                    .await?
            }
            false => self.0.vault.tell(restored.head, change, by, false).await?,
        }
        drop(one_at_a_time);
        if waits {
            self.wake().await?;
        }
        Ok(restored.secrets)
    }

    /// Who changed and had what, the newest first.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn vault_audit(
        &self,
        caller: &Caller,
        secret: Option<&SecretRef>,
        most: usize,
    ) -> Result<Vec<Recorded>, Refusal> {
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let entries = self.0.journal.read_stream(&Stream::Vault)?;
        let about = |recorded: &Recorded| secret.is_none_or(|wanted| names(recorded, wanted));
        Ok(entries.into_iter().rev().filter(about).take(most).collect())
    }

    /// What one call may have sent for it: each secret asked of policy with the facts of the call,
    /// and recorded before it is in the table. This is all that an executor ever gets.
    ///
    /// # Errors
    /// Policy forbids one, the vault is locked, or there is no such secret.
    pub async fn injection_table(
        &self,
        caller: &Caller,
        facts: &Facts,
        secrets: &[SecretRef],
    ) -> Result<InjectionTable, Refusal> {
        let mut table = Vec::new();
        for secret in secrets {
            self.may_use(caller, facts, secret)?;
            let (vault, now, asked) = (self.0.vault.vault()?, self.0.clock.now(), secret.clone());
            let (value, info) = blocking(move || vault.get(&asked, None, now)).await?;
            let call = Some(facts.call.clone());
            self.accessed(
                caller,
                secret.clone(),
                info.version,
                SecretAccess::Used,
                call,
            )
            .await?;
            let (version, audience) = (info.version, info.audience);
            table.push(Injection::new(secret.clone(), version, audience, value));
        }
        Ok(InjectionTable::new(table))
    }

    /// The agent, and the person behind it, or the person alone.
    fn may_use(&self, caller: &Caller, facts: &Facts, secret: &SecretRef) -> Result<(), Refusal> {
        let person = Principal::User {
            name: caller.principal.user().clone(),
        };
        let agent = caller.principal.agent().map(|_| caller.principal.clone());
        for principal in agent.into_iter().chain([person]) {
            let request = PolicyRequest {
                principal,
                action: Action::VaultUse,
                resource: Resource::Secret(secret.clone()),
            };
            let context = PolicyRequestContext::from(facts);
            let decision = self.0.policy.evaluate_with_context(&request, &context);
            let decision = decision.map_err(Refusal::denied)?;
            if !decision.allowed {
                return Err(Refusal::new(
                    RefusalKind::Forbidden,
                    "denied_by_policy",
                    format!("policy does not let `{}` use `{secret}`", request.principal),
                    "store one for it with `palyra vault put NAME --scope agent:NAME`",
                ));
            }
        }
        Ok(())
    }

    pub(crate) async fn accessed(
        &self,
        caller: &Caller,
        secret: SecretRef,
        version: u64,
        access: SecretAccess,
        call: Option<palyra_core::CallId>,
    ) -> Result<(), Refusal> {
        let entry = Entry::SecretAccessed {
            secret,
            version,
            access,
            by: caller.principal.clone(),
            call,
        };
        self.0.vault.note(entry).await
    }

    /// One change of the vault and the entry about it, after what an earlier one left untold.
    async fn change_vault<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Vault) -> Result<(Head, VaultChange, T), palyra_vault::VaultError>
        + Send
        + 'static,
    ) -> Result<T, Refusal> {
        let _one_at_a_time = self.0.vault.change.lock().await;
        let vault = self.0.vault.vault()?;
        self.0.vault.mend(&vault).await?;
        let (head, change, done) = blocking(move || work(&vault)).await?;
        let by = Some(caller.principal.clone());
        self.0.vault.tell(head, change, by, false).await?;
        Ok(done)
    }
}

fn not_the_keys() -> Refusal {
    Refusal::new(
        RefusalKind::Conflict,
        "not_the_journals_keys",
        "this holds no keys of this journal, and nothing else is taken before it has them",
        "give the export of the vault that belongs to it; or go on without its keys with `palyra \
         vault unlock --new-journal-keys`",
    )
}

fn bad_backup(error: BadBackup) -> Refusal {
    let (code, remedy) = (error.code(), error.remedy());
    match error {
        BadBackup::Vault(error) => refused(error),
        BadBackup::Recipient(_)
        | BadBackup::Nobody
        | BadBackup::Identity
        | BadBackup::NotOpened
        | BadBackup::Content(_) => {
            Refusal::new(RefusalKind::Invalid, code, error.to_string(), remedy)
        }
    }
}

/// Whether an entry of the vault's stream is about this secret.
fn names(recorded: &Recorded, wanted: &SecretRef) -> bool {
    if let Entry::SecretAccessed { secret, .. } = &recorded.entry {
        return secret == wanted;
    }
    let Entry::VaultChanged { change, .. } = &recorded.entry else {
        return false;
    };
    match change {
        VaultChange::Put { secret, .. } | VaultChange::Deleted { secret } => secret == wanted,
        VaultChange::Created
        | VaultChange::Swept { .. }
        | VaultChange::RotationBegun { .. }
        | VaultChange::RotationDone { .. }
        | VaultChange::OldKeyForgotten { .. }
        | VaultChange::KeysKept { .. }
        | VaultChange::RollbackAccepted
        | VaultChange::Imported { .. } => false,
    }
}
