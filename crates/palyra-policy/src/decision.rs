//! Answers, and how a no is put into words.

use palyra_core::corridor::PolicyAnswer;
use palyra_core::{Denial, DenialCode, Principal};

use crate::policies::Policies;
use crate::request::{Action, Kind, PolicyRequest, Resource};

/// What Cedar said to one question about one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// Who was asked about.
    pub principal: Principal,
    /// What they want to do.
    pub action: Action,
    /// To what.
    pub resource: Resource,
    /// Whether they may.
    pub allowed: bool,
    /// The ids of the policies that made it so: the permits of a yes, the forbids of a no. A no
    /// without any means that nothing permits it.
    pub matched: Vec<String>,
}

impl PolicyDecision {
    /// The question that was answered.
    #[must_use]
    pub fn request(&self) -> PolicyRequest {
        PolicyRequest {
            principal: self.principal.clone(),
            action: self.action,
            resource: self.resource.clone(),
        }
    }
}

/// The answer to a call, with every question it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliberation {
    /// What comes of it.
    pub answer: PolicyAnswer,
    /// What was asked, in order.
    pub asked: Vec<PolicyDecision>,
    /// The digest of the policies that answered, in short: [`PolicyEngine::version`] at that time.
    ///
    /// [`PolicyEngine::version`]: crate::PolicyEngine::version
    pub version: String,
    /// The policies with `@mode("log_only")` that would have made this another answer, all of them
    /// together being in force. When one fails, only that is known: `ID failed`.
    pub log_only: Vec<String>,
}

/// The ids behind some decisions, each once, in order.
pub(crate) fn matched<'a>(decisions: impl IntoIterator<Item = &'a PolicyDecision>) -> Vec<String> {
    let mut ids: Vec<String> = decisions
        .into_iter()
        .flat_map(|decision| decision.matched.iter().cloned())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The denial of the question that settled it: the reasons and hints of the forbids, or that
/// nothing permits it.
pub(crate) fn denial(policies: &Policies, no: &PolicyDecision) -> Denial {
    let say = |words: fn(&Policies, &str) -> Option<String>| {
        let said: Vec<String> = no
            .matched
            .iter()
            .filter_map(|id| words(policies, id))
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    };
    let reason = say(|policies, id| Some(policies.reason(id)?.to_owned()));
    let hint = say(|policies, id| Some(policies.hint(id)?.to_owned()));
    let code = match no.resource {
        Resource::Host(_) => DenialCode::EgressDenied,
        Resource::Daemon
        | Resource::Tool(_)
        | Resource::Program(_)
        | Resource::Path(_)
        | Resource::Secret(_)
        | Resource::Call { .. }
        | Resource::Approval { .. }
        | Resource::Agents
        | Resource::Agent(_) => DenialCode::DeniedByPolicy,
    };
    Denial::new(
        code,
        reason.unwrap_or_else(|| in_words(no)),
        hint.unwrap_or_else(|| default_hint(no.action).to_owned()),
    )
}

fn in_words(no: &PolicyDecision) -> String {
    let (who, what, resource) = (&no.principal, no.action.in_words(), &no.resource);
    match no.matched.as_slice() {
        [] => format!("no policy lets `{who}` {what} {resource}"),
        ids => format!(
            "policy `{}` forbids `{who}` to {what} {resource}",
            ids.join("`, `")
        ),
    }
}

fn default_hint(action: Action) -> &'static str {
    match action.kind() {
        Kind::Run | Kind::Ask => "see what may be run with `palyra tools list`",
        Kind::Api => "the owner may, from a connection without `--as`",
    }
}
