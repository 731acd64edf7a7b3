//! What the screen knows: the four lists, the page below, what is asked, how the daemon is.
//!
//! Nothing here draws, waits or speaks to anybody; [`super::update`] changes it and [`super::view`]
//! draws it.

use std::time::Duration;

use palyra_api::wire::{Approval, CallDetail, CallSummary, Decide, Grant, JournalEntry, Status};
use palyra_core::Timestamp;

use super::dialog::{Dialog, Typed};
use super::list::List;
use super::page::Page;
use super::seen::{Entry, Risk, is_pending};
use super::tell;
use super::theme::Tone;
use super::view;

/// How long a question has to be on the screen before it can be allowed, when the risk is high or it
/// came under the cursor by itself.
pub const ARMING: Duration = Duration::from_millis(1_000);

/// How many entries of the journal are kept.
pub const ENTRIES: usize = 1_000;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    /// What waits.
    Inbox,
    /// What was asked for, and how it came out.
    Calls,
    /// What is allowed without a question.
    Grants,
    /// Everything, in order.
    Journal,
}

impl Tab {
    /// In the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Inbox, Self::Calls, Self::Grants, Self::Journal];

    /// The one so many further, around the end.
    #[must_use]
    pub fn further(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        let mut around = Self::ALL.iter().cycle();
        around.nth(at + by).copied().unwrap_or(self)
    }
}

/// How the daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Not heard of yet.
    Opening,
    /// It answers.
    Open,
    /// It does not, since then.
    Lost {
        /// Since when.
        since: Timestamp,
        /// Why, safe to print.
        why: String,
    },
}

/// One thing in full.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// Of the inbox.
    Question(Box<Approval>),
    /// Of the calls.
    Call(Box<CallDetail>),
    /// Of the grants.
    Grant(Box<Grant>),
}

/// A sentence for the person, until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Safe to print.
    pub text: String,
    /// What it means.
    pub tone: Tone,
}

/// What the daemon's side tells.
#[derive(Debug, Clone)]
pub enum Said {
    /// It answers.
    Open(Box<Status>),
    /// It does not.
    Lost(String),
    /// What waits, in its order.
    Inbox(Vec<Approval>),
    /// The newest calls.
    Calls(Vec<CallSummary>),
    /// The grants; none when this daemon knows nothing of such.
    Grants(Option<Vec<Grant>>),
    /// New entries, the oldest first.
    Entries(Vec<JournalEntry>),
    /// What was looked for.
    Found(Detail),
    /// What was looked for cannot be shown.
    NotFound {
        /// Where.
        tab: Tab,
        /// What.
        id: String,
        /// Why, safe to print.
        why: String,
    },
    /// An answer was taken.
    Decided(Box<Approval>),
    /// Before this answer is taken, a person has to say that they are there.
    AsksPassphrase {
        /// To what.
        id: String,
        /// Which answer.
        answer: Box<Decide>,
        /// What was wrong with the last passphrase, safe to print.
        wrong: Option<String>,
    },
    /// An answer was not taken.
    NotDecided {
        /// To what.
        id: String,
        /// Why, and what to do, safe to print.
        why: String,
    },
}

/// What the daemon's side is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Look this up in full.
    Look(Tab, String),
    /// Send this answer.
    Decide(String, Decide),
    /// Send it with the passphrase that was typed.
    Prove(String, Box<Decide>, Typed),
    /// Leave.
    Quit,
}

/// What the screen knows.
pub struct State {
    /// Which list is in front.
    pub tab: Tab,
    /// Columns and lines of the terminal.
    pub size: (u16, u16),
    /// What waits.
    pub inbox: List<Approval>,
    /// What was asked for.
    pub calls: List<CallSummary>,
    /// What is allowed.
    pub grants: List<Grant>,
    /// Whether the daemon knows grants at all.
    pub has_grants: bool,
    /// What happened.
    pub journal: List<Entry>,
    /// How the daemon is.
    pub link: Link,
    /// What it says of itself.
    pub status: Option<Box<Status>>,
    /// What is being asked.
    pub dialog: Option<Dialog>,
    /// A sentence for the person.
    pub notice: Option<Notice>,
    /// One thing in full.
    pub page: Page,
    /// Which one.
    pub of: Option<(Tab, String)>,
    /// The same, as it was found.
    pub detail: Option<Detail>,
    /// Whether the person chose it, and it did not come under the cursor by itself.
    pub chosen: bool,
    /// The approval whose answer is on its way.
    pub sending: Option<String>,
    /// Whether the person leaves as soon as it arrived.
    pub leaving: bool,
}

impl State {
    /// Before anything was heard.
    #[must_use]
    pub fn new(columns: u16, lines: u16) -> Self {
        let mut state = Self {
            tab: Tab::Inbox,
            size: (columns, lines),
            inbox: List::pointed(),
            calls: List::running(),
            grants: List::pointed(),
            has_grants: true,
            journal: List::running(),
            link: Link::Opening,
            status: None,
            dialog: None,
            notice: None,
            page: Page::default(),
            of: None,
            detail: None,
            chosen: false,
            sending: None,
            leaving: false,
        };
        state.resize(columns, lines);
        state
    }

    /// The terminal has this size now.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.size = (columns, lines);
        let areas = view::areas(self.size);
        let rows = usize::from(areas.list.height.saturating_sub(1));
        self.inbox.set_height(rows);
        self.calls.set_height(rows);
        self.grants.set_height(rows);
        self.journal.set_height(rows);
        let (width, height) = (areas.page.width, areas.page.height);
        self.page.resize(width.into(), height.into());
        if let Some(Dialog::Cover { page, .. }) = &mut self.dialog {
            page.resize(width.into(), view::cover_lines(height).into());
        }
    }

    /// What the cursor of the list in front is on.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match self.tab {
            Tab::Inbox => self.inbox.cursor(),
            Tab::Calls => self.calls.cursor(),
            Tab::Grants => self.grants.cursor(),
            Tab::Journal => self.journal.cursor(),
        }
    }

    /// Moves the cursor of the list in front.
    pub fn step(&mut self, by: isize) {
        match self.tab {
            Tab::Inbox => self.inbox.step(by),
            Tab::Calls => self.calls.step(by),
            Tab::Grants => self.grants.step(by),
            Tab::Journal => self.journal.step(by),
        }
    }

    /// A key was pressed: news may be drawn.
    pub fn settle(&mut self) {
        match self.tab {
            Tab::Inbox => self.inbox.settle(),
            Tab::Calls => self.calls.settle(),
            Tab::Grants => self.grants.settle(),
            Tab::Journal => self.journal.settle(),
        }
    }

    /// The list in front runs along again, if it is one that does.
    pub fn let_go(&mut self) {
        match self.tab {
            Tab::Inbox => self.inbox.let_go(),
            Tab::Calls => self.calls.let_go(),
            Tab::Grants => self.grants.let_go(),
            Tab::Journal => self.journal.let_go(),
        }
    }

    /// What the list in front is filtered by.
    #[must_use]
    pub fn filter(&self) -> &str {
        match self.tab {
            Tab::Inbox => self.inbox.filter(),
            Tab::Calls => self.calls.filter(),
            Tab::Grants => self.grants.filter(),
            Tab::Journal => self.journal.filter(),
        }
    }

    /// Filters the list in front.
    pub fn set_filter(&mut self, filter: &str) {
        match self.tab {
            Tab::Inbox => self.inbox.set_filter(filter),
            Tab::Calls => self.calls.set_filter(filter),
            Tab::Grants => self.grants.set_filter(filter),
            Tab::Journal => self.journal.set_filter(filter),
        }
    }

    /// How many the list in front holds back.
    #[must_use]
    pub fn news(&self) -> usize {
        match self.tab {
            Tab::Inbox => self.inbox.news(),
            Tab::Calls => self.calls.news(),
            Tab::Grants => self.grants.news(),
            Tab::Journal => self.journal.news(),
        }
    }

    /// Which row of how many the cursor is on, when not all of them are on the screen.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        let (at, of) = match self.tab {
            Tab::Inbox => self.inbox.at(),
            Tab::Calls => self.calls.at(),
            Tab::Grants => self.grants.at(),
            Tab::Journal => self.journal.at(),
        };
        let rows = usize::from(view::areas(self.size).list.height).saturating_sub(1);
        at.filter(|_| of > rows).map(|at| (at + 1, of))
    }

    /// The question on the page, once all of it is there.
    #[must_use]
    pub fn question(&self) -> Option<&Approval> {
        match &self.detail {
            Some(Detail::Question(question)) if self.tab == Tab::Inbox => Some(question),
            Some(Detail::Question(_) | Detail::Call(_) | Detail::Grant(_)) | None => None,
        }
    }

    /// How long until the question on the page can be allowed; nothing left when it can.
    #[must_use]
    pub fn arming(&self, now: Timestamp) -> Duration {
        let Some((question, since)) = self.question().zip(self.page.since()) else {
            return ARMING;
        };
        if Risk::of(&question.risk) < Risk::High && self.chosen {
            return Duration::ZERO;
        }
        ARMING.saturating_sub(now.since(since))
    }

    /// The question that can be answered now.
    ///
    /// # Errors
    /// Why none can, for a person.
    pub fn answerable(&self) -> Result<&Approval, String> {
        if self.tab != Tab::Inbox {
            return Err("only the inbox has questions: press 1".to_owned());
        }
        match &self.link {
            Link::Open => {}
            Link::Opening | Link::Lost { .. } => return Err("the daemon is not there".to_owned()),
        }
        let Some(row) = self.inbox.under_cursor() else {
            return Err("nothing waits for you".to_owned());
        };
        if self.sending.as_ref() == Some(&row.item.approval_id) {
            return Err("the answer is on its way".to_owned());
        }
        let question = self.question().ok_or("it is still being looked up")?;
        let same = question.approval_id == row.item.approval_id;
        if row.over || !same || !is_pending(question) || !is_pending(&row.item) {
            return Err("it is over already".to_owned());
        }
        Ok(question)
    }

    /// The question that can be allowed now: on the screen for long enough, and read to its end.
    ///
    /// # Errors
    /// Why none can, for a person.
    pub fn allowable(&self, now: Timestamp) -> Result<&Approval, String> {
        let question = self.answerable()?;
        if !self.arming(now).is_zero() {
            return Err("look first: not armed yet".to_owned());
        }
        match self.page.unread() {
            0 => Ok(question),
            1 => Err("read it to its end first: 1 more line (space)".to_owned()),
            lines => Err(format!(
                "read it to its end first: {lines} more lines (space)"
            )),
        }
    }

    /// Puts what is known of the thing under the cursor on the page.
    pub fn turn_to(&mut self, now: Timestamp) {
        let body = match (self.tab, &self.detail) {
            (_, Some(Detail::Question(question))) => tell::question(question, now),
            (_, Some(Detail::Call(call))) => tell::call(call, now),
            (_, Some(Detail::Grant(grant))) => tell::grant(grant, now),
            (Tab::Journal, None) => match self.journal.under_cursor() {
                Some(row) => tell::entry(&row.item, now),
                None => return,
            },
            (Tab::Grants, None) => match self.grants.under_cursor() {
                Some(row) => tell::grant(&row.item, now),
                None => return,
            },
            (Tab::Inbox | Tab::Calls, None) => return,
        };
        self.page.show(body, now);
    }
}
