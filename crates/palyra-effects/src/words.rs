//! Words of a command: known ones, and those that only the running shell will know.

use brush_parser::ParserOptions;
use brush_parser::word::{self, ParameterExpr, TildeExpr, WordPiece, WordPieceWithSource as Piece};

use crate::opaque::Opaque;

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly this.
    Known(String),
    /// Only known when it runs; as it was written.
    Unknown(String),
}

impl Word {
    /// The text, when it is known.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }

    /// Whether this is exactly one word when it runs: known, or in double quotes as a whole.
    pub(crate) fn is_one(&self) -> bool {
        match self {
            Self::Known(_) => true,
            Self::Unknown(written) => {
                let inside = written
                    .strip_prefix('"')
                    .and_then(|rest| rest.strip_suffix('"'));
                inside.is_some_and(|inside| !inside.contains(['"', '@', '*']))
            }
        }
    }

    /// The same where quotes inside a substitution do not matter: `"$(cat "$x")"` is one value.
    pub(crate) fn is_one_value(&self) -> bool {
        let inside = self
            .shown()
            .strip_prefix("\"$(")
            .and_then(|rest| rest.strip_suffix(")\""));
        self.is_one() || inside.is_some_and(|inside| !inside.contains(")\""))
    }

    /// Whether this may turn out to be an option, or several words with one among them.
    pub(crate) fn may_be_option(&self) -> bool {
        let Self::Unknown(written) = self else {
            return false;
        };
        let start = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric() || "./_".contains(first))
        };
        match written.strip_prefix('"') {
            Some(inside) => !(self.is_one() && start(inside)),
            None => !start(written) || written.contains(['$', '`', '{']),
        }
    }

    /// The text as known or as written, for a person.
    #[must_use]
    pub fn shown(&self) -> &str {
        match self {
            Self::Known(text) | Self::Unknown(text) => text,
        }
    }
}

/// What else a word does while it is expanded.
pub(crate) enum Inner {
    /// Runs this text.
    Command(String),
    /// Assigns this variable.
    Assigns(String),
    /// Cannot be understood.
    Opaque(Opaque),
    /// bash reads it so, other shells do not.
    BashOnly,
}

/// Reads a word: its value, and what expanding it does.
pub(crate) fn read(text: &str, home: Option<&str>, inner: &mut Vec<Inner>) -> Word {
    // A bracket alone is the command `[` and its end, not a pattern.
    if is_literal(text) || text == "[" || text == "]" {
        return Word::Known(text.to_owned());
    }
    let mut reading = Reading::new(home, inner);
    match guarded(|| word::parse(text, &options())) {
        Some(pieces) => reading.pieces(&pieces, false),
        None => reading.opaque(Opaque::Unparsable),
    }
    reading.finish(text)
}

/// Reads the body of a here-document whose tag was not quoted.
pub(crate) fn read_heredoc(text: &str, inner: &mut Vec<Inner>) -> Word {
    let mut reading = Reading::new(None, inner);
    match guarded(|| word::parse_heredoc(text, &options())) {
        Some(pieces) => reading.pieces(&pieces, true),
        None => reading.opaque(Opaque::Unparsable),
    }
    reading.finish(text)
}

/// A parser that breaks is a text that cannot be read.
pub(crate) fn guarded<T, E>(
    parse: impl FnOnce() -> Result<T, E> + std::panic::UnwindSafe,
) -> Option<T> {
    std::panic::catch_unwind(parse).ok()?.ok()
}

pub(crate) fn options() -> ParserOptions {
    ParserOptions::default()
}

/// Most words are plain; they need no parser and leave nothing in its cache.
fn is_literal(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,+@%^".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// Arithmetic without a variable in it cannot run anything.
pub(crate) fn is_plain_arithmetic(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_digit() || b"+-*/%()<>=!&|^~?:, \t".contains(&byte);
    text.bytes().all(plain)
}

struct Reading<'a> {
    home: Option<&'a str>,
    inner: &'a mut Vec<Inner>,
    value: String,
    known: bool,
}

impl<'a> Reading<'a> {
    const fn new(home: Option<&'a str>, inner: &'a mut Vec<Inner>) -> Self {
        Self {
            home,
            inner,
            value: String::new(),
            known: true,
        }
    }

    fn finish(self, text: &str) -> Word {
        match self.known {
            true => Word::Known(self.value),
            false => Word::Unknown(text.to_owned()),
        }
    }

    fn opaque(&mut self, why: Opaque) {
        self.known = false;
        self.inner.push(Inner::Opaque(why));
    }

    fn pieces(&mut self, pieces: &[Piece], quoted: bool) {
        for piece in pieces {
            self.piece(&piece.piece, quoted);
        }
    }

    fn piece(&mut self, piece: &WordPiece, quoted: bool) {
        match piece {
            WordPiece::Text(text) => self.text(text, quoted),
            WordPiece::SingleQuotedText(text) => self.value.push_str(text),
            WordPiece::AnsiCQuotedText(text) => {
                self.inner.push(Inner::BashOnly);
                self.ansi_c(text);
            }
            WordPiece::DoubleQuotedSequence(pieces) => self.pieces(pieces, true),
            WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.inner.push(Inner::BashOnly);
                self.known = false;
                self.pieces(pieces, true);
            }
            WordPiece::TildeExpansion(tilde) => self.tilde(tilde),
            WordPiece::ParameterExpansion(parameter) => self.parameter(parameter),
            WordPiece::CommandSubstitution(text) => {
                self.known = false;
                self.inner.push(Inner::Command(text.clone()));
            }
            WordPiece::BackquotedCommandSubstitution(text) => {
                // A backslash in backquotes is read twice, and by other rules in double quotes.
                if text.contains('\\') {
                    self.opaque(Opaque::Unparsable);
                }
                self.known = false;
                self.inner.push(Inner::Command(text.clone()));
            }
            WordPiece::EscapeSequence(text) => self.escape(text, quoted),
            WordPiece::ArithmeticExpression(expression) => {
                self.known = false;
                if !is_plain_arithmetic(&expression.value) {
                    self.opaque(Opaque::Arithmetic);
                }
            }
        }
    }

    fn text(&mut self, text: &str, quoted: bool) {
        // An expansion that the parser does not know (`${ rm x; }` of bash 5.3) arrives as text.
        if text.contains(['$', '`']) {
            self.opaque(Opaque::Unparsable);
        }
        if !quoted && text.contains(['*', '?', '[', '{', '(', '~']) {
            self.known = false;
        }
        self.value.push_str(text);
    }

    fn escape(&mut self, text: &str, quoted: bool) {
        let escaped = text.strip_prefix('\\').unwrap_or(text);
        match escaped {
            "\n" => {}
            "$" | "`" | "\"" | "\\" => self.value.push_str(escaped),
            other if quoted => {
                self.value.push('\\');
                self.value.push_str(other);
            }
            other => self.value.push_str(other),
        }
    }

    fn ansi_c(&mut self, text: &str) {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '\\' {
                self.value.push(letter);
                continue;
            }
            match letters.next() {
                Some('n') => self.value.push('\n'),
                Some('t') => self.value.push('\t'),
                Some(same @ ('\\' | '\'' | '"')) => self.value.push(same),
                Some(_) | None => self.known = false,
            }
        }
    }

    fn tilde(&mut self, tilde: &TildeExpr) {
        match (tilde, self.home) {
            (TildeExpr::Home, Some(home)) => self.value.push_str(home),
            (
                TildeExpr::Home
                | TildeExpr::UserHome(_)
                | TildeExpr::WorkingDir
                | TildeExpr::OldWorkingDir
                | TildeExpr::NthDirFromTopOfDirStack { .. }
                | TildeExpr::NthDirFromBottomOfDirStack { .. },
                _,
            ) => self.known = false,
        }
    }

    fn parameter(&mut self, expression: &ParameterExpr) {
        self.known = false;
        if let ParameterExpr::AssignDefaultValues { parameter, .. } = expression {
            let named = parameter.to_string();
            let name = named.trim_start_matches("${").trim_end_matches('}');
            self.inner.push(Inner::Assigns(name.to_owned()));
        }
        match expression {
            ParameterExpr::Parameter {
                parameter,
                indirect,
            } => {
                self.subscript(parameter, *indirect);
            }
            ParameterExpr::ParameterLength {
                parameter,
                indirect,
            } => {
                self.subscript(parameter, *indirect);
            }
            ParameterExpr::VariableNames { .. } | ParameterExpr::MemberKeys { .. } => {}
            ParameterExpr::UseDefaultValues {
                parameter,
                indirect,
                default_value: text,
                ..
            }
            | ParameterExpr::AssignDefaultValues {
                parameter,
                indirect,
                default_value: text,
                ..
            }
            | ParameterExpr::IndicateErrorIfNullOrUnset {
                parameter,
                indirect,
                error_message: text,
                ..
            }
            | ParameterExpr::UseAlternativeValue {
                parameter,
                indirect,
                alternative_value: text,
                ..
            }
            | ParameterExpr::RemoveSmallestSuffixPattern {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::RemoveLargestSuffixPattern {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::RemoveSmallestPrefixPattern {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::RemoveLargestPrefixPattern {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::UppercaseFirstChar {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::UppercasePattern {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::LowercaseFirstChar {
                parameter,
                indirect,
                pattern: text,
            }
            | ParameterExpr::LowercasePattern {
                parameter,
                indirect,
                pattern: text,
            } => {
                self.subscript(parameter, *indirect);
                self.nested(text.as_deref());
            }
            ParameterExpr::ReplaceSubstring {
                parameter,
                indirect,
                pattern,
                replacement,
                ..
            } => {
                self.subscript(parameter, *indirect);
                self.nested(Some(pattern));
                self.nested(replacement.as_deref());
            }
            ParameterExpr::Substring {
                parameter,
                indirect,
                offset,
                length,
            } => {
                self.subscript(parameter, *indirect);
                let length = length.as_ref().map_or("", |length| &length.value);
                if !is_plain_arithmetic(&offset.value) || !is_plain_arithmetic(length) {
                    self.opaque(Opaque::Arithmetic);
                }
            }
            // `${x@P}` expands what is in x once more.
            ParameterExpr::Transform { .. } => self.opaque(Opaque::Evaluates),
        }
    }

    /// An index is arithmetic, and `${!x}` takes a name from data, subscript and all.
    fn subscript(&mut self, parameter: &word::Parameter, indirect: bool) {
        if indirect {
            self.opaque(Opaque::Evaluates);
        }
        if let word::Parameter::NamedWithIndex { index, .. } = parameter
            && !is_plain_arithmetic(index)
        {
            self.opaque(Opaque::Arithmetic);
        }
    }

    /// Text inside an expansion is a word of its own.
    fn nested(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            read(text, None, self.inner);
        }
    }
}
