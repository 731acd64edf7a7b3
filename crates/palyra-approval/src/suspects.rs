//! Words that may not be what they seem: letters that look like others, hosts in punycode.
//!
//! What does not print is spelled out wherever text is shown. A letter of another script does print,
//! and looks like the one it stands for; so such words are named beside their spelling.

use std::collections::BTreeSet;

use serde_json::Value;
use unicode_security::MixedScript;

use crate::render;

/// How many words are named at most; the rest is counted.
const MOST_NAMED: usize = 8;

/// How many bytes of text are looked at.
const MOST_BYTES: usize = 1 << 20;

/// The suspicious words of these arguments, one line each, safe to print.
#[must_use]
pub fn suspects(arguments: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![arguments];
    let mut room = MOST_BYTES;
    while let Some(value) = left.pop() {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => look(text, &mut room, &mut found),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                for (name, field) in fields {
                    look(name, &mut room, &mut found);
                    left.push(field);
                }
            }
        }
    }
    let more = found.len().saturating_sub(MOST_NAMED);
    let mut lines: Vec<String> = found.into_iter().take(MOST_NAMED).collect();
    if more > 0 {
        lines.push(format!(
            "and {more} more words that may not be what they seem"
        ));
    }
    lines
}

fn look(text: &str, room: &mut usize, found: &mut BTreeSet<String>) {
    let part = text
        .get(..text.floor_char_boundary(*room))
        .unwrap_or_default();
    *room = room.saturating_sub(text.len());
    let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    for word in part.split(ends) {
        found.extend(mixed(word));
        found.extend(punycode(word));
    }
}

/// A word with letters of several scripts, or whose letters of another script all look Latin.
fn mixed(word: &str) -> Option<String> {
    if word.is_ascii() {
        return None;
    }
    let spelled: String = word
        .chars()
        .map(|char| match char.is_ascii() {
            true => char.to_string(),
            false => char.escape_unicode().to_string(),
        })
        .collect();
    let shown = render::line(word);
    if !word.is_single_script() {
        return Some(format!(
            "`{shown}` mixes letters of several scripts: it is spelled `{spelled}`"
        ));
    }
    let twin: String = unicode_security::skeleton(word).collect();
    (twin != word && twin.is_ascii() && !twin.is_empty()).then(|| {
        format!(
            "`{shown}` looks like `{}` and is not: it is spelled `{spelled}`",
            render::line(&twin)
        )
    })
}

/// A name whose letters are not those that are written.
fn punycode(word: &str) -> Option<String> {
    let is_coded = |label: &str| {
        label
            .get(..4)
            .is_some_and(|it| it.eq_ignore_ascii_case("xn--"))
    };
    if !word.split('.').any(is_coded) {
        return None;
    }
    let (read, outcome) = idna::domain_to_unicode(word);
    let (coded, read) = (render::line(word), render::line(&read));
    Some(match outcome {
        Ok(()) => format!("`{coded}` is a host in punycode: it reads `{read}`"),
        Err(_) => format!("`{coded}` looks like a host in punycode and is not a legal one"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn letters_that_look_like_others_are_named_beside_their_spelling() {
        // The first letter of each is Cyrillic.
        let found = suspects(&json!({
            "argv": ["curl", "https://аpple.com/x", "сор", "plain", "日本語", "Übung"],
        }));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|line| line.contains(r"\u{430}pple.com")));
        assert!(
            found
                .iter()
                .any(|line| line.contains(r"\u{441}\u{43e}\u{440}"))
        );
        assert!(
            found.iter().any(|line| line.contains("looks like `cop`")),
            "{found:?}"
        );
    }

    #[test]
    fn punycode_is_named_beside_what_it_reads() {
        let found = suspects(&json!(["--host=xn--pple-43d.com", "xn--fiqs8s"]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found
                .iter()
                .any(|line| line.contains("`xn--pple-43d.com`") && line.contains("аpple.com"))
        );
        assert!(suspects(&json!(["example.com", "xn-not"])).is_empty());
    }

    #[test]
    fn keys_count_and_many_are_counted() {
        assert_eq!(suspects(&json!({ "pаth": 1 })).len(), 1);
        let many: Vec<String> = (0..40).map(|n| format!("а{n}b")).collect();
        let found = suspects(&json!(many));
        assert_eq!(found.len(), MOST_NAMED + 1);
        assert!(found.last().unwrap().starts_with("and 32 more"));
    }
}
