//! What is asked before an answer, in the place of the page; and the help.

use palyra_api::wire::Approval;
use ratatui::layout::Rect;

use super::Pen;
use crate::tui::dialog::{Dialog, Input, Reach};
use crate::tui::page::{LABEL, fitted, folded};
use crate::tui::state::State;
use crate::tui::tell;
use crate::tui::theme::Tone;
use crate::{safe, when};

/// Lines above the meaning of a cover: a title, up to six covers, one between.
pub(super) const ABOVE_COVER: u16 = 8;

const HELP: [(&str, &str); 17] = [
    ("1 2 3 4, Tab", "inbox, calls, grants, journal"),
    ("j k, arrows", "move; g and G go to the first and the last"),
    (
        "space b, PgDn PgUp",
        "read on and back below; End and Home too",
    ),
    ("/", "filter the list; Esc shows everything again"),
    ("Esc", "let calls and journal run along again"),
    ("q, Ctrl-C", "leave; what waits goes on waiting"),
    ("", ""),
    ("a", "allow exactly what is shown, once"),
    ("s", "allow for its session: choose what, then s again"),
    ("t", "allow for a while: how long, what, then t again"),
    ("d", "deny: type why, or nothing, Enter, then d again"),
    ("", ""),
    ("", "Enter never decides. High risk can be allowed a"),
    ("", "moment after it is on the screen, and a long call"),
    ("", "once it was read to its end. New rows wait until"),
    ("", "you press a key; what is over stays in its place."),
    ("", ""),
];

pub(super) fn help(first: u16, pen: &mut Pen<'_, '_>) {
    for (y, (key, what)) in (first + 1..).zip(HELP) {
        let key = fitted(key, 20);
        pen.row(
            y,
            vec![
                (format!("  {key} "), Tone::Key),
                (what.to_owned(), Tone::Plain),
            ],
        );
    }
}

pub(super) fn draw(state: &State, dialog: &Dialog, area: Rect, pen: &mut Pen<'_, '_>) {
    let Some(question) = state.question() else {
        return;
    };
    match dialog {
        Dialog::Help | Dialog::Filter { .. } | Dialog::Passphrase { .. } => {}
        Dialog::Reason { input, typed, .. } => {
            head("Deny", question, area, pen);
            let hint = match typed {
                false => "it goes back to the agent; it may be empty",
                true => "d denies it",
            };
            line(input, "reason", *typed, hint, area, pen);
        }
        Dialog::Length { input, wrong, .. } => {
            head("Allow for a while", question, area, pen);
            let hint = wrong.as_deref();
            let hint =
                hint.unwrap_or("such as 15m or 1h30m, at most 12h; what it covers comes next");
            line(input, "how long", false, hint, area, pen);
        }
        Dialog::Cover {
            reach, at, page, ..
        } => cover(question, *reach, *at, area, pen, page),
    }
}

fn head(what: &str, question: &Approval, area: Rect, pen: &mut Pen<'_, '_>) {
    let width = usize::from(area.width).saturating_sub(2);
    let title = format!("  {what}: {}", safe::line(&question.principal));
    pen.row(area.y, vec![(title, Tone::Strong)]);
    let what = fitted(&tell::what(question), width.saturating_sub(2));
    pen.row(area.y + 1, vec![(format!("  {what}"), Tone::Plain)]);
}

/// A line that is typed, folded as far as there is room, and what to know about it.
fn line(input: &Input, label: &str, typed: bool, hint: &str, area: Rect, pen: &mut Pen<'_, '_>) {
    let mark = if typed { "" } else { "▏" };
    let text = format!("{}{mark}", safe::once(input.text()));
    let width = usize::from(area.width).saturating_sub(LABEL + 2);
    let mut y = area.y + 3;
    for (at, piece) in folded(&text, width).into_iter().enumerate() {
        let label = fitted(if at == 0 { label } else { "" }, LABEL - 1);
        pen.row(
            y,
            vec![
                (format!("  {label} "), Tone::Dim),
                (piece, if typed { Tone::Strong } else { Tone::Plain }),
            ],
        );
        y += 1;
    }
    pen.row(y + 1, vec![(format!("  {hint}"), Tone::Dim)]);
}

fn cover(
    question: &Approval,
    reach: Reach,
    at: usize,
    area: Rect,
    pen: &mut Pen<'_, '_>,
    page: &crate::tui::page::Page,
) {
    let who = safe::line(&question.principal);
    let title = match reach {
        Reach::Session => format!("  Allow {who} without a question, until its session ends:"),
        Reach::Window(span) => {
            let span = when::span(span.0);
            format!("  Allow {who} without a question, for {span}:")
        }
    };
    pen.row(area.y, vec![(title, Tone::Strong)]);
    let width = usize::from(area.width).saturating_sub(14);
    let above = usize::from(ABOVE_COVER.saturating_sub(2));
    // However many there are, the chosen one is among those that are shown.
    let skipped = (at + 1).saturating_sub(above);
    let covers = question.covers.iter().enumerate().skip(skipped).take(above);
    for (y, (number, cover)) in (area.y + 1..).zip(covers) {
        let here = number == at;
        let mark = if here { "▸" } else { " " };
        let name = fitted(cover.cover.as_str(), 8);
        let sentence = fitted(&safe::once(&cover.sentence), width);
        let pieces = vec![(format!("  {mark} {name} {sentence}"), Tone::Plain)];
        match here {
            true => pen.cursor_row(y, pieces),
            false => pen.row(y, pieces),
        }
    }
    let below = Rect::new(
        0,
        area.y + ABOVE_COVER,
        area.width,
        area.height.saturating_sub(ABOVE_COVER),
    );
    pen.page(below, page);
}
