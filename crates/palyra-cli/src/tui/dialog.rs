//! What is asked before an answer is sent: a reason, a length of time, how much a yes covers.
//!
//! Enter only ever goes one step further. What decides is the letter that began it, pressed again
//! when everything is on the screen.

use palyra_api::wire::Decide;
use palyra_core::{Span, render};

use super::page::Page;

/// How long a text can be typed.
const LONGEST: usize = 500;

/// A line that is typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    text: String,
}

impl Input {
    /// With something in it.
    #[must_use]
    pub fn holding(text: &str) -> Self {
        Self {
            text: text.to_owned(),
        }
    }

    /// What was typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was typed, when that is something.
    #[must_use]
    pub fn given(&self) -> Option<String> {
        let text = self.text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// One more letter; what does not print is left out.
    pub fn push(&mut self, letter: char) {
        if render::prints_as_itself(letter) && self.text.chars().count() < LONGEST {
            self.text.push(letter);
        }
    }

    /// What was pasted, on one line.
    pub fn paste(&mut self, text: &str) {
        for letter in text.trim().chars() {
            self.push(if letter.is_whitespace() { ' ' } else { letter });
        }
    }

    /// What was typed, taken out.
    pub fn take(&mut self) -> Typed {
        Typed(std::mem::take(&mut self.text).into())
    }

    /// One mark for each letter.
    #[must_use]
    pub fn marks(&self) -> String {
        "•".repeat(self.text.chars().count())
    }

    /// Takes the last letter back.
    pub fn pop(&mut self) {
        self.text.pop();
    }

    /// Takes the last word back.
    pub fn pop_word(&mut self) {
        let kept = self.text.trim_end();
        let kept = kept.rfind(' ').map_or(0, |at| at + 1);
        self.text.truncate(kept);
    }

    /// Takes everything back.
    pub fn clear(&mut self) {
        self.text.clear();
    }
}

/// How long a yes to more than one call lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Until the session that asked ends.
    Session,
    /// For a while.
    Window(Span),
}

impl Reach {
    /// The letter that gives it.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Session => 's',
            Self::Window(_) => 't',
        }
    }
}

/// A passphrase on its way to the daemon. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Typed(zeroize::Zeroizing<String>);

impl Typed {
    /// The text, for the one request it goes with.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Typed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Typed")
    }
}

/// What is being asked. Each is about one approval, whatever else happens meanwhile.
#[derive(Debug, Clone)]
pub enum Dialog {
    /// Which keys there are.
    Help,
    /// What to filter the list by.
    Filter {
        /// What is typed.
        input: Input,
        /// What it was before.
        before: String,
    },
    /// Why not.
    Reason {
        /// The approval.
        id: String,
        /// What is typed.
        input: Input,
        /// Whether it is typed, so that the letter decides.
        typed: bool,
    },
    /// For how long.
    Length {
        /// The approval.
        id: String,
        /// What is typed.
        input: Input,
        /// Why it cannot be meant.
        wrong: Option<String>,
    },
    /// For what.
    Cover {
        /// The approval.
        id: String,
        /// For how long.
        reach: Reach,
        /// Which of the covers.
        at: usize,
        /// What that one means.
        page: Page,
    },
    /// Whether the person is there. The answer was chosen before, with its own letter.
    Passphrase {
        /// The approval.
        id: String,
        /// The answer that waits for it.
        answer: Box<Decide>,
        /// What is typed.
        input: Input,
    },
}

impl Dialog {
    /// The approval that it is about.
    #[must_use]
    pub fn about(&self) -> Option<&str> {
        match self {
            // What is answered stays on the screen.
            Self::Help | Self::Filter { .. } | Self::Passphrase { .. } => None,
            Self::Reason { id, .. } | Self::Length { id, .. } | Self::Cover { id, .. } => Some(id),
        }
    }

    /// The line that is typed into now.
    pub fn input(&mut self) -> Option<&mut Input> {
        match self {
            Self::Filter { input, .. }
            | Self::Length { input, .. }
            | Self::Passphrase { input, .. }
            | Self::Reason {
                input,
                typed: false,
                ..
            } => Some(input),
            Self::Help | Self::Reason { .. } | Self::Cover { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prints_is_taken() {
        let mut input = Input::default();
        input.paste("  no:\u{1b}[2J\u{202e} use\r\nstaging\tplease ");
        assert_eq!(input.text(), "no:[2J use  staging please");
        input.pop_word();
        assert_eq!(input.text(), "no:[2J use  staging ");
        input.pop();
        input.clear();
        assert_eq!(input.given(), None);
        input.paste(&"x".repeat(2_000));
        assert_eq!(input.text().len(), LONGEST);
    }
}
