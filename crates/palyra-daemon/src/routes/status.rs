//! How the daemon is.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, Health, Status};
use palyra_gateway::policies::PolicyOverview;
use palyra_gateway::vault::Standing;
use palyra_journal::JournalState;

use super::{App, Who, reading};
use crate::problem::Refused;

#[utoipa::path(get, path = "/healthz", responses((status = 200, body = Health), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn healthz(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Health>, Refused> {
    let gateway = app.gateway.clone();
    let overview = reading(move || gateway.overview(&caller)).await?;
    let writable = matches!(overview.journal_state, JournalState::Writable);
    let status = if writable && overview.sandbox.available {
        "ok"
    } else {
        "degraded"
    };
    Ok(Json(Health {
        status: status.to_owned(),
    }))
}

#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = Status), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn status(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Status>, Refused> {
    let gateway = app.gateway.clone();
    let principal = caller.principal.to_string();
    let vault = gateway.vault_overview(&caller)?;
    let presence = gateway.presence(&caller)?;
    let overview = reading(move || gateway.overview(&caller)).await?;
    let (journal_state, stopped) = match overview.journal_state {
        JournalState::Writable => ("writable".to_owned(), None),
        JournalState::Unwritable { why, next_step } => {
            let words = format!("nothing executes: {why}; {next_step}");
            (why, Some(words))
        }
    };
    let running = overview
        .live_calls
        .saturating_sub(overview.pending_approvals);
    let policies = overview.policies.as_ref();
    let mut warnings = policies.map_or_else(Vec::new, PolicyOverview::warnings);
    match &vault.standing {
        // Then the journal takes nothing either, for the same reason.
        Standing::Locked { why, next_step, .. } => warnings.push(format!(
            "nothing executes: the vault is locked: {why}; {next_step}"
        )),
        Standing::Open => warnings.extend(stopped),
    }
    warnings.extend(super::presence::warning(&presence));
    warnings.extend(app.about.warnings.iter().cloned());
    Ok(Json(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: app.about.started_at.to_string(),
        principal,
        presence: presence.mode.as_str().to_owned(),
        policy_version: overview.policy.policy_version,
        policy_number: overview.policy.number,
        policy_staged: policies
            .and_then(|it| Some(it.standing.staged.as_ref()?.digest.to_string())),
        baseline: overview.policy.baseline,
        running_calls: running as u64,
        pending_approvals: overview.pending_approvals as u64,
        journal_head: overview.journal_head,
        journal_state,
        journal_keys: super::vault::journal_keys(&vault),
        sandbox: serde_json::to_value(&overview.sandbox).unwrap_or_default(),
        interrupted_at_start: overview
            .interrupted
            .iter()
            .map(ToString::to_string)
            .collect(),
        warnings,
    }))
}
