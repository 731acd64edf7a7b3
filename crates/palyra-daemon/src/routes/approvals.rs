//! Approvals: seeing and deciding them.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use palyra_api::wire::{
    Approval, Cover, CoverKind, Decide, Decision, ErrorBody, Page, Reach as WireReach, SeenBefore,
    Stats, StatsProposal,
};
use palyra_approval::{ApprovalPromptRecord, ApprovalState, Wanted};
use palyra_core::{ApprovalDecision, Effect, Facts, Reach, ScopeKind, render};
use palyra_gateway::deciding::PersonsAnswer;
use palyra_gateway::prompting::CoverShown;
use palyra_gateway::records::{ApprovalView, ListQuery};
use serde::Deserialize;

use super::calls::typed_body;
use super::{App, Asked, Named, Who, page, page_size, reading};
use crate::problem::Refused;

/// Which approvals.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    state: Option<Shown>,
    before: Option<String>,
    limit: Option<usize>,
}

/// Approvals in one state, or all.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shown {
    All,
    #[serde(untagged)]
    One(ApprovalState),
}

#[utoipa::path(
    get, path = "/api/v1/approvals", operation_id = "list_approvals",
    params(("state" = Option<String>, Query, description = "`pending` (default), `all`, or another state"), ("before" = Option<String>, Query,), ("limit" = Option<usize>, Query,)),
    responses((status = 200, body = Page<Approval>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<Approval>>, Refused> {
    let state = match which.state.unwrap_or(Shown::One(ApprovalState::Pending)) {
        Shown::All => None,
        Shown::One(state) => Some(state.as_str().to_owned()),
    };
    let size = page_size(which.limit);
    let query = ListQuery {
        state: None,
        approval_state: state,
        agent: None,
        before: which.before,
        limit: size + 1,
    };
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.approvals(&caller, &query)).await?;
    let items = found.into_iter().map(on_the_wire).collect();
    Ok(Json(page(items, size, |approval: &Approval| {
        approval.approval_id.clone()
    })))
}

/// How much of one approval.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HowMuch {
    #[serde(default)]
    full: bool,
}

#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "show_approval", params(("id" = String, Path,), ("full" = Option<bool>, Query, description = "with all of the arguments, and the code that says so")), responses((status = 200, body = Approval), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
    Asked(how_much): Asked<HowMuch>,
) -> Result<Json<Approval>, Refused> {
    let gateway = app.gateway.clone();
    let shown = reading(move || {
        let view = gateway.approval(&caller, &id)?;
        let covers = gateway.covers(&caller, &view)?;
        let diff = gateway.file_diff(&caller, &view);
        let full = how_much.full.then(|| gateway.in_full(&view)).transpose()?;
        Ok((view, covers, diff, full))
    });
    let (view, covers, diff, full) = shown.await?;
    let (full, shown_code) = full.unzip();
    Ok(Json(Approval {
        covers: covers.into_iter().map(cover_shown).collect(),
        diff,
        full,
        shown_code,
        ..on_the_wire(view)
    }))
}

#[utoipa::path(get, path = "/api/v1/approvals/stats", operation_id = "approval_stats", responses((status = 200, body = Stats), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn stats(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Stats>, Refused> {
    let gateway = app.gateway.clone();
    let stats = reading(move || gateway.approval_stats(&caller)).await?;
    let proposals = stats.proposals.into_iter().map(|it| StatsProposal {
        principal: it.principal.to_string(),
        tool: it.tool.to_string(),
        cover: cover(it.cover),
        sentence: render::line(&it.sentence),
        times: it.times,
    });
    Ok(Json(Stats {
        asked: stats.asked,
        allowed: stats.allowed,
        denied: stats.denied,
        expired: stats.expired,
        dropped: stats.dropped,
        pending: stats.pending,
        median_answer_ms: stats.median_answer_ms,
        under_grants: stats.under_grants,
        proposals: proposals.collect(),
    }))
}

#[utoipa::path(post, path = "/api/v1/approvals/{id}/decide", operation_id = "decide_approval", params(("id" = String, Path,)), request_body = Decide, responses((status = 200, body = Approval), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn decide(
    State(app): State<App>,
    Who(caller): Who,
    Named(id): Named,
    body: Body,
) -> Result<Json<Approval>, Refused> {
    let answer: Decide = typed_body(body).await?.1;
    let decision = match answer.decision {
        Decision::Allow => ApprovalDecision::Allow,
        Decision::Deny => ApprovalDecision::Deny,
    };
    let wanted = Wanted {
        reach: match answer.scope {
            WireReach::Once => Reach::Once,
            WireReach::Session => Reach::Session,
            WireReach::Window => Reach::Window,
        },
        cover: answer.cover.map_or(ScopeKind::Exact, scope_kind),
        lasts: answer.lasts_ms.map(std::time::Duration::from_millis),
    };
    let answer = PersonsAnswer {
        decision,
        reason: answer.reason,
        wanted,
        shown: answer.shown,
    };
    let decided = app.gateway.decide_approval(&caller, &id, answer).await?;
    Ok(Json(on_the_wire(decided)))
}

const fn scope_kind(cover: CoverKind) -> ScopeKind {
    match cover {
        CoverKind::Exact => ScopeKind::Exact,
        CoverKind::Args => ScopeKind::Shape,
        CoverKind::Program => ScopeKind::Program,
        CoverKind::Dir => ScopeKind::Directory,
        CoverKind::Host => ScopeKind::Host,
        CoverKind::Tool => ScopeKind::Tool,
    }
}

pub(super) const fn cover(kind: ScopeKind) -> CoverKind {
    match kind {
        ScopeKind::Exact => CoverKind::Exact,
        ScopeKind::Shape => CoverKind::Args,
        ScopeKind::Program => CoverKind::Program,
        ScopeKind::Directory => CoverKind::Dir,
        ScopeKind::Host => CoverKind::Host,
        ScopeKind::Tool => CoverKind::Tool,
    }
}

fn cover_shown(shown: CoverShown) -> Cover {
    Cover {
        cover: cover(shown.kind),
        sentence: shown.sentence,
        rule: Some(shown.rule),
        seen_before: Some(SeenBefore {
            looked_at: shown.looked_at,
            covered: shown.covered,
            examples: shown.examples,
        }),
    }
}

fn on_the_wire(view: ApprovalView) -> Approval {
    let shown = what_will_run(&view);
    let (hidden_bytes, warnings) = (view.hidden_bytes(), view.warnings());
    let (record, facts) = (view.record, view.facts);
    let scopes = facts.iter().flat_map(|facts| &facts.scopes);
    let covers = scopes
        .map(|scope| Cover {
            cover: cover(scope.kind),
            sentence: render::line(&scope.sentence),
            rule: None,
            seen_before: None,
        })
        .collect();
    let risk = facts.as_ref().map(|facts| facts.risk.clone());
    let reasons = risk.map(|risk| risk.reasons).unwrap_or_default();
    let said = facts.as_ref().and_then(|facts| facts.said.as_deref());
    let answered_from = record.answered_from.as_ref().map(|from| {
        let session = from.session.as_ref();
        let session = session.map_or_else(String::new, |it| format!(", {it}"));
        format!(
            "{} by {}{session}",
            from.device.as_str(),
            from.channel.as_str()
        )
    });
    let program = facts
        .as_ref()
        .and_then(program)
        .map(|path| path.display().to_string());
    let workspace = facts.as_ref().and_then(|facts| facts.workspace.as_ref());
    let effects = facts
        .as_ref()
        .map(|facts| facts.effects.iter().map(effect).collect());
    Approval {
        approval_id: record.id.to_string(),
        state: record.state.as_str().to_owned(),
        call_id: record.call.to_string(),
        tool: record.tool.to_string(),
        principal: record.principal.to_string(),
        requested_at: record.requested_at.to_string(),
        expires_at: record.expires_at.to_string(),
        decided_by: record.decided_by.as_ref().map(ToString::to_string),
        decided_at: record.decided_at.map(|at| at.to_string()),
        reason: record.reason,
        summary: shown,
        program,
        workspace: workspace.map(|folder| folder.display().to_string()),
        effects: effects.unwrap_or_default(),
        arguments: view.arguments,
        risk: record.risk.as_str().to_owned(),
        risk_reasons: reasons.iter().map(|reason| render::line(reason)).collect(),
        warnings,
        untrusted_words: said.map(|said| render::shown(said, WIDTH).text),
        diff: None,
        covers,
        session_id: record.session.as_ref().map(ToString::to_string),
        detached: record.detached,
        answered_from,
        grant_id: record.grant.as_ref().map(ToString::to_string),
        hidden_bytes: hidden_bytes as u64,
        full: None,
        shown_code: None,
    }
}

/// The call in one line: what was found comes before what was asked for, because a name on a
/// caller's `PATH` can mean anything.
fn what_will_run(view: &ApprovalView) -> String {
    let prompt = ApprovalPromptRecord::new(&view.record, view.arguments.as_ref());
    let asked = prompt
        .arguments
        .unwrap_or_else(|| "(arguments erased)".to_owned());
    let words = view
        .arguments
        .as_ref()
        .and_then(|arguments| arguments.get("argv")?.as_array());
    let found = view.facts.as_ref().and_then(program);
    let (Some(program), Some(words)) = (found, words) else {
        return format!("{} {asked}", view.record.tool);
    };
    let words = words.iter().skip(1).filter_map(serde_json::Value::as_str);
    let line = std::iter::once(program.display().to_string()).chain(words.map(quoted));
    let line = line.collect::<Vec<_>>().join(" ");
    let folder = view
        .facts
        .as_ref()
        .and_then(|facts| facts.workspace.as_ref());
    let place = folder.map_or_else(String::new, |folder| format!(", in {}", folder.display()));
    let extras = view.arguments.as_ref().map(extras).unwrap_or_default();
    render::shown(&format!("{line}{place}{extras}"), WIDTH).text
}

/// What changes the meaning of a command without being part of it.
fn extras(arguments: &serde_json::Value) -> String {
    const USUAL: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TERM", "TZ"];
    let env = arguments.get("env").and_then(serde_json::Value::as_object);
    let names = env.into_iter().flatten().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| !USUAL.contains(name)).collect();
    let mut extras = String::new();
    if !names.is_empty() {
        extras.push_str(&format!(", with {} set", names.join(" ")));
    }
    if let Some(stdin) = arguments.get("stdin").and_then(serde_json::Value::as_str) {
        extras.push_str(&format!(", reading {} bytes of input", stdin.len()));
    }
    extras
}

/// How much of a command is shown; the rest is elided in the middle, with its size.
const WIDTH: usize = 2_000;

/// A word as a shell would need it, so that two words never look like one.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn program(facts: &Facts) -> Option<&std::path::Path> {
    facts.effects.iter().find_map(|effect| match effect {
        Effect::Exec { program } => Some(program.as_path()),
        Effect::FsRead { .. } | Effect::FsWrite { .. } | Effect::NetConnect { .. } => None,
    })
}

fn effect(effect: &Effect) -> String {
    let line = match effect {
        Effect::Exec { program } => format!("runs {}", program.display()),
        Effect::FsRead { path } => format!("reads {}", path.display()),
        Effect::FsWrite { path } => format!("writes {}", path.display()),
        Effect::NetConnect {
            host,
            port: Some(port),
        } => format!("connects to {host} port {port}"),
        Effect::NetConnect { host, port: None } => format!("connects to {host}"),
    };
    render::shown(&line, WIDTH).text
}
