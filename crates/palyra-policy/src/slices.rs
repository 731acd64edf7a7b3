//! Which policies can matter to a question: ten thousand of them at the price of ten.
//!
//! Cedar evaluates every policy of the set it is handed. Almost all of them are about somebody or
//! something else, and their scope says so: `principal == …`, `action in …`, `resource is …`. So
//! every constraint that some policy has in its scope gets a number here, a [`Mark`]. A question is
//! reduced to the marks it satisfies (by what it names, and by the ancestors of that), and the
//! policies under these marks are its slice.
//!
//! A policy outside the slice has a scope that does not match. Cedar checks the scope before the
//! conditions, so it would neither take part in the answer nor report an error: leaving it out
//! changes nothing, which a property test compares with the whole set. A policy too many changes
//! nothing either.
//!
//! Slices are merged once and kept by their marks. How many different ones there can be depends on
//! the policies, not on what callers send: paths and hosts that no policy names share one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use cedar_policy::{
    ActionConstraint, Entities, EntityTypeName, EntityUid, Policy, PolicyId, PolicySet,
    PrincipalConstraint, ResourceConstraint,
};

use crate::request::Action;
use crate::vocabulary::Vocabulary;

/// The number of a scope constraint.
type Mark = u32;

/// No constraint, which everything satisfies.
const ANY: Mark = 0;

/// Stands between the marks of a principal and those of a resource.
const AND: Mark = Mark::MAX;

/// How many policies all kept slices may hold together, a policy in two slices counted twice. It
/// bounds memory: past it the kept ones are dropped and merged again as they are asked for.
const MOST_KEPT: usize = 20_000;

/// A slice this large is not worth a copy when it is most of the set anyway.
const LARGE: usize = 1_000;

/// A policy set, by the scopes of its policies.
#[derive(Debug)]
pub(crate) struct Slices {
    whole: Arc<PolicySet>,
    actions: HashMap<Action, Vec<Mark>>,
    principals: Side,
    resources: Side,
    by_scope: HashMap<[Mark; 3], Vec<PolicyId>>,
    kept: RwLock<Kept>,
}

/// What a question satisfies: its action, and the marks of its principal and of its resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    action: Action,
    marks: Vec<Mark>,
}

#[derive(Debug, Default)]
struct Kept {
    slices: HashMap<Key, Arc<PolicySet>>,
    policies: usize,
}

impl Slices {
    pub(crate) fn new(whole: Arc<PolicySet>, declared: &Entities, words: &Vocabulary) -> Self {
        let mut actions = Side::default();
        let (mut principals, mut resources) = (Side::default(), Side::default());
        let mut by_scope: HashMap<[Mark; 3], Vec<PolicyId>> = HashMap::new();
        for policy in whole.policies() {
            let principal = principals.mark(principal_scope(policy));
            let resource = resources.mark(resource_scope(policy));
            for action in action_scopes(policy) {
                let scope = [actions.mark(action), principal, resource];
                let under = by_scope.entry(scope).or_default();
                // `action in [a, a]`
                if under.last() != Some(policy.id()) {
                    under.push(policy.id().clone());
                }
            }
        }
        let marks_of = |action: &Action| {
            let mut marks = Vec::new();
            actions.satisfied(&words.action(*action), declared, &mut marks);
            (*action, marks)
        };
        Self {
            actions: Action::ALL.iter().map(marks_of).collect(),
            whole,
            principals,
            resources,
            by_scope,
            kept: RwLock::default(),
        }
    }

    /// All of them.
    pub(crate) const fn whole(&self) -> &Arc<PolicySet> {
        &self.whole
    }

    /// Every policy that can matter when this principal does this to that resource. The ancestors
    /// of both are taken from `entities`, which must be those that the question is evaluated with.
    pub(crate) fn of(
        &self,
        action: Action,
        principal: &EntityUid,
        resource: &EntityUid,
        entities: &Entities,
    ) -> Arc<PolicySet> {
        let mut marks = Vec::with_capacity(16);
        self.principals.satisfied(principal, entities, &mut marks);
        marks.push(AND);
        self.resources.satisfied(resource, entities, &mut marks);
        let key = Key { action, marks };
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        match kept.slices.get(&key) {
            Some(slice) => Arc::clone(slice),
            None => {
                drop(kept);
                self.keep(key)
            }
        }
    }

    fn keep(&self, key: Key) -> Arc<PolicySet> {
        let slice = self.merge(&key);
        let size = slice.num_of_policies();
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.policies + size > MOST_KEPT {
            *kept = Kept::default();
        }
        // An empty slice takes a place too.
        kept.policies += size.max(1);
        kept.slices.insert(key, Arc::clone(&slice));
        slice
    }

    fn merge(&self, Key { action, marks }: &Key) -> Arc<PolicySet> {
        let mut sides = marks.split(|mark| *mark == AND);
        let principals = sides.next().unwrap_or_default();
        let resources = sides.next().unwrap_or_default();
        let mut ids: Vec<&PolicyId> = Vec::new();
        for action in self.actions.get(action).into_iter().flatten() {
            for principal in principals {
                for resource in resources {
                    let under = self.by_scope.get(&[*action, *principal, *resource]);
                    ids.extend(under.into_iter().flatten());
                }
            }
        }
        // `action in [run, ask]` is under both, and one action may be in both.
        ids.sort_unstable();
        ids.dedup();
        if ids.len() >= LARGE && 2 * ids.len() > self.whole.num_of_policies() {
            return Arc::clone(&self.whole);
        }
        let policies = ids.iter().filter_map(|id| self.whole.policy(id).cloned());
        // They are of one set, so no id is taken twice; if it were, the whole set is right too.
        PolicySet::from_policies(policies).map_or_else(|_| Arc::clone(&self.whole), Arc::new)
    }
}

/// One place in a scope constraint.
enum Scope {
    Any,
    Is(EntityTypeName),
    Eq(EntityUid),
    In(EntityUid),
}

/// The constraints that policies have on one side of a question, numbered.
#[derive(Debug)]
struct Side {
    types: HashMap<EntityTypeName, Mark>,
    exactly: HashMap<EntityUid, Mark>,
    within: HashMap<EntityUid, Mark>,
    next: Mark,
}

impl Default for Side {
    fn default() -> Self {
        Self {
            types: HashMap::new(),
            exactly: HashMap::new(),
            within: HashMap::new(),
            next: ANY + 1,
        }
    }
}

impl Side {
    fn mark(&mut self, scope: Scope) -> Mark {
        match scope {
            Scope::Any => ANY,
            Scope::Is(name) => number(&mut self.types, name, &mut self.next),
            Scope::Eq(uid) => number(&mut self.exactly, uid, &mut self.next),
            Scope::In(uid) => number(&mut self.within, uid, &mut self.next),
        }
    }

    /// The marks of every constraint that this entity satisfies, in a fixed order.
    fn satisfied(&self, uid: &EntityUid, entities: &Entities, marks: &mut Vec<Mark>) {
        let start = marks.len();
        marks.push(ANY);
        marks.extend(self.types.get(uid.type_name()));
        marks.extend(self.exactly.get(uid));
        if !self.within.is_empty() {
            // What is in something is in itself, known or not.
            marks.extend(self.within.get(uid));
            let ancestors = entities.ancestors(uid).into_iter().flatten();
            marks.extend(ancestors.filter_map(|ancestor| self.within.get(ancestor)));
        }
        if let Some(these) = marks.get_mut(start..) {
            these.sort_unstable();
        }
    }
}

fn number<T: Eq + Hash>(numbers: &mut HashMap<T, Mark>, what: T, next: &mut Mark) -> Mark {
    *numbers.entry(what).or_insert_with(|| {
        let mark = *next;
        *next += 1;
        mark
    })
}

fn principal_scope(policy: &Policy) -> Scope {
    match policy.principal_constraint() {
        PrincipalConstraint::Any => Scope::Any,
        PrincipalConstraint::Is(name) => Scope::Is(name),
        PrincipalConstraint::Eq(uid) => Scope::Eq(uid),
        // The type is left to Cedar: a policy too many changes nothing.
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => Scope::In(uid),
    }
}

fn resource_scope(policy: &Policy) -> Scope {
    match policy.resource_constraint() {
        ResourceConstraint::Any => Scope::Any,
        ResourceConstraint::Is(name) => Scope::Is(name),
        ResourceConstraint::Eq(uid) => Scope::Eq(uid),
        ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => Scope::In(uid),
    }
}

fn action_scopes(policy: &Policy) -> Vec<Scope> {
    match policy.action_constraint() {
        ActionConstraint::Any => vec![Scope::Any],
        ActionConstraint::Eq(uid) => vec![Scope::Eq(uid)],
        ActionConstraint::In(uids) => uids.into_iter().map(Scope::In).collect(),
    }
}
