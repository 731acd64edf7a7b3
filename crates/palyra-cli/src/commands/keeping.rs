//! `palyra journal erase`: contents of a call go for good, and its record stays. `rebuild`: lists are
//! compared with the record that they are made of.

use palyra_api::wire::{CallErased, EraseCall, EraseWhat, JournalRebuilt};

use crate::args::{Erase, WhatArg};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{GOOD, WAITING};
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::{Cell, Facts};

/// `palyra journal erase`.
pub(super) async fn erase(args: &Erase, session: &Session) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    let wanted = EraseCall {
        what: match args.what {
            WhatArg::Arguments => EraseWhat::Arguments,
            WhatArg::Environment => EraseWhat::Environment,
            WhatArg::Output => EraseWhat::Output,
            WhatArg::All => EraseWhat::All,
        },
        reason: args.reason.clone(),
    };
    let path = format!("/api/v1/calls/{}/erase", args.id);
    let erased: CallErased = in_time(client.post(&path, &wanted)).await?;
    let output = &session.output;
    output.answer(&erased, render)?;
    match (&erased.seq, erased.log_cleared) {
        (None, _) => output.note("there was nothing left to erase"),
        (Some(_), false) => output.say(&format!(
            "{WAITING}warning:{WAITING:#} somebody is reading the journal, so `journal.db-wal` \
             still holds it, sealed; it goes once they are done, at the latest when the daemon stops"
        )),
        (Some(_), true) => {
            output.suggest("backups and copies of the journal made before still hold it, sealed");
        }
    }
    Ok(Exit::OK)
}

/// `palyra journal rebuild`.
pub(super) async fn rebuild(session: &Session) -> Result<Exit, Failure> {
    let mut client = session.connect().await?;
    // A long journal takes longer than other answers may.
    let nothing = serde_json::json!({});
    let answered = client.post("/api/v1/journal/rebuild", &nothing).await;
    let rebuilt: JournalRebuilt = answered.map_err(Failure::from)?;
    let output = &session.output;
    output.answer(&rebuilt, |rebuilt| {
        let lines = rebuilt.projections.iter().map(|found| {
            let rows = format!("{}: {} rows", found.name, found.rows);
            let differing = found.wrong + found.missing + found.unknown;
            match differing {
                0 => Cell::styled(format!("{rows}, all as they should be"), GOOD),
                _ => Cell::styled(
                    format!(
                        "{rows}; mended: {} wrong, {} missing, {} unknown",
                        found.wrong, found.missing, found.unknown
                    ),
                    WAITING,
                ),
            }
        });
        Facts::default()
            .with("entries", rebuilt.entries.to_string())
            .lines("projections", lines)
            .maybe("recorded as", rebuilt.seq.map(|seq| format!("entry {seq}")))
            .render()
    })?;
    if rebuilt.seq.is_some() {
        output.say(&format!(
            "{WAITING}warning:{WAITING:#} somebody or something changed the journal's lists; restart \
             the daemon, so that it reads them anew, and run `palyra journal verify`"
        ));
    }
    Ok(Exit::OK)
}

fn render(erased: &CallErased) -> String {
    let contents = erased.erased.iter();
    let lines = contents.map(|blob| {
        Cell::new(format!(
            "{} ({})",
            safe::line(&blob.kind),
            safe::line(&blob.commitment)
        ))
    });
    let lines: Vec<Cell> = match erased.erased.is_empty() {
        true => vec![Cell::new("nothing")],
        false => lines.collect(),
    };
    Facts::default()
        .with("call", &erased.call_id)
        .lines("erased", lines)
        .maybe("entry", erased.seq.map(|seq| seq.to_string()))
        .render()
}
