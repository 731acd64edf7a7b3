//! The journal by time, agent, tool and outcome.
//!
//! The rows of [`CALLS`] are selected by outcome, principal and tool together, and that index is
//! kept anyway. So the newest entries that fit are found from the calls that fit, without looking at
//! the others; going forwards, entries are looked at one by one.

use std::collections::HashMap;
use std::time::Duration;

use palyra_core::entry::{Recorded, Stream};
use palyra_core::{AgentName, ApprovalId, CallId, Timestamp, ToolName};
use palyra_policy::{Action, Resource};

use crate::calls::{CALLS, CallRow, CallState, Selector};
use crate::error::Refusal;
use crate::records::{self, call_row};
use crate::service::{Caller, GatewayService};

/// The most that one page has, and the most entries that are looked at for one going forwards.
const MOST: usize = 1_000;

/// A call may have entries this long after it was proposed; older ones are not looked for.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 60 * 60);

/// Which entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalFilter {
    /// Recorded then or later.
    pub since: Option<Timestamp>,
    /// Recorded then or before.
    pub until: Option<Timestamp>,
    /// About calls of this agent.
    pub agent: Option<AgentName>,
    /// About calls of this tool.
    pub tool: Option<ToolName>,
    /// About calls that came out like this, as they stand now.
    pub outcome: Option<CallState>,
}

/// Some entries, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPage {
    /// Those that fit.
    pub entries: Vec<Recorded>,
    /// Where to go on: the last place that was looked at.
    pub next: u64,
}

impl JournalFilter {
    const fn is_about_calls(&self) -> bool {
        self.agent.is_some() || self.tool.is_some() || self.outcome.is_some()
    }

    fn fits_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at <= until)
    }

    fn fits_row(&self, row: &CallRow) -> bool {
        self.fits(&Selector::of(row))
    }

    fn fits(&self, selector: &Selector<'_>) -> bool {
        let of = self.agent.as_ref().map(|name| format!("agent:{name}"));
        of.is_none_or(|principal| principal == selector.principal)
            && self
                .tool
                .as_ref()
                .is_none_or(|tool| tool.as_str() == selector.tool)
            && self
                .outcome
                .is_none_or(|outcome| outcome.as_str() == selector.state)
    }
}

impl GatewayService {
    /// Entries that fit, oldest first: the newest ones, or those after a place.
    ///
    /// # Errors
    /// Policy forbids it, or the journal cannot be read.
    pub fn journal_page(
        &self,
        caller: &Caller,
        filter: &JournalFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<JournalPage, Refusal> {
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let limit = limit.clamp(1, MOST);
        match after {
            Some(after) => self.forwards(filter, after, limit),
            None if filter.is_about_calls() => self.newest_of_calls(filter, limit),
            None => self.newest(filter, limit),
        }
    }

    /// Waits until the journal goes past this place, the time is over, or the daemon stops.
    pub async fn journal_past(&self, place: u64, patience: Duration) {
        let mut head = self.0.journal.watch();
        tokio::select! {
            _ = head.wait_for(|head| *head > place) => {}
            () = tokio::time::sleep(patience) => {}
            () = self.0.stopping.cancelled() => {}
        }
    }

    fn forwards(
        &self,
        filter: &JournalFilter,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Refusal> {
        let read = self.0.journal.read(after, limit)?;
        let next = read.last().map_or(after, |last| last.seq);
        let mut known = HashMap::new();
        let mut entries = Vec::new();
        for recorded in read {
            if !filter.fits_time(recorded.at) {
                continue;
            }
            if filter.is_about_calls() {
                let fits = match known.get(&recorded.stream) {
                    Some(fits) => *fits,
                    None => {
                        let fits = self.stream_fits(filter, &recorded.stream)?;
                        known.insert(recorded.stream.clone(), fits);
                        fits
                    }
                };
                if !fits {
                    continue;
                }
            }
            entries.push(recorded);
        }
        Ok(JournalPage { entries, next })
    }

    /// Whether a stream is that of a call that fits, or of the approval of one.
    fn stream_fits(&self, filter: &JournalFilter, stream: &str) -> Result<bool, Refusal> {
        let call: CallId = match (stream.parse::<CallId>(), stream.parse::<ApprovalId>()) {
            (Ok(call), _) => call,
            (Err(_), Ok(approval)) => match records::approval(&self.0.journal, &approval) {
                Ok(record) => record.call,
                Err(_) => return Ok(false),
            },
            (Err(_), Err(_)) => return Ok(false),
        };
        let row = self.0.journal.row(CALLS, call.as_str())?;
        let row = row.as_ref().map(call_row).transpose()?;
        Ok(row.is_some_and(|row| filter.fits_row(&row)))
    }

    /// By time alone: places are in the order of time.
    fn newest(&self, filter: &JournalFilter, limit: usize) -> Result<JournalPage, Refusal> {
        let journal = &self.0.journal;
        let last = match filter.until {
            Some(until) => journal.place_before(until.plus(Duration::from_millis(1)))?,
            None => journal.head(),
        };
        let first = match filter.since {
            Some(since) => journal.place_before(since)?,
            None => 0,
        };
        let after = first.max(last.saturating_sub(limit as u64));
        let count = usize::try_from(last.saturating_sub(after)).unwrap_or(limit);
        let mut entries = journal.read(after, count)?;
        entries.retain(|recorded| filter.fits_time(recorded.at));
        Ok(JournalPage {
            entries,
            next: last,
        })
    }

    /// The entries of the newest calls that fit, and of their approvals.
    fn newest_of_calls(
        &self,
        filter: &JournalFilter,
        limit: usize,
    ) -> Result<JournalPage, Refusal> {
        let journal = &self.0.journal;
        let next = journal.head();
        let mut entries = Vec::new();
        let until = filter.until.map(|at| at.plus(Duration::from_millis(1)));
        let before = until.map(|at| CallId::first_at(at).to_string());
        let oldest = filter.since.map(|since| {
            let reach = i64::try_from(LONGEST_CALL.as_millis()).unwrap_or(i64::MAX);
            let at = since.as_millis().saturating_sub(reach).max(0);
            CallId::first_at(Timestamp::from_millis(at)).to_string()
        });
        for key in self.newest_calls(filter, before.as_deref(), limit)? {
            if entries.len() >= limit || oldest.as_ref().is_some_and(|oldest| key < *oldest) {
                break;
            }
            let Some(row) = journal.row(CALLS, &key)? else {
                continue;
            };
            let row = call_row(&row)?;
            let own = journal.read_stream(&Stream::Call(row.call.clone()))?;
            let asked = row.approval.map(Stream::Approval);
            let asked = asked
                .map(|stream| journal.read_stream(&stream))
                .transpose()?;
            let found = own.into_iter().chain(asked.into_iter().flatten());
            entries.extend(found.filter(|recorded| filter.fits_time(recorded.at)));
        }
        entries.sort_by_key(|recorded| recorded.seq);
        let surplus = entries.len().saturating_sub(limit);
        entries.drain(..surplus);
        Ok(JournalPage { entries, next })
    }

    /// The ids of the newest calls that fit, from the index alone.
    pub(crate) fn newest_calls(
        &self,
        filter: &JournalFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, Refusal> {
        let journal = &self.0.journal;
        let mut keys = Vec::new();
        for state in journal.states(CALLS)? {
            if Selector::parse(&state).is_some_and(|selector| filter.fits(&selector)) {
                keys.extend(journal.keys(CALLS, &state, before, limit)?);
            }
        }
        keys.sort_unstable_by(|one, other| other.cmp(one));
        keys.truncate(limit);
        Ok(keys)
    }
}
