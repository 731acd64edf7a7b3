//! `palyra grants`: what is allowed for a session or a while.

use palyra_api::wire::{Explained, Grant, Page};
use palyra_core::{Clock, SystemClock};

use crate::args::GrantsAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, GOOD, Output, PLAIN};
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};
use crate::{safe, when};

const PATH: &str = "/api/v1/grants";

pub(super) async fn run(action: &GrantsAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        GrantsAction::List { all } => {
            let query = if *all { "?all=true" } else { "" };
            let page: Page<Grant> = super::get(session, &format!("{PATH}{query}")).await?;
            output.answer(&page, |page| list(page, output))?;
            if page.items.is_empty() {
                output
                    .suggest("nothing is granted; every sensitive call of an agent is asked about");
            }
        }
        GrantsAction::Show { id } => {
            let grant: Grant = super::get(session, &format!("{PATH}/{id}")).await?;
            output.answer(&grant, rendered)?;
            if grant.state == "live" {
                output.suggest(&format!("take it back with `palyra grants revoke {id}`"));
            }
        }
        GrantsAction::Revoke { id } => {
            let mut client = session.connect().await?;
            let path = format!("{PATH}/{id}/revoke");
            let grant: Grant = in_time(client.post(&path, &serde_json::json!({}))).await?;
            output.answer(&grant, |grant| {
                format!("revoked {}\n", safe::line(&grant.grant_id))
            })?;
        }
        GrantsAction::Explain { call } => {
            let path = format!("{PATH}/explain?call={call}");
            let explained: Explained = super::get(session, &path).await?;
            output.answer(&explained, explanation)?;
        }
    }
    Ok(Exit::OK)
}

fn list(page: &Page<Grant>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::left("GRANT"),
        Column::left("AGENT"),
        Column::left("SCOPE"),
        Column::right("LEFT"),
        Column::right("USES"),
        Column::decisive("COVERS"),
    ]);
    for grant in &page.items {
        let left = match &grant.why_ended {
            None => Cell::rendered(when::left(&grant.not_after, now)).in_style(GOOD),
            Some(why) => Cell::styled(why, BAD),
        };
        table.row([
            Cell::new(&grant.grant_id),
            Cell::new(&grant.agent),
            Cell::new(scope(grant)),
            left,
            Cell::new(grant.uses.to_string()),
            Cell::rendered(covers(grant)),
        ]);
    }
    output.table(&table)
}

const fn scope(grant: &Grant) -> &'static str {
    use palyra_api::wire::Reach;
    match grant.scope {
        Reach::Once => "once",
        Reach::Session => "session",
        Reach::Window => "window",
    }
}

fn covers(grant: &Grant) -> String {
    let cover = grant.cover.as_str();
    match &grant.sentence {
        Some(sentence) => format!("{cover}: {}", safe::once(sentence)),
        None => format!("{cover}: its words were erased"),
    }
}

fn rendered(grant: &Grant) -> String {
    let now = SystemClock.now();
    let instant = |at: &String| Cell::rendered(when::instant(at, now));
    let rule = grant.rule.as_deref().unwrap_or_default();
    let rule = rule.lines().map(|line| {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let rest = line.get(spaces..).unwrap_or_default();
        Cell::rendered(format!("{}{}", " ".repeat(spaces), safe::once(rest)))
    });
    let style = if grant.state == "live" { GOOD } else { PLAIN };
    Facts::default()
        .with("grant", &grant.grant_id)
        .styled("state", &grant.state, style)
        .with("agent", format!("agent:{}", grant.agent))
        .with("tool", &grant.tool)
        .with("scope", scope(grant))
        .with("covers", Cell::rendered(covers(grant)))
        .with("until", instant(&grant.not_after))
        .maybe("session", grant.session_id.as_ref())
        .with("given by", &grant.made_by)
        .with("given", instant(&grant.made_at))
        .with("approval", &grant.approval_id)
        .with("call", &grant.call_id)
        .with("uses", grant.uses.to_string())
        .maybe("last used", grant.last_used_at.as_ref().map(instant))
        .maybe("ended", grant.ended_at.as_ref().map(instant))
        .maybe("because", grant.why_ended.as_ref())
        .maybe("ended by", grant.ended_by.as_ref())
        .lines("rule", rule)
        .render()
}

fn explanation(explained: &Explained) -> String {
    let reasons = explained.reasons.iter();
    let grant = explained.grant.as_ref();
    Facts::default()
        .with("call", &explained.call_id)
        .with("answer", &explained.answer)
        .maybe("grant", grant.map(|grant| &grant.grant_id))
        .maybe("covers", grant.map(|grant| Cell::rendered(covers(grant))))
        .lines("why", reasons.map(|it| Cell::rendered(safe::once(it))))
        .render()
}
