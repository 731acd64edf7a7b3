//! The inbox: what waits for a person, in an order that is fair between those who ask.
//!
//! Everybody who asks has a turn before anybody has a second one, so no agent can push another's
//! question off the first page. Whose worst question is worse comes first, and of one's own questions
//! the worst, and of those the oldest.

use std::collections::{BTreeMap, HashMap};

use palyra_core::{ApprovalId, Principal, RiskLevel};

/// What waits.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    waiting: BTreeMap<ApprovalId, Asked>,
}

#[derive(Debug, Clone)]
struct Asked {
    by: Principal,
    risk: RiskLevel,
}

impl Inbox {
    /// Somebody asks.
    pub fn insert(&mut self, id: ApprovalId, by: Principal, risk: RiskLevel) {
        self.waiting.insert(id, Asked { by, risk });
    }

    /// A question is over.
    pub fn remove(&mut self, id: &ApprovalId) {
        self.waiting.remove(id);
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many of one asker's wait.
    #[must_use]
    pub fn of(&self, principal: &Principal) -> usize {
        let own = self.waiting.values().filter(|asked| asked.by == *principal);
        own.count()
    }

    /// Everything that waits, in order.
    #[must_use]
    pub fn in_order(&self) -> Vec<ApprovalId> {
        let mut askers: HashMap<&Principal, Vec<(&ApprovalId, RiskLevel)>> = HashMap::new();
        for (id, asked) in &self.waiting {
            let own = askers.entry(&asked.by).or_default();
            own.push((id, asked.risk));
        }
        // Ids sort by age, so each asker's are the oldest first already.
        for own in askers.values_mut() {
            own.sort_by_key(|(_, risk)| std::cmp::Reverse(*risk));
        }
        let mut turns: Vec<(usize, std::cmp::Reverse<RiskLevel>, &ApprovalId)> = askers
            .values()
            .flat_map(|own| own.iter().enumerate())
            .map(|(turn, (id, risk))| (turn, std::cmp::Reverse(*risk), *id))
            .collect();
        turns.sort_unstable();
        turns.into_iter().map(|(_, _, id)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use palyra_core::{Timestamp, UserName};

    use super::*;

    fn agent(name: &str) -> Principal {
        Principal::Agent {
            name: name.parse().unwrap(),
            user: UserName::owner(),
        }
    }

    fn at(millis: i64) -> ApprovalId {
        ApprovalId::mint(Timestamp::from_millis(millis))
    }

    #[test]
    fn one_agent_cannot_push_another_off_the_first_page() {
        let mut inbox = Inbox::default();
        for asked in 0..10_000 {
            inbox.insert(at(asked), agent("loud"), RiskLevel::Critical);
        }
        let quiet = at(20_000);
        inbox.insert(quiet.clone(), agent("quiet"), RiskLevel::Low);
        let order = inbox.in_order();
        assert_eq!(order.len(), 10_001);
        assert_eq!(order.get(1), Some(&quiet));
        assert_eq!(inbox.of(&agent("loud")), 10_000);
    }

    #[test]
    fn the_worst_comes_first_and_of_those_the_oldest() {
        let mut inbox = Inbox::default();
        let (old, worst, young) = (at(1), at(2), at(3));
        inbox.insert(young.clone(), agent("a"), RiskLevel::Low);
        inbox.insert(old.clone(), agent("a"), RiskLevel::Low);
        inbox.insert(worst.clone(), agent("a"), RiskLevel::High);
        let other = at(4);
        inbox.insert(other.clone(), agent("b"), RiskLevel::Critical);
        assert_eq!(
            inbox.in_order(),
            [other.clone(), worst, old.clone(), young.clone()]
        );
        inbox.remove(&other);
        inbox.remove(&old);
        assert_eq!(inbox.in_order().last(), Some(&young));
        assert_eq!(inbox.len(), 2);
    }
}
