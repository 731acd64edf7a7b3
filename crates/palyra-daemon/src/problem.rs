//! Refusals on the wire: one status, one stable code, one next step each.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use palyra_api::wire::{ErrorBody, Problem};
use palyra_gateway::Refusal;
use palyra_gateway::error::RefusalKind;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl Refused {
    pub(crate) fn new(
        kind: RefusalKind,
        code: &'static str,
        message: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self(Refusal::new(kind, code, message, next_step))
    }

    pub(crate) fn problem(&self) -> Problem {
        Problem {
            code: self.0.code.to_owned(),
            message: self.0.message.clone(),
            next_step: self.0.next_step.clone(),
        }
    }

    const fn status(&self) -> StatusCode {
        match self.0.kind {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        tracing::debug!(code = self.0.code, message = %self.0.message, "refused");
        (
            self.status(),
            axum::Json(ErrorBody {
                error: self.problem(),
            }),
        )
            .into_response()
    }
}
