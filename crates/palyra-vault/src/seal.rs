//! Sealing: XChaCha20-Poly1305, with everything that a blob must not be taken out of bound to it.
//!
//! The same additional data goes with the value and with its wrapped data key: a blob that was
//! moved to another name, swapped with its neighbour, or put back in place of a later version opens
//! with neither.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::key::{KEY_BYTES, Key};

/// How blobs are sealed. Another way would be another number.
pub(crate) const SUITE: u8 = 1;
const NONCE_BYTES: usize = 24;

/// A key as the cipher takes it.
pub(crate) type KeyBytes = [u8; KEY_BYTES];

/// A blob that does not open: another key, or not what was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotOpened;

/// What a blob is bound to: parts that cannot run together.
pub(crate) struct Bound(Vec<u8>);

impl Bound {
    pub(crate) fn to(parts: &[&[u8]]) -> Self {
        let mut bytes = b"palyra vault v1".to_vec();
        bytes.push(SUITE);
        for part in parts {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(*part);
        }
        Self(bytes)
    }
}

/// Nonce first, then the sealed bytes and their tag.
pub(crate) fn seal(key: &KeyBytes, bound: &Bound, plain: &[u8]) -> std::io::Result<Vec<u8>> {
    // Random nonces of 24 bytes never meet: nothing has to be counted, so nothing can be counted
    // twice after a rollback.
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    let payload = Payload {
        msg: plain,
        aad: &bound.0,
    };
    let sealed = cipher(key)
        .encrypt(&XNonce::from(nonce), payload)
        .map_err(|_| std::io::Error::other("too long to be sealed"))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

pub(crate) fn open(
    key: &KeyBytes,
    bound: &Bound,
    blob: &[u8],
) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
    let (nonce, sealed) = blob.split_first_chunk::<NONCE_BYTES>().ok_or(NotOpened)?;
    let payload = Payload {
        msg: sealed,
        aad: &bound.0,
    };
    let plain = cipher(key).decrypt(&XNonce::from(*nonce), payload);
    plain.map(Zeroizing::new).map_err(|_| NotOpened)
}

/// A key that was sealed, back in a page of its own.
pub(crate) fn open_key(key: &KeyBytes, bound: &Bound, blob: &[u8]) -> Result<Key, NotOpened> {
    let plain = open(key, bound, blob)?;
    Key::from_slice(&plain)
        .and_then(Result::ok)
        .ok_or(NotOpened)
}

/// A data key, which lives for one sealing or opening only.
pub(crate) fn open_data_key(
    key: &KeyBytes,
    bound: &Bound,
    blob: &[u8],
) -> Result<Zeroizing<KeyBytes>, NotOpened> {
    let plain = open(key, bound, blob)?;
    let mut array = Zeroizing::new([0; KEY_BYTES]);
    (plain.len() == KEY_BYTES).then_some(()).ok_or(NotOpened)?;
    array.copy_from_slice(&plain);
    Ok(array)
}

fn cipher(key: &KeyBytes) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_binding_open() {
        let (key, other) = ([1; KEY_BYTES], [2; KEY_BYTES]);
        let bound = |parts: &[&[u8]]| Bound::to(parts);
        let blob = seal(&key, &bound(&[b"ab", b"c"]), b"x").unwrap();
        assert_eq!(*open(&key, &bound(&[b"ab", b"c"]), &blob).unwrap(), b"x");
        assert!(open(&other, &bound(&[b"ab", b"c"]), &blob).is_err());
        assert!(open(&key, &bound(&[b"a", b"bc"]), &blob).is_err());
        for place in 0..blob.len() {
            for bit in 0..8 {
                let mut wrong = blob.clone();
                wrong[place] ^= 1 << bit;
                assert!(open(&key, &bound(&[b"ab", b"c"]), &wrong).is_err());
            }
            assert!(open(&key, &bound(&[b"ab", b"c"]), &blob[..place]).is_err());
        }
    }
}
