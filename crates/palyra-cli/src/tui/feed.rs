//! The daemon's side of the screen: follows the journal, and looks up again what it says has changed.
//!
//! One connection waits at the journal's end, so that everything is told as it happens and nothing is
//! asked in vain. When it breaks, it is made anew, for as long as the screen is there. Each order has a
//! connection of its own, because the first one is busy waiting.

use std::time::Duration;

use palyra_api::wire::presence::PRESENCE_REQUIRED;
use palyra_api::wire::{
    Approval, CallDetail, CallSummary, Decide, Grant, JournalEntry, Page, Status,
};
use palyra_api::{Client, ClientError};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use super::dialog::Typed;
use super::state::{Detail, Order, Said, Tab};
use crate::failure::Failure;
use crate::present;
use crate::safe;
use crate::session::{Session, in_time};

/// How many of each list.
const ROWS: u32 = 200;
/// How many entries at the beginning.
const ENTRIES: u64 = 300;
/// Between two tries to reach the daemon.
const AGAIN: Duration = Duration::from_millis(500);
/// Between two looks, however much happens.
const BREATH: Duration = Duration::from_millis(100);

/// Nobody listens any more.
struct Over;

/// What ends a connection.
enum Broke {
    Lost(Failure),
    Over,
}

impl From<Failure> for Broke {
    fn from(failure: Failure) -> Self {
        Self::Lost(failure)
    }
}

impl From<Over> for Broke {
    fn from(_: Over) -> Self {
        Self::Over
    }
}

/// Follows the daemon until nobody listens.
pub async fn follow(session: Session, to: Sender<Said>) {
    let mut after = None;
    loop {
        match watch(&session, &to, &mut after).await {
            Ok(never) => match never {},
            Err(Broke::Over) => return,
            Err(Broke::Lost(failure)) => {
                if tell(&to, Said::Lost(in_words(&failure))).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn watch(
    session: &Session,
    to: &Sender<Said>,
    after: &mut Option<u64>,
) -> Result<std::convert::Infallible, Broke> {
    let mut client = session.connect().await?;
    let status: Status = in_time(client.get("/api/v1/status")).await?;
    let head = status.journal_head;
    // A head behind what was seen is another journal.
    let mut seen = after
        .filter(|seen| *seen <= head)
        .unwrap_or_else(|| head.saturating_sub(ENTRIES));
    tell(to, Said::Open(Box::new(status))).await?;
    look_at_everything(&mut client, to).await?;
    loop {
        let path = format!("/api/v1/journal?after={seen}&limit=500&wait=true");
        let page: Page<JournalEntry> = in_time(client.get(&path)).await?;
        let new: Vec<JournalEntry> = page
            .items
            .into_iter()
            .filter(|entry| entry.seq > seen)
            .collect();
        let Some(last) = new.last() else { continue };
        seen = last.seq;
        *after = Some(seen);
        tell(to, Said::Entries(new)).await?;
        look_at_everything(&mut client, to).await?;
        tokio::time::sleep(BREATH).await;
    }
}

async fn look_at_everything(client: &mut Client, to: &Sender<Said>) -> Result<(), Broke> {
    let path = format!("/api/v1/approvals?state=pending&limit={ROWS}");
    let inbox: Page<Approval> = in_time(client.get(&path)).await?;
    tell(to, Said::Inbox(inbox.items)).await?;
    let calls: Page<CallSummary> =
        in_time(client.get(&format!("/api/v1/calls?limit={ROWS}"))).await?;
    tell(to, Said::Calls(calls.items)).await?;
    let grants = in_time(grants(client)).await?;
    tell(to, Said::Grants(grants)).await?;
    let status: Status = in_time(client.get("/api/v1/status")).await?;
    tell(to, Said::Open(Box::new(status))).await?;
    Ok(())
}

/// A daemon that gives none has no such place.
async fn grants(client: &mut Client) -> Result<Option<Vec<Grant>>, ClientError> {
    match client.get::<Page<Grant>>("/api/v1/grants").await {
        Ok(page) => Ok(Some(page.items)),
        Err(ClientError::Refused { status: 404, .. }) => Ok(None),
        Err(
            other @ (ClientError::NoDaemon { .. }
            | ClientError::Forbidden { .. }
            | ClientError::Refused { .. }
            | ClientError::Broken(_)),
        ) => Err(other),
    }
}

/// Carries out one order and tells how that went.
pub async fn carry_out(order: Order, session: Session, to: Sender<Said>) {
    let said = match order {
        Order::Quit => return,
        Order::Look(tab, id) => match look(&session, tab, &id).await {
            Ok(Some(detail)) => Said::Found(detail),
            Ok(None) => return,
            Err(failure) => Said::NotFound {
                tab,
                id,
                why: in_words(&failure),
            },
        },
        Order::Decide(id, answer) => {
            let done = decide(&session, &id, &answer, None).await;
            answered(done, id, Box::new(answer))
        }
        Order::Prove(id, answer, typed) => {
            let done = decide(&session, &id, &answer, Some(typed)).await;
            answered(done, id, answer)
        }
    };
    let _ = tell(&to, said).await;
}

async fn look(session: &Session, tab: Tab, id: &str) -> Result<Option<Detail>, Failure> {
    Ok(Some(match tab {
        Tab::Inbox => Detail::Question(Box::new(
            get(session, &format!("/api/v1/approvals/{id}?full=true")).await?,
        )),
        Tab::Calls => {
            let call: CallDetail = get(session, &format!("/api/v1/calls/{id}")).await?;
            Detail::Call(Box::new(call))
        }
        Tab::Grants => {
            let grant: Grant = get(session, &format!("/api/v1/grants/{id}")).await?;
            Detail::Grant(Box::new(grant))
        }
        Tab::Journal => return Ok(None),
    }))
}

async fn get<T: DeserializeOwned>(session: &Session, path: &str) -> Result<T, Failure> {
    let mut client = session.connect().await?;
    in_time(client.get(path)).await
}

/// How that went.
fn answered(done: Result<Approval, Failure>, id: String, answer: Box<Decide>) -> Said {
    match done {
        Ok(approval) => Said::Decided(Box::new(approval)),
        // What is typed next is in no core file of this process.
        Err(failure) if present::asks_again(&failure) && present::unseen().is_ok() => {
            let required = failure.code == PRESENCE_REQUIRED;
            let wrong = (!required).then(|| safe::once(&failure.message).into_owned());
            Said::AsksPassphrase { id, answer, wrong }
        }
        Err(failure) => Said::NotDecided {
            id,
            why: in_words(&failure),
        },
    }
}

async fn decide(
    session: &Session,
    id: &str,
    answer: &Decide,
    typed: Option<Typed>,
) -> Result<Approval, Failure> {
    let client = session.connect().await?;
    let mut client = match typed {
        Some(typed) => client.with_passphrase(typed.text()),
        None => client,
    };
    let path = format!("/api/v1/approvals/{id}/decide");
    in_time(client.post(&path, answer)).await
}

async fn tell(to: &Sender<Said>, said: Said) -> Result<(), Over> {
    to.send(said).await.map_err(|_| Over)
}

fn in_words(failure: &Failure) -> String {
    let (message, hint) = (safe::once(&failure.message), safe::once(&failure.hint));
    match hint.is_empty() {
        true => message.into_owned(),
        false => format!("{message}; {hint}"),
    }
}
