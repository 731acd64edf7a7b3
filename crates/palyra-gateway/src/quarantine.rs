//! What appeared during calls and was taken away, for a person to look at and to give back.

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
        self.allowed(caller, Action::JournalManage, Resource::Daemon)?;
        self.0.sandbox.quarantine().list().map_err(|error| {
            Refusal::new(
                RefusalKind::Unavailable,
                "quarantine_unreadable",
                format!("the quarantine cannot be read: {error}"),
                "see the daemon's log",
            )
        })
    }

    /// Puts something back where it was. An agent never can: it may be what an agent left.
    ///
    /// # Errors
    /// Policy forbids it, there is no such thing, or its place is taken or gone.
    pub fn restore_quarantined(&self, caller: &Caller, id: &str) -> Result<Quarantined, Refusal> {
        self.allowed(caller, Action::JournalManage, Resource::Daemon)?;
        let restored = self.0.sandbox.quarantine().restore(id);
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
