//! What the front doors ask about policies, each asked of policy first.

use std::path::PathBuf;
use std::sync::Arc;

use palyra_core::Digest;
use palyra_core::entry::WhyActivated;
use palyra_policy::{Action, Resource};

use super::keeper::{Considered, RefusedPolicies, Standing};
use super::refusals::unknown_version;
use super::versions::{self, PolicyVersion, Sources};
use crate::changes::Change;
use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// Which policies decide, where they come from, and what waits.
#[derive(Debug, Clone)]
pub struct PolicyOverview {
    /// The operator's folder.
    pub folder: PathBuf,
    /// Whether a change waits for a person.
    pub staging: bool,
    /// How things stand.
    pub standing: Arc<Standing>,
}

impl GatewayService {
    /// Which policies decide, and what waits.
    ///
    /// # Errors
    /// Policy forbids it.
    pub fn policy_overview(&self, caller: &Caller) -> Result<PolicyOverview, Refusal> {
        self.allowed(caller, Action::PolicyRead, Resource::Daemon)?;
        Ok(self.policies_now())
    }

    pub(crate) fn policies_now(&self) -> PolicyOverview {
        let policies = &self.0.policies;
        PolicyOverview {
            folder: policies.place.folder.clone(),
            staging: policies.stages(),
            standing: policies.standing(),
        }
    }

    /// The versions there were, the newest first.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn policy_versions(
        &self,
        caller: &Caller,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PolicyVersion>, Refusal> {
        self.allowed(caller, Action::PolicyRead, Resource::Daemon)?;
        versions::list(&self.0.journal, before, limit)
    }

    /// One version with its texts.
    ///
    /// # Errors
    /// Policy forbids it, there is none, or the journal cannot be read.
    pub fn policy_version(
        &self,
        caller: &Caller,
        number: u64,
    ) -> Result<(PolicyVersion, Sources), Refusal> {
        self.allowed(caller, Action::PolicyRead, Resource::Daemon)?;
        let version = versions::find(&self.0.journal, number)?;
        let version = version.ok_or_else(|| unknown_version(number))?;
        let sources = Sources::kept(&self.0.journal, &version.sources)?;
        Ok((version, sources))
    }

    /// Reads the folder again because a person wants it.
    ///
    /// # Errors
    /// Policy forbids it, what the folder holds cannot be used, or it could not be recorded. What
    /// was in force stays in force then.
    pub async fn reload_policies(
        &self,
        caller: &Caller,
    ) -> Result<(Considered, PolicyOverview), Refusal> {
        self.allowed(caller, Action::PolicyActivate, Resource::Daemon)?;
        let by = caller.principal.user().clone();
        let gateway = self.clone();
        let considered = self
            .to_its_end(async move {
                let policies = &gateway.0.policies;
                policies.consider(WhyActivated::Reloaded, Some(by)).await
            })
            .await?;
        match considered {
            Considered::Refused => Err(self.not_used()),
            Considered::Unchanged
            | Considered::Activated
            | Considered::Staged
            | Considered::SetAside => Ok((considered, self.policies_now())),
        }
    }

    /// Reads the folder again because it changed. Says what came of it in the log, the status and
    /// the journal.
    pub async fn policies_changed(&self) {
        let gateway = self.clone();
        let considered = self.to_its_end(async move {
            let policies = &gateway.0.policies;
            policies.consider(WhyActivated::Changed, None).await
        });
        if let Err(error) = considered.await {
            tracing::error!(%error, "changed policies could not be taken up");
        }
    }

    /// Activates what is staged, if it is this.
    ///
    /// # Errors
    /// Policy forbids it, something else or nothing is staged, or it could not be recorded.
    pub async fn activate_staged(
        &self,
        caller: &Caller,
        digest: Digest,
    ) -> Result<PolicyOverview, Refusal> {
        self.allowed(caller, Action::PolicyActivate, Resource::Daemon)?;
        self.present(caller, "activate policies").await?;
        let (gateway, by) = (self.clone(), caller.principal.user().clone());
        self.to_its_end(async move { gateway.0.policies.activate_staged(digest, by).await })
            .await?;
        Ok(self.policies_now())
    }

    /// Goes back to an earlier version, by default the one before.
    ///
    /// # Errors
    /// Policy forbids it, there is no such version, it is in force or cannot be used, or it could
    /// not be recorded.
    pub async fn rollback_policies(
        &self,
        caller: &Caller,
        to: Option<u64>,
    ) -> Result<PolicyOverview, Refusal> {
        self.allowed(caller, Action::PolicyRollback, Resource::Daemon)?;
        self.present(caller, "go back to earlier policies").await?;
        let (gateway, by) = (self.clone(), caller.principal.user().clone());
        self.to_its_end(async move { gateway.0.policies.roll_back(to, by).await })
            .await?;
        Ok(self.policies_now())
    }

    fn not_used(&self) -> Refusal {
        let standing = self.0.policies.standing();
        let said = standing.refused.as_ref().map(RefusedPolicies::in_words);
        Refusal::new(
            RefusalKind::Invalid,
            "policies_invalid",
            format!(
                "the policies in `{}` cannot be used: {}; version {} stays in force",
                self.0.policies.place.folder.display(),
                said.unwrap_or_default(),
                standing.active.number
            ),
            "`palyra policy check` shows everything that is wrong",
        )
    }

    /// Whoever asked for a change may go away in the middle; a change that is recorded is also
    /// made.
    async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = self.0.tasks.spawn(change).await;
        self.0.changes.tell(Change::Policies);
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "a change of policies broke");
            Err(Refusal::new(
                RefusalKind::Unavailable,
                "internal_error",
                "a change of policies broke inside the daemon",
                "see `palyra policy versions` and the daemon's log",
            ))
        })
    }
}

impl RefusedPolicies {
    /// The first problem, and how many more there are.
    #[must_use]
    pub fn in_words(&self) -> String {
        let first = self.problems.first().map(String::as_str);
        let first = first.unwrap_or("it cannot be read");
        match self.problems.len().saturating_sub(1) + self.more {
            0 => first.to_owned(),
            more => format!("{first} (and {more} more)"),
        }
    }
}

impl PolicyOverview {
    /// What an operator has to be told, each with the command that helps.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Standing {
            active,
            staged,
            refused,
            set_aside,
        } = self.standing.as_ref();
        let (number, folder) = (active.number, self.folder.display());
        let refused = refused.as_ref().map(|refused| {
            format!(
                "the policies in `{folder}` are not used: {}; version {number} decides; see \
                 everything with `palyra policy check`",
                refused.in_words()
            )
        });
        let staged = staged.as_ref().map(|staged| {
            format!(
                "changed policies wait for you and do not count yet; take them into use with \
                 `palyra policy activate {}`",
                staged.digest
            )
        });
        let aside = set_aside.filter(|_| refused.is_none()).map(|_| {
            format!(
                "version {number} decides, not what `{folder}` holds: that was set aside by a \
                 rollback until it changes; `palyra policy reload` takes it up as it is"
            )
        });
        [refused, staged, aside].into_iter().flatten().collect()
    }
}
