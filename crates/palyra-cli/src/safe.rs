//! Text from elsewhere, made harmless to a terminal.
//!
//! An agent chooses its arguments and a denier their reason. Printed as they are, escape sequences
//! could repaint the line a person is about to approve, bidirectional marks could reorder it, and
//! three hundred spaces could push its end out of sight. The work is done by
//! [`palyra_core::render`], as in the daemon; here is what only a terminal's side needs.

use palyra_core::render;
pub use palyra_core::render::{line, once};

/// How wide a line of a longer text, or a string inside JSON, is shown at most.
pub const WIDTH: usize = 2_000;

/// Several lines of text, each made visible; a very long one loses its middle.
pub fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(|line| render::shown(line, WIDTH).text)
}

/// JSON whose strings spell hidden characters as `\uXXXX`: the same document, safe to look at.
pub struct Formatter<F>(pub F);

impl<F: serde_json::ser::Formatter> serde_json::ser::Formatter for Formatter<F> {
    fn write_string_fragment<W: ?Sized + std::io::Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        for letter in fragment.chars() {
            if render::prints_as_itself(letter) {
                write!(to, "{letter}")?;
                continue;
            }
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(to, "\\u{unit:04x}")?;
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
    fn lines_stay_apart_and_each_is_made_visible() {
        let hostile = format!("one\ttwo\n\u{1b}three\r\nls{}rm\n", " ".repeat(300));
        let shown: Vec<_> = lines(&hostile).collect();
        assert_eq!(shown, [r"one\ttwo", r"\u{1b}three", r"ls\{300 spaces}rm"]);
        let long = lines(&"x".repeat(9_000)).next().unwrap();
        assert!(long.contains(r"x\{7000 bytes not shown, sha256:"), "{long}");
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({"k\u{202e}": ["\u{1b}[0m\u{9b}\u{e0041}\"\\é e\u{301}\u{a0}\u{fe0f}", 1, {}]});
        let mut bytes = Vec::new();
        let formatter = Formatter(serde_json::ser::CompactFormatter);
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        value.serialize(&mut serializer).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.chars().all(render::prints_as_itself), "{text}");
        assert_eq!(
            text,
            r#"{"k\u202e":["\u001b[0m\u009b\udb40\udc41\"\\é e\u0301\u00a0\ufe0f",1,{}]}"#
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
