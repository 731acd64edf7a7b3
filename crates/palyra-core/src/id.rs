//! Typed ids: a prefix, then 26 characters that sort by the time they were minted.
//!
//! The text is a 48-bit millisecond timestamp and 80 random bits in Crockford's base 32, so that
//! listing by id is listing by age and nobody can guess the next one.

use crate::time::Timestamp;

/// An id that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an id of the form `{prefix}` followed by 26 letters and digits")]
pub struct NotAnId {
    given: String,
    prefix: &'static str,
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TEXT_LENGTH: usize = 26;

fn encode(at: Timestamp, entropy: [u8; 10]) -> String {
    let mut bits = u128::from(at.as_millis().unsigned_abs() & 0xffff_ffff_ffff) << 80;
    for (position, byte) in entropy.iter().enumerate() {
        bits |= u128::from(*byte) << (8 * (9 - position));
    }
    (0..TEXT_LENGTH)
        .rev()
        .filter_map(|place| usize::try_from((bits >> (5 * place)) & 31).ok())
        .filter_map(|digit| ALPHABET.get(digit))
        .map(|letter| char::from(*letter))
        .collect()
}

fn check(given: &str, prefix: &'static str) -> Result<(), NotAnId> {
    let wrong = || NotAnId {
        given: given.chars().take(64).collect(),
        prefix,
    };
    let text = given.strip_prefix(prefix).ok_or_else(wrong)?;
    let legal = text.len() == TEXT_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte));
    legal.then_some(()).ok_or_else(wrong)
}

/// Ten bytes from the operating system; without them nothing may be minted.
fn entropy() -> [u8; 10] {
    let mut bytes = [0; 10];
    #[expect(
        clippy::expect_used,
        reason = "a machine without randomness must not mint ids"
    )]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// 26 characters, more than 120 bits, all of them random.
pub(crate) fn random_text() -> String {
    let ([a, b, c, d, e, f, ..], rest) = (entropy(), entropy());
    let high = i64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    encode(Timestamp::from_millis(high), rest)
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id, minted at `now`.
            #[must_use]
            pub fn mint(now: Timestamp) -> Self {
                Self(format!("{}{}", $prefix, encode(now, entropy())).into())
            }

            /// The smallest id that can be minted at this time: ids sort by age.
            #[must_use]
            pub fn first_at(at: Timestamp) -> Self {
                Self(format!("{}{}", $prefix, encode(at, [0; 10])).into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NotAnId;
            fn from_str(given: &str) -> Result<Self, NotAnId> {
                check(given, $prefix)?;
                Ok(Self(given.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAnId;
            fn try_from(given: String) -> Result<Self, NotAnId> {
                given.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.to_string()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id_type!(
    /// One tool call, from proposal to attestation.
    CallId,
    "call_"
);
id_type!(
    /// What one connection does; budgets are counted per run.
    RunId,
    "run_"
);
id_type!(
    /// One question put to a person.
    ApprovalId,
    "appr_"
);
id_type!(
    /// A yes that covers more than one call, with an end.
    GrantId,
    "grant_"
);
id_type!(
    /// What several calls of one client belong to. Minted by the daemon, never named by a caller.
    SessionId,
    "sess_"
);
id_type!(
    /// One signed record of an execution.
    AttestationId,
    "att_"
);
id_type!(
    /// Something that appeared during a call and was taken away.
    QuarantineId,
    "quar_"
);

/// A device. The local socket is the device `dev_local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct DeviceId(String);

impl DeviceId {
    /// The Unix socket of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self("dev_local".to_owned())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text() {
        let id = CallId::mint(Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(id.as_str().parse::<CallId>().unwrap(), id);
        assert_eq!(id.as_str().len(), "call_".len() + 26);
    }

    #[test]
    fn ids_sort_by_time() {
        let older = CallId::mint(Timestamp::from_millis(1_700_000_000_000));
        let newer = CallId::mint(Timestamp::from_millis(1_700_000_000_001));
        assert!(older < newer);
    }

    #[test]
    fn other_kinds_and_odd_letters_are_refused() {
        let approval = ApprovalId::mint(Timestamp::from_millis(0));
        assert!(approval.as_str().parse::<CallId>().is_err());
        assert!("call_0000000000000000000000000u".parse::<CallId>().is_err());
        assert!("call_".parse::<CallId>().is_err());
    }
}
