//! Recognising a value without keeping it.
//!
//! For every value of [`SHORTEST`] bytes or more there is a keyed hash of its first bytes and a
//! keyed digest of all of it. A window goes over a text; where the hash of the window is known, the
//! digest of what follows decides: one for each length among the values that begin so, however many
//! they are (tokens of one provider all begin alike). Shorter values, and values that were encoded,
//! cut or split, are not recognised.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use crate::key::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The shortest value that is recognised, in bytes.
pub const SHORTEST: usize = 8;

/// Keyed fingerprints of values, and nothing of the values.
pub struct Fingerprints {
    /// For whole values; gone with the vault's key.
    key: Key,
    /// For windows; another one in every process.
    windows: RandomState,
    known: HashMap<u64, Alike>,
}

/// Values that begin alike: by length and digest, how many versions have each.
type Alike = BTreeMap<usize, HashMap<[u8; 32], u64>>;

impl Fingerprints {
    pub(crate) fn of(integrity: &Key) -> std::io::Result<Self> {
        Ok(Self {
            key: integrity.derive("palyra vault fingerprints v1")?,
            windows: RandomState::new(),
            known: HashMap::new(),
        })
    }

    pub(crate) fn add(&mut self, value: &[u8]) {
        let Some((window, digest)) = self.fingerprint(value) else {
            return;
        };
        let alike = self.known.entry(window).or_default();
        *alike
            .entry(value.len())
            .or_default()
            .entry(digest)
            .or_default() += 1;
    }

    pub(crate) fn remove(&mut self, value: &[u8]) {
        let Some((window, digest)) = self.fingerprint(value) else {
            return;
        };
        let Some(alike) = self.known.get_mut(&window) else {
            return;
        };
        if let Some(digests) = alike.get_mut(&value.len()) {
            match digests.get_mut(&digest) {
                Some(times) if *times > 1 => *times -= 1,
                Some(_) | None => drop(digests.remove(&digest)),
            }
            if digests.is_empty() {
                alike.remove(&value.len());
            }
        }
        if alike.is_empty() {
            self.known.remove(&window);
        }
    }

    /// Whether a value stands anywhere in this text. Never which one.
    #[must_use]
    pub fn found_in(&self, text: &[u8]) -> bool {
        !self.known.is_empty()
            && text
                .windows(SHORTEST)
                .enumerate()
                .any(|(place, window)| self.begins_at(text, place, window))
    }

    fn begins_at(&self, text: &[u8], place: usize, window: &[u8]) -> bool {
        let Some(alike) = self.known.get(&self.windows.hash_one(window)) else {
            return false;
        };
        alike.iter().any(|(length, digests)| {
            let value = text.get(place..place + length);
            value.is_some_and(|value| digests.contains_key(&self.digest(value)))
        })
    }

    fn fingerprint(&self, value: &[u8]) -> Option<(u64, [u8; 32])> {
        let window = value.get(..SHORTEST)?;
        Some((self.windows.hash_one(window), self.digest(value)))
    }

    fn digest(&self, value: &[u8]) -> [u8; 32] {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.bytes()).expect("any length");
        mac.update(value);
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Fingerprints {
        Fingerprints::of(&Key::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_value_is_found_wherever_it_stands() {
        let mut known = empty();
        assert!(!known.found_in(b"hunter2-hunter2"));
        known.add(b"hunter2-hunter2");
        known.add(b"12345678");
        known.add(b"short");
        for with in [
            "hunter2-hunter2",
            "x hunter2-hunter2",
            "hunter2-hunter2 y",
            "a12345678b",
        ] {
            assert!(known.found_in(with.as_bytes()), "{with}");
        }
        for without in ["", "hunter2-hunter", "unter2-hunter2", "short", "1234567 8"] {
            assert!(!known.found_in(without.as_bytes()), "{without}");
        }
    }

    #[test]
    fn values_with_one_beginning_are_told_apart_and_counted() {
        let mut known = empty();
        for value in ["12345678-a", "12345678-bb", "12345678-a"] {
            known.add(value.as_bytes());
        }
        known.remove(b"12345678-a");
        assert!(known.found_in(b"12345678-a"), "another version has it");
        known.remove(b"12345678-a");
        assert!(!known.found_in(b"12345678-a"));
        assert!(known.found_in(b"12345678-bb"));
        known.remove(b"12345678-bb");
        assert!(known.known.is_empty());
    }
}
