//! What those elsewhere are told of a question, and the record of it. They are only told: nothing
//! that comes back is an answer.

use palyra_approval::{ApprovalRecord, ApprovalState};
use palyra_core::entry::{Entry, Stream};
use palyra_core::{ApprovalId, Principal, SecretAccess, SecretRef, SecretValue, UserName};
use palyra_journal::Expected;
use tokio::sync::broadcast;

use crate::changes::Change;
use crate::error::Refusal;
use crate::records;
use crate::service::{Caller, GatewayService};

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How often it was tried.
    pub attempts: u32,
    /// Nothing when it arrived, else why the last try did not.
    pub failed: Option<String>,
}

impl GatewayService {
    /// Hears of every change, for the daemon itself; nothing once it stops.
    #[must_use]
    pub fn hear(&self) -> Option<broadcast::Receiver<Change>> {
        self.0.changes.subscribe()
    }

    /// Every question that waits now.
    #[must_use]
    pub fn waiting_now(&self) -> Vec<ApprovalId> {
        self.0.inbox().in_order()
    }

    /// What those elsewhere are told of a question that waits: who, which tool, how bad, until when.
    /// No arguments: they stay here. `None` when it waits no more.
    #[must_use]
    pub fn notice(&self, id: &ApprovalId) -> Option<serde_json::Value> {
        let record: ApprovalRecord = records::approval(&self.0.journal, id).ok()?;
        (record.state == ApprovalState::Pending).then(|| {
            serde_json::json!({
                "type": "approval.pending",
                "approval_id": record.id,
                "call_id": record.call,
                "principal": record.principal.to_string(),
                "tool": record.tool,
                "risk": record.risk.as_str(),
                "requested_at": record.requested_at.to_string(),
                "expires_at": record.expires_at.to_string(),
                "decide_with": format!("palyra approvals show {}", record.id),
            })
        })
    }

    /// The secret that signs what is told. It is recorded before it leaves the vault.
    ///
    /// # Errors
    /// The vault is locked, or there is no such secret.
    pub async fn signing_secret(&self, secret: &SecretRef) -> Result<SecretValue, Refusal> {
        let owner = Principal::User {
            name: UserName::owner(),
        };
        let owner = Caller::on_new_run(owner, self.0.clock.as_ref());
        let (vault, now, asked) = (self.0.vault.vault()?, self.0.clock.now(), secret.clone());
        let (value, info) = crate::vault::blocking(move || vault.get(&asked, None, now)).await?;
        let (secret, access) = (secret.clone(), SecretAccess::Used);
        self.accessed(&owner, secret, info.version, access, None)
            .await?;
        Ok(value)
    }

    /// Records that somebody elsewhere was told, or could not be.
    pub async fn notified(&self, approval: &ApprovalId, way: &str, outcome: Outcome) {
        let entry = Entry::Notified {
            approval: approval.clone(),
            way: way.to_owned(),
            attempts: outcome.attempts,
            failed: outcome.failed,
        };
        let journal = &self.0.journal;
        let noted = journal.append_if(Stream::Notices, Expected::Any, vec![entry]);
        if let Err(error) = noted.await {
            tracing::error!(%error, way, "a notice could not be recorded");
        }
    }
}
