//! What this machine gives to the sandbox.

use axum::Json;
use axum::extract::State;
use palyra_api::wire::{Doctor, DoctorCheck, ErrorBody};
use palyra_sandbox::{Check, DoctorReport};

use super::{App, Who};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/doctor", responses((status = 200, body = Doctor), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn examine(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Doctor>, Refused> {
    let report = app.gateway.examine(&caller).await.map_err(Refused)?;
    Ok(Json(on_the_wire(report)))
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
