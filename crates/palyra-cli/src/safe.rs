//! Text from elsewhere, made harmless to a terminal.
//!
//! An agent chooses its arguments and a denier their reason. Printed as they are, escape sequences
//! could repaint the line a person is about to approve, and bidirectional marks could reorder it.
//! So everything that is not plainly visible is shown as `\u{…}`.

use std::borrow::Cow;

/// One line of text: every control, format and line-breaking character becomes an escape.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            hidden if is_hidden(hidden) => shown.extend(hidden.escape_unicode()),
            visible => shown.push(visible),
        }
    }
    Cow::Owned(shown)
}

/// Several lines of text: line breaks and tabs stay, the rest as [`line()`].
pub fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .map(|one| one.split('\t').map(line).collect::<Vec<_>>().join("\t"))
}

/// Whether a terminal would do something else than show it.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// JSON whose strings spell hidden characters as `\uXXXX`: the same document, safe to look at.
pub struct Formatter<F>(pub F);

impl<F: serde_json::ser::Formatter> serde_json::ser::Formatter for Formatter<F> {
    fn write_string_fragment<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        if !fragment.contains(is_hidden) {
            return to.write_all(fragment.as_bytes());
        }
        for letter in fragment.chars() {
            let mut units = [0; 2];
            if is_hidden(letter) {
                for unit in letter.encode_utf16(&mut units) {
                    write!(to, "\\u{unit:04x}")?;
                }
            } else {
                write!(to, "{letter}")?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.begin_array(to)
    }
    fn end_array<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.end_array(to)
    }
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.0.begin_array_value(to, first)
    }
    fn end_array_value<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.end_array_value(to)
    }
    fn begin_object<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.begin_object(to)
    }
    fn end_object<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.end_object(to)
    }
    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.0.begin_object_key(to, first)
    }
    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
    ) -> std::io::Result<()> {
        self.0.begin_object_value(to)
    }
    fn end_object_value<W: ?Sized + std::io::Write>(&mut self, to: &mut W) -> std::io::Result<()> {
        self.0.end_object_value(to)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[test]
    fn plain_text_is_left_alone() {
        for plain in ["git push", "grüße 世界 🎉", r"C:\temp", ""] {
            assert!(matches!(line(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        for (hostile, shown) in [
            ("\u{1b}[2Kls", r"\u{1b}[2Kls"),
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("rm\u{202e}txt", r"rm\u{202e}txt"),
            ("a\u{200b}b\u{2066}c", r"a\u{200b}b\u{2066}c"),
            ("\u{7}\u{8}\u{7f}", r"\u{7}\u{8}\u{7f}"),
            ("tag\u{e0041}", r"tag\u{e0041}"),
        ] {
            assert_eq!(line(hostile), shown);
        }
    }

    #[test]
    fn line_breaks_survive_in_lines_only() {
        let shown: Vec<_> = lines("one\ttwo\n\u{1b}three\r\n").collect();
        assert_eq!(shown, ["one\ttwo", r"\u{1b}three"]);
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({"k\u{202e}": ["\u{1b}[0m\u{9b}\u{e0041}\"\\é", 1, {}]});
        let mut bytes = Vec::new();
        let formatter = Formatter(serde_json::ser::CompactFormatter);
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        value.serialize(&mut serializer).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(is_hidden), "{text}");
        assert_eq!(
            text,
            r#"{"k\u202e":["\u001b[0m\u009b\udb40\udc41\"\\é",1,{}]}"#
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
