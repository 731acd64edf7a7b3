//! Who is registered: the agents of this daemon, read and changed, each asked of policy first.

use std::path::Path;

use palyra_core::entry::{Entry, Stream};
use palyra_core::{AgentName, UserName, WhyEnded};
use palyra_identity::{Agent, Agents, check_agent_workspace};
use palyra_journal::Expected;
use palyra_policy::{Action, Resource};

use crate::changes::Change;
use crate::error::{Refusal, RefusalKind};
use crate::records::no_agent;
use crate::service::{Caller, GatewayService};
use crate::{recovery, workspace};

impl GatewayService {
    /// The registered agents: a person sees all, an agent itself.
    ///
    /// # Errors
    /// Policy forbids it.
    pub fn agents(&self, caller: &Caller) -> Result<Vec<Agent>, Refusal> {
        let agents: Vec<Agent> = self.0.agents().iter().cloned().collect();
        let Err(refusal) = self.allowed(caller, Action::AgentRead, Resource::Agents) else {
            return Ok(agents);
        };
        let own = agents.into_iter().filter(|agent| {
            let itself = Resource::Agent(agent.name.clone());
            self.allowed(caller, Action::AgentRead, itself).is_ok()
        });
        let own: Vec<Agent> = own.collect();
        if own.is_empty() {
            Err(refusal)
        } else {
            Ok(own)
        }
    }

    /// One registered agent.
    ///
    /// # Errors
    /// There is none of this name that this caller may see.
    pub fn agent(&self, caller: &Caller, name: &str) -> Result<Agent, Refusal> {
        let name = agent_name(name)?;
        let visible = self.agents(caller)?;
        let found = visible.into_iter().find(|agent| agent.name == name);
        found.ok_or_else(|| no_agent(&name))
    }

    /// Registers an agent on a folder of its own.
    ///
    /// # Errors
    /// Policy forbids it, the name is taken, or the folder may not be an agent's.
    pub async fn add_agent(
        &self,
        caller: &Caller,
        name: &str,
        folder: &Path,
        unattended: bool,
    ) -> Result<Agent, Refusal> {
        let name = agent_name(name)?;
        self.allowed(caller, Action::AgentManage, Resource::Agents)?;
        // A pause would else be undone by removing and adding.
        self.present(caller, "register an agent").await?;
        let folder = workspace::real_folder(folder)?;
        let settings = &self.0.settings;
        check_agent_workspace(&folder, &settings.user_homes, &settings.masked).map_err(
            |error| {
                let next_step =
                    "give a project folder with `palyra agents add NAME --workspace DIR`";
                Refusal::new(
                    RefusalKind::Invalid,
                    "workspace_refused",
                    error.to_string(),
                    next_step,
                )
            },
        )?;
        let _one_at_a_time = self.0.registry_change.lock().await;
        let user = caller.principal.user().clone();
        let entry =
            palyra_identity::register(&self.0.agents(), name.clone(), user, folder, unattended)
                .map_err(|error| {
                    let hint = error.hint();
                    Refusal::new(
                        RefusalKind::Conflict,
                        "agent_exists",
                        error.to_string(),
                        hint,
                    )
                })?;
        self.0
            .journal
            .append_if(Stream::Agents, Expected::Any, vec![entry])
            .await?;
        self.reread_agents()?;
        self.0.changes.tell(Change::Agent(name.clone()));
        self.0
            .agents()
            .get(&name)
            .cloned()
            .ok_or_else(|| no_agent(&name))
    }

    /// Removes an agent and ends what it runs and asks; what it did stays recorded.
    ///
    /// # Errors
    /// Policy forbids it, or there is none of this name.
    pub async fn remove_agent(&self, caller: &Caller, name: &str) -> Result<Agent, Refusal> {
        let name = agent_name(name)?;
        self.allowed(caller, Action::AgentManage, Resource::Agents)?;
        let _one_at_a_time = self.0.registry_change.lock().await;
        let agent = self
            .0
            .agents()
            .get(&name)
            .cloned()
            .ok_or_else(|| no_agent(&name))?;
        let entry =
            palyra_identity::remove(&self.0.agents(), &name).map_err(|_| no_agent(&name))?;
        self.0
            .journal
            .append_if(Stream::Agents, Expected::Any, vec![entry])
            .await?;
        self.reread_agents()?;
        self.cancel_calls_of(&name);
        let own = self.0.grants.lock().of_agent(&name);
        self.end_grants(own, WhyEnded::AgentRemoved, None).await;
        self.cancel_left_by(&name).await;
        self.0.changes.tell(Change::Agent(name));
        Ok(agent)
    }

    /// Has an agent do nothing until a person resumes it; what it runs and asks ends, and so does
    /// what was granted to it.
    ///
    /// # Errors
    /// Policy forbids it, or there is none of this name.
    pub async fn pause_agent(
        &self,
        caller: &Caller,
        name: &str,
        reason: Option<&str>,
    ) -> Result<Agent, Refusal> {
        let name = agent_name(name)?;
        self.allowed(caller, Action::AgentManage, Resource::Agents)?;
        let known = self.0.agents().get(&name).cloned();
        known.ok_or_else(|| no_agent(&name))?;
        let why = reason.map(str::trim).filter(|reason| !reason.is_empty());
        let why = why.unwrap_or("a person paused it");
        if why.len() > palyra_approval::MAX_REASON_BYTES {
            let bytes = why.len();
            let error = palyra_approval::Refused::ReasonTooLong { bytes };
            return Err(crate::deciding::refused(error));
        }
        let by = caller.principal.user().clone();
        self.pause(&name, Some(by), why).await?;
        let paused = self.0.agents().get(&name).cloned();
        paused.ok_or_else(|| no_agent(&name))
    }

    /// The same, whoever wants it.
    pub(crate) async fn pause(
        &self,
        name: &AgentName,
        by: Option<UserName>,
        why: &str,
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.0.registry_change.lock().await;
        let entry = Entry::AgentPaused {
            name: name.clone(),
            by,
            why: why.to_owned(),
        };
        tracing::warn!(agent = %name, why, "an agent is paused");
        self.0
            .journal
            .append_if(Stream::Agents, Expected::Any, vec![entry])
            .await?;
        self.reread_agents()?;
        self.was_paused(name).await;
        Ok(())
    }

    /// What the agent runs and asks ends, and so does what was granted to it.
    pub(crate) async fn was_paused(&self, name: &AgentName) {
        self.cancel_calls_of(name);
        let own = self.0.grants.lock().of_agent(name);
        self.end_grants(own, WhyEnded::AgentPaused, None).await;
        self.cancel_left_by(name).await;
        self.0.changes.tell(Change::Agent(name.clone()));
    }

    /// Lets a paused agent act again.
    ///
    /// # Errors
    /// Policy forbids it, or there is none of this name.
    pub async fn resume_agent(&self, caller: &Caller, name: &str) -> Result<Agent, Refusal> {
        let name = agent_name(name)?;
        self.allowed(caller, Action::AgentManage, Resource::Agents)?;
        self.present(caller, "let an agent go on").await?;
        let _one_at_a_time = self.0.registry_change.lock().await;
        let known = self.0.agents().get(&name).cloned();
        known.ok_or_else(|| no_agent(&name))?;
        let entry = Entry::AgentResumed {
            name: name.clone(),
            by: caller.principal.user().clone(),
        };
        self.0
            .journal
            .append_if(Stream::Agents, Expected::Any, vec![entry])
            .await?;
        self.reread_agents()?;
        self.0.changes.tell(Change::Agent(name.clone()));
        let resumed = self.0.agents().get(&name).cloned();
        resumed.ok_or_else(|| no_agent(&name))
    }

    pub(crate) fn reread_agents(&self) -> Result<(), Refusal> {
        let agents: Agents = recovery::agents(&self.0.journal)?;
        let pairs = agents
            .iter()
            .map(|agent| (agent.name.clone(), agent.user.clone()));
        self.0.policy.set_agents(pairs.collect::<Vec<_>>())?;
        *self
            .0
            .agents
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = agents;
        Ok(())
    }
}

fn agent_name(name: &str) -> Result<AgentName, Refusal> {
    name.parse()
        .map_err(|error: palyra_core::principal::NotAName| {
            let next_step = "choose a name such as `claude`";
            Refusal::new(
                RefusalKind::Invalid,
                "invalid_name",
                error.to_string(),
                next_step,
            )
        })
}
