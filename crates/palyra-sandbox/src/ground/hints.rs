//! Why a call may have failed: its output names something that is guarded. That is likely and not
//! certain: nobody saw the refusal.

use super::policy::{Guard, Hold};

/// More are of no use to anybody.
const MOST_HINTS: usize = 3;

/// What is likely, for a person.
pub(crate) fn of(outputs: &[&str], guards: &[Guard]) -> Vec<String> {
    let held = guards.iter().filter_map(|guard| {
        let at = guard.at.to_string();
        let named = outputs.iter().any(|output| names(output, &at));
        let what = match guard.hold {
            Hold::Masked => "is masked, as secrets are",
            Hold::ReadOnly => "can only be read: programs outside of any call run what it says",
            Hold::Pinned => "can be neither moved nor replaced",
            Hold::Writable => return None,
        };
        named.then(|| {
            format!(
                "likely because `{at}` {what}; a person can allow it with a `[[files]]` rule in \
                 `palyra.toml`"
            )
        })
    });
    held.take(MOST_HINTS).collect()
}

/// Whether a path stands in a text as a word of its own, or at the end of a longer path.
fn names(text: &str, path: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    text.match_indices(path).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + path.len()..).unwrap_or_default();
        // A full stop after it ends a sentence.
        let after = after.strip_prefix('.').unwrap_or(after).chars().next();
        let inside = after.is_some_and(|letter| part(letter) || letter == '/');
        !before.is_some_and(part) && !inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_as_a_word() {
        for text in [
            "cat: .env: Permission denied",
            "error: could not write /w/.env.",
            "'.env'",
        ] {
            assert!(names(text, ".env"), "{text}");
        }
        for text in [
            ".env.example",
            "my.env",
            "process.env",
            ".env/x",
            ".environment",
            "",
        ] {
            assert!(!names(text, ".env"), "{text}");
        }
    }
}
