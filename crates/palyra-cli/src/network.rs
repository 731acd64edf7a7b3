//! What a call did with its network, for a person.

use std::time::Duration;

use palyra_core::{ConnectionRecord, EgressEnd, EgressVia};
use serde_json::Value;

use crate::output::{BAD, GOOD, Output, PLAIN, WAITING};
use crate::table::{Cell, Column, Table};
use crate::{safe, when};

/// The connections in the output of a call; none when it was held to no hosts.
#[must_use]
pub fn connections(output: Option<&Value>) -> Option<Vec<ConnectionRecord>> {
    let list = output?.get("network")?.get("connections")?.as_array()?;
    let read = |record: &Value| serde_json::from_value(record.clone()).ok();
    Some(list.iter().filter_map(read).collect())
}

/// How many connections are only counted.
#[must_use]
pub fn not_listed(output: Option<&Value>) -> u64 {
    let count = output.and_then(|output| output.get("network")?.get("not_listed")?.as_u64());
    count.unwrap_or_default()
}

/// Where it went, or wanted to.
fn place(record: &ConnectionRecord) -> String {
    let name = record.name.as_deref().map(safe::line);
    let name = name.or_else(|| record.address.map(|address| address.ip().to_string()));
    let name = name.unwrap_or_else(|| "?".to_owned());
    match record.via {
        EgressVia::Lookup => name,
        EgressVia::Connect | EgressVia::Absolute | EgressVia::Socks | EgressVia::Direct => {
            format!("{name}:{}", record.port)
        }
    }
}

const fn via(record: &ConnectionRecord) -> &'static str {
    match record.via {
        EgressVia::Connect => "connect",
        EgressVia::Absolute => "proxy",
        EgressVia::Socks => "socks",
        EgressVia::Direct => "direct",
        EgressVia::Lookup => "lookup",
    }
}

/// What was refused, each once, as notes for who made the call. What only broke the program says
/// itself.
#[must_use]
pub fn refusals(output: Option<&Value>) -> Vec<String> {
    const MOST: usize = 8;
    let mut notes: Vec<String> = Vec::new();
    let mut more = 0;
    for record in connections(output).unwrap_or_default() {
        let EgressEnd::Refused { code, why } = &record.end else {
            continue;
        };
        let (code, why) = (safe::line(code), safe::line(why));
        let note = format!("refused `{}`: {why} ({code})", place(&record));
        match notes.len() < MOST {
            _ if notes.contains(&note) => {}
            true => notes.push(note),
            false => more += 1,
        }
    }
    if more > 0 {
        notes.push(format!("and {more} more like these were refused"));
    }
    notes
}

/// The connections as a table.
#[must_use]
pub fn table(records: &[ConnectionRecord], output: &Output) -> String {
    let mut table = Table::new([
        Column::flexible("HOST"),
        Column::left("VIA"),
        Column::left("ADDRESS"),
        Column::right("SENT"),
        Column::right("RECEIVED"),
        Column::right("TOOK"),
        Column::flexible("RULE"),
        Column::flexible("END"),
    ]);
    for record in records {
        let (end, style) = match &record.end {
            EgressEnd::Closed => ("closed".to_owned(), GOOD),
            EgressEnd::Refused { code, .. } => (format!("refused: {code}"), BAD),
            EgressEnd::Broken { code, .. } => (format!("broke: {code}"), WAITING),
        };
        let secrets = record.credentials.iter().map(ToString::to_string);
        let secrets: Vec<String> = secrets.collect();
        let end = match secrets.is_empty() {
            true => end,
            false => format!("{end}, with {}", secrets.join(", ")),
        };
        let address = record.address.map(|address| address.to_string());
        table.row([
            Cell::new(place(record)),
            Cell::styled(via(record), PLAIN),
            Cell::new(address.unwrap_or_default()),
            Cell::new(record.sent.to_string()),
            Cell::new(record.received.to_string()),
            Cell::new(when::span(Duration::from_millis(record.millis))),
            Cell::new(record.rule.clone().unwrap_or_default()),
            Cell::styled(end, style),
        ]);
    }
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_refused_is_said_once_and_harmlessly() {
        let refused = json!({
            "at": "2026-11-15T09:00:00Z", "via": "connect", "name": "evil\u{1b}[2J.example",
            "port": 443, "sent": 0, "received": 0, "millis": 0,
            "end": "refused", "code": "host_not_allowed", "why": "no rule covers it",
        });
        let closed = json!({
            "at": "2026-11-15T09:00:00Z", "via": "direct", "name": "a.example", "port": 80,
            "address": "10.0.0.1:80", "rule": "a.example:80", "sent": 1, "received": 2, "millis": 3,
            "end": "closed",
        });
        let network =
            json!({ "network": { "connections": [refused, refused, closed], "not_listed": 4 } });
        let notes = refusals(Some(&network));
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("no rule covers it (host_not_allowed)"));
        assert!(!notes[0].contains('\u{1b}'));
        assert_eq!(connections(Some(&network)).map(|all| all.len()), Some(3));
        assert_eq!(not_listed(Some(&network)), 4);
        assert_eq!(connections(Some(&json!({}))), None);
    }
}
