//! A list that never moves under the cursor.
//!
//! What is drawn changes only when the person presses a key. News is held back and counted; what is
//! gone stays in its place, marked as over. The cursor is an id and not a place, so that a key can
//! only ever mean the row that it was pressed on.

use std::collections::{HashMap, HashSet};

/// What can be listed.
pub trait Listed {
    /// What the cursor holds on to.
    fn id(&self) -> &str;
    /// What a filter looks at.
    fn words(&self) -> String;
}

/// One row, as it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<T> {
    /// What it shows; kept up to date.
    pub item: T,
    /// Whether it is no longer there.
    pub over: bool,
}

/// A list, and where the person is in it.
#[derive(Debug, Clone)]
pub struct List<T> {
    rows: Vec<Row<T>>,
    latest: Vec<T>,
    cursor: Option<String>,
    top: usize,
    height: usize,
    filter: String,
    /// Whether there is always a cursor; otherwise only once the person moves, and until then news is
    /// drawn at once.
    pointed: bool,
}

impl<T: Listed + Clone> List<T> {
    /// An empty list that always has a cursor.
    #[must_use]
    pub const fn pointed() -> Self {
        Self::new(true)
    }

    /// An empty list that runs along until somebody points into it.
    #[must_use]
    pub const fn running() -> Self {
        Self::new(false)
    }

    const fn new(pointed: bool) -> Self {
        Self {
            rows: Vec::new(),
            latest: Vec::new(),
            cursor: None,
            top: 0,
            height: 1,
            filter: String::new(),
            pointed,
        }
    }

    /// How it is now, in its order.
    pub fn take(&mut self, latest: Vec<T>) {
        let by_id: HashMap<&str, &T> = latest.iter().map(|item| (item.id(), item)).collect();
        for row in &mut self.rows {
            let now = by_id.get(row.item.id());
            row.over = now.is_none();
            if let Some(now) = now {
                row.item = (*now).clone();
            }
        }
        self.latest = latest;
        if self.cursor.is_none() {
            self.settle();
        }
    }

    /// One item is like this now, wherever it is drawn.
    pub fn replace(&mut self, item: &T) {
        for row in &mut self.rows {
            if row.item.id() == item.id() {
                row.item = item.clone();
            }
        }
    }

    /// Draws what was held back; a row under the cursor keeps its line where that is possible.
    pub fn settle(&mut self) {
        let before = self.place();
        let line = before.map_or(0, |at| at.saturating_sub(self.top));
        let kept = before.and_then(|at| {
            let row = self.shown().nth(at)?.clone();
            row.over.then_some((at, row))
        });
        self.rows = self.latest.iter().map(as_row).collect();
        if let Some((at, row)) = kept {
            self.rows.insert(at.min(self.rows.len()), row);
        }
        if self.place().is_none() {
            let first = self.shown().next().map(|row| row.item.id().to_owned());
            self.cursor = first.filter(|_| self.pointed);
        }
        self.top = self.place().map_or(0, |at| at.saturating_sub(line));
        self.keep_in_sight();
    }

    /// Moves the cursor over what is drawn, then draws what was held back.
    pub fn step(&mut self, by: isize) {
        let count = self.shown().count();
        let Some(last) = count.checked_sub(1) else {
            return self.settle();
        };
        let to = match self.place() {
            None => 0,
            Some(at) => match at.saturating_add_signed(by).min(last) {
                // At the end, and it is over: the other way, so that it can go.
                same if same == at && self.is_over() => {
                    at.saturating_add_signed(-by.signum()).min(last)
                }
                to => to,
            },
        };
        let stays = self.place() == Some(to);
        let id = self.shown().nth(to).map(|row| row.item.id().to_owned());
        // Nowhere else to go: what is over goes.
        self.cursor = id.filter(|_| !(stays && self.is_over()));
        self.keep_in_sight();
        self.settle();
    }

    /// Nothing is pointed at any more; a list that runs along does so again.
    pub fn let_go(&mut self) {
        if !self.pointed {
            self.cursor = None;
            self.top = 0;
        }
        self.settle();
    }

    /// Shows only what has these words.
    pub fn set_filter(&mut self, filter: &str) {
        filter.trim().to_lowercase().clone_into(&mut self.filter);
        self.settle();
    }

    /// What it is filtered by.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// How many lines it is drawn on.
    pub fn set_height(&mut self, lines: usize) {
        self.height = lines.max(1);
        self.keep_in_sight();
    }

    /// The id under the cursor.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The row under the cursor.
    #[must_use]
    pub fn under_cursor(&self) -> Option<&Row<T>> {
        let id = self.cursor()?;
        self.rows.iter().find(|row| row.item.id() == id)
    }

    /// The rows on the screen, each with whether the cursor is on it.
    pub fn on_screen(&self) -> impl Iterator<Item = (&Row<T>, bool)> {
        let cursor = self.cursor();
        let rows = self.shown().skip(self.top).take(self.height);
        rows.map(move |row| (row, cursor == Some(row.item.id())))
    }

    /// How many are held back.
    #[must_use]
    pub fn news(&self) -> usize {
        let drawn: HashSet<&str> = self.rows.iter().map(|row| row.item.id()).collect();
        let held = self.latest.iter().filter(|item| !drawn.contains(item.id()));
        held.filter(|item| self.fits(item)).count()
    }

    /// How many there are, whatever is drawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.latest.len()
    }

    /// Whether there is nothing, whatever is drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// Everything there is.
    #[must_use]
    pub fn latest(&self) -> &[T] {
        &self.latest
    }

    /// The place of the cursor among the rows that are shown, and how many those are.
    #[must_use]
    pub fn at(&self) -> (Option<usize>, usize) {
        (self.place(), self.shown().count())
    }

    fn shown(&self) -> impl Iterator<Item = &Row<T>> {
        self.rows.iter().filter(|row| self.fits(&row.item))
    }

    fn fits(&self, item: &T) -> bool {
        self.filter.is_empty() || item.words().to_lowercase().contains(&self.filter)
    }

    fn place(&self) -> Option<usize> {
        let id = self.cursor()?;
        self.shown().position(|row| row.item.id() == id)
    }

    fn is_over(&self) -> bool {
        self.under_cursor().is_some_and(|row| row.over)
    }

    fn keep_in_sight(&mut self) {
        let last_top = self.shown().count().saturating_sub(self.height);
        self.top = self.top.min(last_top);
        if let Some(at) = self.place() {
            let first = (at + 1).saturating_sub(self.height);
            self.top = self.top.clamp(first, at.max(first));
        }
    }
}

fn as_row<T: Clone>(item: &T) -> Row<T> {
    Row {
        item: item.clone(),
        over: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Item(&'static str);

    impl Listed for Item {
        fn id(&self) -> &str {
            self.0
        }
        fn words(&self) -> String {
            self.0.to_owned()
        }
    }

    fn items(ids: &[&'static str]) -> Vec<Item> {
        ids.iter().copied().map(Item).collect()
    }

    fn pointed(ids: &[&'static str]) -> List<Item> {
        let mut list = List::pointed();
        list.set_height(4);
        list.take(items(ids));
        list
    }

    /// What is drawn: `>` at the cursor, `~` for what is over.
    fn drawn(list: &List<Item>) -> String {
        let row = |(row, here): (&Row<Item>, bool)| {
            let over = if row.over { "~" } else { "" };
            format!("{}{over}{}", if here { ">" } else { "" }, row.item.0)
        };
        list.on_screen().map(row).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn news_waits_until_the_person_moves() {
        let mut list = pointed(&["b", "d"]);
        list.step(1);
        assert_eq!(drawn(&list), "b >d");
        list.take(items(&["a", "b", "c", "d", "e"]));
        assert_eq!((drawn(&list).as_str(), list.news()), ("b >d", 3));
        // Up from `d` is `b`, which is what the person sees above it, and not `c`.
        list.step(-1);
        assert_eq!(list.cursor(), Some("b"));
        assert_eq!((drawn(&list).as_str(), list.news()), (">b c d e", 0));
    }

    #[test]
    fn what_is_gone_keeps_its_place_until_the_person_moves() {
        let mut list = pointed(&["a", "b", "c"]);
        list.step(1);
        list.take(items(&["c"]));
        assert_eq!(drawn(&list), "~a >~b c");
        list.settle();
        assert_eq!(drawn(&list), "c >~b", "what is pointed at stays");
        list.step(-1);
        assert_eq!(drawn(&list), ">c");
    }

    #[test]
    fn the_last_one_goes_when_a_key_is_pressed() {
        let mut list = pointed(&["a"]);
        list.take(Vec::new());
        assert_eq!(drawn(&list), ">~a");
        list.step(1);
        assert_eq!((drawn(&list).as_str(), list.cursor()), ("", None));
        list.take(items(&["x"]));
        assert_eq!(drawn(&list), ">x");
    }

    #[test]
    fn at_the_end_what_is_over_is_left_the_other_way() {
        let mut list = pointed(&["a", "b"]);
        list.step(1);
        list.take(items(&["a"]));
        list.step(1);
        assert_eq!(drawn(&list), ">a");
    }

    #[test]
    fn the_row_under_the_cursor_keeps_its_line() {
        let mut list = pointed(&["e", "f", "g", "h", "i"]);
        list.step(1);
        list.take(items(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]));
        list.settle();
        assert_eq!(drawn(&list), "e >f g h");
    }

    #[test]
    fn a_list_that_runs_along_does_so_until_it_is_pointed_into() {
        let mut list = List::running();
        list.set_height(3);
        list.take(items(&["b"]));
        list.take(items(&["a", "b"]));
        assert_eq!(drawn(&list), "a b");
        list.step(1);
        assert_eq!(drawn(&list), ">a b");
        list.take(items(&["x", "a", "b"]));
        assert_eq!((drawn(&list).as_str(), list.news()), (">a b", 1));
        list.let_go();
        assert_eq!(drawn(&list), "x a b");
    }

    #[test]
    fn a_filter_hides_and_moves_the_cursor_only_off_what_it_hides() {
        let mut list = pointed(&["alpha", "beta", "gamma"]);
        list.step(1);
        list.set_filter("ETA");
        assert_eq!(drawn(&list), ">beta");
        list.set_filter("mm");
        assert_eq!(drawn(&list), ">gamma");
        list.take(items(&["alpha", "gamma", "mmm", "x"]));
        assert_eq!(list.news(), 1, "only news that fits counts");
        list.set_filter("");
        assert_eq!(drawn(&list), "alpha >gamma mmm x");
    }

    #[test]
    fn the_cursor_stays_in_sight() {
        let mut list = pointed(&["a", "b", "c", "d", "e", "f"]);
        list.step(4);
        assert_eq!(drawn(&list), "b c d >e");
        list.set_height(2);
        assert_eq!(drawn(&list), "d >e");
        list.step(-99);
        assert_eq!(drawn(&list), ">a b");
        list.step(99);
        assert_eq!(drawn(&list), "e >f");
    }
}
