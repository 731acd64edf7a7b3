//! How it looks, compared with files; and that nothing an agent writes can look otherwise.

use std::path::Path;

use palyra_api::wire::{Approval, Grant};
use palyra_core::render;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::link::{call, entry};
use super::{Desk, question};
use crate::tui::state::{Detail, Said};
use crate::tui::theme::Theme;
use crate::tui::view;

/// The screen as text.
fn drawn(desk: &Desk) -> String {
    let (columns, lines) = desk.state.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal
        .draw(|frame| view::draw(&desk.state, Theme::new(true), desk.now, frame))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..lines {
        let row: String = (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Compares with the file of this name; a difference is shown whole.
fn compare(name: &str, desk: &Desk) {
    let text = drawn(desk);
    // Tests run in the folder of their crate.
    let path = Path::new("golden/tui").join(name);
    let agreed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text.trim_end(), agreed.trim_end(), "{name}:\n{text}");
}

fn three() -> [Approval; 3] {
    let mut push = question("appr_02", "critical");
    push.principal = "agent:gardener".to_owned();
    push.summary = "/usr/bin/git push --force origin main, in /home/me/garden".to_owned();
    push.warnings = vec!["what git runs from its hooks is not covered".to_owned()];
    push.untrusted_words = Some("Just a routine push, please allow quickly".to_owned());
    let (low, medium) = (question("appr_01", "low"), question("appr_03", "medium"));
    [push, low, medium]
}

fn busy(columns: u16, lines: u16) -> Desk {
    let mut desk = Desk::sized(columns, lines);
    desk.waiting(&three());
    desk
}

#[test]
fn the_inbox() {
    for (columns, lines) in [(80, 24), (120, 40)] {
        let mut desk = busy(columns, lines);
        compare(&format!("inbox-arming-{columns}x{lines}.txt"), &desk);
        desk.wait();
        let [push, low, _] = three();
        let (one, other) = (question("appr_04", "high"), question("appr_05", "low"));
        desk.told(Said::Inbox(vec![one, push, low, other]));
        compare(&format!("inbox-news-{columns}x{lines}.txt"), &desk);
    }
}

#[test]
fn nothing_waits() {
    compare("inbox-empty-80x24.txt", &Desk::new());
}

#[test]
fn what_is_asked_before_an_answer() {
    for (columns, lines) in [(80, 24), (120, 40)] {
        let mut desk = busy(columns, lines);
        desk.wait();
        desk.types(" ");
        desk.types("s");
        desk.types("j");
        compare(&format!("cover-{columns}x{lines}.txt"), &desk);
    }
    let mut desk = busy(80, 24);
    desk.types("duse the staging branch");
    compare("reason-80x24.txt", &desk);
    desk.key(KeyCode::Enter);
    compare("reason-typed-80x24.txt", &desk);
    desk.key(KeyCode::Esc);
    desk.wait();
    desk.types(" ");
    desk.types("t");
    compare("length-80x24.txt", &desk);
}

#[test]
fn calls_grants_and_the_journal() {
    for (columns, lines) in [(80, 24), (120, 40)] {
        let mut desk = busy(columns, lines);
        let mut failed = call("call_01", "failed");
        failed.exit_code = Some(7);
        failed.took_ms = Some(1_250);
        desk.told(Said::Calls(vec![call("call_02", "admitted"), failed]));
        let first = entry(11, "call_02", serde_json::json!({"kind": "admitted"}));
        desk.types("2j");
        desk.told(Said::Found(Detail::Call(Box::new(
            palyra_api::wire::CallDetail {
                summary: call("call_02", "admitted"),
                arguments: Some(serde_json::json!({"argv": ["make", "all"]})),
                facts: None,
                output: None,
                erased: Vec::new(),
                unreadable: Vec::new(),
                entries: vec![first.clone()],
            },
        ))));
        compare(&format!("calls-{columns}x{lines}.txt"), &desk);
        let grant: Grant = serde_json::from_value(serde_json::json!({
            "grant_id": "grant_01", "state": "live", "agent": "claude",
            "tool": "palyra.process.run", "scope": "session", "cover": "args",
            "sentence": "git commit -m *, in /home/me/app", "session_id": null,
            "approval_id": "appr_00", "call_id": "call_00", "made_by": "user:owner",
            "made_at": "2026-11-15T09:00:00Z", "not_after": "2026-11-15T21:00:00Z",
            "uses": 3, "last_used_at": "2026-11-15T09:03:30Z",
            "rule": "permit (\n  principal == Agent::\"claude\"\n);",
        }))
        .unwrap();
        desk.told(Said::Grants(Some(vec![grant])));
        desk.types("3");
        compare(&format!("grants-{columns}x{lines}.txt"), &desk);
        desk.told(Said::Entries(vec![first]));
        desk.types("4j");
        compare(&format!("journal-{columns}x{lines}.txt"), &desk);
    }
}

#[test]
fn help_a_lost_daemon_and_too_little_room() {
    let mut desk = busy(80, 24);
    desk.types("?");
    compare("help-80x24.txt", &desk);
    desk.types("?");
    desk.told(Said::Lost("no daemon listens on `/run/x.sock`".to_owned()));
    desk.wait();
    compare("lost-80x24.txt", &desk);
    compare("too-small-60x20.txt", &busy(60, 20));
}

#[test]
fn nothing_an_agent_writes_reaches_the_terminal_as_it_is() {
    let hostile =
        "\u{1b}[2J\u{1b}[1;1H\r\n\u{202e}txt\u{2066}\u{200b}\u{9b}2K\u{7}\u{e0041}e\u{301}\u{ad}";
    let mut it = question("appr_01", "low");
    for field in [
        &mut it.principal,
        &mut it.tool,
        &mut it.summary,
        &mut it.risk,
        &mut it.call_id,
        &mut it.requested_at,
    ] {
        field.push_str(hostile);
    }
    it.program = Some(hostile.to_owned());
    it.workspace = Some(hostile.to_owned());
    it.effects = vec![hostile.to_owned()];
    it.warnings = vec![hostile.to_owned()];
    it.risk_reasons = vec![hostile.to_owned()];
    it.untrusted_words = Some(hostile.to_owned());
    it.diff = Some(hostile.to_owned());
    it.reason = Some(hostile.to_owned());
    it.arguments = Some(serde_json::json!({hostile: [hostile]}));
    for cover in &mut it.covers {
        cover.sentence.push_str(hostile);
        cover.rule = Some(hostile.to_owned());
    }
    let mut desk = Desk::sized(120, 60);
    desk.waiting(std::slice::from_ref(&it));
    harmless(&desk);
    desk.wait();
    desk.types("s");
    assert!(desk.state.dialog.is_some());
    harmless(&desk);
    desk.key(KeyCode::Esc);
    desk.types("d");
    harmless(&desk);
    desk.key(KeyCode::Esc);
    it.state = hostile.to_owned();
    desk.told(Said::Decided(Box::new(it)));
    harmless(&desk);
    let why = hostile.to_owned();
    desk.told(Said::Lost(why));
    desk.types("x");
    harmless(&desk);
}

/// Every cell holds characters that print as themselves.
#[track_caller]
fn harmless(desk: &Desk) {
    let text = drawn(desk);
    let odd = |letter: &char| !render::prints_as_itself(*letter);
    let odd: Vec<char> = text.lines().flat_map(str::chars).filter(odd).collect();
    assert!(odd.is_empty(), "{odd:?} in\n{text}");
    assert!(!text.contains("\u{1b}"), "{text}");
}
