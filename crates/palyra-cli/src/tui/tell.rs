//! Questions, calls, grants and entries in words, every one of them made harmless to a terminal.
//!
//! What the daemon rendered is passed on as it is when that is safe; everything else goes through
//! [`crate::safe`]. An agent's arguments are shown whole, however long they are.

use palyra_api::wire::{Approval, CallDetail, CallSummary, Cover, Grant, Reach};
use palyra_core::{Timestamp, render};
use serde_json::Value;

use super::page::Body;
use super::seen::{Entry, Risk};
use super::theme::Tone;
use crate::{output, safe, when};

/// What will really run, in one line.
#[must_use]
pub fn what(question: &Approval) -> String {
    // Line breaks are the daemon's own, since those of an agent are spelled out.
    let lines = question.summary.lines().map(|line| safe::once(line.trim()));
    lines.collect::<Vec<_>>().join(" ")
}

/// How the risk is told, and its tone.
#[must_use]
pub fn risk(question: &Approval) -> (String, Tone) {
    let word = match question.risk.as_str() {
        "" => "unjudged".to_owned(),
        word => safe::line(word),
    };
    let tone = match Risk::of(&question.risk) {
        Risk::Low => Tone::Dim,
        Risk::Medium => Tone::Care,
        Risk::High => Tone::Bad,
        Risk::Critical => Tone::Worst,
    };
    (word, tone)
}

/// The tone of an approval's state.
#[must_use]
pub fn approval_tone(state: &str) -> Tone {
    match state {
        "pending" => Tone::Care,
        "allowed" | "spent" => Tone::Good,
        "denied" | "expired" => Tone::Bad,
        _ => Tone::Dim,
    }
}

/// The tone of a call's state.
#[must_use]
pub fn call_tone(state: &str) -> Tone {
    match state {
        "completed" => Tone::Good,
        "waiting" | "admitted" => Tone::Care,
        "proposed" => Tone::Plain,
        _ => Tone::Bad,
    }
}

/// A question in full: first what would run, to its last byte, then the rest.
#[must_use]
pub fn question(question: &Approval, now: Timestamp) -> Body {
    let each = |lines: &[String]| -> Vec<String> {
        lines
            .iter()
            .map(|line| safe::once(line).into_owned())
            .collect()
    };
    let (word, tone) = risk(question);
    let mut body = Body::default()
        .with("who", safe::line(&question.principal), Tone::Strong)
        .with("what", what(question), Tone::Strong)
        .with("risk", word, tone)
        .lines("", each(&question.risk_reasons), tone)
        .lines("beware", each(&question.warnings), Tone::Care)
        .maybe("program", whole(&question.program), Tone::Plain)
        .maybe("in", whole(&question.workspace), Tone::Plain)
        .lines("effects", each(&question.effects), Tone::Plain);
    body = match &question.diff {
        Some(diff) => diff_lines(body, diff),
        None => body,
    };
    body = body
        .lines("arguments", arguments(question), Tone::Plain)
        .decisive();
    if let Some(words) = &question.untrusted_words {
        let words = words.lines().map(|line| safe::once(line).into_owned());
        body = body
            .with("", "", Tone::Plain)
            .with(
                "it says",
                "in its own words, which nobody checked:",
                Tone::Dim,
            )
            .lines("", words, Tone::Care);
    }
    let instant = |at: &String| when::instant(at, now);
    body.with("", "", Tone::Plain)
        .with(
            "state",
            safe::line(&question.state),
            approval_tone(&question.state),
        )
        .maybe("decided by", known(&question.decided_by), Tone::Plain)
        .maybe(
            "decided",
            question.decided_at.as_ref().map(instant),
            Tone::Plain,
        )
        .maybe("reason", known(&question.reason), Tone::Plain)
        .maybe("grant", known(&question.grant_id), Tone::Plain)
        .with("asked", instant(&question.requested_at), Tone::Dim)
        .with("expires", instant(&question.expires_at), Tone::Dim)
        .with("tool", safe::line(&question.tool), Tone::Dim)
        .maybe("session", known(&question.session_id), Tone::Dim)
        .with("approval", safe::line(&question.approval_id), Tone::Dim)
        .with("call", safe::line(&question.call_id), Tone::Dim)
}

fn arguments(question: &Approval) -> Vec<String> {
    let whole = match (&question.full, &question.arguments) {
        (Some(full), _) => full.clone(),
        (None, Some(arguments)) => render::json(arguments, usize::MAX).text,
        (None, None) => return vec!["no longer kept".to_owned()],
    };
    members(&whole)
}

/// Indented JSON, a line for each member of the outermost object: an ordinary call then fits on the
/// screen. A line break in it is always the renderer's, since those of an agent are spelled out.
fn members(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let inner = line.trim_start();
        let depth = line.len() - inner.len();
        let inner = safe::once(inner);
        let closes = inner.starts_with(['}', ']']);
        match lines.last_mut() {
            Some(last) if depth > 2 || closes || last == "{" => {
                last.push(' ');
                last.push_str(&inner);
            }
            Some(_) | None => lines.push(inner.into_owned()),
        }
    }
    lines
}

fn diff_lines(mut body: Body, diff: &str) -> Body {
    for (at, line) in diff.lines().enumerate() {
        let tone = match line.as_bytes().first() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            Some(b'@') => Tone::Dim,
            Some(_) | None => Tone::Plain,
        };
        let label = if at == 0 { "changes" } else { "" };
        body = body.with(label, safe::once(line).into_owned(), tone);
    }
    body
}

/// A call in full: its timeline first, which grows while it goes on.
#[must_use]
pub fn call(call: &CallDetail, now: Timestamp) -> Body {
    let summary = &call.summary;
    let began: Option<Timestamp> = summary.proposed_at.parse().ok();
    let mut body = Body::default()
        .with("who", safe::line(&summary.principal), Tone::Strong)
        .with("tool", safe::line(&summary.tool), Tone::Plain)
        .with("state", state(summary), call_tone(&summary.state))
        .with(
            "proposed",
            when::instant(&summary.proposed_at, now),
            Tone::Dim,
        )
        .with("", "", Tone::Plain);
    for entry in &call.entries {
        let at: Option<Timestamp> = entry.at.parse().ok();
        let after = match (began, at) {
            (Some(began), Some(at)) => format!("+{}", when::span(at.since(began))),
            (_, _) => safe::line(&entry.at),
        };
        let told = crate::commands::journal::detail(entry);
        let kind = safe::line(&entry.kind);
        body = body.with(
            &after,
            format!("{kind:<10} {told}"),
            entry_tone(&entry.kind),
        );
    }
    if !is_over(&summary.state) {
        let lasts = began.map_or_else(String::new, |began| when::span(now.since(began)));
        body = body.with(&format!("+{lasts}"), "… it goes on", Tone::Dim);
    }
    body = body.with("", "", Tone::Plain);
    body = match &call.arguments {
        Some(value) => {
            let text = render::json(value, safe::WIDTH).text;
            body.lines("arguments", members(&text), Tone::Plain)
        }
        None => body.with("arguments", "no longer kept", Tone::Dim),
    };
    body = match &call.output {
        Some(value) => body.lines("output", given_back(value), Tone::Plain),
        None => body,
    };
    body.maybe(
        "approval",
        summary.approval_id.as_ref().map(|id| safe::line(id)),
        Tone::Dim,
    )
    .with("call", safe::line(&summary.call_id), Tone::Dim)
}

/// Where a call stands, in a few words.
#[must_use]
pub fn state(call: &CallSummary) -> String {
    let mut text = safe::line(&call.state);
    if let Some(code) = &call.code {
        text.push_str(&format!(" ({})", safe::line(code)));
    }
    if let Some(exit) = call.exit_code.filter(|exit| *exit != 0) {
        text.push_str(&format!(", exit {exit}"));
    }
    text
}

/// Whether nothing more happens to a call in this state.
#[must_use]
pub fn is_over(state: &str) -> bool {
    !matches!(state, "proposed" | "waiting" | "admitted")
}

/// The tone of a kind of entry.
#[must_use]
pub fn entry_tone(kind: &str) -> Tone {
    match kind {
        "attested" | "finished" => Tone::Good,
        "approval_requested" => Tone::Care,
        "closed" | "interrupted" | "flooded" => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// What a tool gave back: a process's streams as lines, anything else as JSON.
fn given_back(value: &Value) -> Vec<String> {
    let Value::Object(members) = value else {
        return json(value);
    };
    let mut lines = Vec::new();
    for (name, value) in members {
        let name = safe::line(name);
        match value.get("text").unwrap_or(value) {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => {
                lines.push(format!("{name}:"));
                lines.extend(safe::lines(text).map(|line| format!("  {line}")));
            }
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                let text = format!("{name}: {}", render::json(other, safe::WIDTH).text);
                lines.extend(text.lines().map(str::to_owned));
            }
        }
    }
    lines
}

fn json(value: &Value) -> Vec<String> {
    let text = render::json(value, safe::WIDTH).text;
    text.lines().map(str::to_owned).collect()
}

/// A grant in full.
#[must_use]
pub fn grant(grant: &Grant, now: Timestamp) -> Body {
    let sentence = match &grant.sentence {
        Some(sentence) => safe::once(sentence).into_owned(),
        None => "its words were erased".to_owned(),
    };
    let live = grant.state == "live";
    let id = safe::line(&grant.grant_id);
    let mut body = Body::default()
        .with("allows", sentence, Tone::Strong)
        .with("who", agent(grant), Tone::Plain)
        .with("tool", safe::line(&grant.tool), Tone::Plain)
        .with("covers", grant.cover.as_str(), Tone::Plain)
        .with("for", reach(grant.scope), Tone::Plain)
        .with(
            "state",
            safe::line(&grant.state),
            if live { Tone::Good } else { Tone::Dim },
        )
        .with("until", when::instant(&grant.not_after, now), Tone::Plain)
        .maybe(
            "ended",
            grant.ended_at.as_ref().map(|at| when::instant(at, now)),
            Tone::Plain,
        )
        .maybe("why", known(&grant.why_ended), Tone::Plain)
        .maybe("ended by", known(&grant.ended_by), Tone::Plain)
        .with("used", used(grant, now), Tone::Plain)
        .with("given by", safe::line(&grant.made_by), Tone::Dim)
        .with("given", when::instant(&grant.made_at, now), Tone::Dim);
    if live {
        body = body.with("take back", format!("palyra grants revoke {id}"), Tone::Key);
    }
    if let Some(rule) = &grant.rule {
        body = body
            .with("", "", Tone::Plain)
            .lines("rule", rule_lines(rule), Tone::Dim);
    }
    body.with("approval", safe::line(&grant.approval_id), Tone::Dim)
        .with("call", safe::line(&grant.call_id), Tone::Dim)
        .with("grant", id, Tone::Dim)
}

/// Whom a grant serves.
#[must_use]
pub fn agent(grant: &Grant) -> String {
    format!("agent:{}", safe::line(&grant.agent))
}

const fn reach(scope: Reach) -> &'static str {
    match scope {
        Reach::Once => "one call",
        Reach::Session => "the session that asked",
        Reach::Window => "a while",
    }
}

fn used(grant: &Grant, now: Timestamp) -> String {
    let times = match grant.uses {
        0 => return "never".to_owned(),
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    match &grant.last_used_at {
        Some(at) => format!("{times}, last {}", when::instant(at, now)),
        None => times,
    }
}

/// What one cover means: its sentence, what it would also have allowed, its rule.
#[must_use]
pub fn cover(cover: &Cover) -> Body {
    let mut body = Body::default().with(
        "allows",
        safe::once(&cover.sentence).into_owned(),
        Tone::Strong,
    );
    if let Some(seen) = &cover.seen_before {
        let text = format!("{} of the last {} calls", seen.covered, seen.looked_at);
        let examples = seen
            .examples
            .iter()
            .map(|line| safe::once(line).into_owned());
        body = body
            .with("also fits", text, Tone::Plain)
            .lines("", examples, Tone::Dim);
    }
    match &cover.rule {
        Some(rule) => body.lines("rule", rule_lines(rule), Tone::Dim),
        None => body,
    }
}

fn rule_lines(rule: &str) -> Vec<String> {
    rule.lines()
        .map(|line| safe::once(line).into_owned())
        .collect()
}

/// An entry of the journal in full.
#[must_use]
pub fn entry(entry: &Entry, now: Timestamp) -> Body {
    let recorded = &entry.entry;
    let document = output::pretty(&recorded.entry);
    Body::default()
        .with(
            "entry",
            format!("{} {}", recorded.seq, safe::line(&recorded.kind)),
            Tone::Strong,
        )
        .with("what", entry.told.clone(), Tone::Plain)
        .with(
            "stream",
            format!(
                "{} revision {}",
                safe::line(&recorded.stream),
                recorded.revision
            ),
            Tone::Dim,
        )
        .with("at", when::instant(&recorded.at, now), Tone::Dim)
        .with("", "", Tone::Plain)
        .lines("document", document.lines().map(str::to_owned), Tone::Plain)
}

/// A path is never cut: it is part of what would run.
fn whole(text: &Option<String>) -> Option<String> {
    text.as_deref().map(render::visible)
}

fn known(text: &Option<String>) -> Option<String> {
    text.as_deref().map(safe::line)
}
