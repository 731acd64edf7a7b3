//! Postures: how tools are treated, more strictly than policy alone would.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use palyra_api::wire::{ErrorBody, Page, Posture as Wire, PostureSet};
use palyra_approval::PostureRow;
use palyra_core::{Posture, PostureLevel, render};
use palyra_gateway::error::RefusalKind;

use super::calls::typed_body;
use super::{App, Who};
use crate::problem::Refused;

#[utoipa::path(get, path = "/api/v1/postures", operation_id = "list_postures", responses((status = 200, body = Page<Wire>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<Page<Wire>>, Refused> {
    Ok(Json(page(&app.gateway.postures(&caller)?)))
}

#[utoipa::path(post, path = "/api/v1/postures", operation_id = "set_posture", request_body = PostureSet, responses((status = 200, body = Page<Wire>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn set(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<Page<Wire>>, Refused> {
    let wanted: PostureSet = typed_body(body).await?.1;
    let level = level(&wanted.level).ok_or_else(|| {
        let shown = render::line(&wanted.level);
        wrong(format!("`{shown}` is no level of a posture"))
    })?;
    let posture = match wanted.posture.as_deref() {
        None => None,
        Some(word) => Some(posture(word).ok_or_else(|| {
            let shown = render::line(word);
            wrong(format!("`{shown}` is no posture"))
        })?),
    };
    let gateway = &app.gateway;
    let rows = gateway
        .set_posture(&caller, &wanted.tool, level, posture)
        .await?;
    Ok(Json(page(&rows)))
}

fn wrong(why: String) -> Refused {
    Refused::new(
        RefusalKind::Invalid,
        "invalid_posture",
        why,
        "say `palyra postures set TOOL always-allow|ask-each-time|disabled --agent NAME`",
    )
}

fn level(text: &str) -> Option<PostureLevel> {
    Some(match text.split_once(':') {
        None if text == "global" => PostureLevel::Global,
        Some(("workspace", folder)) => PostureLevel::Workspace {
            folder: folder.into(),
        },
        Some(("agent", name)) => PostureLevel::Agent {
            name: name.parse().ok()?,
        },
        Some(("session", id)) => PostureLevel::Session {
            id: id.parse().ok()?,
        },
        None | Some(_) => return None,
    })
}

fn posture(word: &str) -> Option<Posture> {
    let all = [
        Posture::AlwaysAllow,
        Posture::AskEachTime,
        Posture::Disabled,
    ];
    all.into_iter().find(|posture| posture.as_str() == word)
}

fn page(rows: &[PostureRow]) -> Page<Wire> {
    let items = rows.iter().map(|row| Wire {
        tool: row.tool.to_string(),
        level: render::line(&row.at.to_string()),
        posture: row.posture.as_str().to_owned(),
        set_by: row.set_by.to_string(),
        set_at: row.set_at.to_string(),
    });
    Page {
        items: items.collect(),
        next: None,
    }
}
