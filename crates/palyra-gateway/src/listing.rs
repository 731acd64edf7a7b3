//! Which tools a caller may hear of, and hearing when that changes.
//!
//! What policy can never allow a caller is not there for them. Nor is, for an agent, what a person
//! turned off; the person sees it still, to turn it on again.

use palyra_approval::PosedCall;
use palyra_core::{AgentName, Posture, ToolMetadata, ToolName};
use palyra_policy::{Action, Resource};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::changes::Change;
use crate::error::Refusal;
use crate::service::{Caller, GatewayService, stopping};
use crate::tools::unknown;

impl GatewayService {
    /// The tools this caller could run or ask for.
    ///
    /// # Errors
    /// Policy forbids listing.
    pub fn tools(&self, caller: &Caller) -> Result<Vec<ToolMetadata>, Refusal> {
        self.allowed(caller, Action::ToolList, Resource::Daemon)?;
        Ok(self.listed(caller).cloned().collect())
    }

    /// Those that this caller may hear of.
    pub(crate) fn listed(&self, caller: &Caller) -> impl Iterator<Item = &ToolMetadata> {
        let all = self.0.registry.iter().map(|tool| &tool.metadata);
        all.filter(|tool| self.0.policy.may_list(&caller.principal, &tool.name))
            .filter(|tool| !self.is_off_for(caller, &tool.name))
    }

    /// One tool, if this caller could run or ask for it.
    ///
    /// # Errors
    /// Policy forbids it, or there is no such tool.
    pub fn tool(&self, caller: &Caller, name: &str) -> Result<ToolMetadata, Refusal> {
        let visible = self.tools(caller)?;
        let found = visible.iter().find(|tool| tool.name.as_str() == name);
        found.cloned().ok_or_else(|| unknown(name, &visible))
    }

    /// Hears when the tools that this caller may hear of are others: that, and nothing else of what
    /// goes on.
    ///
    /// # Errors
    /// Policy forbids listing, or the daemon stops.
    pub fn watch_tools(&self, caller: &Caller) -> Result<ToolsWatched, Refusal> {
        // Before the list is read, so that no change falls between.
        let changes = self.0.changes.subscribe().ok_or_else(stopping)?;
        let known = self.tools(caller)?;
        Ok(ToolsWatched {
            gateway: self.clone(),
            caller: caller.clone(),
            known: names(&known),
            changes,
        })
    }

    /// Whether a person turned this tool off for this agent, wherever it works.
    fn is_off_for(&self, caller: &Caller, tool: &ToolName) -> bool {
        let Some(agent) = caller.principal.agent() else {
            return false;
        };
        let workspace = self.0.agents().get(agent).map(|it| it.workspace.clone());
        let call = PosedCall {
            tool,
            agent: Some(agent),
            workspace: workspace.as_deref(),
            session: caller.session.as_ref(),
        };
        let strictest = self.0.postures().strictest(call);
        matches!(strictest, Some((Posture::Disabled, _)))
    }
}

/// One caller's list of tools, watched.
pub struct ToolsWatched {
    gateway: GatewayService,
    caller: Caller,
    known: Vec<ToolName>,
    changes: Receiver<Change>,
}

impl ToolsWatched {
    /// Returns `true` when the list is another one than it was; `false` when nothing more will be
    /// told. What a wait that is given up had heard is heard by the next.
    pub async fn changed(&mut self) -> bool {
        loop {
            let heard = self.changes.recv().await;
            if !concerns(&heard, self.caller.principal.agent()) {
                continue;
            }
            if matches!(heard, Err(RecvError::Closed)) {
                return false;
            }
            // An agent that was removed has no tools any more, and is told so once.
            let now = match self.gateway.tools(&self.caller) {
                Ok(now) => names(&now),
                Err(_) => Vec::new(),
            };
            if now != self.known {
                self.known = now;
                return true;
            }
        }
    }
}

/// Whether a list of tools can be another one after this.
fn concerns(heard: &Result<Change, RecvError>, agent: Option<&AgentName>) -> bool {
    match heard {
        Ok(Change::Postures | Change::Policies) | Err(_) => true,
        Ok(Change::Agent(name)) => agent == Some(name),
        Ok(Change::Approval(..) | Change::Grant(..) | Change::Call(..)) => false,
    }
}

fn names(tools: &[ToolMetadata]) -> Vec<ToolName> {
    tools.iter().map(|tool| tool.name.clone()).collect()
}
