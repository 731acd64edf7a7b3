//! The grants in force, by what they cover.
//!
//! A call brings its scope keys, and each is looked up; what is found is put before policy, at most
//! one of them. A grant that was over once is forgotten for good: its time is measured on a clock
//! that only goes forwards, so one that is set back revives nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use palyra_core::{
    AgentName, CallDigest, Facts, Grant, GrantId, GrantTerms, ScopeKey, ScopeKind, SessionId,
    Timestamp,
};

/// Grants in force.
#[derive(Debug, Default)]
pub struct LiveGrants {
    by_key: HashMap<ScopeKey, Vec<GrantId>>,
    by_id: BTreeMap<GrantId, Held>,
}

#[derive(Debug, Clone)]
struct Held {
    terms: GrantTerms,
    /// The same end as `not_after`, on the clock that only goes forwards.
    until: Instant,
}

impl LiveGrants {
    /// Takes a grant in. What is left of it is counted from here: from `now`, at `instant`.
    pub fn insert(&mut self, terms: GrantTerms, now: Timestamp, instant: Instant) {
        let until = instant.checked_add(terms.not_after.since(now));
        let until = until.unwrap_or(instant);
        let keyed = self.by_key.entry(terms.key).or_default();
        keyed.push(terms.id.clone());
        self.by_id.insert(terms.id.clone(), Held { terms, until });
    }

    /// Forgets a grant; whether it was in force.
    pub fn remove(&mut self, id: &GrantId) -> Option<GrantTerms> {
        let held = self.by_id.remove(id)?;
        if let Some(ids) = self.by_key.get_mut(&held.terms.key) {
            ids.retain(|it| it != id);
            if ids.is_empty() {
                self.by_key.remove(&held.terms.key);
            }
        }
        Some(held.terms)
    }

    /// The one grant to put before policy: that of the narrowest cover, and of those the one that
    /// lasts longest. Nothing for a person, whose calls need none.
    #[must_use]
    pub fn find(&self, facts: &Facts, now: Timestamp, instant: Instant) -> Option<Grant> {
        let agent = facts.origin.principal.agent()?;
        for scope in &facts.scopes {
            let keys = [scope.session, scope.window];
            let ids = keys.iter().filter_map(|key| self.by_key.get(key)).flatten();
            let held = ids.filter_map(|id| self.by_id.get(id));
            let serves = |held: &&Held| {
                held.terms.agent == *agent
                    && held.terms.cover == scope.kind
                    && now < held.terms.not_after
                    && instant < held.until
            };
            if let Some(held) = held.filter(serves).max_by_key(|held| held.until) {
                return Some(granted(&held.terms, facts));
            }
        }
        None
    }

    /// Those whose time is over by either clock.
    #[must_use]
    pub fn over(&self, now: Timestamp, instant: Instant) -> Vec<GrantId> {
        self.those(|held| now >= held.terms.not_after || instant >= held.until)
    }

    /// When the next one is over.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        self.by_id.values().map(|held| held.until).min()
    }

    /// Those of this agent.
    #[must_use]
    pub fn of_agent(&self, agent: &AgentName) -> Vec<GrantId> {
        self.those(|held| held.terms.agent == *agent)
    }

    /// Those of this session.
    #[must_use]
    pub fn of_session(&self, session: &SessionId) -> Vec<GrantId> {
        self.those(|held| held.terms.session.as_ref() == Some(session))
    }

    /// How many are in force.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    fn those(&self, wanted: impl Fn(&Held) -> bool) -> Vec<GrantId> {
        let found = self.by_id.iter().filter(|(_, held)| wanted(held));
        found.map(|(id, _)| id.clone()).collect()
    }
}

/// How a grant is put before policy about a call that has its key.
fn granted(terms: &GrantTerms, facts: &Facts) -> Grant {
    // The key of an exact scope is made of the call's digest: equal keys are equal calls. For the
    // others only the scope counts.
    let (digest, scope) = match terms.cover {
        ScopeKind::Exact => (*facts.digest(), None),
        ScopeKind::Shape
        | ScopeKind::Host
        | ScopeKind::Directory
        | ScopeKind::Program
        | ScopeKind::Tool => (CallDigest::of_no_call(), Some(terms.key)),
    };
    Grant {
        approval: terms.approval.clone(),
        standing: Some(terms.id.clone()),
        agent: terms.agent.clone(),
        digest,
        scope,
        not_after: terms.not_after,
        people: 1,
    }
}
