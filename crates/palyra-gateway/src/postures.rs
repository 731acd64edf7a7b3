//! Postures, read and set, each asked of policy first.

use palyra_approval::{PosedCall, PostureRow, Postures, PosturesFold};
use palyra_core::entry::{Entry, Stream};
use palyra_core::{Denial, DenialCode, Facts, Posture, PostureLevel};
use palyra_journal::{Expected, JournalStore, RowQuery};
use palyra_policy::{Action, Resource};

use crate::changes::Change;
use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService, Inner};
use crate::workspace;

impl GatewayService {
    /// What is set.
    ///
    /// # Errors
    /// Policy forbids it, or the registry is lost.
    pub fn postures(&self, caller: &Caller) -> Result<Vec<PostureRow>, Refusal> {
        self.allowed(caller, Action::PolicyRead, Resource::Daemon)?;
        let postures = self.0.postures();
        if postures.is_lost() {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                "postures_lost",
                "the registry of postures cannot be read, so every tool is off",
                "mend it with `palyra journal rebuild`, then restart the daemon",
            ));
        }
        Ok(postures.iter().cloned().collect())
    }

    /// Has a tool treated like this from now on; `None` has nothing said any more.
    ///
    /// # Errors
    /// Policy forbids it, or there is no such tool, folder, agent or session.
    pub async fn set_posture(
        &self,
        caller: &Caller,
        tool: &str,
        level: PostureLevel,
        posture: Option<Posture>,
    ) -> Result<Vec<PostureRow>, Refusal> {
        // What is decided from now on: a person's action, like putting a policy in force.
        self.allowed(caller, Action::PolicyActivate, Resource::Daemon)?;
        self.present(caller, "change a posture").await?;
        let known = self.0.registry.find(tool);
        let known = known.ok_or_else(|| crate::tools::unknown(tool, self.listed(caller)))?;
        let at = self.known_level(level)?;
        let entry = Entry::PostureSet {
            at,
            tool: known.metadata.name.clone(),
            posture,
            by: caller.principal.user().clone(),
        };
        let _one_at_a_time = self.0.registry_change.lock().await;
        self.0
            .journal
            .append_if(Stream::Postures, Expected::Any, vec![entry])
            .await?;
        self.0.set_postures(read(&self.0.journal));
        self.0.changes.tell(Change::Postures);
        self.postures(caller)
    }

    fn known_level(&self, level: PostureLevel) -> Result<PostureLevel, Refusal> {
        match level {
            PostureLevel::Global => Ok(PostureLevel::Global),
            PostureLevel::Workspace { folder } => Ok(PostureLevel::Workspace {
                folder: workspace::real_folder(&folder)?,
            }),
            PostureLevel::Agent { name } => match self.0.agents().get(&name) {
                Some(_) => Ok(PostureLevel::Agent { name }),
                None => Err(crate::records::no_agent(&name)),
            },
            PostureLevel::Session { id } => match self.session_lasts(&id) {
                true => Ok(PostureLevel::Session { id }),
                false => Err(Refusal::new(
                    RefusalKind::NotFound,
                    "unknown_session",
                    format!("there is no session `{id}`, or it ended"),
                    "see the session of a call with `palyra calls show ID --json`",
                )),
            },
        }
    }
}

impl Inner {
    /// The strictest posture for this call, or the denial when that is off.
    pub(crate) fn posture(&self, facts: &Facts) -> Result<Option<Posture>, Denial> {
        let call = PosedCall {
            tool: &facts.tool,
            agent: facts.origin.principal.agent(),
            workspace: facts.workspace.as_deref(),
            session: facts.origin.session.as_ref(),
        };
        match self.postures().strictest(call) {
            None => Ok(None),
            Some((Posture::Disabled, at)) => {
                let (reason, next_step) = match at {
                    Some(at) => (
                        format!("a person turned `{}` off ({at})", facts.tool),
                        "see what is set with `palyra postures list`",
                    ),
                    None => (
                        "the registry of postures cannot be read, so every tool is off".to_owned(),
                        "mend it with `palyra journal rebuild`, then restart the daemon",
                    ),
                };
                Err(Denial::new(DenialCode::ToolDisabled, reason, next_step))
            }
            Some((posture @ (Posture::AlwaysAllow | Posture::AskEachTime), _)) => Ok(Some(posture)),
        }
    }
}

/// The registry as the journal has it; one that cannot be read turns everything off.
pub(crate) fn read(journal: &JournalStore) -> Postures {
    let query = RowQuery {
        state: None,
        before: None,
        limit: usize::MAX >> 1,
        newest_first: false,
    };
    match journal.rows(PosturesFold::NAME, &query) {
        Ok(rows) => Postures::from_rows(&rows),
        Err(error) => {
            tracing::error!(%error, "the postures cannot be read: every tool is off");
            Postures::lost()
        }
    }
}
