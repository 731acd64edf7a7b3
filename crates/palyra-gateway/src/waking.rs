//! What a daemon whose vault was locked at its start does once that is open, and what it ends when
//! the vault is locked again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use palyra_core::entry::{Entry, WhyActivated};
use palyra_core::{CallId, Denial, DenialCode};
use palyra_policy::Action;

use crate::error::Refusal;
use crate::recovery;
use crate::service::GatewayService;

/// How long ended calls may take to be recorded before the keys are forgotten.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// How far the start has come.
#[derive(Default)]
pub(crate) struct Waking {
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
    /// Everything that a start records is recorded.
    done: AtomicBool,
    version: OnceLock<String>,
    interrupted: Mutex<Vec<CallId>>,
}

impl Waking {
    /// A start that could do everything at once.
    pub(crate) fn found(&self, interrupted: Vec<CallId>) {
        *lock(&self.interrupted) = interrupted;
        self.done.store(true, Ordering::Release);
    }

    /// Calls that were closed as interrupted.
    pub(crate) fn interrupted(&self) -> Vec<CallId> {
        lock(&self.interrupted).clone()
    }
}

impl GatewayService {
    /// Records that the daemon started; at once, or when the vault is open.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn note_start(&self, version: &str) -> Result<(), Refusal> {
        let _once = self.0.waking.version.set(version.to_owned());
        match self.0.journal.is_locked() {
            true => Ok(()),
            false => self.note_started().await,
        }
    }

    async fn note_started(&self) -> Result<(), Refusal> {
        let Some(version) = self.0.waking.version.get() else {
            return Ok(());
        };
        let started = Entry::DaemonStarted {
            version: version.clone(),
            blob_key: Some(self.0.journal.blob_key()?),
        };
        self.0.note(started).await
    }

    /// Does what waited for the vault: which policies decide, what an earlier daemon left open, and
    /// that this one started. If that fails, the vault is locked again.
    pub(crate) async fn wake(&self) -> Result<(), Refusal> {
        let _one_at_a_time = self.0.waking.turn.lock().await;
        let woken = match self.0.waking.done.load(Ordering::Acquire) {
            false => self.start_late().await,
            // What changed in the folder meanwhile could not be recorded.
            true => {
                let considered = self.0.policies.consider(WhyActivated::Changed, None);
                considered.await.map(drop)
            }
        };
        if let Err(refusal) = &woken {
            tracing::error!(code = refusal.code, why = %refusal, "the vault is locked again");
            self.0.vault.lock().await?;
        }
        woken
    }

    async fn start_late(&self) -> Result<(), Refusal> {
        self.0.policies.settle().await?;
        let interrupted = recovery::close_what_was_left(&self.0.journal).await?;
        for call in &interrupted {
            tracing::warn!(%call, "was cut short by the end of an earlier daemon");
        }
        self.note_started().await?;
        self.0.waking.found(interrupted);
        Ok(())
    }

    /// Ends what runs and waits, and gives it time to be recorded.
    pub(crate) async fn end_live_calls(&self) {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let live = self.0.cancel_live();
            if live == 0 || std::time::Instant::now() >= until {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Which policies are in force is not known while the vault is locked and the folder holds
    /// others: then nothing is answered but how to open it.
    pub(crate) fn may_be_asked(&self, action: &Action) -> Result<(), Refusal> {
        let always = matches!(
            action,
            Action::DaemonStatus | Action::VaultManage | Action::VaultPut
        );
        match always || self.0.policies.is_certain() {
            true => Ok(()),
            false => Err(Refusal::denied(Denial::new(
                DenialCode::VaultLocked,
                "the vault is locked, and which policies are in force is sealed under it",
                "open it with `palyra vault unlock`",
            ))),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
