//! Hostile text, made safe to read.
//!
//! What a person approves is written by an agent, and an agent can be made to write anything:
//! terminal sequences that repaint the prompt, direction marks that reverse a path, characters
//! without width that hide a flag, four thousand spaces before the payload. Everything here comes
//! out as one line of visible characters:
//!
//! - what does not print, or changes how its neighbours print, appears as its escape: `\u{202e}`,
//!   `\n`. That covers controls, terminal sequences, bidi marks, zero-width and tag characters,
//!   variation selectors, combining marks, soft hyphens, odd spaces, private and unassigned ones;
//! - a backslash appears doubled, so no text can spell an escape that is not there;
//! - a long run of spaces appears as `\{4000 spaces}`;
//! - long text loses its middle to a marker that counts what is missing and names the digest of
//!   the whole, `\{5800 bytes not shown, sha256:…}`. Since backslashes are doubled, no text can
//!   forge either mark.
//!
//! The daemon and the command line both print what this gives, and nothing else does this work.
//! It does not judge letters that merely look alike.

use std::borrow::Cow;

use crate::digest::Digest;

/// How many spaces in a row are shown as they are.
const SPACES_SHOWN: usize = 8;

/// How wide a short text, such as a reason or a path, is shown at most.
const LINE_WIDTH: usize = 400;

/// Text as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Shown {
    /// One line of visible characters.
    pub text: String,
    /// How many bytes of the original are not in it.
    pub hidden_bytes: usize,
}

/// All of the text, however long.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    units(text).for_each(|unit| unit.write(&mut out));
    out
}

/// A short text, such as a reason, a path or a name; a long one loses its middle.
#[must_use]
pub fn line(text: &str) -> String {
    shown(text, LINE_WIDTH).text
}

/// The text in at most `width` characters, plus a marker for what was left out of the middle.
#[must_use]
pub fn shown(text: &str, width: usize) -> Shown {
    let (all, all_bytes) = fit(units(text), width);
    if all_bytes == text.len() {
        return Shown {
            text: all,
            hidden_bytes: 0,
        };
    }
    let (head, head_bytes) = fit(units(text), width.div_ceil(2));
    let rest = text.get(head_bytes..).unwrap_or_default();
    let (_, tail_bytes) = fit(units_from_the_end(rest), width / 2);
    let hidden_bytes = rest.len().saturating_sub(tail_bytes);
    let tail = visible(rest.get(hidden_bytes..).unwrap_or_default());
    let digest = Digest::of(text.as_bytes());
    Shown {
        text: format!("{head}\\{{{hidden_bytes} bytes not shown, {digest}}}{tail}"),
        hidden_bytes,
    }
}

/// Text that was made visible before, such as a summary by the daemon: as it is when that is true,
/// so that its escapes are not escaped again, and else made visible now.
#[must_use]
pub fn once(text: &str) -> Cow<'_, str> {
    let harmless = |unit| match unit {
        Unit::Char(char) => char == '\\' || prints_as_itself(char),
        Unit::Spaces(_) => false,
    };
    match units(text).all(harmless) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(visible(text)),
    }
}

/// Whether a terminal shows exactly this character for it.
#[must_use]
pub fn prints_as_itself(char: char) -> bool {
    // `escape_debug` knows what prints, from the Unicode tables of the standard library.
    let spelled = !looks_blank(char) && char.escape_debug().len() == 1;
    spelled || matches!(char, '\\' | '"' | '\'')
}

/// JSON for people: indented, every string made visible and cut to `width`.
#[must_use]
pub fn json(value: &serde_json::Value, width: usize) -> Shown {
    let mut shown = Shown {
        text: String::new(),
        hidden_bytes: 0,
    };
    write_json(value, width, 0, &mut shown);
    shown
}

/// What is shown as one: a character, or a long run of spaces.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Char(char),
    Spaces(usize),
}

impl Unit {
    const fn new(char: char, spaces: usize) -> Self {
        if spaces > SPACES_SHOWN {
            Self::Spaces(spaces)
        } else {
            Self::Char(char)
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Char(char) => char.len_utf8(),
            Self::Spaces(count) => count,
        }
    }

    fn write(self, out: &mut String) {
        match self {
            Self::Char('\\') => out.push_str("\\\\"),
            Self::Char(plain) if prints_as_itself(plain) => out.push(plain),
            Self::Char(blank) if looks_blank(blank) => out.extend(blank.escape_unicode()),
            Self::Char(other) => out.extend(other.escape_debug()),
            Self::Spaces(count) => out.push_str(&format!("\\{{{count} spaces}}")),
        }
    }
}

/// Letters and symbols by category that nevertheless print as nothing.
const fn looks_blank(char: char) -> bool {
    matches!(
        char,
        // Hangul fillers, the blank Braille pattern, the null notehead.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{2800}' | '\u{1d159}'
    )
}

fn units(text: &str) -> impl Iterator<Item = Unit> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let spaces = rest.bytes().take_while(|byte| *byte == b' ').count();
        let unit = Unit::new(rest.chars().next()?, spaces);
        rest = rest.get(unit.bytes()..).unwrap_or_default();
        Some(unit)
    })
}

fn units_from_the_end(text: &str) -> impl Iterator<Item = Unit> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let spaces = rest.bytes().rev().take_while(|byte| *byte == b' ').count();
        let unit = Unit::new(rest.chars().next_back()?, spaces);
        rest = rest.get(..rest.len() - unit.bytes()).unwrap_or_default();
        Some(unit)
    })
}

/// As many units as fit, and how many bytes of the original they are.
fn fit(units: impl Iterator<Item = Unit>, width: usize) -> (String, usize) {
    let (mut out, mut room, mut bytes) = (String::new(), width, 0);
    let mut piece = String::new();
    for unit in units {
        piece.clear();
        unit.write(&mut piece);
        let Some(left) = room.checked_sub(piece.chars().count()) else {
            break;
        };
        room = left;
        bytes += unit.bytes();
        out.push_str(&piece);
    }
    (out, bytes)
}

fn write_json(value: &serde_json::Value, width: usize, depth: usize, out: &mut Shown) {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => out.text.push_str(&value.to_string()),
        Value::String(text) => write_quoted(text, width, out),
        Value::Array(items) if items.is_empty() => out.text.push_str("[]"),
        Value::Object(fields) if fields.is_empty() => out.text.push_str("{}"),
        Value::Array(items) => {
            out.text.push('[');
            for (place, item) in items.iter().enumerate() {
                break_line(place, depth + 1, out);
                write_json(item, width, depth + 1, out);
            }
            break_line(0, depth, out);
            out.text.push(']');
        }
        Value::Object(fields) => {
            out.text.push('{');
            for (place, (name, field)) in fields.iter().enumerate() {
                break_line(place, depth + 1, out);
                write_quoted(name, width, out);
                out.text.push_str(": ");
                write_json(field, width, depth + 1, out);
            }
            break_line(0, depth, out);
            out.text.push('}');
        }
    }
}

fn break_line(place: usize, depth: usize, out: &mut Shown) {
    if place > 0 {
        out.text.push(',');
    }
    out.text.push('\n');
    out.text.push_str(&"  ".repeat(depth));
}

/// Inside quotes a quote is escaped too, or a string could seem to end and another field begin.
fn write_quoted(text: &str, width: usize, out: &mut Shown) {
    let string = shown(text, width);
    out.hidden_bytes += string.hidden_bytes;
    out.text.push('"');
    out.text.push_str(&string.text.replace('"', "\\\""));
    out.text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_is_left_alone() {
        for text in [
            "",
            "git commit -m 'a message' --author=\"Ada <ada@example.com>\"",
            "/home/ada/Übung/日本語/файл",
            "naïve café — 3 × 4 ≠ 13",
            "a        b",
        ] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn what_acts_on_a_terminal_becomes_its_escape() {
        for (text, seen) in [
            ("\0", "\\0"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{8}", "\\u{8}"),
            ("\u{7f}", "\\u{7f}"),
            (
                "\u{1b}[2J\u{1b}]0;title\u{7}",
                "\\u{1b}[2J\\u{1b}]0;title\\u{7}",
            ),
            // C1: the one-byte spelling of the same sequences.
            ("\u{9b}31m\u{9d}", "\\u{9b}31m\\u{9d}"),
            ("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}"),
        ] {
            assert_eq!(visible(text), seen);
        }
    }

    #[test]
    fn what_changes_its_neighbours_or_cannot_be_seen_becomes_its_escape() {
        let ranges = [
            '\u{0}'..='\u{1f}',
            '\u{7f}'..='\u{a0}',
            '\u{ad}'..='\u{ad}',
            '\u{34f}'..='\u{34f}',
            '\u{61c}'..='\u{61c}',
            '\u{115f}'..='\u{1160}',
            '\u{17b4}'..='\u{17b5}',
            '\u{180b}'..='\u{180f}',
            '\u{2000}'..='\u{200f}',
            '\u{2028}'..='\u{202f}',
            '\u{205f}'..='\u{206f}',
            '\u{2800}'..='\u{2800}',
            '\u{3000}'..='\u{3000}',
            '\u{3164}'..='\u{3164}',
            '\u{e000}'..='\u{f8ff}',
            '\u{fe00}'..='\u{fe0f}',
            '\u{feff}'..='\u{feff}',
            '\u{ffa0}'..='\u{ffa0}',
            '\u{fff0}'..='\u{fffb}',
            '\u{1d173}'..='\u{1d17a}',
            '\u{e0000}'..='\u{e0fff}',
            '\u{f0000}'..='\u{10ffff}',
        ];
        for char in ranges.into_iter().flatten() {
            let seen = visible(&char.to_string());
            assert!(
                seen.starts_with('\\') && seen.is_ascii(),
                "{char:?}: {seen}"
            );
        }
        assert_eq!(visible("rm \u{202e}gpj"), "rm \\u{202e}gpj");
        assert_eq!(visible("pay\u{200b}load"), "pay\\u{200b}load");
        assert_eq!(visible("e\u{301}"), "e\\u{301}");
        assert_eq!(visible("❤\u{fe0f}"), "❤\\u{fe0f}");
    }

    #[test]
    fn no_text_can_spell_an_escape_or_a_marker() {
        assert_eq!(visible("\\u{202e}"), "\\\\u{202e}");
        assert_eq!(visible("\\{5 bytes not shown}"), "\\\\{5 bytes not shown}");
    }

    #[test]
    fn long_runs_of_spaces_are_counted() {
        let text = format!("true;{}rm -rf ~", " ".repeat(4_000));
        assert_eq!(visible(&text), "true;\\{4000 spaces}rm -rf ~");
        assert_eq!(visible(&" ".repeat(9)), "\\{9 spaces}");
    }

    #[test]
    fn long_text_loses_its_middle_to_a_count_and_a_digest() {
        let text = format!("{}payload{}", "a".repeat(60_000), "b".repeat(40_000));
        let shown = shown(&text, 100);
        let digest = Digest::of(text.as_bytes());
        let expected = format!(
            "{}\\{{{} bytes not shown, {digest}}}{}",
            "a".repeat(50),
            text.len() - 100,
            "b".repeat(50)
        );
        assert_eq!(shown.text, expected);
        assert_eq!(shown.hidden_bytes, text.len() - 100);

        // Exactly as wide as allowed is not long.
        assert_eq!(super::shown(&"a".repeat(100), 100).hidden_bytes, 0);
        assert_eq!(super::shown(&"a".repeat(101), 100).hidden_bytes, 1);
        assert!(line(&"x".repeat(10_000)).len() < 600);
    }

    #[test]
    fn the_cut_never_splits_an_escape_or_a_character() {
        // Eight characters each, in a width that is no multiple of it.
        let shown = shown(&"\u{202e}".repeat(20), 21);
        assert!(shown.text.starts_with("\\u{202e}\\{"), "{}", shown.text);
        assert!(shown.text.ends_with("}\\u{202e}"), "{}", shown.text);
        assert_eq!(shown.hidden_bytes, 18 * 3);
        let nothing_fits = super::shown(&"\u{202e}".repeat(20), 0);
        assert_eq!(nothing_fits.hidden_bytes, 60);
    }

    #[test]
    fn json_cannot_be_broken_out_of() {
        let hostile = serde_json::json!({
            "a": "x\",\n  \"safe\": \"yes",
            "b\u{1b}": [1, true, null, {}, []],
        });
        let expected = r#"{
  "a": "x\",\n  \"safe\": \"yes",
  "b\u{1b}": [
    1,
    true,
    null,
    {},
    []
  ]
}"#;
        assert_eq!(json(&hostile, 200).text, expected);
        let long = serde_json::json!({"one": "x".repeat(30), "two": ["y".repeat(40)]});
        assert_eq!(json(&long, 10).hidden_bytes, 50);
    }

    #[test]
    fn what_was_made_visible_before_is_not_escaped_again() {
        for hostile in [
            "\u{1b}[2Kls",
            "a\\b \u{202e}",
            "e\u{301}",
            &" ".repeat(300),
            "plain",
        ] {
            let seen = visible(hostile);
            assert_eq!(once(&seen), seen);
        }
        // A claim that is not true changes nothing.
        assert_eq!(once("ls\u{1b}"), r"ls\u{1b}");
        assert_eq!(once(&format!("a{}b", " ".repeat(300))), r"a\{300 spaces}b");
    }

    #[test]
    fn letters_print_as_themselves() {
        for plain in "aé世🎉 \\\"'~".chars() {
            assert!(prints_as_itself(plain), "{plain}");
        }
        for not in "\n\t\u{1b}\u{a0}\u{301}\u{fe0f}\u{200b}\u{2800}\u{3164}".chars() {
            assert!(!prints_as_itself(not), "{not:?}");
        }
    }

    /// Undoes the escapes: only possible if no two texts are shown alike.
    fn decode(seen: &str) -> String {
        let mut out = String::new();
        let mut rest = seen;
        while let Some((plain, escape)) = rest.split_once('\\') {
            out.push_str(plain);
            let mut letters = escape.chars();
            let letter = letters.next().unwrap();
            rest = letters.as_str();
            match letter {
                '\\' => out.push('\\'),
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                '0' => out.push('\0'),
                'u' => {
                    let (code, after) = rest.split_once('}').unwrap();
                    let code = u32::from_str_radix(code.strip_prefix('{').unwrap(), 16);
                    out.push(char::from_u32(code.unwrap()).unwrap());
                    rest = after;
                }
                '{' => {
                    let (count, after) = rest.split_once(" spaces}").unwrap();
                    out.push_str(&" ".repeat(count.parse().unwrap()));
                    rest = after;
                }
                other => unreachable!("{other}"),
            }
        }
        out.push_str(rest);
        out
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a\\\\ {}0nu\u{0}-\u{1f}\u{200b}-\u{202e}]{0,60}",
            "( {0,20}x){0,6}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_two_texts_are_shown_alike(text in text()) {
            let seen = visible(&text);
            prop_assert!(!seen.chars().any(char::is_control));
            prop_assert_eq!(decode(&seen), text);
        }

        #[test]
        fn what_is_hidden_is_counted(text in text(), width in 0..80_usize) {
            let cut = shown(&text, width);
            if cut.hidden_bytes == 0 {
                prop_assert_eq!(&cut.text, &visible(&text));
                prop_assert!(cut.text.chars().count() <= width || text.is_empty());
            } else {
                let marker = format!(" bytes not shown, {}}}", Digest::of(text.as_bytes()));
                let (head, tail) = cut.text.split_once(&marker).unwrap();
                let (head, count) = head.rsplit_once("\\{").unwrap();
                prop_assert_eq!(count.parse::<usize>().unwrap(), cut.hidden_bytes);
                prop_assert!(head.chars().count() + tail.chars().count() <= width);
                let (head, tail) = (decode(head), decode(tail));
                prop_assert!(text.starts_with(&head) && text.ends_with(&tail));
                prop_assert_eq!(head.len() + tail.len() + cut.hidden_bytes, text.len());
            }
        }
    }
}
