//! The rows of the four lists.

use palyra_api::wire::{Approval, CallSummary, Grant};
use palyra_core::Timestamp;
use ratatui::layout::Rect;

use super::{Pen, Piece};
use crate::tui::list::{List, Listed, Row};
use crate::tui::page::fitted;
use crate::tui::seen::{Entry, is_pending};
use crate::tui::state::{State, Tab};
use crate::tui::tell;
use crate::tui::theme::Tone;
use crate::{safe, when};

/// Columns in front of each row, for the cursor.
const MARK: usize = 2;

pub(super) fn draw(state: &State, area: Rect, now: Timestamp, pen: &mut Pen<'_, '_>) {
    let width = usize::from(area.width).saturating_sub(MARK);
    match state.tab {
        Tab::Inbox => {
            heading(
                &[("RISK", 9), ("WHO", 18), ("LEFT", 8), ("WHAT", 0)],
                area,
                pen,
            );
            let empty = "nothing waits for you";
            list(&state.inbox, empty, area, pen, |row| {
                question(row, width, now)
            });
        }
        Tab::Calls => {
            heading(
                &[
                    ("AGE", 5),
                    ("WHO", 18),
                    ("TOOK", 8),
                    ("TOOL", 24),
                    ("STATE", 0),
                ],
                area,
                pen,
            );
            let empty = "no calls yet; make one with `palyra exec -- id`";
            list(&state.calls, empty, area, pen, |row| call(row, width, now));
        }
        Tab::Grants => {
            heading(
                &[("LEFT", 8), ("WHO", 18), ("USED", 6), ("ALLOWS", 0)],
                area,
                pen,
            );
            let empty = match state.has_grants {
                true => "no grants; s or t in the inbox gives one",
                false => "this daemon gives no grants",
            };
            list(&state.grants, empty, area, pen, |row| {
                grant(row, width, now)
            });
        }
        Tab::Journal => {
            heading(
                &[("SEQ", 7), ("AGE", 5), ("KIND", 20), ("WHAT", 0)],
                area,
                pen,
            );
            list(&state.journal, "nothing yet", area, pen, |row| {
                entry(row, width, now)
            });
        }
    }
}

fn heading(columns: &[(&str, usize)], area: Rect, pen: &mut Pen<'_, '_>) {
    let mut text = " ".repeat(MARK);
    for (name, width) in columns {
        text.push_str(&fitted(name, (*width).max(name.len())));
        text.push(' ');
    }
    pen.row(area.y, vec![(text, Tone::Dim)]);
}

fn list<T: Listed + Clone>(
    list: &List<T>,
    empty: &str,
    area: Rect,
    pen: &mut Pen<'_, '_>,
    pieces: impl Fn(&Row<T>) -> Vec<Piece>,
) {
    let first = area.y + 1;
    let mut any = false;
    for (y, (row, here)) in (first..area.bottom()).zip(list.on_screen()) {
        any = true;
        let mark = if here { "▸ " } else { "  " };
        let mut all = vec![(mark.to_owned(), Tone::Plain)];
        all.extend(pieces(row));
        match here {
            true => pen.cursor_row(y, all),
            false => pen.row(y, all),
        }
    }
    if !any {
        let text = match list.filter().is_empty() {
            true => empty,
            false => "nothing fits the filter; Esc shows everything",
        };
        pen.row(first, vec![(format!("  {text}"), Tone::Dim)]);
    }
}

/// Cells with their widths; the last one takes the rest.
fn cells(width: usize, cells: Vec<(String, usize, Tone)>, last: Piece) -> Vec<Piece> {
    let used: usize = cells.iter().map(|(_, width, _)| width + 1).sum();
    let mut pieces: Vec<Piece> = cells
        .into_iter()
        .map(|(text, width, tone)| (format!("{} ", fitted(&text, width)), tone))
        .collect();
    pieces.push((fitted(&last.0, width.saturating_sub(used)), last.1));
    pieces
}

fn question(row: &Row<Approval>, width: usize, now: Timestamp) -> Vec<Piece> {
    let question = &row.item;
    let over = row.over || !is_pending(question);
    let (risk, tone) = tell::risk(question);
    let state = match question.state.as_str() {
        "pending" if row.over => "over".to_owned(),
        "pending" => when::left(&question.expires_at, now),
        other => safe::line(other),
    };
    let state_tone = match over {
        true => tell::approval_tone(&question.state),
        false => Tone::Plain,
    };
    let dim = |tone| if over { Tone::Dim } else { tone };
    cells(
        width,
        vec![
            (risk, 9, dim(tone)),
            (safe::line(&question.principal), 18, dim(Tone::Plain)),
            (state, 8, state_tone),
        ],
        (tell::what(question), dim(Tone::Plain)),
    )
}

fn call(row: &Row<CallSummary>, width: usize, now: Timestamp) -> Vec<Piece> {
    let call = &row.item;
    let took = match call.took_ms {
        Some(millis) => when::span(std::time::Duration::from_millis(millis)),
        None if tell::is_over(&call.state) => String::new(),
        None => "…".to_owned(),
    };
    cells(
        width,
        vec![
            (when::age(&call.proposed_at, now), 5, Tone::Dim),
            (safe::line(&call.principal), 18, Tone::Plain),
            (took, 8, Tone::Dim),
            (safe::line(&call.tool), 24, Tone::Plain),
        ],
        (tell::state(call), tell::call_tone(&call.state)),
    )
}

fn grant(row: &Row<Grant>, width: usize, now: Timestamp) -> Vec<Piece> {
    let grant = &row.item;
    let live = grant.state == "live" && !row.over;
    let tone = if live { Tone::Plain } else { Tone::Dim };
    let until = match live {
        true => when::left(&grant.not_after, now),
        false => "ended".to_owned(),
    };
    let sentence = match &grant.sentence {
        Some(sentence) => safe::once(sentence).into_owned(),
        None => format!("{} of {}", grant.cover.as_str(), safe::line(&grant.tool)),
    };
    cells(
        width,
        vec![
            (until, 8, tone),
            (tell::agent(grant), 18, tone),
            (grant.uses.to_string(), 6, Tone::Dim),
        ],
        (sentence, tone),
    )
}

fn entry(row: &Row<Entry>, width: usize, now: Timestamp) -> Vec<Piece> {
    let recorded = &row.item.entry;
    cells(
        width,
        vec![
            (recorded.seq.to_string(), 7, Tone::Dim),
            (when::age(&recorded.at, now), 5, Tone::Dim),
            (
                safe::line(&recorded.kind),
                20,
                tell::entry_tone(&recorded.kind),
            ),
        ],
        (row.item.told.clone(), Tone::Plain),
    )
}
