//! The head: one keyed number over everything in the vault, and the generation it has.
//!
//! Each version and each newest number has a keyed hash; the head is their sum, so a change costs
//! one addition however many secrets there are. A signature over sum and generation makes any
//! mixture of old and new rows fail; only a whole old file still fits, and its generation is less
//! than the one that the journal was told.

use hmac::{Hmac, KeyInit, Mac};
use palyra_core::SecretRef;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::backend::{Latest, Meta, Own, Stored};
use crate::key::Key;

/// Where the vault stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Counts every change.
    pub generation: u64,
    /// How many versions there are.
    pub versions: u64,
    /// The sum of their keyed hashes.
    pub sum: [u8; 32],
    /// Over all of this and what else is known of the vault.
    pub mac: [u8; 32],
}

impl Head {
    pub(crate) const EMPTY: Self = Self {
        generation: 0,
        versions: 0,
        sum: [0; 32],
        mac: [0; 32],
    };

    /// What the journal is told.
    #[must_use]
    pub fn digest(&self) -> palyra_core::Digest {
        palyra_core::Digest::of_parts("palyra vault head v1", &[&self.mac])
    }
}

/// Signs and sums.
pub(crate) struct HeadKey(Key);

impl HeadKey {
    pub(crate) fn of(integrity: &Key) -> std::io::Result<Self> {
        integrity.derive("palyra vault head v1").map(Self)
    }

    pub(crate) fn version(&self, stored: &Stored) -> [u8; 32] {
        let expires = stored.expires_at.map_or(i64::MAX, |at| at.as_millis());
        self.mac(&[
            b"version",
            stored.secret.to_string().as_bytes(),
            &stored.version.to_be_bytes(),
            &stored.created_at.as_millis().to_be_bytes(),
            &expires.to_be_bytes(),
            stored.audience.as_bytes(),
            // Not the wrapped data key: it changes with the key and opens only for this version.
            &stored.sealed.value,
        ])
    }

    pub(crate) fn latest(&self, secret: &SecretRef, latest: Latest) -> [u8; 32] {
        self.mac(&[
            b"latest",
            secret.to_string().as_bytes(),
            &latest.version.to_be_bytes(),
            &[u8::from(latest.live)],
        ])
    }

    pub(crate) fn own(&self, own: &Own) -> [u8; 32] {
        self.mac(&[b"own", own.name.as_bytes(), &own.sealed.value])
    }

    /// Signs what is known of the vault.
    pub(crate) fn sign(&self, meta: &mut Meta) {
        meta.head.mac = self.of_meta(meta);
    }

    pub(crate) fn verifies(&self, meta: &Meta) -> bool {
        self.of_meta(meta).ct_eq(&meta.head.mac).into()
    }

    fn of_meta(&self, meta: &Meta) -> [u8; 32] {
        let key = |id: Option<crate::KeyId>| id.map_or([0; 8], |id| *id.as_bytes());
        self.mac(&[
            b"head",
            &meta.vault,
            meta.keystore.as_str().as_bytes(),
            meta.active.as_bytes(),
            &key(meta.pending),
            &key(meta.previous),
            &meta.head.generation.to_be_bytes(),
            &meta.head.versions.to_be_bytes(),
            &meta.head.sum,
            meta.change.as_bytes(),
        ])
    }

    fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.bytes()).expect("any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Adds one number of 256 bits to another, from the last byte on.
pub(crate) fn add(sum: &mut [u8; 32], part: &[u8; 32]) {
    let mut carry = 0;
    for (to, from) in sum.iter_mut().zip(part).rev() {
        let total = u16::from(*to) + u16::from(*from) + carry;
        let [high, low] = total.to_be_bytes();
        (carry, *to) = (u16::from(high), low);
    }
}

/// Takes one from another.
pub(crate) fn subtract(sum: &mut [u8; 32], part: &[u8; 32]) {
    let mut opposite = part.map(|byte| !byte);
    let mut one = [0; 32];
    if let Some(last) = one.last_mut() {
        *last = 1;
    }
    add(&mut opposite, &one);
    add(sum, &opposite);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_can_be_taken_away_in_any_order() {
        let parts = [[0xff; 32], [0x80; 32], [1; 32]];
        let mut sum = [0; 32];
        parts.iter().for_each(|part| add(&mut sum, part));
        for place in [1, 0, 2] {
            assert_ne!(sum, [0; 32]);
            subtract(&mut sum, &parts[place]);
        }
        assert_eq!(sum, [0; 32]);
    }
}
