//! The lower half: one thing in full, folded to the width of the terminal, and how far it was read.
//!
//! Every text in here is one line that is safe to print, made so by [`super::tell`]. A value never
//! begins in the first columns, which are for our own labels, so no value can pass for one.

use palyra_core::Timestamp;
use unicode_width::UnicodeWidthChar;

use super::theme::Tone;

/// Columns for a label and the gap after it.
pub const LABEL: usize = 12;

/// A line of the page before it is folded: a label, or none, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Ours.
    pub label: String,
    /// Safe to print.
    pub text: String,
    /// What the text means.
    pub tone: Tone,
}

/// What there is to say about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Body {
    facts: Vec<Fact>,
    /// How many of them are about what would run.
    decisive: usize,
}

impl Body {
    /// One more line.
    #[must_use]
    pub fn with(mut self, label: &str, text: impl Into<String>, tone: Tone) -> Self {
        self.facts.push(Fact {
            label: label.to_owned(),
            text: text.into(),
            tone,
        });
        self
    }

    /// One more line, if there is something to say.
    #[must_use]
    pub fn maybe(self, label: &str, text: Option<String>, tone: Tone) -> Self {
        match text {
            Some(text) => self.with(label, text, tone),
            None => self,
        }
    }

    /// Several lines under one label.
    #[must_use]
    pub fn lines(
        mut self,
        label: &str,
        lines: impl IntoIterator<Item = String>,
        tone: Tone,
    ) -> Self {
        for (at, line) in lines.into_iter().enumerate() {
            self = self.with(if at == 0 { label } else { "" }, line, tone);
        }
        self
    }

    /// Everything so far is about what would run, and has to be read before a yes.
    #[must_use]
    pub fn decisive(mut self) -> Self {
        self.decisive = self.facts.len();
        self
    }
}

/// A line as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Ours; empty on what is folded over.
    pub label: String,
    /// At most as wide as there is room.
    pub text: String,
    /// What the text means.
    pub tone: Tone,
}

/// One thing in full, and how far it was read.
#[derive(Debug, Clone, Default)]
pub struct Page {
    body: Body,
    lines: Vec<Line>,
    decisive: usize,
    top: usize,
    height: usize,
    width: usize,
    read: usize,
    /// Since when it is on the screen.
    since: Option<Timestamp>,
}

impl Page {
    /// An empty page of this size.
    #[must_use]
    pub fn sized(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            ..Self::default()
        }
    }

    /// Shows this; how far was scrolled stays.
    pub fn show(&mut self, body: Body, now: Timestamp) {
        self.since.get_or_insert(now);
        if self.body != body {
            self.body = body;
            self.fold();
        }
    }

    /// Since when there is something to read.
    #[must_use]
    pub const fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// It has this size now. What was read stays read, as far as it still is the same share.
    pub fn resize(&mut self, width: usize, height: usize) {
        if (self.width, self.height) != (width, height) {
            let all_read = self.unread() == 0;
            (self.width, self.height) = (width, height);
            self.read = 0;
            self.fold();
            if all_read {
                self.read = self.decisive;
            }
        }
    }

    /// Scrolls by lines.
    pub fn scroll(&mut self, by: isize) {
        let last = self.lines.len().saturating_sub(self.height);
        self.top = self.top.saturating_add_signed(by).min(last);
        self.look();
    }

    /// Scrolls by nearly a page, so that a line or two stay for the eye.
    pub fn turn(&mut self, forwards: bool) {
        let most = isize::try_from(self.height.saturating_sub(2).max(1)).unwrap_or(1);
        self.scroll(if forwards { most } else { -most });
    }

    /// How many lines about what would run were not on the screen yet.
    #[must_use]
    pub const fn unread(&self) -> usize {
        self.decisive.saturating_sub(self.read)
    }

    /// The lines on the screen.
    pub fn on_screen(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().skip(self.top).take(self.height)
    }

    /// How many lines there are below and above.
    #[must_use]
    pub fn beyond(&self) -> (usize, usize) {
        let end = self.top + self.height;
        (self.top, self.lines.len().saturating_sub(end))
    }

    fn fold(&mut self) {
        let room = self.width.saturating_sub(LABEL).max(1);
        self.lines.clear();
        self.decisive = 0;
        for (at, fact) in self.body.facts.iter().enumerate() {
            if at == self.body.decisive {
                self.decisive = self.lines.len();
            }
            for (part, text) in folded(&fact.text, room).into_iter().enumerate() {
                self.lines.push(Line {
                    label: if part == 0 {
                        fact.label.clone()
                    } else {
                        String::new()
                    },
                    text,
                    tone: fact.tone,
                });
            }
        }
        if self.body.decisive >= self.body.facts.len() {
            self.decisive = self.lines.len();
        }
        self.scroll(0);
    }

    fn look(&mut self) {
        // A page that is not there yet was not read.
        if self.since.is_some() {
            self.read = self.read.max(self.top + self.height);
        }
    }
}

/// A text in pieces of at most this width, every character in one of them. Broken after a space where
/// one is near, and anywhere else.
#[must_use]
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let end = fits(rest, width);
        let (whole, left) = rest.split_at(end);
        if left.is_empty() {
            pieces.push(whole.to_owned());
            return pieces;
        }
        // Not further back than a third: a path or a digest would leave the line half empty. And not
        // among several spaces: how many there are would not be seen.
        let space = whole.rfind(' ').map(|at| at + 1);
        let single = |at: usize| {
            let (before, after) = rest.split_at(at);
            !before.ends_with("  ") && !after.starts_with(' ')
        };
        let at = space.filter(|at| at * 3 >= end * 2 && single(*at));
        let (piece, left) = rest.split_at(at.unwrap_or(end));
        pieces.push(piece.to_owned());
        rest = left;
    }
}

/// How many bytes of a text fit into this width; at least one character.
fn fits(text: &str, width: usize) -> usize {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += letter.width().unwrap_or(0);
        if used > width && at > 0 {
            return at;
        }
    }
    text.len()
}

/// A text in exactly this width: filled up, or cut with a mark.
#[must_use]
pub fn fitted(text: &str, width: usize) -> String {
    let mut first = text.to_owned();
    if fits(text, width) < text.len() {
        first.truncate(fits(text, width.saturating_sub(1)));
        first.push('…');
    }
    let used = unicode_width::UnicodeWidthStr::width(first.as_str());
    first.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn page(lines: usize, after: usize) -> Page {
        let mut body = Body::default();
        for at in 0..lines {
            body = body.with("", at.to_string(), Tone::Plain);
        }
        body = body.decisive();
        for _ in 0..after {
            body = body.with("", "later", Tone::Plain);
        }
        let mut page = Page::sized(40, 5);
        page.show(body, now());
        page
    }

    #[test]
    fn what_would_run_has_to_be_read_and_the_rest_not() {
        assert_eq!(page(5, 9).unread(), 0);
        let mut long = page(12, 9);
        assert_eq!(long.unread(), 7);
        long.turn(true);
        assert_eq!(long.unread(), 4);
        long.scroll(99);
        assert_eq!(long.unread(), 0);
        long.scroll(-99);
        assert_eq!(long.unread(), 0, "what was read stays read");
    }

    #[test]
    fn a_page_that_is_not_there_was_not_read() {
        let mut empty = Page::sized(40, 50);
        empty.scroll(9);
        empty.show(Body::default().with("", "x", Tone::Plain).decisive(), now());
        assert_eq!((empty.unread(), empty.beyond()), (0, (0, 0)));
        let mut long = Page::sized(40, 50);
        long.scroll(99);
        let lines = (0..80).map(|at: u32| at.to_string());
        long.show(
            Body::default().lines("x", lines, Tone::Plain).decisive(),
            now(),
        );
        assert_eq!(long.unread(), 30);
    }

    #[test]
    fn a_smaller_window_hides_what_was_not_read() {
        let mut page = page(8, 0);
        assert_eq!(page.unread(), 3);
        page.resize(40, 4);
        assert_eq!(page.unread(), 4);
        page.scroll(99);
        page.resize(13, 3);
        assert_eq!(page.unread(), 0, "it was read in full before");
    }

    #[test]
    fn text_is_folded_by_what_it_takes_on_the_screen() {
        assert_eq!(folded("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(folded("ab漢字", 3), ["ab", "漢", "字"]);
        assert_eq!(folded("", 3), [""]);
        assert_eq!(folded("one two three", 9), ["one two ", "three"]);
        assert_eq!(folded("one two  three", 10), ["one two  t", "hree"]);
        assert_eq!(folded("a /very/long/path", 9), ["a /very/l", "ong/path"]);
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert_eq!(fitted("ab", 4), "ab  ");
        assert_eq!(fitted("ab漢字", 4), "ab… ");
    }

    #[test]
    fn folded_lines_stay_out_of_the_labels_columns() {
        let mut page = Page::sized(LABEL + 3, 9);
        page.show(Body::default().with("who", "abcdefg", Tone::Plain), now());
        let drawn: Vec<_> = page
            .on_screen()
            .map(|line| (line.label.as_str(), line.text.as_str()))
            .collect();
        assert_eq!(drawn, [("who", "abc"), ("", "def"), ("", "g")]);
    }
}
