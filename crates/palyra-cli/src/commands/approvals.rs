//! `palyra approvals`: what waits for a yes or no.
//!
//! An agent chose the words that are shown here, so all of them go through [`crate::safe`].

use palyra_api::ClientError;
use palyra_api::wire::{Approval, Cover, Decide, Decision, Page, Stats, WatchEvent};
use palyra_core::{Clock, SystemClock, Timestamp, render};
use serde_json::Value;

use crate::args::{ApprovalsAction, DecisionArg};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, WAITING};
use crate::present;
use crate::session::Session;
use crate::table::{Cell, Column, Facts, Table};
use crate::{safe, when};

const PATH: &str = "/api/v1/approvals";

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
        ApprovalsAction::Show { id, full } => {
            let query = if *full { "?full=true" } else { "" };
            let wire: Value = super::get(session, &format!("{PATH}/{id}{query}")).await?;
            let (approval, planned) = (known(&wire)?, known(&wire)?);
            output.answer(&wire, |_| rendered(&approval, &planned))?;
            tell_hidden(&approval, output);
            if approval.state == "pending" {
                output.suggest(&format!(
                    "answer with `palyra approvals decide {id} --decision allow` (or `deny`)"
                ));
            }
        }
        ApprovalsAction::Decide {
            id,
            decision,
            scope,
            lasts,
            cover,
            reason,
            shown,
        } => {
            let answer = Decide {
                decision: match decision {
                    DecisionArg::Allow => Decision::Allow,
                    DecisionArg::Deny => Decision::Deny,
                },
                reason: reason.clone(),
                scope: scope.wire(),
                cover: Some(cover.wire()),
                lasts_ms: lasts.and_then(|span| u64::try_from(span.0.as_millis()).ok()),
                shown: shown.clone(),
            };
            let path = format!("{PATH}/{id}/decide");
            let approval: Approval = present::post(session, &path, &answer).await?;
            output.answer(&approval, decided)?;
            if let (Some(grant), "allowed" | "spent") = (&approval.grant_id, &*approval.state) {
                let grant = safe::line(grant);
                output.suggest(&format!("take it back with `palyra grants revoke {grant}`"));
            }
        }
        ApprovalsAction::Watch => watch(session).await?,
        ApprovalsAction::Stats => {
            let stats: Stats = super::get(session, &format!("{PATH}/stats")).await?;
            output.answer(&stats, statistics)?;
        }
    }
    Ok(Exit::OK)
}

/// Says what waits as it comes and goes, until the daemon or the reader ends.
async fn watch(session: &Session) -> Result<(), Failure> {
    let output = &session.output;
    let mut client = session.connect().await?;
    let mut events = client.watch().await?;
    while let Some(event) = events.next().await? {
        if output.is_json() {
            output.json_line(&event)?;
            continue;
        }
        match &event {
            WatchEvent::Watching | WatchEvent::Missed => {
                let page: Page<Approval> = super::get(session, PATH).await?;
                for approval in &page.items {
                    output.text(&decided(approval))?;
                }
            }
            WatchEvent::Approval { id, .. } => {
                let approval: Approval = super::get(session, &path(id)).await?;
                output.text(&decided(&approval))?;
            }
            WatchEvent::Grant { id, state } => {
                output.text(&format!("{} {}\n", safe::line(state), safe::line(id)))?;
            }
            WatchEvent::Agent { .. }
            | WatchEvent::Call { .. }
            | WatchEvent::Postures
            | WatchEvent::Policies
            | WatchEvent::Alive => {}
        }
    }
    Ok(())
}

fn statistics(stats: &Stats) -> String {
    let median = stats.median_answer_ms.map(|ms| {
        let span = std::time::Duration::from_millis(ms);
        Cell::rendered(format!("{} (median)", when::span(span)))
    });
    let proposals = stats.proposals.iter().map(|it| {
        let (who, sentence) = (safe::once(&it.principal), safe::once(&it.sentence));
        let (times, cover) = (it.times, it.cover.as_str());
        Cell::rendered(format!(
            "{who}: {sentence} ({times} times; --cover {cover})"
        ))
    });
    Facts::default()
        .with("asked", stats.asked.to_string())
        .with("allowed", stats.allowed.to_string())
        .with("denied", stats.denied.to_string())
        .with("not answered", stats.expired.to_string())
        .with("dropped", stats.dropped.to_string())
        .with("waiting", stats.pending.to_string())
        .maybe("answered in", median)
        .with("under grants", stats.under_grants.to_string())
        .lines("always allowed", proposals)
        .render()
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

/// What was found to run, as far as the daemon says; an older one says less.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Planned {
    program: Option<String>,
    workspace: Option<String>,
    run_as: Option<String>,
    effects: Vec<String>,
}

fn known<T: serde::de::DeserializeOwned>(wire: &Value) -> Result<T, Failure> {
    T::deserialize(wire).map_err(|error| ClientError::Broken(error.to_string()).into())
}

/// What will really run, in one line: the daemon put it together from the program it found, and
/// made it visible. The words that the agent asked with can name anything.
pub(crate) fn what(approval: &Approval) -> String {
    // Line breaks are the daemon's own, since those of an agent are spelled out.
    let lines = approval.summary.lines().map(|line| safe::once(line.trim()));
    lines.collect::<Vec<_>>().join(" ")
}

/// The question as it is put on a terminal, with everything that will run.
pub(crate) fn shown(approval: &Approval) -> String {
    let planned = Planned {
        program: approval.program.clone(),
        workspace: approval.workspace.clone(),
        run_as: None,
        effects: approval.effects.clone(),
    };
    rendered(approval, &planned)
}

/// Where the question stands in full.
pub(crate) fn path(approval: &str) -> String {
    format!("{PATH}/{approval}")
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

/// What the text leaves out is in the document.
fn tell_hidden(approval: &Approval, output: &Output) {
    let id = safe::line(&approval.approval_id);
    if let Some(code) = &approval.shown_code {
        let code = safe::line(code);
        if approval.hidden_bytes > 0 {
            output.say(&format!("all of it was shown: `--shown {code}` allows it"));
        }
        return;
    }
    let arguments = approval.arguments.as_ref();
    let hidden = arguments.map_or(0, |json| render::json(json, safe::WIDTH).hidden_bytes);
    if hidden > 0 {
        output.suggest(&format!(
            "{hidden} bytes of the arguments are not shown; \
             see them all with `palyra approvals show {id} --full`"
        ));
    }
}

fn rendered(approval: &Approval, planned: &Planned) -> String {
    let now = SystemClock.now();
    let instant = |at: &String| Cell::rendered(when::instant(at, now));
    let arguments = match (&approval.full, &approval.arguments) {
        (Some(full), _) => full.lines().map(whole).collect(),
        (None, Some(arguments)) => Cell::json(arguments),
        (None, None) => vec![Cell::styled("no longer kept", DIM)],
    };
    let effects = planned.effects.iter();
    let effects = effects.map(|effect| Cell::rendered(safe::once(effect)));
    let safe_lines = |lines: &[String]| -> Vec<Cell> {
        let lines = lines.iter().map(|line| Cell::rendered(safe::once(line)));
        lines.collect()
    };
    let said = approval.untrusted_words.as_ref();
    let said = said.map(|said| format!("\u{201c}{}\u{201d} (unchecked)", safe::once(said)));
    let diff = approval.diff.as_deref().unwrap_or_default();
    Facts::default()
        .with("approval", &approval.approval_id)
        .styled("state", &approval.state, state_style(&approval.state))
        .styled("risk", &approval.risk, risk_style(&approval.risk))
        .lines("because", safe_lines(&approval.risk_reasons))
        .lines("careful", safe_lines(&approval.warnings))
        .with("who", &approval.principal)
        .with("tool", &approval.tool)
        .with("what", Cell::rendered(what(approval)))
        .maybe("program", planned.program.as_ref())
        .maybe("workspace", planned.workspace.as_ref())
        .maybe("runs as", planned.run_as.as_ref())
        .lines("effects", effects)
        .with("call", &approval.call_id)
        .with("asked", instant(&approval.requested_at))
        .with("expires", instant(&approval.expires_at))
        .maybe("decided by", approval.decided_by.as_ref())
        .maybe("decided", approval.decided_at.as_ref().map(instant))
        .maybe("reason", approval.reason.as_ref())
        .maybe("answered from", approval.answered_from.as_ref())
        .maybe("grant", approval.grant_id.as_ref())
        .maybe("session", approval.session_id.as_ref())
        .lines("a yes may cover", approval.covers.iter().flat_map(covered))
        .lines("changes", diff.lines().map(whole))
        .maybe("its words", said.map(Cell::rendered))
        .lines("arguments", arguments)
        .render()
}

/// A line of text that the daemon made safe, of any length.
fn whole(line: &str) -> Cell {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    let rest = line.get(spaces..).unwrap_or_default();
    Cell::rendered(format!("{}{}", " ".repeat(spaces), safe::once(rest)))
}

/// How far a yes can reach, and what that would have covered.
fn covered(cover: &Cover) -> Vec<Cell> {
    let (kind, sentence) = (cover.cover.as_str(), safe::once(&cover.sentence));
    let mut lines = vec![Cell::rendered(format!("{kind}: {sentence}"))];
    if let Some(seen) = &cover.seen_before {
        let (covered, of) = (seen.covered, seen.looked_at);
        lines.push(Cell::rendered(format!(
            "  also {covered} of the last {of} calls"
        )));
        let examples = seen.examples.iter();
        lines.extend(examples.map(|line| Cell::rendered(format!("    {}", safe::once(line)))));
    }
    lines
}

fn risk_style(risk: &str) -> anstyle::Style {
    match risk {
        "high" | "critical" => BAD,
        "medium" => WAITING,
        _ => PLAIN,
    }
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

    fn wire() -> Value {
        serde_json::json!({
            "approval_id": "appr_x", "state": "pending", "call_id": "call_x",
            "tool": "palyra.process.run", "principal": "agent:claude",
            "requested_at": "2026-11-15T09:00:00Z", "expires_at": "2026-11-15T09:10:00Z",
            "reason": "no\u{1b}[2J\u{202e}",
            "summary": r"/tmp/evil/git status '\u{202e}txt', in /home/a",
            "program": "/tmp/evil/git", "workspace": "/home/a\u{1b}", "run_as": "owner (1000)",
            "effects": [r"runs /tmp/evil/git", r"writes /home/a\u{1b}"],
            "arguments": {"argv": ["git", "status", "\u{202e}txt", " ".repeat(300)]}
        })
    }

    fn approval() -> Approval {
        known(&wire()).unwrap()
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
    fn what_really_runs_is_shown() {
        let text = shown(&rendered(&approval(), &known(&wire()).unwrap()));
        for row in [
            r"what       /tmp/evil/git status '\u{202e}txt', in /home/a",
            "program    /tmp/evil/git",
            r"workspace  /home/a\u{1b}",
            "runs as    owner (1000)",
            "effects    runs /tmp/evil/git",
            r"           writes /home/a\u{1b}",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}: {text}");
        }
        // A daemon that says less is no error.
        let text = shown(&rendered(&approval(), &Planned::default()));
        assert!(!text.contains("runs as"), "{text}");
    }

    #[test]
    fn an_agents_words_cannot_repaint_the_question() {
        let text = shown(&rendered(&approval(), &known(&wire()).unwrap()));
        for part in [
            r#""\u{202e}txt""#,
            r#""\{300 spaces}""#,
            r"no\u{1b}[2J\u{202e}",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let done = shown(&decided(&approval()));
        assert!(done.starts_with("pending appr_x: /tmp/evil/git"), "{done}");
        let other = |summary: &str| Approval {
            summary: summary.to_owned(),
            ..approval()
        };
        assert_eq!(what(&other("ls\r\u{1b}[1A")), r"ls\r\u{1b}[1A");
        let indented = "palyra.fs.write {\n  \"path\": \"a\\u{1b}\"\n}";
        assert_eq!(
            what(&other(indented)),
            r#"palyra.fs.write { "path": "a\u{1b}" }"#
        );
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
        let row = "appr_x     4m    6m  agent:claude  /tmp/evil/git status";
        assert!(text.contains(row), "{text}");
    }
}
