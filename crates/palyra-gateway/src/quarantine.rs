//! What appeared during calls and was taken away, for a person to look at and to give back.

use palyra_core::entry::Entry;
use palyra_policy::{Action, Resource};
use palyra_sandbox::{CannotRestore, Quarantined};

use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

impl GatewayService {
    /// Everything that was taken away.
    ///
    /// # Errors
    /// Policy forbids it, or it cannot be read.
    pub fn quarantined(&self, caller: &Caller) -> Result<Vec<Quarantined>, Refusal> {
        self.allowed(caller, Action::QuarantineManage, Resource::Daemon)?;
        self.0.sandbox.quarantine().list().map_err(|error| {
            Refusal::new(
                RefusalKind::Unavailable,
                "quarantine_unreadable",
                format!("the quarantine cannot be read: {error}"),
                "see the daemon's log",
            )
        })
    }

    /// Puts something back where it was, and records that before it does. An agent never can: it may
    /// be what an agent left.
    ///
    /// # Errors
    /// Policy forbids it, there is no such thing, or its place is taken or gone.
    pub async fn restore_quarantined(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Quarantined, Refusal> {
        let found = self.quarantined(caller)?;
        let found = found.into_iter().find(|one| one.id.as_str() == id);
        // What cannot be put back is not recorded as if it had been.
        let place = |one: &Quarantined| one.workspace.join(one.path());
        if let Some(one) = found.filter(|one| place(one).symlink_metadata().is_err()) {
            let entry = Entry::QuarantineRestored {
                item: one.id.to_string(),
                path: place(&one).display().to_string(),
                by: caller.principal.user().clone(),
            };
            self.0.note(entry).await?;
        }
        let (quarantine, wanted) = (self.0.sandbox.quarantine(), id.to_owned());
        let restored = crate::policies::blocking(move || quarantine.restore(&wanted)).await?;
        let restored = restored.map_err(|error| {
            let (kind, code, next_step) = match &error {
                CannotRestore::Unknown(_) => (
                    RefusalKind::NotFound,
                    "not_in_quarantine",
                    "see what is there with `palyra quarantine list`",
                ),
                CannotRestore::Taken(_) => (
                    RefusalKind::Conflict,
                    "place_taken",
                    "move what is there out of the way and run it again",
                ),
                CannotRestore::Failed { .. } => (
                    RefusalKind::Conflict,
                    "cannot_restore",
                    "make the folder it was in again, and run it again",
                ),
            };
            Refusal::new(kind, code, error.to_string(), next_step)
        })?;
        tracing::info!(id = %restored.id, by = %caller.principal.user(), "given back from quarantine");
        Ok(restored)
    }
}
