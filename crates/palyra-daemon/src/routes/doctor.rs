//! What this machine gives to the sandbox.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{Doctor, DoctorCheck, ErrorBody};
use palyra_gateway::vault::{Overview, Standing};
use palyra_sandbox::{Check, DoctorReport};

use super::{App, Who};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/doctor", responses((status = 200, body = Doctor), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn examine(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Doctor>, Refused> {
    let report = app.gateway.examine(&caller).await.map_err(Refused)?;
    let mut doctor = on_the_wire(report);
    doctor
        .checks
        .push(vault(&app.gateway.vault_overview(&caller)?));
    Ok(Json(doctor))
}

/// Whether the vault is open, and where the journal's keys are.
fn vault(overview: &Overview) -> DoctorCheck {
    let keys = super::vault::journal_keys(overview);
    let (state, why, remedy) = match &overview.standing {
        Standing::Open => ("works", "open".to_owned(), None),
        Standing::Locked { why, next_step, .. } => {
            ("missing", format!("locked: {why}"), Some(next_step.clone()))
        }
    };
    DoctorCheck {
        name: "vault".to_owned(),
        state: state.to_owned(),
        needed_for: "every call".to_owned(),
        found: format!(
            "{why}; key store `{}`; journal keys {keys}",
            overview.keystore
        ),
        remedy,
    }
}

/// The report as the API gives it.
pub(crate) fn on_the_wire(report: DoctorReport) -> Doctor {
    let check = |check: Check| DoctorCheck {
        name: check.name.to_owned(),
        state: check.state.as_str().to_owned(),
        needed_for: check.needed.as_str().to_owned(),
        found: check.found,
        remedy: check.remedy,
    };
    Doctor {
        tier_c: report.tier_c,
        tier_b: report.tier_b,
        checks: report.checks.into_iter().map(check).collect(),
    }
}
