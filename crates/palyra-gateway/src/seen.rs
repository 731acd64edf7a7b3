//! What an agent has done before: a program or a host that is new to it is a reason to look twice.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use palyra_core::{AgentName, Effect, EgressHost, Facts, RiskLevel, ToolCapability};
use palyra_journal::RowQuery;

use crate::calls::{CALLS, CallState};
use crate::error::Refusal;
use crate::records;
use crate::service::GatewayService;

/// How far back is looked when a daemon has just started.
const LOOKED_BACK: usize = 1_000;

/// So much is kept; then it begins anew, and everything is new once more.
const MOST: usize = 100_000;

/// What was executed before, by whom.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Option<HashSet<(AgentName, Thing)>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Thing {
    Program(PathBuf),
    Host(EgressHost),
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Option<HashSet<(AgentName, Thing)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is executed: from here on it is nothing new.
    pub(crate) fn executed(&self, facts: &Facts) {
        let Some(agent) = facts.origin.principal.agent() else {
            return;
        };
        if let Some(known) = &mut *self.lock() {
            if known.len() > MOST {
                known.clear();
            }
            known.extend(things(facts).map(|thing| (agent.clone(), thing)));
        }
    }
}

fn things(facts: &Facts) -> impl Iterator<Item = Thing> + '_ {
    facts.effects.iter().filter_map(|effect| match effect {
        Effect::Exec { program } => Some(Thing::Program(program.clone())),
        Effect::NetConnect { host, .. } => Some(Thing::Host(host.clone())),
        Effect::FsRead { .. } | Effect::FsWrite { .. } => None,
    })
}

impl GatewayService {
    /// The same call, with what is new about it among the reasons of its risk.
    pub(crate) fn with_what_is_new(
        &self,
        mut facts: Facts,
        uses_secrets: bool,
    ) -> Result<Facts, Refusal> {
        let Some(agent) = facts.origin.principal.agent().cloned() else {
            return Ok(facts);
        };
        if self.0.seen.lock().is_none() {
            let before = self.executed_before()?;
            self.0.seen.lock().get_or_insert(before);
        }
        let known = self.0.seen.lock();
        let is_new = |thing: &Thing| {
            let pair = (agent.clone(), thing.clone());
            known.as_ref().is_some_and(|known| !known.contains(&pair))
        };
        let mut reasons: Vec<(RiskLevel, String)> = Vec::new();
        for thing in things(&facts).filter(is_new) {
            reasons.push(match thing {
                Thing::Program(path) => {
                    let path = path.display();
                    (
                        RiskLevel::Medium,
                        format!("`{agent}` has not run `{path}` before"),
                    )
                }
                Thing::Host(host) => (
                    RiskLevel::High,
                    format!("`{agent}` has not connected to `{host}` before"),
                ),
            });
        }
        drop(known);
        if uses_secrets || facts.capabilities.contains(&ToolCapability::SecretsRead) {
            reasons.push((RiskLevel::High, "it uses a secret".to_owned()));
        }
        for (level, reason) in reasons {
            facts.risk.level = facts.risk.level.max(level);
            if !facts.risk.reasons.contains(&reason) {
                facts.risk.reasons.push(reason);
            }
        }
        Ok(facts)
    }

    /// What the last calls were that ran.
    fn executed_before(&self) -> Result<HashSet<(AgentName, Thing)>, Refusal> {
        let query = RowQuery {
            state: Some(CallState::Completed.as_str().to_owned()),
            before: None,
            limit: LOOKED_BACK,
            newest_first: true,
        };
        let mut known = HashSet::new();
        for row in &self.0.journal.rows(CALLS, &query)? {
            let row = records::call_row(row)?;
            let Some(facts) = self.facts_of(&row)? else {
                continue;
            };
            if let Some(agent) = facts.origin.principal.agent() {
                known.extend(things(&facts).map(|thing| (agent.clone(), thing)));
            }
        }
        Ok(known)
    }
}
