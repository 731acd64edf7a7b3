//! `palyra journal`: the record of everything, entry by entry.

use clap::ValueEnum as _;
use palyra_api::Client;
use palyra_api::wire::{JournalEntry, Page, Status};
use palyra_core::entry::{Answer, Entry, ErasedBlob, WhyActivated};
use palyra_core::{
    ApprovalDecision, Clock, Ending, Posture, PresenceChange, SystemClock, Timestamp, UserName,
};
use serde_json::Value;

use super::{keeping, proofs, restoring};
use crate::args::{JournalAction, TailFilter};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, WAITING, compact};
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Table};
use crate::values::WhenArg;
use crate::{safe, when};

/// Entries a request.
const BATCH: u64 = 500;
/// Entries of a page that is filtered, at most.
const FILTERED: u32 = 1_000;

pub(super) async fn run(action: &JournalAction, session: &Session) -> Result<Exit, Failure> {
    match action {
        JournalAction::Tail {
            lines,
            follow,
            filter,
        } => tail(*lines, *follow, &query(filter), session).await,
        JournalAction::Verify(args) => proofs::verify(args, session),
        JournalAction::Checkpoint => proofs::checkpoint(session).await,
        JournalAction::Erase(args) => keeping::erase(args, session).await,
        JournalAction::Rebuild => keeping::rebuild(session).await,
        JournalAction::Backup { out } => restoring::backup(out, session).await,
        JournalAction::Restore(args) => restoring::restore(args, session),
        JournalAction::Export { out, after } => proofs::export(out.as_ref(), *after, session).await,
    }
}

/// The members of a query.
type Parts = Vec<(&'static str, Option<String>)>;

fn query(filter: &TailFilter) -> Parts {
    let now = SystemClock.now();
    let moment = |when: &WhenArg| when.seen_from(now).to_string();
    let outcome = filter.outcome.and_then(|state| state.to_possible_value());
    vec![
        ("since", filter.since.as_ref().map(moment)),
        ("until", filter.until.as_ref().map(moment)),
        ("agent", filter.agent.as_ref().map(ToString::to_string)),
        ("tool", filter.tool.as_ref().map(ToString::to_string)),
        ("outcome", outcome.map(|value| value.get_name().to_owned())),
    ]
}

async fn tail(
    lines: u32,
    follow: bool,
    filter: &Parts,
    session: &Session,
) -> Result<Exit, Failure> {
    let output = &session.output;
    let mut client = session.connect().await?;
    let status: Status = in_time(client.get("/api/v1/status")).await?;
    let filtered = filter.iter().any(|(_, value)| value.is_some());
    let head = status.journal_head;
    let mut found = match filtered {
        true => newest(&mut client, lines, filter).await?,
        false => last(&mut client, lines, head).await?,
    };
    if !follow {
        let page = Page {
            items: found,
            next: None,
        };
        output.answer(&page, |page| match page.items.is_empty() {
            true => String::new(),
            false => output.table(&table(&page.items, SystemClock.now())),
        })?;
        if filtered && page.items.is_empty() {
            output.suggest("nothing fits; see everything with `palyra journal tail`");
        }
        return Ok(Exit::OK);
    }
    // What was written since the status was asked may have been in the first page already.
    let mut after = found.last().map_or(head, |last| last.seq.max(head));
    loop {
        for entry in &found {
            print_line(entry, output)?;
        }
        // The daemon holds the request until there is something.
        let page = entries(&mut client, after, true, filter).await?;
        let looked_at = page.next.as_ref().and_then(|next| next.parse().ok());
        after = page
            .items
            .last()
            .map_or(after, |last| last.seq)
            .max(looked_at.unwrap_or(after));
        found = page.items;
    }
}

/// The last entries, however many.
async fn last(client: &mut Client, lines: u32, head: u64) -> Result<Vec<JournalEntry>, Failure> {
    let mut after = head.saturating_sub(u64::from(lines));
    let mut found = Vec::new();
    while after < head {
        let page = entries(client, after, false, &Vec::new()).await?;
        let Some(last) = page.items.last() else { break };
        after = last.seq;
        found.extend(page.items);
    }
    Ok(found)
}

/// The newest entries that fit.
async fn newest(
    client: &mut Client,
    lines: u32,
    filter: &Parts,
) -> Result<Vec<JournalEntry>, Failure> {
    if lines == 0 {
        return Ok(Vec::new());
    }
    let limit = ("limit", Some(lines.min(FILTERED).to_string()));
    let parts: Parts = std::iter::once(limit).chain(filter.clone()).collect();
    let path = super::with_query("/api/v1/journal", &parts);
    let page: Page<JournalEntry> = in_time(client.get(&path)).await?;
    Ok(page.items)
}

async fn entries(
    client: &mut Client,
    after: u64,
    wait: bool,
    filter: &Parts,
) -> Result<Page<JournalEntry>, Failure> {
    let mut parts: Parts = vec![
        ("after", Some(after.to_string())),
        ("limit", Some(BATCH.to_string())),
        ("wait", wait.then(|| "true".to_owned())),
    ];
    parts.extend(filter.iter().cloned());
    let path = super::with_query("/api/v1/journal", &parts);
    let mut page: Page<JournalEntry> = in_time(client.get(&path)).await?;
    // Whatever the daemon says, following goes forwards.
    page.items.retain(|entry| entry.seq > after);
    Ok(page)
}

fn print_line(entry: &JournalEntry, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json_line(entry);
    }
    let style = kind_style(&entry.kind);
    output.text(&format!(
        "{DIM}{:>6}  {}{DIM:#}  {style}{:<18}{style:#}  {DIM}{}{DIM:#}  {}\n",
        entry.seq,
        safe::line(&entry.at),
        safe::line(&entry.kind),
        safe::line(&entry.stream),
        detail(entry),
    ))
}

/// Entries under headings.
pub(super) fn table(entries: &[JournalEntry], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::right("SEQ"),
        Column::right("AGE"),
        Column::left("KIND"),
        Column::left("STREAM"),
        Column::decisive("WHAT"),
    ]);
    for entry in entries {
        table.row([
            Cell::styled(entry.seq.to_string(), DIM),
            Cell::rendered(when::age(&entry.at, now)),
            Cell::styled(&entry.kind, kind_style(&entry.kind)),
            Cell::styled(&entry.stream, DIM),
            Cell::rendered(detail(entry)),
        ]);
    }
    table
}

fn kind_style(kind: &str) -> anstyle::Style {
    match kind {
        "attested" | "finished" => GOOD,
        "approval_requested" => WAITING,
        "closed" | "interrupted" | "flooded" => BAD,
        _ => PLAIN,
    }
}

/// An entry in a few words, harmless to a terminal; one from a newer daemon, as it is.
pub(crate) fn detail(entry: &JournalEntry) -> String {
    match serde_json::from_value::<Entry>(with_messages(entry.entry.clone())) {
        Ok(known) => safe::once(&words(&known)).into_owned(),
        Err(_) => safe::once(&compact(&entry.entry)).into_owned(),
    }
}

/// A record names the kind of a failure and may leave its message out: that can hold a path or a
/// name, and belongs to the output.
fn with_messages(mut entry: Value) -> Value {
    for report in ["/report/ending", "/attestation/ending"] {
        let ending = entry.pointer_mut(report).and_then(Value::as_object_mut);
        if let Some(ending) = ending.filter(|ending| ending.get("ending") == Some(&"failed".into()))
        {
            ending.entry("message").or_insert_with(|| "".into());
        }
    }
    entry
}

fn words(entry: &Entry) -> String {
    match entry {
        Entry::Proposed { tool, origin, .. } => format!("{} proposes {tool}", origin.principal),
        Entry::Decided {
            answer, matched, ..
        } => match answer {
            Answer::Permit => format!("permit ({})", matched.join(", ")),
            Answer::Ask => format!("ask a person ({})", matched.join(", ")),
            Answer::Deny(denial) => format!("{}: {}", denial.code.as_str(), denial.reason),
        },
        Entry::ApprovalRequested {
            principal,
            tool,
            call,
            ..
        } => {
            format!("{principal} wants {tool} ({call})")
        }
        Entry::ApprovalDecided {
            decision,
            decided_by,
            reason,
            grant,
            signed,
            ..
        } => {
            let decision = match (decision, grant) {
                (ApprovalDecision::Allow, Some(grant)) => format!("allow, with {grant}"),
                (ApprovalDecision::Allow, None) => "allow".to_owned(),
                (ApprovalDecision::Deny, _) => "deny".to_owned(),
            };
            let decision = match signed {
                Some(_) => format!("{decision}, signed,"),
                None => decision,
            };
            match reason {
                Some(reason) => format!("{decision} by {decided_by}: {}", safe::line(reason)),
                None => format!("{decision} by {decided_by}"),
            }
        }
        Entry::ApprovalExpired => "nobody answered".to_owned(),
        Entry::ApprovalCancelled { reason } => safe::line(reason),
        Entry::ApprovalSuperseded { by } => format!("covered by {by}"),
        Entry::GrantMade { terms } => format!(
            "agent:{} may use {} ({}, {}) until {}, says {}",
            terms.agent,
            terms.tool,
            terms.cover.as_str(),
            terms.reach.as_str(),
            terms.not_after,
            terms.made_by
        ),
        Entry::GrantEnded { why, by } => match by {
            Some(by) => format!("{} by {by}", why.as_str()),
            None => why.as_str().to_owned(),
        },
        Entry::PostureSet {
            at,
            tool,
            posture,
            by,
        } => {
            let posture = posture.map_or("nothing said", Posture::as_str);
            format!("{tool} at {at}: {posture}, by {by}")
        }
        Entry::GrantSpent { call } => format!("by {call}"),
        Entry::Admitted {
            approval, grant, ..
        } => match (approval, grant) {
            (Some(approval), _) => format!("durable intent, under {approval}"),
            (None, Some(grant)) => format!("durable intent, under {grant}"),
            (None, None) => "durable intent".to_owned(),
        },
        Entry::Finished { report, .. } => {
            let took = when::span(report.ended_at.since(report.started_at));
            format!(
                "{} in {took} ({})",
                ending(&report.ending),
                report.sandbox_enforcement
            )
        }
        Entry::Attested { attestation } => attestation.attestation_id.to_string(),
        Entry::Closed { denial } => format!("{}: {}", denial.code.as_str(), denial.reason),
        Entry::Advised { rewritten, .. } => match rewritten {
            true => "the client was told to run it here; nothing ran yet".to_owned(),
            false => "the client may do it by itself, outside of Palyra; not attested".to_owned(),
        },
        Entry::Interrupted => "the daemon ended while it ran".to_owned(),
        Entry::BlobErased { blobs, by, reason } => erased(blobs, by, reason.as_deref()),
        Entry::AgentAdded {
            name, workspace, ..
        } => {
            let workspace = safe::line(&workspace.display().to_string());
            format!("agent:{name} works on {workspace}")
        }
        Entry::AgentRemoved { name } => format!("agent:{name}"),
        Entry::PolicyActivated {
            number,
            baseline,
            files,
            why,
            ..
        } => activated(*number, baseline, files.len(), *why),
        Entry::PolicyRefused { problems, .. } => match problems.as_slice() {
            [] => "the folder cannot be used".to_owned(),
            [first, more @ ..] => match more.len() {
                0 => safe::line(first),
                more => format!("{} (and {more} more)", safe::line(first)),
            },
        },
        Entry::PolicyStaged { digest, .. } => format!("{digest} waits to be activated"),
        Entry::PolicyWithdrawn { digest } => format!("{digest} is no longer in the folder"),
        Entry::Flooded {
            principal,
            limit,
            refused,
        } => {
            format!("{refused} calls of {principal} turned away: {limit}")
        }
        Entry::AppendedOnce { streams, .. } => {
            let names: Vec<&str> = streams.iter().map(|to| to.stream.as_str()).collect();
            format!("once: {}", names.join(", "))
        }
        Entry::QuarantineRestored { item, path, by } => format!("{item} to {path} by {by}"),
        Entry::DaemonStarted { version, .. } => format!("version {version}"),
        Entry::ProjectionMended {
            name,
            wrong,
            missing,
            unknown,
        } => format!("{name}: {wrong} rows wrong, {missing} missing, {unknown} unknown"),
        Entry::PresenceChanged { change, .. } => match change {
            PresenceChange::Set { key } => format!("a passphrase was set; decisions by {key}"),
            PresenceChange::Changed => "the passphrase was changed".to_owned(),
            PresenceChange::Ended => "ended by the person, with the passphrase".to_owned(),
            PresenceChange::GivenUp => "given up without the passphrase".to_owned(),
            PresenceChange::Refused => "a wrong passphrase".to_owned(),
        },
        Entry::Notified {
            approval,
            way,
            attempts,
            failed,
        } => {
            let way = safe::line(way);
            match failed {
                None => format!("{way} was told of {approval} (tries: {attempts})"),
                Some(why) => {
                    let why = safe::line(why);
                    format!("{way} was not told of {approval}: {why} (tries: {attempts})")
                }
            }
        }
        Entry::KeyRotated { previous, next, .. } => format!("{next} after {previous}"),
        Entry::VaultChanged {
            generation, change, ..
        } => format!("generation {generation}: {}", super::vault::change(change)),
        Entry::SecretAccessed {
            secret,
            version,
            access,
            by,
            ..
        } => format!("{secret} version {version} {} by {by}", access.as_str()),
        Entry::SecretInArguments {
            principal,
            tool,
            times,
            paused,
        } => format!(
            "{principal} gave a secret to {tool}, {times} times{}",
            if *paused { "; it is paused" } else { "" }
        ),
        Entry::AgentPaused { name, by, why } => {
            let by = by
                .as_ref()
                .map_or_else(String::new, |by| format!(" by {by}"));
            format!("agent:{name}{by}: {}", safe::line(why))
        }
        Entry::AgentResumed { name, by } => format!("agent:{name} by {by}"),
    }
}

fn erased(blobs: &[ErasedBlob], by: &UserName, reason: Option<&str>) -> String {
    let mut kinds: Vec<&str> = blobs.iter().map(|blob| blob.kind.as_str()).collect();
    kinds.dedup();
    let what = format!("{} erased by {by}", kinds.join(", "));
    match reason {
        Some(reason) => format!("{what}: {}", safe::line(reason)),
        None => what,
    }
}

fn activated(number: u64, baseline: &str, files: usize, why: WhyActivated) -> String {
    let why = match why {
        WhyActivated::Started => "at the start".to_owned(),
        WhyActivated::Changed => "its files changed".to_owned(),
        WhyActivated::Reloaded => "it was read again".to_owned(),
        WhyActivated::Activated => "it was staged".to_owned(),
        WhyActivated::RolledBack { to } => format!("rolled back to version {to}"),
    };
    let files = format!("{files} file{}", if files == 1 { "" } else { "s" });
    format!(
        "version {number}: {files} over {}, {why}",
        safe::line(baseline)
    )
}

fn ending(ending: &Ending) -> String {
    match ending {
        Ending::Exited { code } => format!("exit code {code}"),
        Ending::Signalled { signal } => format!("signal {signal}"),
        Ending::TimedOut => "timed out".to_owned(),
        Ending::Cancelled { reason } => format!("cancelled: {reason}"),
        Ending::Failed { kind, .. } => kind.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: serde_json::Value) -> JournalEntry {
        JournalEntry {
            seq: 1,
            stream: "call_x".to_owned(),
            revision: 1,
            at: "2026-11-15T09:00:00Z".to_owned(),
            kind: value["kind"].as_str().unwrap().to_owned(),
            entry: value,
        }
    }

    #[test]
    fn entries_in_words() {
        let started = serde_json::json!({"kind": "daemon_started", "version": "0.1.0"});
        assert_eq!(detail(&entry(started)), "version 0.1.0");
        let decided = serde_json::json!({
            "kind": "approval_decided", "decision": "deny", "decided_by": "owner", "reason": "no"
        });
        assert_eq!(detail(&entry(decided)), "deny by owner: no");
    }

    #[test]
    fn a_failure_is_told_by_its_kind() {
        let report = |ending: Value| {
            serde_json::json!({
                "executor": "sandbox_tier_b", "sandbox_enforcement": "tier_b", "layers": [],
                "started_at": "2026-11-15T09:00:00Z", "ended_at": "2026-11-15T09:00:02Z",
                "ending": ending, "truncated": false, "running_as_root": false
            })
        };
        let kind = serde_json::json!({"ending": "failed", "kind": "program_not_found"});
        let told = serde_json::json!({
            "ending": "failed", "kind": "program_not_found", "message": "no `s3cret`"
        });
        for ending in [kind, told] {
            let finished = serde_json::json!({
                "kind": "finished", "report": report(ending), "output": format!("sha256:{}", "0".repeat(64))
            });
            assert_eq!(
                detail(&entry(finished)),
                "program_not_found in 2.0s (tier_b)"
            );
        }
    }

    #[test]
    fn an_entry_of_a_newer_daemon_is_shown_as_it_is() {
        let unknown = serde_json::json!({"kind": "teleported", "to": "\u{1b}mars"});
        assert_eq!(
            detail(&entry(unknown)),
            r#"{"kind":"teleported","to":"\u001bmars"}"#
        );
    }
}
