//! Floods: how much one agent may propose, ask and leave waiting, checked before journaling.
//!
//! What is turned away leaves one counted entry a minute and limit, so that a flood can neither
//! bury another agent's request nor fill the journal.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use palyra_core::entry::Entry;
use palyra_core::{AgentName, Denial, DenialCode, Principal};

const MINUTE: Duration = Duration::from_secs(60);

/// The limits of each agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodLimits {
    /// Approvals waiting at once.
    pub pending: usize,
    /// Approvals asked for in a minute.
    pub asks_per_minute: usize,
    /// Calls proposed in a minute.
    pub proposals_per_minute: usize,
}

impl Default for FloodLimits {
    fn default() -> Self {
        Self {
            pending: 20,
            asks_per_minute: 60,
            proposals_per_minute: 1_200,
        }
    }
}

/// Which limit was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Limit {
    Pending,
    Asks,
    Proposals,
}

impl Limit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending approvals",
            Self::Asks => "approvals asked in a minute",
            Self::Proposals => "calls proposed in a minute",
        }
    }
}

/// What each agent did in the last minute.
#[derive(Debug, Default)]
pub(crate) struct Floods {
    agents: HashMap<AgentName, Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    proposals: VecDeque<Instant>,
    asks: VecDeque<Instant>,
    pending: usize,
    turned_away: HashMap<Limit, TurnedAway>,
}

#[derive(Debug, Default)]
struct TurnedAway {
    principal: Option<Principal>,
    uncounted: u64,
    last_entry: Option<Instant>,
}

/// A call or ask was turned away; at most once a minute there is an entry to write.
#[derive(Debug)]
pub(crate) struct Flooded {
    pub(crate) denial: Denial,
    pub(crate) entry: Option<Box<Entry>>,
}

impl Floods {
    /// Counts a proposal; gives how many this agent made in the last minute. A person is free.
    pub(crate) fn proposal(
        &mut self,
        principal: &Principal,
        limits: &FloodLimits,
        now: Instant,
    ) -> Result<u64, Flooded> {
        let Some(agent) = principal.agent() else {
            return Ok(0);
        };
        let recent = self.agents.entry(agent.clone()).or_default();
        forget_old(&mut recent.proposals, now);
        if recent.proposals.len() >= limits.proposals_per_minute {
            return Err(recent.turn_away(principal, Limit::Proposals, now));
        }
        recent.proposals.push_back(now);
        Ok(recent.proposals.len() as u64)
    }

    /// Counts an ask and a waiting approval; [`Floods::settled`] gives the place back.
    pub(crate) fn ask(
        &mut self,
        principal: &Principal,
        limits: &FloodLimits,
        now: Instant,
    ) -> Result<(), Flooded> {
        let Some(agent) = principal.agent() else {
            return Ok(());
        };
        let recent = self.agents.entry(agent.clone()).or_default();
        forget_old(&mut recent.asks, now);
        if recent.pending >= limits.pending {
            return Err(recent.turn_away(principal, Limit::Pending, now));
        }
        if recent.asks.len() >= limits.asks_per_minute {
            return Err(recent.turn_away(principal, Limit::Asks, now));
        }
        recent.asks.push_back(now);
        recent.pending += 1;
        Ok(())
    }

    /// The entries for what was turned away and is not counted yet, once their minute is over
    /// (or at once, when the daemon ends).
    pub(crate) fn uncounted(&mut self, now: Instant, at_once: bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        for recent in self.agents.values_mut() {
            for (limit, count) in &mut recent.turned_away {
                let due = at_once
                    || count
                        .last_entry
                        .is_none_or(|last| now.duration_since(last) >= MINUTE);
                let Some(principal) = count.principal.clone().filter(|_| due) else {
                    continue;
                };
                if count.uncounted > 0 {
                    count.last_entry = Some(now);
                    let refused = std::mem::take(&mut count.uncounted);
                    let limit = limit.as_str().to_owned();
                    entries.push(Entry::Flooded {
                        principal,
                        limit,
                        refused,
                    });
                }
            }
        }
        entries
    }

    /// A waiting approval was decided, expired or cancelled.
    pub(crate) fn settled(&mut self, principal: &Principal) {
        let recent = principal
            .agent()
            .and_then(|agent| self.agents.get_mut(agent));
        if let Some(recent) = recent {
            recent.pending = recent.pending.saturating_sub(1);
        }
    }
}

impl Recent {
    fn turn_away(&mut self, principal: &Principal, limit: Limit, now: Instant) -> Flooded {
        let count = self.turned_away.entry(limit).or_default();
        count.uncounted += 1;
        count.principal = Some(principal.clone());
        let due = count
            .last_entry
            .is_none_or(|last| now.duration_since(last) >= MINUTE);
        let entry = due.then(|| {
            count.last_entry = Some(now);
            Box::new(Entry::Flooded {
                principal: principal.clone(),
                limit: limit.as_str().to_owned(),
                refused: std::mem::take(&mut count.uncounted),
            })
        });
        let reason = format!("`{principal}` is over its limit of {}", limit.as_str());
        let next_step = match limit {
            Limit::Pending | Limit::Asks => {
                "wait until a person has answered (`palyra approvals list`), or raise `[floods]` in palyra.toml"
            }
            Limit::Proposals => "wait a minute, or raise `[floods]` in palyra.toml",
        };
        Flooded {
            denial: Denial::new(DenialCode::RateLimited, reason, next_step),
            entry,
        }
    }
}

fn forget_old(times: &mut VecDeque<Instant>, now: Instant) {
    while times
        .front()
        .is_some_and(|time| now.duration_since(*time) >= MINUTE)
    {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use palyra_core::UserName;

    use super::*;

    fn agent(name: &str) -> Principal {
        Principal::Agent {
            name: name.parse().unwrap(),
            user: UserName::owner(),
        }
    }

    #[test]
    fn a_flood_is_turned_away_and_counted_once_a_minute() {
        let limits = FloodLimits {
            proposals_per_minute: 2,
            ..FloodLimits::default()
        };
        let mut floods = Floods::default();
        let start = Instant::now();
        assert!(floods.proposal(&agent("a"), &limits, start).is_ok());
        assert!(floods.proposal(&agent("a"), &limits, start).is_ok());
        let first = floods.proposal(&agent("a"), &limits, start).unwrap_err();
        assert!(matches!(
            first.entry.as_deref(),
            Some(Entry::Flooded { refused: 1, .. })
        ));
        for _ in 0..5 {
            let more = floods.proposal(&agent("a"), &limits, start).unwrap_err();
            assert!(more.entry.is_none());
        }
        // Another agent is not slowed by it.
        assert!(floods.proposal(&agent("b"), &limits, start).is_ok());
        // A minute later the window is open again, and the next refusal counts what was missed.
        let later = start + MINUTE;
        assert!(floods.proposal(&agent("a"), &limits, later).is_ok());
        assert!(floods.proposal(&agent("a"), &limits, later).is_ok());
        let next = floods.proposal(&agent("a"), &limits, later).unwrap_err();
        assert!(matches!(
            next.entry.as_deref(),
            Some(Entry::Flooded { refused: 6, .. })
        ));
    }

    #[test]
    fn a_flood_that_stops_is_counted_all_the_same() {
        let limits = FloodLimits {
            proposals_per_minute: 0,
            ..FloodLimits::default()
        };
        let mut floods = Floods::default();
        let start = Instant::now();
        for _ in 0..5 {
            assert!(floods.proposal(&agent("a"), &limits, start).is_err());
        }
        assert!(
            floods.uncounted(start, false).is_empty(),
            "its minute is not over"
        );
        let counted = floods.uncounted(start + MINUTE, false);
        assert!(
            matches!(counted.as_slice(), [Entry::Flooded { refused: 4, .. }]),
            "{counted:?}"
        );
        assert!(floods.uncounted(start + MINUTE, true).is_empty());
    }

    #[test]
    fn waiting_approvals_take_and_give_back_places() {
        let limits = FloodLimits {
            pending: 1,
            ..FloodLimits::default()
        };
        let mut floods = Floods::default();
        let now = Instant::now();
        assert!(floods.ask(&agent("a"), &limits, now).is_ok());
        assert!(floods.ask(&agent("a"), &limits, now).is_err());
        floods.settled(&agent("a"));
        assert!(floods.ask(&agent("a"), &limits, now).is_ok());
    }
}
