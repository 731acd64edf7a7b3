//! Digests: plain SHA-256 for bytes, and keyed digests for "is this the same call".

use hmac::{KeyInit, Mac};
use sha2::Digest as _;

use crate::id::CallId;
use crate::scope::ScopeKey;

/// The SHA-256 of some bytes; written `sha256:` and 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The digest of several parts, each preceded by its length, under a domain of its own: no
    /// two different lists of parts give the same bytes.
    #[must_use]
    pub fn of_parts(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hash = sha2::Sha256::new();
        framed(domain, parts, |bytes| hash.update(bytes));
        Self(hash.finalize().into())
    }

    /// The digest that these bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn framed(domain: &str, parts: &[&[u8]], mut update: impl FnMut(&[u8])) {
    for part in std::iter::once(&domain.as_bytes()).chain(parts) {
        update(&(part.len() as u64).to_be_bytes());
        update(part);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not `sha256:` followed by 64 hex digits")]
pub struct NotADigest(String);

impl std::str::FromStr for Digest {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let wrong = || NotADigest(text.chars().take(80).collect());
        let hex = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != 64 || !hex.bytes().all(legal) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The digest of an execution plan: what exactly will run, and under which walls. It stays in
/// memory, where the corridor compares it; what is recorded is its [`PlanSeal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanDigest(pub Digest);

/// A plan as it is recorded: keyed, because a plan holds arguments and environment values, and bound
/// to one call. Without the key nobody can find an erased short one by hashing candidates, and
/// whoever is given records cannot tell which calls did the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct PlanSeal(Digest);

/// "The same call": principal, tool, canonical arguments, effects and plan, under a local key.
///
/// It is keyed because facts outlive the arguments: without the key nobody can guess an erased short
/// argument by hashing candidates. What is recorded is its [`RecordedDigest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct CallDigest(Digest);

/// A call's digest as entries have it: bound to one call, so that whoever is given records cannot
/// tell which calls were equal. That two entries of one call are about the same, it still shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct RecordedDigest(Digest);

impl CallDigest {
    /// How it is recorded about this call. Nobody finds the way back: a digest is keyed, so there
    /// are no candidates to try.
    #[must_use]
    pub fn recorded(&self, call: &CallId) -> RecordedDigest {
        let parts: [&[u8]; 2] = [call.as_str().as_bytes(), self.0.as_bytes()];
        RecordedDigest(Digest::of_parts("palyra recorded digest v1", &parts))
    }

    /// The digest of no call: every call's is keyed, and this one is not.
    #[must_use]
    pub fn of_no_call() -> Self {
        Self(Digest::of_parts("palyra no call v1", &[]))
    }

    /// The digest as text, for policy contexts.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.to_string()
    }
}

/// The local key of [`CallDigest`]. It cannot be printed, copied or serialised.
pub struct DigestKey([u8; 32]);

impl DigestKey {
    /// The key from its stored bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of these parts under this key.
    #[must_use]
    pub fn call_digest(&self, parts: &[&[u8]]) -> CallDigest {
        CallDigest(self.keyed("palyra call v1", parts))
    }

    /// How this plan is recorded about this call.
    #[must_use]
    pub fn plan_seal(&self, call: &CallId, plan: &PlanDigest) -> PlanSeal {
        let parts: [&[u8]; 2] = [call.as_str().as_bytes(), plan.0.as_bytes()];
        PlanSeal(self.keyed("palyra plan v2", &parts))
    }

    /// The key of a scope of these facts. Its domain is its own: no call's digest is a scope's.
    #[must_use]
    pub fn scope_key(&self, parts: &[&[u8]]) -> ScopeKey {
        ScopeKey(self.keyed("palyra scope v1", parts))
    }

    fn keyed(&self, domain: &str, parts: &[&[u8]]) -> Digest {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&self.0).expect("any length");
        framed(domain, parts, |bytes| mac.update(bytes));
        Digest(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert!(text.to_uppercase().parse::<Digest>().is_err());
    }

    #[test]
    fn parts_do_not_run_together() {
        let one = Digest::of_parts("d", &[b"ab", b"c"]);
        let other = Digest::of_parts("d", &[b"a", b"bc"]);
        assert_ne!(one, other);
    }

    #[test]
    fn records_do_not_tell_which_calls_are_equal() {
        let key = DigestKey::from_bytes([1; 32]);
        let (one, same) = (key.call_digest(&[b"x"]), key.call_digest(&[b"x"]));
        let at = crate::Timestamp::from_millis(1);
        let (call, other) = (CallId::mint(at), CallId::mint(at));
        assert_eq!(one, same);
        assert_eq!(one.recorded(&call), same.recorded(&call));
        assert_ne!(one.recorded(&call), same.recorded(&other));
        assert_ne!(
            one.recorded(&call),
            key.call_digest(&[b"y"]).recorded(&call)
        );
        let (plan, another) = (PlanDigest(Digest::of(b"x")), PlanDigest(Digest::of(b"y")));
        assert_eq!(key.plan_seal(&call, &plan), key.plan_seal(&call, &plan));
        assert_ne!(key.plan_seal(&call, &plan), key.plan_seal(&other, &plan));
        assert_ne!(key.plan_seal(&call, &plan), key.plan_seal(&call, &another));
    }

    #[test]
    fn another_key_gives_another_digest() {
        let one = DigestKey::from_bytes([1; 32]).call_digest(&[b"x"]);
        let other = DigestKey::from_bytes([2; 32]).call_digest(&[b"x"]);
        assert_ne!(one, other);
    }
}
