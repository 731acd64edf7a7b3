//! `palyra approvals`: what waits for a yes or no.
//!
//! An agent chose the words that are shown here, so all of them go through [`crate::safe`].

use palyra_api::wire::{Approval, Decide, Decision, Page};
use palyra_core::{Clock, SystemClock, Timestamp};

use crate::args::{ApprovalsAction, DecisionArg};
use crate::calling::quoted;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, WAITING};
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};
use crate::{safe, when};

const PATH: &str = "/api/v1/approvals";
const PROCESS_RUN: &str = "palyra.process.run";

pub(super) async fn run(action: &ApprovalsAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        ApprovalsAction::List { all, limit, before } => {
            let path = super::with_query(
                PATH,
                &[
                    (
                        "state",
                        Some(if *all { "all" } else { "pending" }.to_owned()),
                    ),
                    ("limit", Some(limit.to_string())),
                    ("before", before.as_ref().map(ToString::to_string)),
                ],
            );
            let page: Page<Approval> = super::get(session, &path).await?;
            output.answer(&page, |page| list(page, *all, output, SystemClock.now()))?;
            tell_more(&page, *all, output);
        }
        ApprovalsAction::Show { id } => {
            let approval: Approval = super::get(session, &format!("{PATH}/{id}")).await?;
            output.answer(&approval, render)?;
            if approval.state == "pending" {
                output.suggest(&format!(
                    "answer with `palyra approvals decide {id} --decision allow` (or `deny`)"
                ));
            }
        }
        ApprovalsAction::Decide {
            id,
            decision,
            reason,
        } => {
            let answer = Decide {
                decision: match decision {
                    DecisionArg::Allow => Decision::Allow,
                    DecisionArg::Deny => Decision::Deny,
                },
                reason: reason.clone(),
            };
            let mut client = session.connect().await?;
            let path = format!("{PATH}/{id}/decide");
            let approval: Approval = in_time(client.post(&path, &answer)).await?;
            output.answer(&approval, decided)?;
        }
    }
    Ok(Exit::OK)
}

fn decided(approval: &Approval) -> String {
    let style = state_style(&approval.state);
    format!(
        "{style}{}{style:#} {}: {}\n",
        safe::line(&approval.state),
        safe::line(&approval.approval_id),
        what(approval)
    )
}

/// The call in one line: a program as it would be typed, anything else as the daemon puts it.
/// Folder and environment are left to `show`, which has the exact arguments.
fn what(approval: &Approval) -> String {
    let argv = approval
        .arguments
        .as_ref()
        .and_then(|given| given.get("argv"));
    let words = argv.and_then(|argv| serde_json::from_value::<Vec<String>>(argv.clone()).ok());
    match words {
        Some(words) if approval.tool == PROCESS_RUN => quoted(&words),
        Some(_) | None => safe::once(&approval.summary).into_owned(),
    }
}

fn list(page: &Page<Approval>, all: bool, output: &Output, now: Timestamp) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let time = if all {
        Column::left("STATE")
    } else {
        Column::right("LEFT")
    };
    let mut table = Table::new([
        Column::left("APPROVAL"),
        Column::right("AGE"),
        time,
        Column::left("WHO"),
        Column::decisive("WHAT"),
    ]);
    for approval in &page.items {
        let state = match all {
            true => Cell::styled(&approval.state, state_style(&approval.state)),
            false => Cell::rendered(when::left(&approval.expires_at, now)).in_style(WAITING),
        };
        table.row([
            Cell::new(&approval.approval_id),
            Cell::rendered(when::age(&approval.requested_at, now)),
            state,
            Cell::new(&approval.principal),
            Cell::rendered(what(approval)),
        ]);
    }
    output.table(&table)
}

fn tell_more(page: &Page<Approval>, all: bool, output: &Output) {
    let flag = if all { " --all" } else { "" };
    match (&page.next, page.items.first()) {
        (Some(next), _) => {
            let next = safe::line(next);
            output.suggest(&format!(
                "more: `palyra approvals list{flag} --before {next}`"
            ));
        }
        (None, None) if !all => output.suggest("nothing waits for you"),
        (None, None) => output.suggest("nothing was ever asked"),
        (None, Some(first)) if !all => {
            let id = safe::line(&first.approval_id);
            output.suggest(&format!("look closer with `palyra approvals show {id}`"));
        }
        (None, Some(_)) => {}
    }
}

fn render(approval: &Approval) -> String {
    let now = SystemClock.now();
    let instant = |at: &String| Cell::rendered(when::instant(at, now));
    let arguments = match &approval.arguments {
        Some(arguments) => Cell::json(arguments),
        None => vec![Cell::styled("no longer kept", DIM)],
    };
    Facts::default()
        .with("approval", &approval.approval_id)
        .styled("state", &approval.state, state_style(&approval.state))
        .with("who", &approval.principal)
        .with("tool", &approval.tool)
        .with("what", Cell::rendered(what(approval)))
        .with("call", &approval.call_id)
        .with("asked", instant(&approval.requested_at))
        .with("expires", instant(&approval.expires_at))
        .maybe("decided by", approval.decided_by.as_ref())
        .maybe("decided", approval.decided_at.as_ref().map(instant))
        .maybe("reason", approval.reason.as_ref())
        .lines("arguments", arguments)
        .render()
}

fn state_style(state: &str) -> anstyle::Style {
    match state {
        "pending" => WAITING,
        "allowed" | "spent" => GOOD,
        "denied" | "expired" => BAD,
        _ => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval() -> Approval {
        let wire = serde_json::json!({
            "approval_id": "appr_x", "state": "pending", "call_id": "call_x",
            "tool": "palyra.process.run", "principal": "agent:claude",
            "requested_at": "2026-11-15T09:00:00Z", "expires_at": "2026-11-15T09:10:00Z",
            "reason": "no\u{1b}[2J\u{202e}", "summary": "ls\r\u{1b}[1A",
            "arguments": {"argv": ["ls", "\u{202e}txt", "\u{9b}1m"]}, "effects": []
        });
        serde_json::from_value(wire).unwrap()
    }

    fn shown(text: &str) -> String {
        let plain = anstream::adapter::strip_str(text).to_string();
        assert!(
            plain
                .lines()
                .flat_map(str::chars)
                .all(palyra_core::render::prints_as_itself),
            "{plain:?}"
        );
        plain
    }

    #[test]
    fn an_agents_words_cannot_repaint_the_question() {
        let text = shown(&render(&approval()));
        assert!(text.contains(r"ls '\u{202e}txt' '\u{9b}1m'"), "{text}");
        let other = Approval {
            tool: "palyra.fs.write".to_owned(),
            ..approval()
        };
        assert!(shown(&render(&other)).contains(r"ls\r\u{1b}[1A"));
        assert!(text.contains(r#""\u{202e}txt""#), "{text}");
        assert!(shown(&decided(&approval())).starts_with("pending appr_x: ls"));
    }

    #[test]
    fn the_list_says_how_long_is_left() {
        let page = Page {
            items: vec![approval()],
            next: None,
        };
        let style = crate::args::Style {
            json: false,
            quiet: false,
        };
        let now = "2026-11-15T09:04:00Z".parse().unwrap();
        let text = shown(&list(&page, false, &Output::new(style), now));
        assert!(text.contains("appr_x     4m    6m  agent:claude"), "{text}");
    }
}
