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
//! The daemon and the command line both print what this gives. It does not judge letters that
//! merely look alike.

use palyra_core::Digest;

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
            Self::Char(quote @ ('"' | '\'')) => out.push(quote),
            Self::Char(blank) if looks_blank(blank) => out.extend(blank.escape_unicode()),
            // Knows what prints, from the Unicode tables of the standard library.
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
