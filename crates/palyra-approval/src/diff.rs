//! What a call changes in a file, for a person.

use crate::render;

/// How many lines of a diff are shown.
const MOST_LINES: usize = 400;

/// The change from one text to another as a unified diff, every line safe to print. The lines that
/// are left out are counted.
#[must_use]
pub fn diff(before: &str, after: &str) -> String {
    shown_patch(&diffy::create_patch(before, after).to_string())
}

/// A diff that somebody wrote, every line safe to print.
#[must_use]
pub fn shown_patch(patch: &str) -> String {
    let mut out = String::new();
    let total = patch.lines().count();
    for line in patch.lines().take(MOST_LINES) {
        out.push_str(&render::visible(line));
        out.push('\n');
    }
    if total > MOST_LINES {
        let more = total - MOST_LINES;
        // No line of the patch can say this: a backslash in one is doubled.
        out.push_str(&format!("\\{{{more} more lines}}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_line_by_line_and_acts_on_nothing() {
        let text = diff("a\nb\nc\n", "a\n\u{1b}[2Jevil\u{202e}\nc\n");
        assert!(text.contains("-b\n"), "{text}");
        assert!(text.contains("+\\u{1b}[2Jevil\\u{202e}\n"), "{text}");
        let whole: String = (0..2_000).map(|n| format!("{n}\n")).collect();
        let long = diff("", &whole);
        assert!(long.ends_with("more lines}\n"), "{long}");
        assert_eq!(shown_patch("+\\{3 more lines}"), "+\\\\{3 more lines}\n");
    }
}
