//! A bounded map that forgets what was not used for a while.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// Two generations: new and used things live in the young one; when it is full it becomes the
/// old one, and what was in the old one is forgotten. No list to maintain, constant time, and
/// never more than twice the limit.
pub(crate) struct Generations<K, V> {
    young: HashMap<K, V, RandomState>,
    old: HashMap<K, V, RandomState>,
    weight: usize,
    limit: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// A map whose generations weigh at most `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            weight: 0,
            limit,
        }
    }

    /// What is remembered under this key.
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Remembers the value; it replaces what was there.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.weight.saturating_add(weight) > self.limit {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight = self.weight.saturating_add(weight);
        self.young.insert(key, value);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_small_and_never_answers_with_an_old_value() {
        let mut map = Generations::new(10);
        for round in 0..100_u32 {
            map.insert("same".to_owned(), round, 1);
            map.insert(round.to_string(), round, 1);
            assert_eq!(map.get("same"), Some(&round));
            assert!(map.young.len() + map.old.len() <= 22);
        }
        assert_eq!(map.get("0"), None);
        assert_eq!(map.get("99"), Some(&99));
        map.clear();
        assert_eq!(map.get("same"), None);
    }

    #[test]
    fn a_thing_heavier_than_the_limit_does_not_stay_for_ever() {
        let mut map = Generations::new(10);
        map.insert("heavy", (), 1_000);
        map.insert("one", (), 1);
        map.insert("two", (), 11);
        assert!(map.get("heavy").is_none());
    }
}
