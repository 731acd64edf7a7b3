//! What can be wrong with a policy source, and the denial when an answer cannot be had.

use miette::Diagnostic;
use palyra_core::{Denial, DenialCode};

/// A place in a policy source, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character within it.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl Place {
    /// Where an error of Cedar's points to; the start when it points nowhere.
    pub(crate) fn of(error: &dyn Diagnostic, source: &str) -> Self {
        let offset = error
            .labels()
            .and_then(|mut labels| labels.next())
            .map_or(0, |label| label.offset());
        let before = source
            .get(..source.floor_char_boundary(offset))
            .unwrap_or_default();
        let last_line = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: last_line.chars().count() + 1,
        }
    }
}

/// Why a policy set is not taken into use. Nothing of it is in force then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The embedded schema does not fit this program.
    #[error("the embedded schema is broken: {0}")]
    Schema(String),
    /// The source is not Cedar.
    #[error("{place}: {message}{}", more(*others))]
    Syntax {
        /// Where.
        place: Place,
        /// What Cedar says.
        message: String,
        /// How many further errors there are.
        others: usize,
    },
    /// It is Cedar, but not about what the schema declares.
    #[error("{place}: {message}{}", more(*others))]
    Invalid {
        /// Where.
        place: Place,
        /// What the validator says.
        message: String,
        /// How many further errors there are.
        others: usize,
    },
    /// A policy that records could not name, or a person could not read.
    #[error("policy {number} of the source: {problem}")]
    Annotation {
        /// Which policy, counted from 1.
        number: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Templates have holes that nothing here fills.
    #[error("the source holds a template; write a policy without `?principal` and `?resource`")]
    Template,
    /// The known tools, agents and devices do not fit the schema.
    #[error("what policy knows could not be built: {0}")]
    World(String),
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    }
}

/// The denial when policy cannot tell.
pub(crate) fn unavailable(why: impl std::fmt::Display, next_step: impl Into<String>) -> Denial {
    let reason = format!("policy could not decide: {why}");
    Denial::new(DenialCode::PolicyUnavailable, reason, next_step)
}

/// The same when only the daemon itself can be at fault.
pub(crate) fn broken(why: impl std::fmt::Display) -> Denial {
    unavailable(why, "see the policy in force with `palyra status`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("here")]
    struct At(usize);

    impl Diagnostic for At {
        fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
            let span = miette::LabeledSpan::new(None, self.0, 1);
            Some(Box::new(std::iter::once(span)))
        }
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let source = "ab\nüx\n";
        let place = |offset| Place::of(&At(offset), source);
        assert_eq!(place(0), Place { line: 1, column: 1 });
        assert_eq!(place(3), Place { line: 2, column: 1 });
        assert_eq!(place(5), Place { line: 2, column: 2 });
        // Inside a character, and past the end.
        assert_eq!(place(4), Place { line: 2, column: 1 });
        assert_eq!(place(99), Place { line: 3, column: 1 });
    }
}
