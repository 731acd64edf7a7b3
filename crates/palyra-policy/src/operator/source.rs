//! Policy texts by name, cut into statements, and the places in them.
//!
//! Cedar stops at the first statement it cannot read. An operator wants every problem of every
//! file at once, so the text is cut at its semicolons (Cedar has them nowhere else outside strings
//! and comments) and each statement is parsed by itself.

use std::ops::Range;

use miette::Diagnostic;

use crate::error::Place;

/// How long one statement may be.
const MAX_STATEMENT_BYTES: usize = 16 * 1024;
/// How deep brackets may nest in one statement.
const MAX_DEPTH: usize = 48;
/// How many operators one statement may chain. Cedar turns `a || b || …` into a tree as deep as
/// the chain is long and walks it recursively, which a longer one could overflow a stack with.
const MAX_OPERATORS: usize = 1_000;

/// A policy text and the name people know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSource {
    /// The file's name, without its folder.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl NamedSource {
    /// A text under this name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }
}

/// Something a person has to put right, and where.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// In which file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The character within it, counted from 1.
    pub column: usize,
    /// What is wrong, in a sentence.
    pub message: String,
}

impl Problem {
    pub(crate) fn at(file: &str, place: Place, message: impl AsRef<str>) -> Self {
        Self {
            file: printable(file),
            line: place.line,
            column: place.column,
            message: printable(message.as_ref()),
        }
    }

    /// A problem of a file as a whole.
    #[must_use]
    pub fn whole(file: &str, message: impl AsRef<str>) -> Self {
        Self::at(file, Place { line: 1, column: 1 }, message)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

/// One statement of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Where it is: from its first token to its semicolon.
    pub(crate) span: Range<usize>,
    /// Why it is not even given to Cedar.
    pub(crate) refused: Option<String>,
}

/// Cuts a source into its statements. What follows the last semicolon is one too, unless it is
/// blank.
pub(crate) fn statements(text: &str) -> Vec<Statement> {
    let mut found = Vec::new();
    let mut cut = Cut::default();
    let mut rest = text.char_indices().peekable();
    while let Some((at, symbol)) = rest.next() {
        match symbol {
            '/' if rest.next_if(|(_, next)| *next == '/').is_some() => {
                // A lone carriage return ends a comment, too: it does for Cedar.
                while rest
                    .next_if(|(_, next)| !matches!(next, '\n' | '\r'))
                    .is_some()
                {}
            }
            '"' => {
                cut.see(at);
                while let Some((_, inside)) = rest.next() {
                    match inside {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            ';' => {
                cut.see(at);
                found.extend(std::mem::take(&mut cut).close(at + 1));
            }
            blank if blank.is_whitespace() => {}
            other => {
                cut.see(at);
                cut.weigh(other);
            }
        }
    }
    found.extend(cut.close(text.len()));
    found
}

/// The place of a byte of a text; its end when it is beyond.
pub(crate) fn place_at(text: &str, offset: usize) -> Place {
    let before = text
        .get(..text.floor_char_boundary(offset))
        .unwrap_or_default();
    let last_line = before.rsplit('\n').next().unwrap_or_default();
    Place {
        line: before.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
    }
}

/// The place of a byte of a text that begins at `start` of another.
pub(crate) fn place_within(start: Place, text: &str, offset: usize) -> Place {
    let inner = place_at(text, offset);
    Place {
        line: start.line + inner.line - 1,
        column: match inner.line {
            1 => start.column + inner.column - 1,
            _ => inner.column,
        },
    }
}

/// The places of ever later bytes of a text, without beginning anew for each.
pub(crate) struct Walk<'a> {
    text: &'a str,
    at: usize,
    place: Place,
}

impl<'a> Walk<'a> {
    pub(crate) const fn over(text: &'a str) -> Self {
        let place = Place { line: 1, column: 1 };
        let at = 0;
        Self { text, at, place }
    }

    /// The place of this byte, which is not before the last one.
    pub(crate) fn to(&mut self, offset: usize) -> Place {
        let passed = self.text.get(self.at..offset).unwrap_or_default();
        self.place = place_within(self.place, passed, passed.len());
        self.at += passed.len();
        self.place
    }
}

/// Where an error of Cedar's points to, counted in the text it was parsed from.
pub(crate) fn offset_of(error: &dyn Diagnostic) -> usize {
    error
        .labels()
        .and_then(|mut labels| labels.next())
        .map_or(0, |label| label.offset())
}

/// What Cedar says, with the advice it has.
pub(crate) fn sentence_of(error: &(impl Diagnostic + ?Sized)) -> String {
    let said = error.to_string();
    match error.help() {
        Some(help) => format!("{said}; {help}"),
        None => said,
    }
}

/// Text that cannot repaint a terminal, reorder a line, or fill a screen.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 400;
    let mut shown = String::with_capacity(text.len().min(MOST));
    for symbol in text.chars().take(MOST) {
        if symbol.is_control() || acts_unseen(symbol) {
            shown.extend(symbol.escape_unicode());
        } else {
            shown.push(symbol);
        }
    }
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// Zero-width and direction-changing characters, tags and variation selectors.
pub(crate) const fn acts_unseen(symbol: char) -> bool {
    matches!(symbol,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// The statement being read.
#[derive(Debug, Default)]
struct Cut {
    start: Option<usize>,
    depth: usize,
    deepest: usize,
    operators: usize,
}

impl Cut {
    fn see(&mut self, at: usize) {
        self.start.get_or_insert(at);
    }

    fn weigh(&mut self, symbol: char) {
        match symbol {
            '(' | '[' | '{' => {
                self.depth += 1;
                self.operators += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '|' | '&' | '+' | '-' | '*' | '.' | '!' | '=' | '<' | '>' | ',' => self.operators += 1,
            _ => {}
        }
    }

    fn close(self, end: usize) -> Option<Statement> {
        let span = self.start?..end;
        let refused = if span.len() > MAX_STATEMENT_BYTES {
            Some(format!(
                "this policy is longer than {MAX_STATEMENT_BYTES} bytes; split it"
            ))
        } else if self.deepest > MAX_DEPTH {
            Some(format!(
                "brackets nest deeper than {MAX_DEPTH} levels in this policy; split it"
            ))
        } else if self.operators > MAX_OPERATORS {
            Some(format!(
                "this policy has more than {MAX_OPERATORS} operators; split it, or use a group"
            ))
        } else {
            None
        };
        Some(Statement { span, refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        let spans = statements(text).into_iter().map(|found| found.span);
        spans.map(|span| text.get(span).unwrap()).collect()
    }

    #[test]
    fn statements_end_at_semicolons_outside_strings_and_comments() {
        assert_eq!(cut(""), Vec::<&str>::new());
        assert_eq!(cut(" // only ; a comment\n"), Vec::<&str>::new());
        assert_eq!(cut("a; // x;\n b\n;c"), ["a;", "b\n;", "c"]);
        assert_eq!(
            cut(r#"@id("a;\";") permit; b"#),
            [r#"@id("a;\";") permit;"#, "b"]
        );
        assert_eq!(cut("a / b;"), ["a / b;"]);
        assert_eq!(cut("\"open; never closed"), ["\"open; never closed"]);
    }

    #[test]
    fn a_walk_comes_by_the_same_places() {
        let text = "a\n\nüb c\nd; e";
        let mut walk = Walk::over(text);
        let offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for offset in offsets {
            assert_eq!(walk.to(offset), place_at(text, offset), "{offset}");
            assert_eq!(walk.to(offset), place_at(text, offset), "{offset} again");
        }
    }

    #[test]
    fn what_could_exhaust_the_stack_is_not_parsed() {
        let deep = "(".repeat(100);
        let long = "1 + ".repeat(2_000);
        let wide = " x".repeat(40_000);
        for text in [deep, long, wide] {
            assert!(statements(&text)[0].refused.is_some());
        }
    }

    #[test]
    fn printed_text_does_not_act() {
        assert_eq!(printable("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert!(printable(&"x".repeat(1_000)).chars().count() <= 401);
    }
}
