//! How a question is answered: what stands before a yes, what is asked first, what is sent.

use palyra_api::wire::{Approval, CoverKind, Decide, Decision, Reach as Scope};
use palyra_core::{Span, Timestamp};

use super::dialog::{Dialog, Input, Reach};
use super::keys::Key;
use super::page::Page;
use super::state::{Order, State};
use super::theme::Tone;
use super::{tell, view};

/// What a window lasts unless the person types something else.
const USUAL_LENGTH: &str = "15m";

impl State {
    pub(super) fn allow_once(&mut self, now: Timestamp) -> Vec<Order> {
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

    pub(super) fn ask_reason(&mut self) {
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

    pub(super) fn ask_length(&mut self, now: Timestamp) {
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

    pub(super) fn ask_cover(&mut self, reach: Reach, now: Timestamp) {
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

    /// A key while something is asked.
    pub(super) fn key_in_dialog(
        &mut self,
        mut dialog: Dialog,
        key: Key,
        now: Timestamp,
    ) -> Vec<Order> {
        if key.leaves(true) {
            return self.leave();
        }
        if dialog.input().is_some() {
            return self.key_in_line(dialog, key, now);
        }
        match dialog {
            // Any key closes it.
            Dialog::Help
            | Dialog::Filter { .. }
            | Dialog::Length { .. }
            | Dialog::Passphrase { .. } => Vec::new(),
            Dialog::Reason { id, input, typed } => {
                if key == Key::Letter('d') {
                    return self.send(id, no(input.given()));
                }
                if key != Key::Escape {
                    let typed = typed && key != Key::Letter('e');
                    self.dialog = Some(Dialog::Reason { id, input, typed });
                }
                Vec::new()
            }
            Dialog::Cover {
                id,
                reach,
                at,
                page,
            } => self.key_at_covers((id, reach, at, page), key, now),
        }
    }

    fn key_in_line(&mut self, mut dialog: Dialog, key: Key, now: Timestamp) -> Vec<Order> {
        if let Some(input) = dialog.input() {
            match key {
                Key::Letter(letter) => input.push(letter),
                Key::Backspace => input.pop(),
                Key::Control('u') => input.clear(),
                Key::Control('w') => input.pop_word(),
                Key::Enter => return self.typed_through(dialog, now),
                Key::Escape => return self.left(dialog),
                Key::Control(_)
                | Key::Up
                | Key::Down
                | Key::PageUp
                | Key::PageDown
                | Key::Home
                | Key::End
                | Key::Tab
                | Key::BackTab => {}
            }
        }
        self.dialog = Some(dialog);
        self.filter_as_typed();
        Vec::new()
    }

    fn key_at_covers(
        &mut self,
        (id, reach, at, mut page): (String, Reach, usize, Page),
        key: Key,
        now: Timestamp,
    ) -> Vec<Order> {
        match key {
            Key::Escape => return Vec::new(),
            Key::Letter(letter) if letter == reach.letter() => {
                return self.grant(&id, reach, at, now);
            }
            Key::Letter('j') | Key::Down => {
                let last = self.question().map_or(0, |it| it.covers.len());
                let at = (at + 1).min(last.saturating_sub(1));
                self.show_cover(id, reach, at, now);
                return Vec::new();
            }
            Key::Letter('k') | Key::Up => {
                self.show_cover(id, reach, at.saturating_sub(1), now);
                return Vec::new();
            }
            Key::Letter(' ') | Key::Control('d') | Key::PageDown => page.turn(true),
            Key::Letter('b') | Key::Control('u') | Key::PageUp => page.turn(false),
            Key::Enter => {
                let letter = reach.letter();
                let text = format!("Enter decides nothing: {letter} allows this");
                self.say(&text, Tone::Dim);
            }
            Key::Letter(_)
            | Key::Control(_)
            | Key::Backspace
            | Key::Home
            | Key::End
            | Key::Tab
            | Key::BackTab => {}
        }
        self.dialog = Some(Dialog::Cover {
            id,
            reach,
            at,
            page,
        });
        Vec::new()
    }

    fn grant(&mut self, id: &str, reach: Reach, at: usize, now: Timestamp) -> Vec<Order> {
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
        self.send(id.to_owned(), answer)
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
            // The letter decided before; this only says that it was the person.
            Dialog::Passphrase {
                id,
                answer,
                mut input,
            } => {
                self.sending = Some(id.clone());
                return vec![Order::Prove(id, answer, input.take())];
            }
            Dialog::Filter { .. } | Dialog::Help | Dialog::Cover { .. } => {}
        }
        Vec::new()
    }

    /// Escape while a line was typed.
    fn left(&mut self, dialog: Dialog) -> Vec<Order> {
        if let Dialog::Filter { before, .. } = dialog {
            self.set_filter(&before);
        } else if let Dialog::Passphrase { .. } = dialog {
            self.say("nothing was answered", Tone::Care);
        }
        Vec::new()
    }

    /// Pasted text is never keys: it could hold the letter that allows.
    pub(super) fn pasted(&mut self, text: &str) {
        if let Some(input) = self.dialog.as_mut().and_then(Dialog::input) {
            input.paste(text);
            self.filter_as_typed();
        }
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
