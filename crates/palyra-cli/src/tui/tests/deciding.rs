//! What it takes to answer, and what never answers.

use palyra_api::wire::{Approval, CoverKind, Decide, Decision, Reach};
use ratatui::crossterm::event::{Event, KeyCode};

use super::{Desk, question};
use crate::tui::state::{Detail, Order, Said, Tab};

fn answer(decision: Decision) -> Decide {
    Decide {
        decision,
        reason: None,
        scope: Reach::Once,
        cover: None,
        lasts_ms: None,
        shown: None,
    }
}

fn allow(id: &str) -> Vec<Order> {
    vec![Order::Decide(id.to_owned(), answer(Decision::Allow))]
}

fn two() -> [Approval; 2] {
    [question("a1", "low"), question("a2", "low")]
}

#[test]
fn what_was_chosen_is_allowed_at_once() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.types("j");
    desk.look(&two());
    assert_eq!(desk.types("a"), allow("a2"));
    assert_eq!(desk.types("a"), [], "an answer is sent once");
    assert_eq!(desk.notice(), "the answer is on its way");
}

#[test]
fn what_came_by_itself_has_to_be_looked_at_first() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    assert_eq!(desk.types("a"), []);
    assert_eq!(desk.notice(), "look first: not armed yet");
    desk.wait();
    assert_eq!(desk.types("a"), allow("a1"));
}

#[test]
fn high_risk_arms_even_when_it_was_chosen() {
    for (risk, at_once) in [
        ("low", true),
        ("medium", true),
        ("high", false),
        ("critical", false),
        ("", false),
        ("unheard-of", false),
    ] {
        let both = [question("a1", "low"), question("a2", risk)];
        let mut desk = Desk::new();
        desk.waiting(&both);
        desk.types("j");
        desk.look(&both);
        // Each of the three that allow.
        desk.types("s");
        assert_eq!(desk.state.dialog.is_some(), at_once, "{risk}");
        desk.key(KeyCode::Esc);
        desk.types("t");
        assert_eq!(desk.state.dialog.is_some(), at_once, "{risk}");
        desk.key(KeyCode::Esc);
        assert_eq!(!desk.types("a").is_empty(), at_once, "{risk}");
        if !at_once {
            desk.wait();
            assert_eq!(desk.types("a"), allow("a2"), "{risk}");
        }
    }
}

#[test]
fn arming_begins_when_it_is_on_the_screen() {
    let mut desk = Desk::new();
    let it = [question("a1", "high")];
    desk.told(Said::Inbox(it.to_vec()));
    desk.wait();
    assert_eq!(desk.types("a"), [], "nothing was shown of it yet");
    desk.look(&it);
    assert_eq!(desk.types("a"), [], "it is there only now");
    desk.wait();
    assert_eq!(desk.types("a"), allow("a1"));
}

#[test]
fn news_changes_nothing_under_the_cursor() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.types("j");
    desk.look(&two());
    let more = ["b1", "b2", "a2", "b3"].map(|id| question(id, "critical"));
    desk.told(Said::Inbox(more.to_vec()));
    assert_eq!(desk.state.news(), 3);
    let ids: Vec<_> = desk
        .state
        .inbox
        .on_screen()
        .map(|(row, here)| (row.item.approval_id.clone(), here))
        .collect();
    assert_eq!(ids, [("a1".to_owned(), false), ("a2".to_owned(), true)]);
    desk.wait();
    assert_eq!(desk.types("a"), allow("a2"));
    assert_eq!(desk.state.news(), 0, "a key was pressed");
    assert_eq!(desk.state.cursor(), Some("a2"));
}

#[test]
fn what_a_key_brings_into_sight_is_not_chosen_by_it() {
    let mut desk = Desk::new();
    desk.waiting(&[question("a1", "low")]);
    // It ends, and another one comes; `j` can only go there.
    let other = [question("b1", "low")];
    desk.told(Said::Inbox(other.to_vec()));
    desk.types("j");
    assert_eq!(desk.state.cursor(), Some("b1"));
    desk.look(&other);
    assert_eq!(desk.types("a"), []);
    desk.wait();
    assert_eq!(desk.types("a"), allow("b1"));
}

#[test]
fn enter_never_decides() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    let enter = |desk: &mut Desk| desk.key(KeyCode::Enter);
    assert_eq!(enter(&mut desk), []);
    assert!(desk.notice().starts_with("Enter decides nothing"));
    for letter in ["s", "t", "d"] {
        assert_eq!(desk.types(letter), []);
        for _ in 0..5 {
            assert_eq!(enter(&mut desk), [], "{letter}");
        }
        assert!(desk.state.dialog.is_some(), "{letter}: it is still asked");
        desk.key(KeyCode::Esc);
    }
    assert!(desk.state.sending.is_none());
}

#[test]
fn what_is_pasted_decides_nothing() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    let pasted = Event::Paste("a\rs\rst\rtd\rd".to_owned());
    assert_eq!(desk.state.typed(&pasted, desk.now), []);
    desk.types("d");
    assert_eq!(desk.state.typed(&pasted, desk.now), []);
    desk.key(KeyCode::Enter);
    let [Order::Decide(_, answer)] = &desk.types("d")[..] else {
        panic!("it was not denied")
    };
    assert_eq!(answer.reason.as_deref(), Some("a s st td d"));
}

#[test]
fn a_no_carries_its_reason() {
    let mut desk = Desk::new();
    desk.waiting(&[question("a1", "critical")]);
    // A no needs no arming.
    assert_eq!(desk.types("duse d"), [], "the letters go into the reason");
    desk.key(KeyCode::Enter);
    assert_eq!(desk.types("xae staging"), [], "edited");
    desk.key(KeyCode::Enter);
    let orders = desk.types("d");
    let answer = Decide {
        reason: Some("use d staging".to_owned()),
        ..answer(Decision::Deny)
    };
    assert_eq!(orders, [Order::Decide("a1".to_owned(), answer)]);
}

#[test]
fn a_session_begins_with_the_narrowest() {
    let mut desk = Desk::new();
    let mut wide_first = question("a1", "low");
    wide_first.covers.reverse();
    wide_first.shown_code = Some("c0de".to_owned());
    desk.waiting(&[wide_first]);
    desk.wait();
    assert_eq!(desk.types("s"), []);
    let expected = |cover: CoverKind| {
        let answer = Decide {
            scope: Reach::Session,
            cover: Some(cover),
            shown: Some("c0de".to_owned()),
            ..answer(Decision::Allow)
        };
        vec![Order::Decide("a1".to_owned(), answer)]
    };
    assert_eq!(desk.types("s"), expected(CoverKind::Exact));
    desk.state.sending = None;
    assert_eq!(desk.types("sat"), [], "only its own letter gives it");
    assert_eq!(desk.types("ks"), expected(CoverKind::Args));
}

#[test]
fn a_window_asks_how_long() {
    let mut desk = Desk::new();
    desk.waiting(&[question("a1", "low")]);
    desk.wait();
    desk.types("t");
    desk.key(KeyCode::Backspace);
    desk.types(" fortnights");
    desk.key(KeyCode::Enter);
    let dialog = format!("{:?}", desk.state.dialog);
    assert!(dialog.contains("write a span such as"), "{dialog}");
    for _ in 0.." fortnights".len() {
        desk.key(KeyCode::Backspace);
    }
    desk.types("m");
    desk.key(KeyCode::Enter);
    let orders = desk.types("jt");
    let answer = Decide {
        scope: Reach::Window,
        cover: Some(CoverKind::Args),
        lasts_ms: Some(15 * 60 * 1_000),
        ..answer(Decision::Allow)
    };
    assert_eq!(orders, [Order::Decide("a1".to_owned(), answer)]);
}

#[test]
fn nothing_wider_is_asked_where_nothing_is_offered() {
    let mut desk = Desk::new();
    let mut older = question("a1", "low");
    older.covers.clear();
    desk.waiting(&[older]);
    desk.wait();
    for letter in ["s", "t"] {
        assert_eq!(desk.types(letter), []);
        assert!(desk.notice().contains("a allows it once"), "{letter}");
    }
    assert_eq!(desk.types("a"), allow("a1"));
}

#[test]
fn a_long_call_is_read_to_its_end_before_it_is_allowed() {
    let mut desk = Desk::new();
    let mut long = question("a1", "low");
    let script = format!("{}; rm -rf ~", "echo harmless; ".repeat(400));
    long.arguments = Some(serde_json::json!({"argv": ["sh", "-c", script]}));
    desk.waiting(&[long]);
    desk.wait();
    for letter in ["a", "s", "t"] {
        assert_eq!(desk.types(letter), []);
        assert!(
            desk.notice().starts_with("read it to its end first"),
            "{letter}"
        );
        assert!(desk.state.dialog.is_none(), "{letter}");
    }
    let mut pages = 0;
    while desk.types("a").is_empty() {
        desk.types(" ");
        pages += 1;
        assert!(pages < 50, "it has an end");
    }
    assert!(pages > 5, "{pages} pages of 6,000 letters");
    let drawn = format!("{:?}", desk.state.page.on_screen().collect::<Vec<_>>());
    assert!(
        drawn.contains("rm -rf ~"),
        "its end was on the screen: {drawn}"
    );
}

#[test]
fn the_daemons_rendering_is_shown_and_its_code_sent() {
    let mut desk = Desk::new();
    let mut folded = question("a1", "low");
    folded.hidden_bytes = 9_000;
    folded.full = Some(vec!["the whole of it"; 40].join("\n"));
    folded.shown_code = Some("c0de".to_owned());
    desk.waiting(&[folded]);
    desk.wait();
    assert_eq!(desk.types("a"), []);
    desk.key(KeyCode::End);
    let [Order::Decide(_, answer)] = &desk.types("a")[..] else {
        panic!("it was not allowed: {}", desk.notice())
    };
    assert_eq!(answer.shown.as_deref(), Some("c0de"));
}

#[test]
fn only_the_inbox_decides() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    for tab in ["2", "3", "4"] {
        desk.types(tab);
        for letter in ["a", "s", "t", "d"] {
            assert_eq!(desk.types(letter), [], "{tab}{letter}");
            assert!(desk.state.dialog.is_none(), "{tab}{letter}");
        }
    }
    // Back again it is new to the eye, and arms anew.
    desk.types("1");
    desk.look(&two());
    assert_eq!(desk.types("a"), []);
    desk.wait();
    assert_eq!(desk.types("a"), allow("a1"));
}

#[test]
fn somebody_else_may_answer_first() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    desk.types("s");
    let mut decided = question("a1", "low");
    decided.state = "denied".to_owned();
    desk.told(Said::Found(Detail::Question(Box::new(decided))));
    assert!(desk.state.dialog.is_none());
    assert!(desk.notice().starts_with("it is over"));
    assert_eq!(desk.types("a"), []);
    // It stays where it is until the person moves.
    desk.told(Said::Inbox(vec![question("a2", "low")]));
    assert_eq!(desk.state.cursor(), Some("a1"));
    desk.types("j");
    assert_eq!(desk.state.cursor(), Some("a2"));
    assert_eq!(desk.state.inbox.at(), (Some(0), 1));
}

#[test]
fn a_late_answer_about_something_else_is_not_shown() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.types("j");
    desk.told(Said::Found(Detail::Question(Box::new(question(
        "a1", "low",
    )))));
    assert!(desk.state.question().is_none());
    assert_eq!(desk.types("a"), []);
    assert_eq!(desk.notice(), "it is still being looked up");
}

#[test]
fn on_a_screen_that_is_too_small_nothing_is_decided() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    desk.state.typed(&Event::Resize(79, 24), desk.now);
    assert_eq!(desk.types("astd"), []);
    desk.state.typed(&Event::Resize(80, 24), desk.now);
    assert_eq!(desk.types("a"), allow("a1"));
    desk.state.typed(&Event::Resize(80, 23), desk.now);
    assert_eq!(desk.types("q"), [Order::Quit]);
}

#[test]
fn tabs_go_around() {
    let mut desk = Desk::new();
    for tab in [Tab::Calls, Tab::Grants, Tab::Journal, Tab::Inbox] {
        desk.key(KeyCode::Tab);
        assert_eq!(desk.state.tab, tab);
    }
    desk.key(KeyCode::BackTab);
    assert_eq!(desk.state.tab, Tab::Journal);
}

#[test]
fn an_answer_arrives_before_the_screen_is_left() {
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    assert_eq!(desk.types("aq"), allow("a1"), "it is not left yet");
    let mut allowed = question("a1", "low");
    allowed.state = "allowed".to_owned();
    let orders = desk.told(Said::Decided(Box::new(allowed)));
    assert_eq!(orders, [Order::Quit]);
    // One that was refused is shown, and who insists leaves at once.
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    desk.types("aq");
    let (id, why) = ("a1".to_owned(), "no".to_owned());
    let orders = desk.told(Said::NotDecided { id, why });
    assert!(!orders.contains(&Order::Quit));
    assert_eq!(desk.types("q"), [Order::Quit]);
    let mut desk = Desk::new();
    desk.waiting(&two());
    desk.wait();
    desk.types("aq");
    assert_eq!(desk.types("q"), [Order::Quit]);
}
