//! Policies: which version decides, and the changes a person makes.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use palyra_api::wire::policy::{
    ActivatePolicies, PolicyChanged, PolicyOutcome, PolicyOverview, PolicyRefused, PolicySource,
    PolicyStaged, PolicyVersion, PolicyVersionDetail, ReloadPolicies, RollBackPolicies,
};
use palyra_api::wire::{ErrorBody, Page};
use palyra_core::Digest;
use palyra_core::entry::WhyActivated;
use palyra_gateway::error::RefusalKind;
use palyra_gateway::policies::{self, Considered};
use serde::Deserialize;

use super::calls::typed_body;
use super::{App, Asked, Named, Who, page, page_size, reading};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/policy", operation_id = "policy_overview", responses((status = 200, body = PolicyOverview), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn overview(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<PolicyOverview>, Refused> {
    Ok(Json(now(&app.gateway.policy_overview(&caller)?)))
}

/// Which versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    before: Option<u64>,
    limit: Option<usize>,
}

#[utoipa::path(
    get, path = "/api/v1/policy/versions", operation_id = "list_policy_versions",
    params(("before" = Option<u64>, Query, description = "a number"), ("limit" = Option<usize>, Query,)),
    responses((status = 200, body = Page<PolicyVersion>), (status = "4XX", body = ErrorBody))
)]
pub(crate) async fn versions(
    State(app): State<App>,
    Who(caller): Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Page<PolicyVersion>>, Refused> {
    let (gateway, size) = (app.gateway.clone(), page_size(which.limit));
    let (found, active) = reading(move || {
        let found = gateway.policy_versions(&caller, which.before, size + 1)?;
        let active = gateway.policy_overview(&caller)?.standing.active.number;
        Ok((found, active))
    })
    .await?;
    let items = found.iter().map(|it| version(it, active)).collect();
    Ok(Json(page(items, size, |it: &PolicyVersion| {
        it.number.to_string()
    })))
}

#[utoipa::path(get, path = "/api/v1/policy/versions/{number}", operation_id = "show_policy_version", params(("number" = u64, Path,)), responses((status = 200, body = PolicyVersionDetail), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<App>,
    Who(caller): Who,
    Named(number): Named,
) -> Result<Json<PolicyVersionDetail>, Refused> {
    let number: u64 = number.parse().map_err(|_| not_a_number())?;
    let gateway = app.gateway.clone();
    let (found, sources, active) = reading(move || {
        let (found, sources) = gateway.policy_version(&caller, number)?;
        let active = gateway.policy_overview(&caller)?.standing.active.number;
        Ok((found, sources, active))
    })
    .await?;
    let texts = std::iter::once(sources.baseline).chain(sources.files);
    Ok(Json(PolicyVersionDetail {
        version: version(&found, active),
        sources: texts
            .map(|it| PolicySource {
                name: it.name,
                text: it.text,
            })
            .collect(),
    }))
}

#[utoipa::path(post, path = "/api/v1/policy/reload", operation_id = "reload_policies", request_body = ReloadPolicies, responses((status = 200, body = PolicyChanged), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn reload(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<PolicyChanged>, Refused> {
    let ReloadPolicies {} = typed_body(body).await?.1;
    let (considered, overview) = app.gateway.reload_policies(&caller).await?;
    let outcome = match considered {
        Considered::Activated => PolicyOutcome::Activated,
        Considered::Staged => PolicyOutcome::Staged,
        Considered::Unchanged | Considered::SetAside | Considered::Refused => {
            PolicyOutcome::Unchanged
        }
    };
    Ok(changed(outcome, &overview))
}

#[utoipa::path(post, path = "/api/v1/policy/activate", operation_id = "activate_policies", request_body = ActivatePolicies, responses((status = 200, body = PolicyChanged), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn activate(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<PolicyChanged>, Refused> {
    let wanted: ActivatePolicies = typed_body(body).await?.1;
    let digest: Digest = wanted.digest.parse().map_err(not_a_digest)?;
    let overview = app.gateway.activate_staged(&caller, digest).await?;
    Ok(changed(PolicyOutcome::Activated, &overview))
}

#[utoipa::path(post, path = "/api/v1/policy/rollback", operation_id = "roll_back_policies", request_body = RollBackPolicies, responses((status = 200, body = PolicyChanged), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn rollback(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<PolicyChanged>, Refused> {
    let wanted: RollBackPolicies = typed_body(body).await?.1;
    let overview = app
        .gateway
        .rollback_policies(&caller, wanted.number)
        .await?;
    Ok(changed(PolicyOutcome::Activated, &overview))
}

fn changed(outcome: PolicyOutcome, overview: &policies::PolicyOverview) -> Json<PolicyChanged> {
    Json(PolicyChanged {
        outcome,
        now: now(overview),
    })
}

fn now(overview: &policies::PolicyOverview) -> PolicyOverview {
    let standing = &overview.standing;
    PolicyOverview {
        folder: overview.folder.display().to_string(),
        staging: overview.staging,
        active: version(&standing.active, standing.active.number),
        staged: standing.staged.as_ref().map(|staged| PolicyStaged {
            digest: staged.digest.to_string(),
            baseline: staged.baseline.clone(),
            files: texts(&staged.files),
            staged_at: staged.staged_at.to_string(),
        }),
        refused: standing.refused.as_ref().map(|refused| PolicyRefused {
            problems: refused.problems.clone(),
            more: refused.more as u64,
        }),
        set_aside: standing.set_aside.is_some(),
    }
}

fn version(found: &policies::PolicyVersion, active: u64) -> PolicyVersion {
    let state = match found.number == active {
        true => "active",
        false => "kept",
    };
    PolicyVersion {
        number: found.number,
        state: state.to_owned(),
        digest: found.digest.to_string(),
        policy_version: found.policy_version.clone(),
        baseline: found.baseline.clone(),
        files: texts(&found.files),
        why: found.why.as_str().to_owned(),
        rolled_back_to: match found.why {
            WhyActivated::RolledBack { to } => Some(to),
            WhyActivated::Started
            | WhyActivated::Changed
            | WhyActivated::Reloaded
            | WhyActivated::Activated => None,
        },
        by: found.by.as_ref().map(ToString::to_string),
        activated_at: found.activated_at.to_string(),
    }
}

fn texts(
    files: &std::collections::BTreeMap<String, Digest>,
) -> std::collections::BTreeMap<String, String> {
    let text = |(name, digest): (&String, &Digest)| (name.clone(), digest.to_string());
    files.iter().map(text).collect()
}

fn not_a_number() -> Refused {
    Refused::new(
        RefusalKind::Invalid,
        "invalid_policy_version",
        "a policy version is a number, from 1",
        "see `palyra policy versions`",
    )
}

fn not_a_digest(error: palyra_core::digest::NotADigest) -> Refused {
    Refused::new(
        RefusalKind::Invalid,
        "invalid_digest",
        error.to_string(),
        "see what is staged with `palyra policy list`",
    )
}
