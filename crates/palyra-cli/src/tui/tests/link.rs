//! The daemon goes and comes; lists run along; filters.

use palyra_api::wire::{CallDetail, CallSummary, JournalEntry};
use ratatui::crossterm::event::KeyCode;

use super::{Desk, question, status};
use crate::tui::state::{Detail, Link, Order, Said, Tab};

pub(super) fn call(id: &str, state: &str) -> CallSummary {
    CallSummary {
        call_id: id.to_owned(),
        tool: "palyra.process.run".to_owned(),
        principal: "agent:claude".to_owned(),
        proposed_at: "2026-11-15T09:03:00Z".to_owned(),
        state: state.to_owned(),
        exit_code: None,
        code: None,
        approval_id: None,
        took_ms: None,
    }
}

pub(super) fn entry(seq: u64, stream: &str, entry: serde_json::Value) -> JournalEntry {
    JournalEntry {
        seq,
        stream: stream.to_owned(),
        revision: 1,
        at: "2026-11-15T09:03:00.012Z".to_owned(),
        kind: entry["kind"].as_str().unwrap().to_owned(),
        entry,
    }
}

fn started(seq: u64) -> JournalEntry {
    let said = serde_json::json!({"kind": "daemon_started", "version": "0.1.0"});
    entry(seq, "daemon", said)
}

#[test]
fn the_daemon_goes_and_comes_and_the_cursor_stays() {
    let all = ["a1", "a2", "a3"].map(|id| question(id, "low"));
    let mut desk = Desk::new();
    desk.waiting(&all);
    desk.types("j");
    desk.look(&all);
    desk.told(Said::Lost("no daemon listens".to_owned()));
    desk.wait();
    desk.told(Said::Lost("no daemon listens".to_owned()));
    assert!(matches!(&desk.state.link, Link::Lost { since, .. } if *since < desk.now));
    for letter in ["a", "s", "t", "d"] {
        assert_eq!(desk.types(letter), []);
        assert_eq!(desk.notice(), "the daemon is not there", "{letter}");
    }
    let orders = desk.told(Said::Open(Box::new(status())));
    assert_eq!(desk.notice(), "connected again");
    assert_eq!(orders, [Order::Look(Tab::Inbox, "a2".to_owned())]);
    desk.told(Said::Inbox(all.iter().rev().cloned().collect()));
    assert_eq!(desk.state.cursor(), Some("a2"));
    assert_eq!(desk.types("a").len(), 1);
}

#[test]
fn an_answer_under_way_when_the_daemon_went_can_be_sent_again() {
    let mut desk = Desk::new();
    desk.waiting(&[question("a1", "low")]);
    desk.wait();
    assert_eq!(desk.types("a").len(), 1);
    desk.told(Said::Lost("gone".to_owned()));
    desk.told(Said::Open(Box::new(status())));
    assert_eq!(desk.types("a").len(), 1);
    let why = "it was answered already; see `palyra approvals show a1`".to_owned();
    let id = "a1".to_owned();
    let orders = desk.told(Said::NotDecided { id, why });
    assert!(desk.notice().starts_with("it was answered already"));
    assert_eq!(orders, [Order::Look(Tab::Inbox, "a1".to_owned())]);
}

#[test]
fn a_call_under_the_cursor_is_looked_up_again_when_something_happens_to_it() {
    let mut desk = Desk::new();
    desk.told(Said::Calls(vec![
        call("c1", "admitted"),
        call("c2", "completed"),
    ]));
    desk.types("2");
    assert_eq!(desk.state.cursor(), None, "it runs along");
    let orders = desk.key(KeyCode::Char('j'));
    assert_eq!(orders, [Order::Look(Tab::Calls, "c1".to_owned())]);
    let happened = |stream: &str, seq| {
        Said::Entries(vec![entry(
            seq,
            stream,
            serde_json::json!({"kind": "admitted"}),
        )])
    };
    assert_eq!(desk.told(happened("c2", 1)), []);
    assert_eq!(
        desk.told(happened("c1", 2)),
        [Order::Look(Tab::Calls, "c1".to_owned())]
    );
    let detail = |state: &str, entries| CallDetail {
        summary: call("c1", state),
        arguments: None,
        facts: None,
        output: None,
        erased: Vec::new(),
        unreadable: Vec::new(),
        entries,
    };
    let shown = |desk: &Desk| format!("{:?}", desk.state.page.on_screen().collect::<Vec<_>>());
    desk.told(Said::Found(Detail::Call(Box::new(detail(
        "admitted",
        Vec::new(),
    )))));
    assert!(shown(&desk).contains("it goes on"));
    let ended = entry(3, "c1", serde_json::json!({"kind": "attested"}));
    desk.told(Said::Found(Detail::Call(Box::new(detail(
        "completed",
        vec![ended],
    )))));
    let timeline = shown(&desk);
    assert!(
        timeline.contains("attested") && !timeline.contains("it goes on"),
        "{timeline}"
    );
    assert!(timeline.contains("+12ms"), "{timeline}");
}

#[test]
fn the_journal_runs_along_until_it_is_pointed_into() {
    let mut desk = Desk::new();
    desk.types("4");
    desk.told(Said::Entries(vec![started(1), started(2)]));
    let top = |desk: &Desk| {
        desk.state
            .journal
            .on_screen()
            .next()
            .unwrap()
            .0
            .item
            .id
            .clone()
    };
    assert_eq!(top(&desk), "2");
    desk.types("j");
    desk.told(Said::Entries(vec![started(3)]));
    assert_eq!((top(&desk).as_str(), desk.state.news()), ("2", 1));
    desk.key(KeyCode::Esc);
    assert_eq!((top(&desk).as_str(), desk.state.cursor()), ("3", None));
}

#[test]
fn a_filter_is_seen_while_it_is_typed_and_can_be_left() {
    let mut other = question("a2", "critical");
    other.principal = "agent:gardener".to_owned();
    let all = [question("a1", "low"), other];
    let mut desk = Desk::new();
    desk.waiting(&all);
    desk.types("/GARD");
    assert_eq!(desk.state.cursor(), Some("a2"));
    desk.key(KeyCode::Enter);
    assert!(desk.state.dialog.is_none());
    assert_eq!(desk.state.inbox.at(), (Some(0), 1));
    // Letters of a filter decide nothing, and leaving it brings the one before back.
    assert_eq!(desk.types("/adst"), []);
    assert_eq!(desk.state.inbox.at(), (None, 0));
    desk.key(KeyCode::Esc);
    assert_eq!(desk.state.inbox.at(), (Some(0), 1));
    desk.key(KeyCode::Esc);
    assert_eq!(desk.state.inbox.at().1, 2);
}
