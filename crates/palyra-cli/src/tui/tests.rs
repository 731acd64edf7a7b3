//! The screen without a terminal: what keys and news do to what it knows, and how that is drawn.

mod deciding;
mod drawn;
mod link;

use palyra_api::wire::{Approval, Cover, CoverKind, SeenBefore, Status};
use palyra_core::Timestamp;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::state::{ARMING, Detail, Order, Said, State};

/// A screen, and a clock that only the test moves.
pub(crate) struct Desk {
    pub(crate) state: State,
    pub(crate) now: Timestamp,
}

impl Desk {
    /// A terminal of 80 columns and 24 lines, in front of a daemon that answers.
    pub(crate) fn new() -> Self {
        Self::sized(80, 24)
    }

    pub(crate) fn sized(columns: u16, lines: u16) -> Self {
        let mut desk = Self {
            state: State::new(columns, lines),
            now: "2026-11-15T09:04:00Z".parse().unwrap(),
        };
        desk.told(Said::Open(Box::new(status())));
        desk
    }

    pub(crate) fn told(&mut self, said: Said) -> Vec<Order> {
        self.state.told(said, self.now)
    }

    /// These wait, and the one under the cursor was looked up.
    pub(crate) fn waiting(&mut self, questions: &[Approval]) {
        self.told(Said::Inbox(questions.to_vec()));
        self.look(questions);
    }

    /// The daemon answers what the page asks for.
    pub(crate) fn look(&mut self, questions: &[Approval]) {
        let cursor = self.state.cursor().map(str::to_owned);
        let found = questions
            .iter()
            .find(|it| Some(&it.approval_id) == cursor.as_ref());
        if let Some(found) = found {
            self.told(Said::Found(Detail::Question(Box::new(found.clone()))));
        }
    }

    pub(crate) fn key(&mut self, code: KeyCode) -> Vec<Order> {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        self.state.typed(&Event::Key(key), self.now)
    }

    /// Types letters; gives what was ordered, looks left out.
    pub(crate) fn types(&mut self, letters: &str) -> Vec<Order> {
        let orders = letters.chars().flat_map(|it| self.key(KeyCode::Char(it)));
        let orders: Vec<Order> = orders.collect();
        orders
            .into_iter()
            .filter(|order| !matches!(order, Order::Look(..)))
            .collect()
    }

    /// Long enough to be armed.
    pub(crate) fn wait(&mut self) {
        self.now = self.now.plus(ARMING);
        self.state.ticked(self.now);
    }

    pub(crate) fn notice(&self) -> &str {
        self.state.notice.as_ref().map_or("", |it| it.text.as_str())
    }
}

pub(crate) fn status() -> Status {
    serde_json::from_value(serde_json::json!({
        "version": "0.1.0", "pid": 1, "started_at": "2026-11-15T08:00:00Z",
        "principal": "user:owner", "presence": "off", "policy_version": "v", "baseline": "standard",
        "running_calls": 1, "pending_approvals": 0, "journal_head": 7, "journal_state": "writable",
        "sandbox": {}, "interrupted_at_start": [], "warnings": []
    }))
    .unwrap()
}

/// A question about `git commit`, with three covers.
pub(crate) fn question(id: &str, risk: &str) -> Approval {
    let approval: Approval = serde_json::from_value(serde_json::json!({
        "approval_id": id, "state": "pending", "call_id": format!("call_of_{id}"),
        "tool": "palyra.process.run", "principal": "agent:claude",
        "requested_at": "2026-11-15T09:00:00Z", "expires_at": "2026-11-15T09:10:00Z",
        "summary": format!("/usr/bin/git commit -m {id}, in /home/me/app"),
        "program": "/usr/bin/git", "workspace": "/home/me/app",
        "effects": ["runs /usr/bin/git", "writes /home/me/app"],
        "arguments": {"argv": ["git", "commit", "-m", id]},
        "risk": risk, "risk_reasons": ["writes the repository"],
    }))
    .unwrap();
    Approval {
        covers: vec![
            cover(CoverKind::Exact, "only this call, word for word", 1),
            cover(CoverKind::Args, "git commit -m *, in /home/me/app", 12),
            cover(CoverKind::Program, "/usr/bin/git with any arguments", 40),
        ],
        ..approval
    }
}

fn cover(kind: CoverKind, sentence: &str, covered: u64) -> Cover {
    Cover {
        cover: kind,
        sentence: sentence.to_owned(),
        rule: Some(format!(
            "permit (\n  // {}\n  principal,\n);",
            kind.as_str()
        )),
        seen_before: Some(SeenBefore {
            looked_at: 1_000,
            covered,
            examples: vec!["/usr/bin/git commit -m one".to_owned()],
        }),
    }
}
