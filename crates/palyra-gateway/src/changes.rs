//! Telling those who watch that something changed. What it is now, they look up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use palyra_core::{AgentName, ApprovalId, CallId, GrantId};
use palyra_policy::{Action, Resource};
use tokio::sync::broadcast;

use crate::error::Refusal;
use crate::service::{Caller, GatewayService};

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An approval, and where it stands.
    Approval(ApprovalId, &'static str),
    /// A grant, and whether it is live.
    Grant(GrantId, &'static str),
    /// A call, and where it stands.
    Call(CallId, &'static str),
    /// An agent.
    Agent(AgentName),
    /// The postures.
    Postures,
}

/// How many changes a slow watcher may be behind before it has to look everything up again.
const BEHIND: usize = 256;

/// Those who watch.
#[derive(Debug)]
pub(crate) struct Changes(Mutex<Option<broadcast::Sender<Change>>>);

impl Default for Changes {
    fn default() -> Self {
        Self(Mutex::new(Some(broadcast::channel(BEHIND).0)))
    }
}

impl Changes {
    /// Tells everybody; nobody need watch.
    pub(crate) fn tell(&self, change: Change) {
        if let Some(those) = &*self.lock() {
            let _ = those.send(change);
        }
    }

    /// Hears of every change from now on.
    pub(crate) fn listen(&self) -> Option<broadcast::Receiver<Change>> {
        self.lock().as_ref().map(broadcast::Sender::subscribe)
    }

    /// The daemon stops: nobody is told anything more.
    pub(crate) fn close(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<broadcast::Sender<Change>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatewayService {
    /// Hears of every change from now on. For a person: an agent sees its own calls by id.
    ///
    /// # Errors
    /// The caller is an agent, or policy forbids reading.
    pub fn watch(&self, caller: &Caller) -> Result<broadcast::Receiver<Change>, Refusal> {
        self.only_a_person(caller, "watch what changes")?;
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let those = self.0.changes.lock();
        let those = those.as_ref().ok_or_else(crate::service::stopping)?;
        Ok(those.subscribe())
    }
}
