//! What happens, and what follows from it. Pure: the time comes in, orders go out.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use palyra_api::wire::{Approval, CoverKind, Decide, Decision, JournalEntry, Reach as Scope};
use palyra_core::{Span, Timestamp};
use ratatui::crossterm;

use super::dialog::{Dialog, Input, Reach};
use super::page::Page;
use super::seen::Entry;
use super::state::{Detail, ENTRIES, Link, Notice, Order, Said, State, Tab};
use super::theme::Tone;
use super::{tell, view};
use crate::safe;

/// What a window lasts unless the person types something else.
const USUAL_LENGTH: &str = "15m";

impl State {
    /// Something happened at the terminal.
    pub fn typed(&mut self, event: &Event, now: Timestamp) -> Vec<Order> {
        let mut orders = Vec::new();
        if view::too_small(self.size) && !matches!(event, Event::Resize(..)) {
            return leaves(event).then_some(Order::Quit).into_iter().collect();
        }
        let in_sight: Vec<String> = match self.tab {
            Tab::Inbox => self
                .inbox
                .on_screen()
                .map(|(row, _)| row.item.approval_id.clone())
                .collect(),
            Tab::Calls | Tab::Grants | Tab::Journal => Vec::new(),
        };
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.notice = None;
                orders = match self.dialog.take() {
                    Some(dialog) => self.key_in_dialog(dialog, *key, now),
                    None => self.key(*key, now),
                };
                // What came meanwhile is drawn once the key has done what it was pressed for.
                if self.dialog.is_none() {
                    self.settle();
                }
            }
            // Pasted text is never keys: it could hold the letter that allows.
            Event::Paste(text) => {
                if let Some(input) = self.dialog.as_mut().and_then(Dialog::input) {
                    input.paste(text);
                    self.filter_as_typed();
                }
            }
            Event::Resize(columns, lines) => self.resize(*columns, *lines),
            Event::Key(_) | Event::Mouse(_) | Event::FocusGained | Event::FocusLost => {}
        }
        // What a key brought into sight was not what it was pressed for.
        let chosen = self
            .cursor()
            .is_some_and(|id| in_sight.iter().any(|seen| seen == id));
        orders.extend(self.follow_cursor(chosen, now));
        orders
    }

    /// The daemon's side told something.
    pub fn told(&mut self, said: Said, now: Timestamp) -> Vec<Order> {
        let mut orders = Vec::new();
        match said {
            Said::Open(status) => {
                if let Link::Lost { .. } = self.link {
                    self.say("connected again", Tone::Good);
                    // It may have changed while nobody told.
                    orders.extend(self.look_again());
                }
                self.link = Link::Open;
                self.status = Some(status);
            }
            Said::Lost(why) => {
                if !matches!(self.link, Link::Lost { .. }) {
                    let why = safe::once(&why).into_owned();
                    self.link = Link::Lost { since: now, why };
                }
                self.sending = None;
            }
            Said::Inbox(questions) => self.inbox.take(questions),
            Said::Calls(calls) => self.calls.take(calls),
            Said::Grants(grants) => {
                self.has_grants = grants.is_some();
                self.grants.take(grants.unwrap_or_default());
            }
            Said::Entries(entries) => orders.extend(self.happened(entries)),
            Said::Found(detail) => self.found(detail),
            Said::NotFound { tab, id, why } => {
                if self.of.as_ref() == Some(&(tab, id)) {
                    self.say(&why, Tone::Bad);
                }
            }
            Said::Decided(question) => self.decided(*question),
            Said::NotDecided { id, why } => {
                if self.sending.as_ref() == Some(&id) {
                    self.sending = None;
                }
                self.say(&why, Tone::Bad);
                orders.push(Order::Look(Tab::Inbox, id));
            }
        }
        orders.extend(self.follow_cursor(false, now));
        self.close_what_is_over();
        self.turn_to(now);
        orders
    }

    /// Time went by.
    pub fn ticked(&mut self, now: Timestamp) {
        self.turn_to(now);
    }

    /// New entries: the journal grows, and what is on the page may have changed.
    fn happened(&mut self, entries: Vec<JournalEntry>) -> Vec<Order> {
        let about = |id: &str| entries.iter().any(|entry| entry.stream == id);
        let changed = match &self.of {
            Some((tab, id)) => match tab {
                Tab::Calls | Tab::Inbox => about(id),
                Tab::Grants => true,
                Tab::Journal => false,
            },
            None => false,
        };
        let newest = entries.into_iter().rev().map(Entry::from);
        let all: Vec<Entry> = newest
            .chain(self.journal.latest().iter().cloned())
            .take(ENTRIES)
            .collect();
        self.journal.take(all);
        match changed {
            true => self.look_again(),
            false => Vec::new(),
        }
    }

    fn look_again(&self) -> Vec<Order> {
        let looked_up = self.of.iter().filter(|(tab, _)| *tab != Tab::Journal);
        looked_up
            .map(|(tab, id)| Order::Look(*tab, id.clone()))
            .collect()
    }

    fn found(&mut self, detail: Detail) {
        let of = match &detail {
            Detail::Question(question) => {
                self.inbox.replace(question);
                (Tab::Inbox, question.approval_id.clone())
            }
            Detail::Call(call) => (Tab::Calls, call.summary.call_id.clone()),
            Detail::Grant(grant) => (Tab::Grants, grant.grant_id.clone()),
        };
        // An answer to an older wish is not what the person looks at.
        if self.of == Some(of) {
            self.detail = Some(detail);
        }
    }

    fn decided(&mut self, question: Approval) {
        if self.sending.as_ref() == Some(&question.approval_id) {
            self.sending = None;
        }
        let tone = tell::approval_tone(&question.state);
        let (state, what) = (safe::line(&question.state), tell::what(&question));
        self.say(&format!("{state}: {what}"), tone);
        self.inbox.replace(&question);
        if let Some(Detail::Question(shown)) = &mut self.detail
            && shown.approval_id == question.approval_id
        {
            shown.state = question.state;
            shown.decided_by = question.decided_by;
            shown.decided_at = question.decided_at;
            shown.reason = question.reason;
            shown.grant_id = question.grant_id;
        }
    }

    /// A dialog about something that somebody else decided, or that expired, has nothing to ask.
    fn close_what_is_over(&mut self) {
        let about = self.dialog.as_ref().and_then(Dialog::about);
        if about.is_some() && self.link == Link::Open && self.answerable().is_err() {
            self.dialog = None;
            self.say(
                "it is over: somebody else answered, or it ended",
                Tone::Care,
            );
        }
    }

    /// Turns the page when the cursor is on something else.
    fn follow_cursor(&mut self, chosen: bool, now: Timestamp) -> Option<Order> {
        let of = self.cursor().map(|id| (self.tab, id.to_owned()));
        if of == self.of {
            return None;
        }
        let area = view::areas(self.size).page;
        self.page = Page::sized(area.width.into(), area.height.into());
        self.detail = None;
        self.chosen = chosen;
        self.of = of;
        self.turn_to(now);
        let (tab, id) = self.of.clone()?;
        (tab != Tab::Journal).then_some(Order::Look(tab, id))
    }

    fn say(&mut self, text: &str, tone: Tone) {
        self.notice = Some(Notice {
            text: safe::once(text).into_owned(),
            tone,
        });
    }

    fn key(&mut self, key: KeyEvent, now: Timestamp) -> Vec<Order> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return vec![Order::Quit],
            KeyCode::Char('d') if control => self.page.turn(true),
            KeyCode::Char('u') if control => self.page.turn(false),
            KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => {}
            KeyCode::Char('q') => return vec![Order::Quit],
            KeyCode::Char('?') => self.dialog = Some(Dialog::Help),
            KeyCode::Char('j') | KeyCode::Down => self.step(1),
            KeyCode::Char('k') | KeyCode::Up => self.step(-1),
            KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::Char('G') => self.step(isize::MAX / 2),
            KeyCode::Char(' ') | KeyCode::PageDown => self.page.turn(true),
            KeyCode::Char('b') | KeyCode::PageUp => self.page.turn(false),
            KeyCode::Home => self.page.scroll(isize::MIN / 2),
            KeyCode::End => self.page.scroll(isize::MAX / 2),
            KeyCode::Char('1') => self.tab = Tab::Inbox,
            KeyCode::Char('2') => self.tab = Tab::Calls,
            KeyCode::Char('3') => self.tab = Tab::Grants,
            KeyCode::Char('4') => self.tab = Tab::Journal,
            KeyCode::Tab => self.tab = self.tab.further(1),
            KeyCode::BackTab => self.tab = self.tab.further(3),
            KeyCode::Esc if !self.filter().is_empty() => self.set_filter(""),
            KeyCode::Esc => self.let_go(),
            KeyCode::Char('/') => {
                let before = self.filter().to_owned();
                let input = Input::holding(&before);
                self.dialog = Some(Dialog::Filter { input, before });
            }
            KeyCode::Char('a') => return self.allow_once(now),
            KeyCode::Char('s') => self.ask_cover(Reach::Session, now),
            KeyCode::Char('t') => self.ask_length(now),
            KeyCode::Char('d') => self.ask_reason(),
            KeyCode::Enter => self.say(
                "Enter decides nothing: a allows once, d denies, ? shows all keys",
                Tone::Dim,
            ),
            _ => {}
        }
        Vec::new()
    }

    fn allow_once(&mut self, now: Timestamp) -> Vec<Order> {
        match self.allowable(now) {
            Ok(question) => {
                let answer = yes(question);
                let id = question.approval_id.clone();
                self.send(id, answer)
            }
            Err(why) => {
                self.say(&why, Tone::Care);
                Vec::new()
            }
        }
    }

    fn send(&mut self, id: String, answer: Decide) -> Vec<Order> {
        self.sending = Some(id.clone());
        vec![Order::Decide(id, answer)]
    }

    fn ask_reason(&mut self) {
        match self.answerable() {
            Ok(question) => {
                self.dialog = Some(Dialog::Reason {
                    id: question.approval_id.clone(),
                    input: Input::default(),
                    typed: false,
                });
            }
            Err(why) => self.say(&why, Tone::Care),
        }
    }

    fn ask_length(&mut self, now: Timestamp) {
        match self.grantable(now) {
            Ok(id) => {
                self.dialog = Some(Dialog::Length {
                    id,
                    input: Input::holding(USUAL_LENGTH),
                    wrong: None,
                });
            }
            Err(why) => self.say(&why, Tone::Care),
        }
    }

    fn ask_cover(&mut self, reach: Reach, now: Timestamp) {
        match self.grantable(now) {
            Ok(id) => {
                let narrowest = self.question().map_or(0, |question| {
                    let exact = question
                        .covers
                        .iter()
                        .position(|it| it.cover == CoverKind::Exact);
                    exact.unwrap_or(0)
                });
                self.show_cover(id, reach, narrowest, now);
            }
            Err(why) => self.say(&why, Tone::Care),
        }
    }

    fn grantable(&self, now: Timestamp) -> Result<String, String> {
        let question = self.allowable(now)?;
        match question.covers.is_empty() {
            true => Err("nothing wider is offered for this call: a allows it once".to_owned()),
            false => Ok(question.approval_id.clone()),
        }
    }

    fn show_cover(&mut self, id: String, reach: Reach, at: usize, now: Timestamp) {
        let Some(cover) = self.question().and_then(|it| it.covers.get(at)) else {
            return;
        };
        let area = view::areas(self.size).page;
        let lines = view::cover_lines(area.height);
        let mut page = Page::sized(area.width.into(), lines.into());
        page.show(tell::cover(cover), now);
        self.dialog = Some(Dialog::Cover {
            id,
            reach,
            at,
            page,
        });
    }

    fn key_in_dialog(&mut self, mut dialog: Dialog, key: KeyEvent, now: Timestamp) -> Vec<Order> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return vec![Order::Quit];
        }
        if let Some(input) = dialog.input() {
            match key.code {
                KeyCode::Backspace => input.pop(),
                KeyCode::Char('u') if control => input.clear(),
                KeyCode::Char('w') if control => input.pop_word(),
                KeyCode::Char(letter) if !control => input.push(letter),
                KeyCode::Enter => return self.typed_through(dialog, now),
                KeyCode::Esc => return self.left(dialog),
                _ => {}
            }
            self.dialog = Some(dialog);
            self.filter_as_typed();
            return Vec::new();
        }
        match dialog {
            // Any key closes it.
            Dialog::Help => {}
            Dialog::Reason { id, input, typed } => match key.code {
                KeyCode::Char('d') if typed => {
                    let answer = no(input.given());
                    return self.send(id, answer);
                }
                KeyCode::Esc => {}
                KeyCode::Char('e') => {
                    let typed = false;
                    self.dialog = Some(Dialog::Reason { id, input, typed });
                }
                _ => self.dialog = Some(Dialog::Reason { id, input, typed }),
            },
            Dialog::Cover {
                id,
                reach,
                at,
                mut page,
            } => match key.code {
                KeyCode::Esc => {}
                KeyCode::Char('j') | KeyCode::Down => {
                    let last = self.question().map_or(0, |it| it.covers.len());
                    let at = (at + 1).min(last.saturating_sub(1));
                    self.show_cover(id, reach, at, now);
                }
                KeyCode::Char('k') | KeyCode::Up => {
                    self.show_cover(id, reach, at.saturating_sub(1), now);
                }
                KeyCode::Char(letter) if letter == reach.letter() => {
                    return self.grant(id, reach, at, now);
                }
                other => {
                    match other {
                        KeyCode::Char(' ') | KeyCode::PageDown => page.turn(true),
                        KeyCode::Char('b') | KeyCode::PageUp => page.turn(false),
                        KeyCode::Enter => {
                            let letter = reach.letter();
                            self.say(
                                &format!("Enter decides nothing: {letter} allows this"),
                                Tone::Dim,
                            );
                        }
                        _ => {}
                    }
                    self.dialog = Some(Dialog::Cover {
                        id,
                        reach,
                        at,
                        page,
                    });
                }
            },
            Dialog::Filter { .. } | Dialog::Length { .. } => {}
        }
        Vec::new()
    }

    fn grant(&mut self, id: String, reach: Reach, at: usize, now: Timestamp) -> Vec<Order> {
        let question = match self.allowable(now) {
            Ok(question) => question,
            Err(why) => {
                self.say(&why, Tone::Care);
                return Vec::new();
            }
        };
        let Some(cover) = question
            .covers
            .get(at)
            .filter(|_| question.approval_id == id)
        else {
            return Vec::new();
        };
        let (scope, lasts_ms) = match reach {
            Reach::Session => (Scope::Session, None),
            Reach::Window(Span(lasts)) => (Scope::Window, u64::try_from(lasts.as_millis()).ok()),
        };
        let answer = Decide {
            scope,
            cover: Some(cover.cover),
            lasts_ms,
            ..yes(question)
        };
        self.send(id, answer)
    }

    /// Enter after a line was typed: one step further, and never an answer.
    fn typed_through(&mut self, dialog: Dialog, now: Timestamp) -> Vec<Order> {
        match dialog {
            Dialog::Reason { id, input, .. } => {
                let typed = true;
                self.dialog = Some(Dialog::Reason { id, input, typed });
            }
            Dialog::Length { id, input, .. } => match input.text().trim().parse::<Span>() {
                Ok(span) => self.ask_cover(Reach::Window(span), now),
                Err(wrong) => {
                    let wrong = Some(wrong.to_string());
                    self.dialog = Some(Dialog::Length { id, input, wrong });
                }
            },
            Dialog::Filter { .. } | Dialog::Help | Dialog::Cover { .. } => {}
        }
        Vec::new()
    }

    /// Escape while a line was typed.
    fn left(&mut self, dialog: Dialog) -> Vec<Order> {
        if let Dialog::Filter { before, .. } = dialog {
            self.set_filter(&before);
        }
        Vec::new()
    }

    fn filter_as_typed(&mut self) {
        if let Some(Dialog::Filter { input, .. }) = &self.dialog {
            let text = input.text().to_owned();
            self.set_filter(&text);
        }
    }
}

/// Yes to exactly what was shown, once.
fn yes(question: &Approval) -> Decide {
    Decide {
        decision: Decision::Allow,
        shown: question.shown_code.clone(),
        ..no(None)
    }
}

fn no(reason: Option<String>) -> Decide {
    Decide {
        decision: Decision::Deny,
        reason,
        scope: Scope::Once,
        cover: None,
        lasts_ms: None,
        shown: None,
    }
}

/// Whether this leaves a screen on which nothing can be shown, and so nothing else can be meant.
fn leaves(event: &Event) -> bool {
    let Event::Key(key) = event else {
        return false;
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.code == KeyCode::Char('q') || control && key.code == KeyCode::Char('c')
}
