//! Tables and lists of facts, aligned by how wide text looks rather than how many bytes it has.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::Style;
use palyra_core::render;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{DIM, PLAIN};
use crate::safe;

/// Between two columns.
const GAP: &str = "  ";
/// No column is cut shorter than this.
const NARROWEST: usize = 16;

/// One cell. Its text is made harmless on the way in.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Plain text.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::styled(text, PLAIN)
    }

    /// Text in a style.
    #[must_use]
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        let text = safe::line(text.as_ref());
        Self { text, style }
    }

    /// Text that went through [`crate::safe`] already: its backslashes and indentation stay.
    #[must_use]
    pub fn rendered(text: impl AsRef<str>) -> Self {
        // What should not be there is spelled out all the same.
        let spelled = |letter: char| match render::prints_as_itself(letter) {
            true => letter.to_string(),
            false => letter.escape_unicode().to_string(),
        };
        let text = text.as_ref().chars().map(spelled).collect();
        Self { text, style: PLAIN }
    }

    /// The same text in this style.
    #[must_use]
    pub const fn in_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// JSON for people, a cell a line.
    #[must_use]
    pub fn json(value: &serde_json::Value) -> Vec<Self> {
        let shown = render::json(value, safe::WIDTH);
        shown.text.lines().map(Self::rendered).collect()
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// How a column may be cut when the terminal is narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Not at all.
    Never,
    /// Its end gives way.
    End,
    /// Its middle gives way, counted.
    Middle,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    head: &'static str,
    right: bool,
    cut: Cut,
}

impl Column {
    /// Text, from the left.
    #[must_use]
    pub const fn left(head: &'static str) -> Self {
        Self {
            head,
            right: false,
            cut: Cut::Never,
        }
    }

    /// Numbers, from the right.
    #[must_use]
    pub const fn right(head: &'static str) -> Self {
        Self {
            head,
            right: true,
            cut: Cut::Never,
        }
    }

    /// Text that may be cut when the terminal is narrow.
    #[must_use]
    pub const fn flexible(head: &'static str) -> Self {
        Self {
            head,
            right: false,
            cut: Cut::End,
        }
    }

    /// Text that somebody decides by: whoever wrote it cannot push its end out of sight.
    #[must_use]
    pub const fn decisive(head: &'static str) -> Self {
        Self {
            head,
            right: false,
            cut: Cut::Middle,
        }
    }
}

/// Rows under headings.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, one cell a column.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// The table as text, cut to `width` columns if there is such a limit.
    #[must_use]
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let heads = self
            .columns
            .iter()
            .map(|column| Cell::styled(column.head, DIM))
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            self.write_row(row, &widths, &mut text);
        }
        text
    }

    fn write_row(&self, row: &[Cell], widths: &[usize], to: &mut String) {
        let mut line = String::new();
        for (position, ((cell, column), width)) in
            row.iter().zip(&self.columns).zip(widths).enumerate()
        {
            let shown = column.cut(&cell.text, *width);
            let padding = " ".repeat(width.saturating_sub(shown.width()));
            // An empty cell has no colour, or the end of the line would not be the end of the text.
            let style = if shown.is_empty() { PLAIN } else { cell.style };
            let gap = if position == 0 { "" } else { GAP };
            let _ = match column.right {
                true => write!(line, "{gap}{padding}{style}{shown}{style:#}"),
                false => write!(line, "{gap}{style}{shown}{style:#}{padding}"),
            };
        }
        to.push_str(line.trim_end());
        to.push('\n');
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let column_width = |(position, column): (usize, &Column)| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(position))
                .map(Cell::width);
            cells.max().unwrap_or(0).max(column.head.len())
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(column_width).collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let mut over = match limit {
            Some(limit) => (widths.iter().sum::<usize>() + gaps).saturating_sub(limit),
            None => 0,
        };
        // The last flexible column gives first: it is the least important.
        for (width, _) in widths
            .iter_mut()
            .zip(&self.columns)
            .rev()
            .filter(|(_, column)| column.cut != Cut::Never)
        {
            let given = over.min(width.saturating_sub(NARROWEST));
            *width -= given;
            over -= given;
        }
        widths
    }
}

/// Facts about one thing: a name and a value a line.
#[derive(Debug, Default)]
pub struct Facts(Vec<(&'static str, Vec<Cell>)>);

impl Facts {
    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cell>) -> Self {
        self.push(name, value.into());
        self
    }

    /// Adds a fact in a style.
    #[must_use]
    pub fn styled(mut self, name: &'static str, value: impl AsRef<str>, style: Style) -> Self {
        self.push(name, Cell::styled(value, style));
        self
    }

    /// Adds a fact that may be missing.
    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<impl Into<Cell>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a fact with a value over several lines; none of them, no fact.
    #[must_use]
    pub fn lines(mut self, name: &'static str, values: impl IntoIterator<Item = Cell>) -> Self {
        let values: Vec<Cell> = values.into_iter().collect();
        if !values.is_empty() {
            self.0.push((name, values));
        }
        self
    }

    fn push(&mut self, name: &'static str, value: Cell) {
        self.0.push((name, vec![value]));
    }

    /// The facts as text.
    #[must_use]
    pub fn render(&self) -> String {
        let widest = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, values) in &self.0 {
            for (position, Cell { text: value, style }) in values.iter().enumerate() {
                let shown = if position == 0 { name } else { "" };
                let _ = writeln!(text, "{DIM}{shown:widest$}{DIM:#}  {style}{value}{style:#}");
            }
        }
        text
    }
}

impl Column {
    /// As much of `text` as fits.
    fn cut<'a>(&self, text: &'a str, width: usize) -> Cow<'a, str> {
        match self.cut {
            _ if text.width() <= width => text.into(),
            Cut::Never => text.into(),
            Cut::End => format!("{}…", head(text, width.saturating_sub(1))).into(),
            Cut::Middle => both_ends(text, width).into(),
        }
    }
}

/// The start and the end, and between them how many characters are missing. Backslashes were
/// doubled before, so no text can spell this mark.
fn both_ends(text: &str, width: usize) -> String {
    let mark = |missing: usize| format!("\\{{{missing} more}}");
    let room = width.saturating_sub(mark(text.chars().count()).len());
    let head = head(text, room.div_ceil(2));
    let tail = tail(text, room / 2);
    let kept = head.chars().count() + tail.chars().count();
    format!("{head}{}{tail}", mark(text.chars().count() - kept))
}

fn head(text: &str, width: usize) -> &str {
    let end = fitting(text.chars(), width);
    text.get(..end).unwrap_or_default()
}

fn tail(text: &str, width: usize) -> &str {
    let length = fitting(text.chars().rev(), width);
    text.get(text.len() - length..).unwrap_or_default()
}

/// How many bytes of these letters fit.
fn fitting(letters: impl Iterator<Item = char>, width: usize) -> usize {
    let mut room = width;
    let fits = letters.take_while(|letter| {
        let left = room.checked_sub(letter.width().unwrap_or(0));
        room = left.unwrap_or(0);
        left.is_some()
    });
    fits.map(char::len_utf8).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn sample() -> Table {
        let mut table = Table::new([
            Column::left("NAME"),
            Column::right("N"),
            Column::flexible("WHAT"),
        ]);
        table.row([
            Cell::new("a"),
            Cell::new("7"),
            Cell::new("something rather long to say here"),
        ]);
        table.row([Cell::new("世界"), Cell::new("1234"), Cell::new("")]);
        table
    }

    #[test]
    fn columns_line_up_by_looks() {
        let expected = "\
NAME     N  WHAT
a        7  something rather long to say here
世界  1234
";
        assert_eq!(plain(&sample().render(None)), expected);
    }

    #[test]
    fn a_narrow_terminal_cuts_what_may_be_cut() {
        let text = plain(&sample().render(Some(32)));
        assert!(text.contains("a        7  something rather lo…"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 32), "{text}");
        // Never to nothing: then it wraps instead.
        assert!(plain(&sample().render(Some(10))).contains("something rathe…"));
    }

    #[test]
    fn nobody_pushes_the_end_of_a_question_out_of_sight() {
        let mut table = Table::new([Column::left("WHO"), Column::decisive("WHAT")]);
        let padded = format!("ls {}; rm -rf ~", "x".repeat(300));
        table.row([Cell::new("agent:x"), Cell::new(&padded)]);
        let text = plain(&table.render(Some(49)));
        assert!(
            text.contains("agent:x  ls xxxxxxxxxxxx\\{284 more}xxxx; rm -rf ~\n"),
            "{text}"
        );
        let spaces = format!("ls{}rm", " ".repeat(300));
        assert_eq!(Cell::new(spaces).text, r"ls\{300 spaces}rm");
    }

    #[test]
    fn rendered_text_is_not_rendered_again() {
        let indented = r"            \u{202e}";
        assert_eq!(Cell::rendered(indented).text, indented);
        assert_eq!(Cell::rendered("a\u{1b}\u{a0}").text, r"a\u{1b}\u{a0}");
        let nested = serde_json::json!({"a": {"b": {"c": {"d": {"e": "\u{202e}"}}}}});
        let last = Cell::json(&nested).into_iter().nth(5).unwrap().text;
        assert_eq!(last, r#"          "e": "\u{202e}""#);
    }

    #[test]
    fn hostile_cells_stay_in_their_cell() {
        let mut table = Table::new([Column::left("WHO"), Column::left("WHAT")]);
        table.row([Cell::new("agent:x\n\u{1b}[2J"), Cell::new("\u{202e}sl")]);
        let text = plain(&table.render(None));
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains(r"agent:x\n\u{1b}[2J  \u{202e}sl"), "{text}");
    }

    #[test]
    fn facts_line_up() {
        let facts = Facts::default()
            .with("id", "call_x")
            .maybe("missing", None::<&str>)
            .lines("warnings", [Cell::new("one"), Cell::new("two")]);
        assert_eq!(
            plain(&facts.render()),
            "id        call_x\nwarnings  one\n          two\n"
        );
    }
}
