//! Keys: 32 bytes in a locked page that cannot be printed, copied or serialised.

use std::io;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::sys::LockedPage;

/// Length of every key here.
pub(crate) const KEY_BYTES: usize = 32;

/// A key. Its bytes lie in a locked page and are overwritten when it goes.
pub struct Key(LockedPage<KEY_BYTES>);

impl Key {
    /// A random one.
    ///
    /// # Errors
    /// The operating system gives no memory or no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut page = LockedPage::new()?;
        getrandom::fill(page.bytes_mut()).map_err(io::Error::other)?;
        Ok(Self(page))
    }

    /// The key with these bytes, which are overwritten.
    ///
    /// # Errors
    /// The operating system gives no memory.
    pub fn take(bytes: &mut [u8; KEY_BYTES]) -> io::Result<Self> {
        let mut page = LockedPage::new()?;
        page.bytes_mut().copy_from_slice(bytes);
        bytes.zeroize();
        Ok(Self(page))
    }

    /// The key in these bytes, if there are as many as a key has.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<io::Result<Self>> {
        let mut array = Zeroizing::new([0; KEY_BYTES]);
        (bytes.len() == KEY_BYTES).then(|| {
            array.copy_from_slice(bytes);
            Self::take(&mut array)
        })
    }

    /// The key that this text spells in hexadecimal.
    pub(crate) fn from_hex(text: &[u8]) -> Option<io::Result<Self>> {
        let mut array = Zeroizing::new([0; KEY_BYTES]);
        if text.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in array.iter_mut().zip(text.chunks_exact(2)) {
            let text = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(text, 16).ok()?;
        }
        Some(Self::take(&mut array))
    }

    /// The key in hexadecimal, for a key store.
    pub(crate) fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES));
        for byte in self.bytes() {
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        text
    }

    /// Which key it is, without giving it away: it has 256 random bits.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let digest = Sha256::new()
            .chain_update(b"palyra vault key id v1\0")
            .chain_update(self.bytes())
            .finalize();
        let mut id = [0; 8];
        id.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        KeyId(id)
    }

    /// Whether both are the same, in a time that does not tell where they differ.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.bytes().ct_eq(other.bytes()).into()
    }

    /// Whether the kernel keeps it out of the swap.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    pub(crate) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.0.bytes()
    }

    /// A key of its own for one purpose.
    pub(crate) fn derive(&self, purpose: &str) -> io::Result<Self> {
        let mut page = LockedPage::new()?;
        let long = |_| io::Error::other("a derived key of 32 bytes is never too long");
        hkdf::Hkdf::<Sha256>::new(None, self.bytes())
            .expand(purpose.as_bytes(), page.bytes_mut())
            .map_err(long)?;
        Ok(Self(page))
    }
}

/// Which key, by a digest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// The id from its stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_spelled_and_read_and_what_was_taken_is_gone() {
        let key = Key::generate().unwrap();
        let again = Key::from_hex(key.to_hex().as_bytes()).unwrap().unwrap();
        assert!(key.same(&again) && key.id() == again.id());
        assert!(!key.same(&Key::generate().unwrap()));
        let mut bytes = [7; KEY_BYTES];
        let taken = Key::take(&mut bytes).unwrap();
        assert_eq!(bytes, [0; KEY_BYTES]);
        assert_eq!(taken.bytes(), &[7; KEY_BYTES]);
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            assert!(Key::from_hex(wrong.as_bytes()).is_none());
        }
    }

    #[test]
    fn a_keys_page_is_locked_and_left_out_of_core_files() {
        let key = Key::generate().unwrap();
        let address = std::ptr::from_ref(key.bytes()) as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{address:08x}-");
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.find(|line| line.starts_with("VmFlags")).unwrap();
        assert!(flags.contains(" dd") && flags.contains(" wf"), "{flags}");
        assert_eq!(key.is_locked(), flags.contains(" lo"), "{flags}");
        assert!(key.is_locked(), "this machine lets a page be locked");
    }
}
