//! `palyra status`: is it there, who am I to it, what waits, what can the sandbox do.

use palyra_api::wire::Status;
use palyra_core::{Clock, SystemClock};
use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, GOOD, PLAIN, WAITING, compact};
use crate::session::Session;
use crate::table::{Cell, Facts};
use crate::when;

pub(super) async fn run(session: &Session) -> Result<Exit, Failure> {
    let status: Status = super::get(session, "/api/v1/status").await?;
    let socket = session.home.socket().display().to_string();
    session
        .output
        .answer(&status, |status| render(status, &socket))?;
    if status.pending_approvals > 0 {
        session
            .output
            .suggest("see what waits with `palyra approvals list`");
    }
    Ok(Exit::OK)
}

fn render(status: &Status, socket: &str) -> String {
    let started = when::instant(&status.started_at, SystemClock.now());
    let waiting = match status.pending_approvals {
        0 => PLAIN,
        _ => WAITING,
    };
    let journal = match status.journal_state.as_str() {
        "writable" => GOOD,
        _ => BAD,
    };
    let warnings = status
        .warnings
        .iter()
        .map(|warning| Cell::styled(warning, WAITING));
    Facts::default()
        .styled(
            "daemon",
            format!("reachable, version {}, pid {}", status.version, status.pid),
            GOOD,
        )
        .with("socket", socket)
        .with("started", Cell::rendered(started))
        .with("you are", &status.principal)
        .with("presence", &status.presence)
        .with(
            "policy",
            format!(
                "{}, version {} ({})",
                status.baseline, status.policy_number, status.policy_version
            ),
        )
        .lines(
            "staged",
            status
                .policy_staged
                .iter()
                .map(|it| Cell::styled(it, WAITING)),
        )
        .with("running", counted(status.running_calls, "call"))
        .styled(
            "waiting",
            counted(status.pending_approvals, "approval"),
            waiting,
        )
        .styled(
            "journal",
            format!("{}, {} entries", status.journal_state, status.journal_head),
            journal,
        )
        .with("journal keys", &status.journal_keys)
        .lines("sandbox", sandbox(&status.sandbox))
        .lines(
            "interrupted",
            status.interrupted_at_start.iter().map(Cell::new),
        )
        .lines("warnings", warnings)
        .render()
}

fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// What the sandbox says of itself, one member a line.
fn sandbox(value: &Value) -> Vec<Cell> {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => compact(value),
    };
    match value {
        Value::Object(members) => {
            let line = |(name, value): (&String, &Value)| {
                Cell::new(format!("{}: {}", name.replace('_', " "), plain(value)))
            };
            let said = members.iter().filter(|(_, value)| !value.is_null());
            said.map(line).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            vec![Cell::new(plain(value))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_what_matters() {
        let status = Status {
            version: "0.1.0".to_owned(),
            pid: 42,
            started_at: "2026-11-15T09:00:00Z".to_owned(),
            principal: "user:owner".to_owned(),
            presence: "off".to_owned(),
            policy_version: "abc".to_owned(),
            policy_number: 7,
            policy_staged: None,
            baseline: "standard".to_owned(),
            running_calls: 1,
            pending_approvals: 2,
            journal_head: 9,
            journal_state: "writable".to_owned(),
            journal_keys: "sealed in the vault".to_owned(),
            sandbox: serde_json::json!({"landlock_abi": 7, "seccomp": true}),
            interrupted_at_start: vec![],
            warnings: vec!["runs as\u{1b} root".to_owned()],
        };
        let text = anstream::adapter::strip_str(&render(&status, "/s")).to_string();
        for part in [
            "pid 42",
            "user:owner",
            "2 approvals",
            "version 7 (abc)",
            "landlock abi: 7",
            "sealed in the vault",
            "seccomp: yes",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains(r"runs as\u{1b} root") && !text.contains("interrupted"));
    }
}
