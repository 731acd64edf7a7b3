//! How approvals went lately, and which narrow grants would have spared questions.

use std::collections::HashMap;

use palyra_approval::{ApprovalState, GrantRecord};
use palyra_core::{Principal, ScopeKey, ScopeKind, ToolName};
use palyra_journal::RowQuery;
use palyra_policy::{Action, Resource};

use crate::calls::CALLS;
use crate::error::Refusal;
use crate::granting::{GRANTS, grant_row};
use crate::records::{self, APPROVALS};
use crate::service::{Caller, GatewayService};

/// How many of the newest approvals are looked at.
const NEWEST: usize = 1_000;

/// So often something must have been allowed, and never anything else, to be proposed.
const OFTEN: u64 = 5;

/// How it went.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// How many were looked at.
    pub asked: u64,
    /// Answered yes.
    pub allowed: u64,
    /// Answered no.
    pub denied: u64,
    /// Not answered in time.
    pub expired: u64,
    /// Cancelled, or made needless.
    pub dropped: u64,
    /// Waiting.
    pub pending: u64,
    /// Milliseconds from question to answer.
    pub median_answer_ms: Option<u64>,
    /// Calls that ran under grants.
    pub under_grants: u64,
    /// What is always allowed.
    pub proposals: Vec<Proposal>,
}

/// Something that is always allowed.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// Who asks.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolName,
    /// What a grant would cover.
    pub cover: ScopeKind,
    /// The same in words that an agent may have chosen.
    pub sentence: String,
    /// How often.
    pub times: u64,
}

impl GatewayService {
    /// How approvals went lately.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn approval_stats(&self, caller: &Caller) -> Result<Stats, Refusal> {
        self.only_a_person(caller, "see how approvals went")?;
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let newest = |limit| RowQuery {
            state: None,
            before: None,
            limit,
            newest_first: true,
        };
        let mut stats = Stats::default();
        let mut took = Vec::new();
        let mut asked: HashMap<ScopeKey, (Proposal, bool)> = HashMap::new();
        for row in &self.0.journal.rows(APPROVALS, &newest(NEWEST))? {
            let record = records::approval_row(row)?;
            stats.asked += 1;
            let allowed = match record.state {
                ApprovalState::Allowed | ApprovalState::Spent => {
                    stats.allowed += 1;
                    true
                }
                ApprovalState::Denied => {
                    stats.denied += 1;
                    false
                }
                ApprovalState::Expired => {
                    stats.expired += 1;
                    continue;
                }
                ApprovalState::Cancelled | ApprovalState::Superseded => {
                    stats.dropped += 1;
                    continue;
                }
                ApprovalState::Pending => {
                    stats.pending += 1;
                    continue;
                }
            };
            took.extend(record.decided_at.map(|at| at.since(record.requested_at)));
            let call = self.0.journal.row(CALLS, record.call.as_str())?;
            let Some(call) = call.as_ref().map(records::call_row).transpose()? else {
                continue;
            };
            // Never wider than the same program with the same options.
            let Some(scope) = self.facts_of(&call)?.and_then(|facts| {
                let mut narrow = facts.scopes.into_iter();
                let is_narrow = |kind| matches!(kind, ScopeKind::Shape | ScopeKind::Directory);
                narrow.find(|scope| is_narrow(scope.kind))
            }) else {
                continue;
            };
            let (proposal, always) = asked.entry(scope.window).or_insert_with(|| {
                let proposal = Proposal {
                    principal: record.principal.clone(),
                    tool: record.tool.clone(),
                    cover: scope.kind,
                    sentence: scope.sentence.clone(),
                    times: 0,
                };
                (proposal, true)
            });
            proposal.times += 1;
            *always &= allowed;
        }
        took.sort_unstable();
        let median = took.get(took.len() / 2);
        stats.median_answer_ms = median.and_then(|span| u64::try_from(span.as_millis()).ok());
        for row in &self.0.journal.rows(GRANTS, &newest(NEWEST))? {
            let GrantRecord { uses, .. } = grant_row(row)?;
            stats.under_grants += uses;
        }
        let always = asked.into_values().filter(|(_, always)| *always);
        stats.proposals = always
            .map(|(proposal, _)| proposal)
            .filter(|proposal| proposal.times >= OFTEN)
            .collect();
        stats.proposals.sort_by(|one, other| {
            let by_times = other.times.cmp(&one.times);
            by_times.then_with(|| one.sentence.cmp(&other.sentence))
        });
        Ok(stats)
    }
}
