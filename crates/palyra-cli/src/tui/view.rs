//! The screen, drawn from what it knows. Every row is full width: were a terminal to disagree about
//! how wide a character of an agent's is, only that row could suffer.

mod asking;
mod rows;

use std::time::Duration;

use palyra_core::Timestamp;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::dialog::Dialog;
use super::page::{LABEL, Page, fitted};
use super::state::{ARMING, Link, State, Tab};
use super::theme::{Theme, Tone};
use crate::safe;

/// The smallest terminal that there is room on.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Lines that are neither list nor page: tabs, two rules, a sentence, keys.
const FRAME: u16 = 5;

/// Where things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// The list with its heading.
    pub list: Rect,
    /// One thing in full.
    pub page: Rect,
}

/// Where things are on a terminal of this size.
#[must_use]
pub fn areas((columns, lines): (u16, u16)) -> Areas {
    let room = lines.saturating_sub(FRAME);
    let list = (room / 3).clamp(3, 16).min(room);
    Areas {
        list: Rect::new(0, 2, columns, list),
        page: Rect::new(0, 3 + list, columns, room.saturating_sub(list)),
    }
}

/// How many lines the meaning of a cover has, on a page of this height.
#[must_use]
pub const fn cover_lines(height: u16) -> u16 {
    height.saturating_sub(asking::ABOVE_COVER)
}

/// Whether there is too little room to show anything that could be decided about.
#[must_use]
pub const fn too_small((columns, lines): (u16, u16)) -> bool {
    columns < SMALLEST.0 || lines < SMALLEST.1
}

/// A piece of a row: text that is safe to print, and what it means.
type Piece = (String, Tone);

/// What draws one frame.
struct Pen<'a, 'b> {
    theme: Theme,
    frame: &'a mut Frame<'b>,
}

impl Pen<'_, '_> {
    /// One row, from the left.
    fn row(&mut self, y: u16, pieces: Vec<Piece>) {
        let area = self.frame.area();
        if y < area.height {
            let spans = pieces.into_iter().map(|(text, tone)| self.span(text, tone));
            let line = Line::from(spans.collect::<Vec<_>>());
            self.frame
                .render_widget(line, Rect::new(0, y, area.width, 1));
        }
    }

    /// One row under the cursor: the same all across.
    fn cursor_row(&mut self, y: u16, pieces: Vec<Piece>) {
        let area = Rect::new(0, y, self.frame.area().width, 1);
        self.row(y, pieces);
        let style = self.theme.of(Tone::Cursor);
        self.frame.buffer_mut().set_style(area, style);
    }

    /// A rule across, with something said at its left and at its right.
    fn rule(&mut self, y: u16, left: Vec<Piece>, right: Vec<Piece>) {
        let wide =
            |pieces: &[Piece]| -> usize { pieces.iter().map(|(text, _)| text.width()).sum() };
        let padded = |pieces: Vec<Piece>| -> Vec<Piece> {
            if pieces.is_empty() {
                return pieces;
            }
            let space = || std::iter::once((" ".to_owned(), Tone::Plain));
            space().chain(pieces).chain(space()).collect()
        };
        let (left, right) = (padded(left), padded(right));
        let width = usize::from(self.frame.area().width);
        let between = width.saturating_sub(wide(&left) + wide(&right) + 4);
        let mut pieces = vec![("──".to_owned(), Tone::Dim)];
        pieces.extend(left);
        pieces.push(("─".repeat(between), Tone::Dim));
        pieces.extend(right);
        pieces.push(("──".to_owned(), Tone::Dim));
        self.row(y, pieces);
    }

    /// The lines of a page.
    fn page(&mut self, area: Rect, page: &Page) {
        for (y, line) in (area.top()..area.bottom()).zip(page.on_screen()) {
            let label = fitted(&line.label, LABEL - 1);
            self.row(
                y,
                vec![
                    (format!("{label} "), Tone::Dim),
                    (line.text.clone(), line.tone),
                ],
            );
        }
    }

    fn span(&self, text: String, tone: Tone) -> Span<'static> {
        Span::styled(text, self.theme.of(tone))
    }
}

/// Draws everything.
pub fn draw(state: &State, theme: Theme, now: Timestamp, frame: &mut Frame<'_>) {
    let mut pen = Pen { theme, frame };
    if too_small(state.size) {
        return draw_too_small(state, &mut pen);
    }
    let areas = areas(state.size);
    let last = state.size.1.saturating_sub(1);
    draw_tabs(state, now, &mut pen);
    draw_upper_rule(state, &mut pen);
    if let Some(Dialog::Help) = state.dialog {
        asking::help(areas.list.y, &mut pen);
    } else {
        rows::draw(state, areas.list, now, &mut pen);
        draw_lower_rule(state, areas, &mut pen);
        match &state.dialog {
            Some(dialog) if dialog.about().is_some() => {
                asking::draw(state, dialog, areas.page, &mut pen);
            }
            Some(_) | None => draw_page(state, areas.page, &mut pen),
        }
    }
    draw_sentence(state, last.saturating_sub(1), now, &mut pen);
    pen.row(last, keys(state));
}

fn draw_too_small(state: &State, pen: &mut Pen<'_, '_>) {
    let (columns, lines) = state.size;
    let (wide, high) = SMALLEST;
    for (y, text) in [
        format!("too small: {columns}x{lines}"),
        format!("needs {wide}x{high}"),
        "enlarge it, or q to leave".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let y = u16::try_from(y).unwrap_or_default();
        pen.row(y, vec![(text, Tone::Care)]);
    }
}

fn draw_tabs(state: &State, now: Timestamp, pen: &mut Pen<'_, '_>) {
    let mut pieces = vec![(" palyra ".to_owned(), Tone::Strong)];
    let status = state.status.as_deref();
    let waiting = status.map_or(0, |status| {
        usize::try_from(status.pending_approvals).unwrap_or(usize::MAX)
    });
    let running = status.map_or(0, |status| {
        usize::try_from(status.running_calls).unwrap_or(usize::MAX)
    });
    let live = state.grants.latest().iter();
    let live = live.filter(|grant| grant.state == "live").count();
    for (at, tab) in Tab::ALL.into_iter().enumerate() {
        let (name, count) = match tab {
            Tab::Inbox => ("Inbox", waiting.max(state.inbox.len())),
            Tab::Calls => ("Calls", running),
            Tab::Grants => ("Grants", live),
            Tab::Journal => ("Journal", 0),
        };
        let count = match count {
            0 => String::new(),
            count => format!(" {count}"),
        };
        let tone = match (tab == state.tab, tab == Tab::Inbox && !count.is_empty()) {
            (true, _) => Tone::Cursor,
            (false, true) => Tone::Care,
            (false, false) => Tone::Plain,
        };
        pieces.push((" ".to_owned(), Tone::Plain));
        pieces.push((format!(" {} {name}{count} ", at + 1), tone));
    }
    let link = match &state.link {
        Link::Opening => ("connecting".to_owned(), Tone::Dim),
        Link::Open => ("connected".to_owned(), Tone::Dim),
        Link::Lost { since, .. } => {
            let gone = now.since(*since).as_secs();
            (format!("no daemon for {gone}s"), Tone::Bad)
        }
    };
    let used: usize = pieces.iter().map(|(text, _)| text.width()).sum();
    let gap = usize::from(state.size.0).saturating_sub(used + link.0.width() + 1);
    pieces.push((" ".repeat(gap), Tone::Plain));
    pieces.push(link);
    pen.row(0, pieces);
}

fn draw_upper_rule(state: &State, pen: &mut Pen<'_, '_>) {
    let title = match state.tab {
        Tab::Inbox => "waits for you",
        Tab::Calls => "asked for, and how it came out",
        Tab::Grants => "allowed without a question",
        Tab::Journal => "everything, in order",
    };
    let mut left = vec![(title.to_owned(), Tone::Dim)];
    if !state.filter().is_empty() {
        let filter = format!("/{}", safe::line(state.filter()));
        left.push(("  ".to_owned(), Tone::Plain));
        left.push((filter, Tone::Key));
    }
    let right = match (state.news(), state.place()) {
        (0, None) => Vec::new(),
        (0, Some((at, of))) => vec![(format!("{at} of {of}"), Tone::Dim)],
        (news, _) => vec![(format!("{news} new, any key shows them"), Tone::Care)],
    };
    pen.rule(1, left, right);
}

fn draw_lower_rule(state: &State, areas: Areas, pen: &mut Pen<'_, '_>) {
    let (above, below) = state.page.beyond();
    let left = match &state.of {
        Some((_, id)) => vec![(safe::line(id), Tone::Dim)],
        None => Vec::new(),
    };
    let right = match (state.dialog.as_ref().and_then(Dialog::about), above, below) {
        (Some(_), _, _) | (None, 0, 0) => Vec::new(),
        (None, above, 0) => vec![(format!("end, {above} lines above"), Tone::Dim)],
        (None, _, below) => vec![(format!("{below} more lines below"), Tone::Care)],
    };
    pen.rule(areas.page.y.saturating_sub(1), left, right);
}

fn draw_page(state: &State, area: Rect, pen: &mut Pen<'_, '_>) {
    if state.page.since().is_some() && state.of.is_some() {
        return pen.page(area, &state.page);
    }
    let text = match (state.tab, &state.of) {
        (_, Some(_)) => "looking it up",
        (Tab::Inbox, None) => "an agent's call that needs you appears here by itself",
        (Tab::Calls, None) => "it runs along; j points at a call and shows its timeline",
        (Tab::Grants, None) => "",
        (Tab::Journal, None) => "it runs along; j points at an entry and shows it in full",
    };
    pen.row(area.y, vec![(format!("  {text}"), Tone::Dim)]);
}

/// The sentence above the keys: what was just said, or what stands between the person and a yes.
fn draw_sentence(state: &State, y: u16, now: Timestamp, pen: &mut Pen<'_, '_>) {
    if let Some(Dialog::Filter { input, .. }) = &state.dialog {
        let typed = format!("/{}▏", safe::once(input.text()));
        return pen.row(y, vec![(format!(" {typed}"), Tone::Key)]);
    }
    if let Some(Dialog::Passphrase { input, .. }) = &state.dialog {
        let wrong = state.notice.as_ref().map(|notice| notice.text.as_str());
        let wrong = wrong.map_or_else(String::new, |text| format!("{}  ", safe::once(text)));
        let typed = format!(" {wrong}your passphrase: {}▏", input.marks());
        let width = usize::from(state.size.0).saturating_sub(1);
        return pen.row(y, vec![(fitted(&typed, width), Tone::Key)]);
    }
    if let Some(notice) = &state.notice {
        let width = usize::from(state.size.0).saturating_sub(2);
        return pen.row(
            y,
            vec![(format!(" {}", fitted(&notice.text, width)), notice.tone)],
        );
    }
    if let Link::Lost { why, .. } = &state.link {
        let width = usize::from(state.size.0).saturating_sub(2);
        return pen.row(
            y,
            vec![(
                format!(" {}", fitted(&format!("trying again: {why}"), width)),
                Tone::Bad,
            )],
        );
    }
    if state.sending.is_some() {
        return pen.row(y, vec![(" sending the answer".to_owned(), Tone::Dim)]);
    }
    if state.dialog.is_some() || state.answerable().is_err() {
        return;
    }
    let left = state.arming(now);
    let unread = state.page.unread();
    let pieces = match (left.is_zero(), unread) {
        (false, _) => vec![(format!(" arming {}", bar(left)), Tone::Care)],
        (true, 0) => vec![(" armed: a, s and t allow it".to_owned(), Tone::Dim)],
        (true, unread) => {
            let lines = if unread == 1 { "line" } else { "lines" };
            let text = format!(" to allow it, read {unread} more {lines}: space");
            vec![(text, Tone::Care)]
        }
    };
    pen.row(y, pieces);
}

/// How far it is armed.
fn bar(left: Duration) -> String {
    const STEPS: u128 = 10;
    let to_go = (left.as_millis() * STEPS).div_ceil(ARMING.as_millis().max(1));
    let to_go = usize::try_from(to_go.min(STEPS)).unwrap_or_default();
    format!("{}{}", "■".repeat(10 - to_go), "□".repeat(to_go))
}

fn keys(state: &State) -> Vec<Piece> {
    let known: &[(&str, &str)] = match &state.dialog {
        Some(Dialog::Help) => &[("any key", "closes this")],
        Some(Dialog::Filter { .. }) => &[("Enter", "keep"), ("Esc", "as before")],
        Some(Dialog::Reason { typed: false, .. }) => &[("Enter", "typed"), ("Esc", "back")],
        Some(Dialog::Reason { typed: true, .. }) => {
            &[("d", "deny"), ("e", "edit the reason"), ("Esc", "back")]
        }
        Some(Dialog::Passphrase { .. }) => &[("Enter", "send the answer"), ("Esc", "do not")],
        Some(Dialog::Length { .. }) => &[("Enter", "go on"), ("Esc", "back")],
        Some(Dialog::Cover { reach, .. }) => match reach {
            super::dialog::Reach::Session => &[
                ("s", "allow this"),
                ("j/k", "choose"),
                ("space", "read on"),
                ("Esc", "back"),
            ],
            super::dialog::Reach::Window(_) => &[
                ("t", "allow this"),
                ("j/k", "choose"),
                ("space", "read on"),
                ("Esc", "back"),
            ],
        },
        None => match state.tab {
            Tab::Inbox => &[
                ("a", "once"),
                ("s", "session"),
                ("t", "window"),
                ("d", "deny"),
                ("space", "read on"),
                ("/", "filter"),
                ("?", "help"),
                ("q", "quit"),
            ],
            Tab::Calls | Tab::Grants | Tab::Journal => &[
                ("j/k", "move"),
                ("space", "read on"),
                ("Esc", "run along"),
                ("/", "filter"),
                ("?", "help"),
                ("q", "quit"),
            ],
        },
    };
    let mut pieces = vec![(" ".to_owned(), Tone::Plain)];
    for (key, what) in known {
        pieces.push(((*key).to_owned(), Tone::Key));
        pieces.push((format!(" {what}  "), Tone::Dim));
    }
    pieces
}
