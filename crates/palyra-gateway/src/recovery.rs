//! At start: what an earlier daemon left open is found, reported and closed.

use palyra_approval::Inbox;
use palyra_core::entry::{Entry, Stream};
use palyra_core::{CallId, Denial, DenialCode, Timestamp};
use palyra_identity::{Agents, AgentsFold};
use palyra_journal::{Append, Expected, JournalStore, RowQuery, StreamAppend};

use crate::calls::{CALLS, CallRow, CallState, Selector};
use crate::error::Refusal;
use crate::records;

const PAGE: usize = 500;

/// How many entries are looked at for the time.
const NEWEST: u64 = 500;

/// Closes calls that were admitted and never attested, and calls whose caller is gone. Gives the
/// ones that may or may not have run.
pub(crate) async fn close_what_was_left(journal: &JournalStore) -> Result<Vec<CallId>, Refusal> {
    let interrupted = journal.unattested()?;
    for page in interrupted.chunks(PAGE) {
        let streams = page
            .iter()
            .map(|call| append(Stream::Call(call.clone()), Entry::Interrupted));
        journal
            .append(Append {
                streams: streams.collect(),
                blobs: Vec::new(),
            })
            .await?;
    }
    loop {
        let rows = waiting(journal)?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            close_waiting(journal, &row).await?;
        }
    }
    // An approval whose call could not be closed with it must not wait for ever.
    for record in records::pending_approvals(journal)? {
        // What was left for a retry has nobody who could be gone.
        if record.detached {
            continue;
        }
        if let Ok(change) = palyra_approval::cancel(&record, GONE) {
            journal
                .append(Append {
                    streams: vec![append(change.stream, change.entry)],
                    blobs: Vec::new(),
                })
                .await?;
        }
    }
    Ok(interrupted)
}

const GONE: &str = "the daemon was restarted and its caller is gone";

async fn close_waiting(journal: &JournalStore, row: &CallRow) -> Result<(), Refusal> {
    let mut streams = Vec::new();
    if let Some(id) = &row.approval {
        let record = records::approval(journal, id)?;
        if !record.detached
            && let Ok(change) = palyra_approval::cancel(&record, GONE)
        {
            streams.push(append(Stream::Approval(id.clone()), change.entry));
        }
    }
    let denial = Denial::new(
        DenialCode::ApprovalCancelled,
        GONE,
        "propose the call again",
    );
    streams.push(append(
        Stream::Call(row.call.clone()),
        Entry::Closed { denial },
    ));
    journal
        .append(Append {
            streams,
            blobs: Vec::new(),
        })
        .await?;
    Ok(())
}

fn append(stream: Stream, entry: Entry) -> StreamAppend {
    StreamAppend {
        stream,
        expected: Expected::Any,
        entries: vec![entry],
    }
}

fn waiting(journal: &JournalStore) -> Result<Vec<CallRow>, Refusal> {
    let mut waiting = Vec::new();
    for state in journal.states(CALLS)? {
        if Selector::parse(&state).is_none_or(|it| it.state != CallState::Waiting.as_str()) {
            continue;
        }
        let query = RowQuery {
            state: Some(state),
            before: None,
            limit: PAGE,
            newest_first: false,
        };
        let rows = journal.rows(CALLS, &query)?;
        for row in &rows {
            waiting.push(records::call_row(row)?);
        }
    }
    Ok(waiting)
}

/// What waits for a person.
pub(crate) fn inbox(journal: &JournalStore) -> Result<Inbox, Refusal> {
    let mut inbox = Inbox::default();
    for record in records::pending_approvals(journal)? {
        inbox.insert(record.id, record.principal, record.risk);
    }
    Ok(inbox)
}

/// The latest time of the newest entries: it is not earlier than that now, whatever the clock says.
pub(crate) fn last_time(journal: &JournalStore) -> Result<Timestamp, Refusal> {
    let newest = journal.read(journal.head().saturating_sub(NEWEST), PAGE)?;
    let latest = newest.iter().map(|recorded| recorded.at).max();
    Ok(latest.unwrap_or(Timestamp::from_millis(0)))
}

/// The registry of agents, as the journal has it.
pub(crate) fn agents(journal: &JournalStore) -> Result<Agents, Refusal> {
    let query = RowQuery {
        state: None,
        before: None,
        limit: usize::MAX >> 1,
        newest_first: false,
    };
    Ok(Agents::from_rows(&journal.rows(AgentsFold::NAME, &query)?))
}
