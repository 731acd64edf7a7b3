//! What happens, and what follows from it. Pure: the time comes in, orders go out.
//!
//! What answers a question is in `answering`.

use palyra_api::wire::{Approval, JournalEntry};
use palyra_core::Timestamp;
use ratatui::crossterm::event::Event;

use super::dialog::{Dialog, Input, Reach};
use super::keys::Key;
use super::page::Page;
use super::seen::Entry;
use super::state::{Detail, ENTRIES, Link, Notice, Order, Said, State, Tab};
use super::theme::Tone;
use super::{tell, view};
use crate::safe;

impl State {
    /// Something happened at the terminal.
    pub fn typed(&mut self, event: &Event, now: Timestamp) -> Vec<Order> {
        let key = Key::of(event);
        if view::too_small(self.size) && !matches!(event, Event::Resize(..)) {
            // Nothing is shown, so nothing else can be meant.
            let leaves = key.is_some_and(|key| key.leaves(false));
            return leaves.then_some(Order::Quit).into_iter().collect();
        }
        let in_sight = self.questions_in_sight();
        let mut orders = Vec::new();
        match (event, key) {
            (_, Some(key)) => {
                self.notice = None;
                orders = match self.dialog.take() {
                    Some(dialog) => self.key_in_dialog(dialog, key, now),
                    None => self.key(key, now),
                };
                // What came meanwhile is drawn once the key has done what it was pressed for.
                if self.dialog.is_none() {
                    self.settle();
                }
            }
            (Event::Paste(text), None) => self.pasted(text),
            (Event::Resize(columns, lines), None) => self.resize(*columns, *lines),
            (Event::Key(_) | Event::Mouse(_) | Event::FocusGained | Event::FocusLost, None) => {}
        }
        // What a key brought into sight was not what it was pressed for.
        let cursor = self.cursor();
        let chosen = cursor.is_some_and(|id| in_sight.iter().any(|seen| seen == id));
        orders.extend(self.follow_cursor(chosen, now));
        orders
    }

    fn questions_in_sight(&self) -> Vec<String> {
        let rows = self.inbox.on_screen().filter(|_| self.tab == Tab::Inbox);
        rows.map(|(row, _)| row.item.approval_id.clone()).collect()
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
                (self.sending, self.leaving) = (None, false);
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
            Said::Decided(question) => {
                self.decided(*question);
                orders.extend(self.leaving.then_some(Order::Quit));
            }
            Said::AsksPassphrase { id, answer, wrong } => {
                (self.sending, self.leaving) = (None, false);
                let input = Input::default();
                self.dialog = Some(Dialog::Passphrase { id, answer, input });
                if let Some(why) = wrong {
                    self.say(&why, Tone::Bad);
                }
            }
            Said::NotDecided { id, why } => {
                if self.sending.as_ref() == Some(&id) {
                    (self.sending, self.leaving) = (None, false);
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

    /// Leaves; an answer that is on its way arrives first, unless the person insists.
    pub(super) fn leave(&mut self) -> Vec<Order> {
        if self.sending.is_none() || self.leaving {
            return vec![Order::Quit];
        }
        self.leaving = true;
        self.say(
            "the answer is on its way; q again leaves without it",
            Tone::Care,
        );
        Vec::new()
    }

    pub(super) fn say(&mut self, text: &str, tone: Tone) {
        self.notice = Some(Notice {
            text: safe::once(text).into_owned(),
            tone,
        });
    }

    fn key(&mut self, key: Key, now: Timestamp) -> Vec<Order> {
        match key {
            key if key.leaves(false) => return self.leave(),
            Key::Letter('?') => self.dialog = Some(Dialog::Help),
            Key::Letter('j') | Key::Down => self.step(1),
            Key::Letter('k') | Key::Up => self.step(-1),
            Key::Letter('g') => self.step(isize::MIN / 2),
            Key::Letter('G') => self.step(isize::MAX / 2),
            Key::Letter(' ') | Key::Control('d') | Key::PageDown => self.page.turn(true),
            Key::Letter('b') | Key::Control('u') | Key::PageUp => self.page.turn(false),
            Key::Home => self.page.scroll(isize::MIN / 2),
            Key::End => self.page.scroll(isize::MAX / 2),
            Key::Letter('1') => self.tab = Tab::Inbox,
            Key::Letter('2') => self.tab = Tab::Calls,
            Key::Letter('3') => self.tab = Tab::Grants,
            Key::Letter('4') => self.tab = Tab::Journal,
            Key::Tab => self.tab = self.tab.further(1),
            Key::BackTab => self.tab = self.tab.further(3),
            Key::Escape if !self.filter().is_empty() => self.set_filter(""),
            Key::Escape => self.let_go(),
            Key::Letter('/') => {
                let before = self.filter().to_owned();
                let input = Input::holding(&before);
                self.dialog = Some(Dialog::Filter { input, before });
            }
            Key::Letter('a') => return self.allow_once(now),
            Key::Letter('s') => self.ask_cover(Reach::Session, now),
            Key::Letter('t') => self.ask_length(now),
            Key::Letter('d') => self.ask_reason(),
            Key::Enter => self.say(
                "Enter decides nothing: a allows once, d denies, ? shows all keys",
                Tone::Dim,
            ),
            Key::Letter(_) | Key::Control(_) | Key::Backspace => {}
        }
        Vec::new()
    }
}
