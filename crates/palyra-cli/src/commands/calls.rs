//! `palyra calls`: what was asked and how it came out.

use std::time::Duration;

use clap::ValueEnum;
use palyra_api::wire::{CallDetail, CallSummary, Page};
use palyra_core::{Clock, SystemClock, Timestamp, render};
use serde_json::Value;

use super::journal;
use crate::args::{CallsAction, StateArg};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, WAITING};
use crate::session::Session;
use crate::table::{Cell, Column, Facts, Table};
use crate::{network, safe, when};

const PATH: &str = "/api/v1/calls";
/// The member of an output that says what broke.
const ERROR: &str = "error";

pub(super) async fn run(action: &CallsAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        CallsAction::List {
            limit,
            before,
            agent,
            state,
        } => {
            let state = state.and_then(|state: StateArg| state.to_possible_value());
            let path = super::with_query(
                PATH,
                &[
                    ("limit", Some(limit.to_string())),
                    ("before", before.as_ref().map(ToString::to_string)),
                    ("agent", agent.as_ref().map(ToString::to_string)),
                    ("state", state.map(|state| state.get_name().to_owned())),
                ],
            );
            let page: Page<CallSummary> = super::get(session, &path).await?;
            output.answer(&page, |page| list(page, output, SystemClock.now()))?;
            tell_more(&page, output);
        }
        CallsAction::Show { id, network } => {
            let call: CallDetail = super::get(session, &format!("{PATH}/{id}")).await?;
            match network {
                true => show_network(&call, output)?,
                false => output.answer(&call, |call| render(call, output))?,
            }
        }
    }
    Ok(Exit::OK)
}

fn list(page: &Page<CallSummary>, output: &Output, now: Timestamp) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        Column::left("CALL"),
        Column::right("AGE"),
        Column::left("WHO"),
        Column::flexible("TOOL"),
        Column::left("STATE"),
        Column::right("EXIT"),
        Column::right("TOOK"),
    ]);
    for call in &page.items {
        let exit = call
            .exit_code
            .map_or_else(String::new, |code| code.to_string());
        table.row([
            Cell::new(&call.call_id),
            Cell::rendered(when::age(&call.proposed_at, now)),
            Cell::new(&call.principal),
            Cell::new(&call.tool),
            Cell::styled(&call.state, state_style(&call.state)),
            Cell::styled(
                exit,
                if call.exit_code == Some(0) {
                    PLAIN
                } else {
                    BAD
                },
            ),
            Cell::new(took(call).unwrap_or_default()),
        ]);
    }
    output.table(&table)
}

fn tell_more(page: &Page<CallSummary>, output: &Output) {
    if let Some(next) = &page.next {
        output.suggest(&format!("older ones: add `--before {}`", safe::line(next)));
    } else if page.items.is_empty() {
        output.suggest("no such calls; make one with `palyra exec -- id`");
    }
}

fn render(call: &CallDetail, output: &Output) -> String {
    let CallDetail {
        summary,
        arguments,
        output: given_back,
        entries,
        ..
    } = call;
    let gone = |kind: &str| gone(call, kind);
    let given_back_lines = match given_back {
        Some(value) => output_lines(value),
        None => gone("output"),
    };
    let argument_lines = match arguments {
        Some(value) => Cell::json(value),
        None => match gone("arguments") {
            none if none.is_empty() => vec![Cell::styled("no longer kept", DIM)],
            why => why,
        },
    };
    let facts = Facts::default()
        .with("call", &summary.call_id)
        .styled("state", &summary.state, state_style(&summary.state))
        .maybe("code", summary.code.as_ref())
        .maybe("exit code", summary.exit_code.map(|code| code.to_string()))
        .with("who", &summary.principal)
        .with("tool", &summary.tool)
        .with(
            "proposed",
            Cell::rendered(when::instant(&summary.proposed_at, SystemClock.now())),
        )
        .maybe("took", took(summary))
        .maybe("approval", summary.approval_id.as_ref())
        .lines(
            "error",
            given_back.as_ref().map(error_lines).unwrap_or_default(),
        )
        .lines("arguments", argument_lines)
        .lines("output", given_back_lines);
    format!(
        "{}\n{}",
        facts.render(),
        output.table(&journal::table(entries, SystemClock.now()))
    )
}

/// What it did with its network, and how much of that is only counted.
fn show_network(call: &CallDetail, output: &Output) -> Result<(), Failure> {
    let given_back = call.output.as_ref();
    let found = network::connections(given_back);
    let records = found.as_deref().unwrap_or_default();
    let whole = given_back.and_then(|value| value.get("network"));
    let whole = whole.cloned().unwrap_or(Value::Null);
    output.answer(&whole, |_| match records.is_empty() {
        true => String::new(),
        false => network::table(records, output),
    })?;
    match (&found, network::not_listed(given_back)) {
        (None, _) => output.suggest("it was held to no hosts, so nothing is known of its network"),
        (Some(records), 0) if records.is_empty() => {
            output.suggest("it reached nobody, and did not try")
        }
        (Some(_), 0) => {}
        (Some(_), more) => output.note(&format!("{more} more were only counted")),
    }
    Ok(())
}

fn took(call: &CallSummary) -> Option<String> {
    call.took_ms
        .map(|millis| when::span(Duration::from_millis(millis)))
}

/// Why a content is not shown; nothing when there was none.
fn gone(call: &CallDetail, kind: &str) -> Vec<Cell> {
    if call.erased.iter().any(|erased| erased == kind) {
        return vec![Cell::styled("erased", WAITING)];
    }
    if call.unreadable.iter().any(|odd| odd == kind) {
        let why =
            "does not open: the vault is locked, or it was changed, or the key is another one";
        return vec![Cell::styled(why, BAD)];
    }
    Vec::new()
}

/// What broke, which the record names only by its kind.
fn error_lines(output: &Value) -> Vec<Cell> {
    let Some(error) = output.get(ERROR) else {
        return Vec::new();
    };
    let lines = match error.get("message").unwrap_or(error) {
        Value::String(message) => safe::lines(message).map(Cell::rendered).collect(),
        Value::Null => Vec::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Cell::json(other)
        }
    };
    lines.into_iter().map(|line| line.in_style(BAD)).collect()
}

/// What the tool gave back. Text over several lines is shown as lines, not as one JSON string.
fn output_lines(value: &Value) -> Vec<Cell> {
    let Value::Object(members) = value else {
        return Cell::json(value);
    };
    members
        .iter()
        .filter(|(name, _)| *name != ERROR)
        .flat_map(|(name, value)| member_lines(name, value))
        .collect()
}

fn member_lines(name: &str, value: &Value) -> Vec<Cell> {
    // A stream of a process is `{"text": …}`, or something else when it is not UTF-8.
    let value = value.get("text").unwrap_or(value);
    match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) if text.contains('\n') => {
            let head = Cell::styled(format!("{name}:"), DIM);
            let lines = safe::lines(text).map(|line| Cell::rendered(format!("  {line}")));
            std::iter::once(head).chain(lines).collect()
        }
        Value::String(text) => safe::lines(text)
            .map(|line| Cell::rendered(format!("{}: {line}", safe::line(name))))
            .collect(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let text = render::json(value, safe::WIDTH).text;
            let text = format!("{}: {text}", safe::line(name));
            text.lines().map(Cell::rendered).collect()
        }
    }
}

fn state_style(state: &str) -> anstyle::Style {
    match state {
        "completed" => GOOD,
        "waiting" | "admitted" => WAITING,
        "proposed" => PLAIN,
        _ => BAD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn summary() -> CallSummary {
        CallSummary {
            call_id: "call_x".to_owned(),
            tool: "palyra.process.run".to_owned(),
            principal: "user:owner".to_owned(),
            proposed_at: "2026-11-15T09:00:00Z".to_owned(),
            state: "completed".to_owned(),
            exit_code: Some(7),
            code: None,
            approval_id: None,
            took_ms: Some(12),
        }
    }

    #[test]
    fn the_list_lines_up() {
        let page = Page {
            items: vec![summary()],
            next: None,
        };
        let style = crate::args::Style {
            json: false,
            quiet: false,
        };
        let now = "2026-11-15T09:04:00Z".parse().unwrap();
        let text = plain(&list(&page, &Output::new(style), now));
        let row = "call_x   4m  user:owner  palyra.process.run  completed     7  12ms";
        assert_eq!(text.lines().nth(1), Some(row), "{text}");
    }

    #[test]
    fn what_broke_has_a_row_of_its_own() {
        let output = serde_json::json!({"error": "no program `a\u{1b}`", "stdout": "x"});
        let call = CallDetail {
            summary: summary(),
            arguments: None,
            facts: None,
            output: Some(output),
            erased: vec!["arguments".to_owned()],
            unreadable: Vec::new(),
            entries: Vec::new(),
        };
        let style = crate::args::Style {
            json: false,
            quiet: false,
        };
        let text = plain(&render(&call, &Output::new(style)));
        for row in [
            r"error      no program `a\u{1b}`",
            "arguments  erased",
            "output     stdout: x",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}: {text}");
        }
        assert!(error_lines(&serde_json::json!({"message": "fine"})).is_empty());
    }

    #[test]
    fn output_is_shown_as_lines_and_harmless() {
        let value =
            serde_json::json!({"stdout": {"text": "a\n\u{1b}[2Jb\n"}, "stderr": "x", "code": null});
        let lines: Vec<String> = output_lines(&value)
            .into_iter()
            .map(|cell| format!("{cell:?}"))
            .collect();
        let all = lines.join("\n");
        assert_eq!(lines.len(), 4, "{all}");
        assert!(
            all.contains("stderr: x") && !all.contains('\u{1b}'),
            "{all}"
        );
    }
}
