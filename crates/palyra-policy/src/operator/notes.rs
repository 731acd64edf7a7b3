//! What a policy says about itself to people and to approval: its annotations, typed.

use std::time::Duration;

use cedar_policy::Policy;

use super::source::acts_unseen;

/// The annotations that mean something here.
const KNOWN: [&str; 6] = ["id", "reason", "hint", "approvers", "max_ttl", "mode"];
const MAX_ID_BYTES: usize = 64;
const MAX_SENTENCE_BYTES: usize = 500;
/// The most people that a policy can ask for.
const MAX_APPROVERS: u8 = 9;

/// Whether a policy decides, or is only watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforced,
    /// `@mode("log_only")`: what it would have decided is recorded, and changes nothing.
    LogOnly,
}

/// The annotations of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notes {
    /// `@id`: what records and explanations print.
    pub id: String,
    /// `@reason`: the sentence a person reads.
    pub reason: Option<String>,
    /// `@hint`: what that person can do about it.
    pub hint: Option<String>,
    /// `@approvers("1")`: how many people must say yes to what this policy lets be asked.
    pub approvers: Option<u8>,
    /// `@max_ttl("PT15M")`: how long such a yes may last at most.
    pub max_ttl: Option<Duration>,
    /// `@mode("log_only")`, or enforced.
    pub mode: Mode,
    /// Annotations that mean nothing here, such as a misspelt one.
    pub unknown: Vec<String>,
}

impl Notes {
    /// Reads the annotations of a policy, or says everything that is wrong with them.
    pub(crate) fn of(policy: &Policy) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let id = keep(&mut wrong, id_of(policy));
        let reason = keep(&mut wrong, sentence(policy, "reason"));
        let hint = keep(&mut wrong, sentence(policy, "hint"));
        let approvers = keep(&mut wrong, approvers_of(policy));
        let max_ttl = keep(&mut wrong, max_ttl_of(policy));
        let mode = keep(&mut wrong, mode_of(policy));
        let unknown = policy
            .annotations()
            .map(|(name, _)| name.to_owned())
            .filter(|name| !KNOWN.contains(&name.as_str()))
            .collect();
        match (id, reason, hint, approvers, max_ttl, mode) {
            (Some(id), Some(reason), Some(hint), Some(approvers), Some(max_ttl), Some(mode)) => {
                Ok(Self {
                    id,
                    reason,
                    hint,
                    approvers,
                    max_ttl,
                    mode,
                    unknown,
                })
            }
            _ => Err(wrong),
        }
    }
}

fn keep<T>(wrong: &mut Vec<String>, read: Result<T, String>) -> Option<T> {
    read.map_err(|problem| wrong.push(problem)).ok()
}

fn id_of(policy: &Policy) -> Result<String, String> {
    let id = policy
        .annotation("id")
        .ok_or("this policy has no name; write `@id(\"a_name\")` before it")?;
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.')
    };
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(id.to_owned());
    }
    Err(format!(
        "the `@id` `{id}` is not 1 to {MAX_ID_BYTES} of a-z, 0-9, `_`, `-` and `.`"
    ))
}

/// Sentences end up in prompts and terminals, and must not act there.
fn sentence(policy: &Policy, name: &str) -> Result<Option<String>, String> {
    let Some(text) = policy.annotation(name) else {
        return Ok(None);
    };
    if text.len() > MAX_SENTENCE_BYTES {
        return Err(format!(
            "the `@{name}` is longer than {MAX_SENTENCE_BYTES} bytes"
        ));
    }
    match text.chars().find(|c| c.is_control() || acts_unseen(*c)) {
        Some(symbol) => Err(format!(
            "the `@{name}` holds the invisible character {}",
            symbol.escape_unicode()
        )),
        None => Ok((!text.is_empty()).then(|| text.to_owned())),
    }
}

fn approvers_of(policy: &Policy) -> Result<Option<u8>, String> {
    let Some(text) = policy.annotation("approvers") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(1) => Ok(Some(1)),
        // Taking one yes for several would be worse than refusing the policy.
        Ok(2..=MAX_APPROVERS) => Err(format!(
            "the `@approvers` asks for {text} people, and in this version one person can say yes"
        )),
        Ok(_) | Err(_) => Err(format!(
            "the `@approvers` `{text}` is not a number from 1 to {MAX_APPROVERS}"
        )),
    }
}

fn max_ttl_of(policy: &Policy) -> Result<Option<Duration>, String> {
    let Some(text) = policy.annotation("max_ttl") else {
        return Ok(None);
    };
    match duration(text) {
        Some(ttl) if !ttl.is_zero() => Ok(Some(ttl)),
        Some(_) | None => Err(format!(
            "the `@max_ttl` `{text}` is not a time such as `PT15M`, `PT8H` or `P1D`"
        )),
    }
}

fn mode_of(policy: &Policy) -> Result<Mode, String> {
    match policy.annotation("mode") {
        None => Ok(Mode::Enforced),
        Some("log_only") => Ok(Mode::LogOnly),
        Some(other) => Err(format!(
            "the `@mode` `{other}` is unknown; write `@mode(\"log_only\")`, or leave it out"
        )),
    }
}

/// ISO 8601 with days, hours, minutes and seconds, each at most once and in this order.
fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('P')?;
    let (days, time) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let mut seconds: u64 = 0;
    for (mut part, units) in [
        (days, &[('D', 86_400_u64)][..]),
        (time, &[('H', 3_600), ('M', 60), ('S', 1)][..]),
    ] {
        for (unit, length) in units {
            let Some((count, rest)) = part.split_once(*unit) else {
                continue;
            };
            if count.is_empty() || count.len() > 6 || !count.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let count: u64 = count.parse().ok()?;
            seconds = seconds.checked_add(count.checked_mul(*length)?)?;
            part = rest;
        }
        if !part.is_empty() {
            return None;
        }
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_or_refused() {
        let seconds = |text| duration(text).map(|ttl| ttl.as_secs());
        assert_eq!(seconds("PT15M"), Some(900));
        assert_eq!(seconds("P1DT1H1M1S"), Some(90_061));
        for wrong in [
            "",
            "P",
            "PT",
            "15M",
            "PT1M1H",
            "PT1.5H",
            "PT-1M",
            "P1H",
            "PT99999999S",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    fn notes(annotations: &str) -> Result<Notes, Vec<String>> {
        let text = format!("{annotations} permit (principal, action, resource);");
        Notes::of(&Policy::parse(None, text).unwrap())
    }

    #[test]
    fn annotations_are_typed() {
        let read = notes(
            r#"@id("a") @reason("b") @approvers("1") @max_ttl("PT15M") @mode("log_only") @aprovers("3")"#,
        )
        .unwrap();
        assert_eq!(read.approvers, Some(1));
        let several = notes(r#"@id("a") @reason("b") @approvers("2")"#);
        assert!(several.is_err_and(|said| said[0].contains("one person")));
        assert_eq!(read.max_ttl, Some(Duration::from_secs(900)));
        assert_eq!(read.mode, Mode::LogOnly);
        assert_eq!(read.unknown, ["aprovers"]);
        assert_eq!(notes(r#"@id("a")"#).unwrap().mode, Mode::Enforced);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let wrong =
            notes(r#"@reason("\u{202e}") @approvers("many") @max_ttl("soon") @mode("off")"#);
        assert_eq!(wrong.unwrap_err().len(), 5);
    }
}
