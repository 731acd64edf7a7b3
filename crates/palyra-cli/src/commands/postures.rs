//! `palyra postures`: how tools are treated, more strictly than policy alone would.

use palyra_api::wire::{Page, Posture, PostureSet};
use palyra_core::{Clock, SystemClock};

use crate::args::PosturesAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::place;
use crate::present;
use crate::session::Session;
use crate::table::{Cell, Column, Table};
use crate::{safe, when};

const PATH: &str = "/api/v1/postures";

pub(super) async fn run(action: &PosturesAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    let page: Page<Posture> = match action {
        PosturesAction::List => super::get(session, PATH).await?,
        PosturesAction::Set {
            tool,
            posture,
            workspace,
            agent,
            session: of,
        } => {
            let level = match (workspace, agent, of) {
                (Some(folder), _, _) => format!("workspace:{}", place::workspace(folder)?),
                (None, Some(name), _) => format!("agent:{name}"),
                (None, None, Some(id)) => format!("session:{id}"),
                (None, None, None) => "global".to_owned(),
            };
            let wish = PostureSet {
                tool: tool.to_string(),
                level,
                posture: posture.wire().map(str::to_owned),
            };
            present::post(session, PATH, &wish).await?
        }
    };
    output.answer(&page, |page| list(page, output))?;
    if page.items.is_empty() {
        output.suggest("nothing is set: every tool is treated as policy says");
    }
    Ok(Exit::OK)
}

fn list(page: &Page<Posture>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::left("TOOL"),
        Column::left("POSTURE"),
        Column::left("BY"),
        Column::right("SINCE"),
        Column::flexible("FOR"),
    ]);
    for row in &page.items {
        table.row([
            Cell::new(&row.tool),
            Cell::new(&row.posture),
            Cell::new(&row.set_by),
            Cell::rendered(when::age(&row.set_at, now)),
            Cell::rendered(safe::once(&row.level)),
        ]);
    }
    output.table(&table)
}
