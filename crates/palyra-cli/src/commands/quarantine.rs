//! `palyra quarantine`: what appeared during calls and was taken away.

use palyra_api::wire::{Page, Quarantined};
use palyra_core::{Clock, SystemClock};

use crate::args::QuarantineAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};
use crate::when;

/// `palyra quarantine list|restore`.
pub(super) async fn run(action: &QuarantineAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        QuarantineAction::List => {
            let found: Page<Quarantined> = super::get(session, "/api/v1/quarantine").await?;
            output.answer(&found, |found| list(found, output))?;
            if found.items.is_empty() {
                output.suggest("nothing was taken away");
            } else {
                output.suggest("put one back with `palyra quarantine restore ID`");
            }
        }
        QuarantineAction::Restore { id } => {
            let mut client = session.connect().await?;
            let path = format!("/api/v1/quarantine/{id}/restore");
            let nothing = serde_json::json!({});
            let restored: Quarantined = in_time(client.post(&path, &nothing)).await?;
            output.answer(&restored, |restored| {
                Facts::default()
                    .with("restored", &restored.path)
                    .with("workspace", &restored.workspace)
                    .render()
            })?;
        }
    }
    Ok(Exit::OK)
}

fn list(page: &Page<Quarantined>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::left("ID"),
        Column::right("TAKEN"),
        Column::flexible("PATH"),
        Column::flexible("WORKSPACE"),
        Column::flexible("WHY"),
    ]);
    for one in &page.items {
        table.row([
            Cell::new(&one.id),
            Cell::rendered(when::age(&one.taken_at, now)),
            Cell::new(&one.path),
            Cell::new(&one.workspace),
            Cell::new(&one.why),
        ]);
    }
    output.table(&table)
}
