//! What the daemon lists, as the screen holds it.

use palyra_api::wire::{Approval, CallSummary, Grant, JournalEntry};

use super::list::Listed;

/// How bad a call can be, as the daemon judged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Not much can happen.
    Low,
    /// Something can.
    Medium,
    /// Much can; also what nobody judged.
    High,
    /// It cannot be had back.
    Critical,
}

impl Risk {
    /// From the daemon's word.
    #[must_use]
    pub fn of(word: &str) -> Self {
        match word {
            "low" => Self::Low,
            "medium" => Self::Medium,
            "critical" => Self::Critical,
            _ => Self::High,
        }
    }
}

/// Whether it can still be answered.
#[must_use]
pub fn is_pending(approval: &Approval) -> bool {
    approval.state == "pending"
}

impl Listed for Approval {
    fn id(&self) -> &str {
        &self.approval_id
    }
    fn words(&self) -> String {
        let parts = [
            &self.approval_id,
            &self.principal,
            &self.tool,
            &self.risk,
            &self.summary,
        ];
        parts.map(String::as_str).join(" ")
    }
}

impl Listed for CallSummary {
    fn id(&self) -> &str {
        &self.call_id
    }
    fn words(&self) -> String {
        let code = self.code.as_deref().unwrap_or_default();
        let parts = [
            self.call_id.as_str(),
            &self.principal,
            &self.tool,
            &self.state,
            code,
        ];
        parts.join(" ")
    }
}

impl Listed for Grant {
    fn id(&self) -> &str {
        &self.grant_id
    }
    fn words(&self) -> String {
        let sentence = self.sentence.as_deref().unwrap_or_default();
        let parts = [
            self.grant_id.as_str(),
            &self.agent,
            &self.tool,
            &self.state,
            self.cover.as_str(),
            sentence,
        ];
        parts.join(" ")
    }
}

/// An entry of the journal, with its place as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in the journal.
    pub id: String,
    /// The entry.
    pub entry: JournalEntry,
    /// The same in a few words that are safe to print.
    pub told: String,
}

impl From<JournalEntry> for Entry {
    fn from(entry: JournalEntry) -> Self {
        Self {
            id: entry.seq.to_string(),
            told: crate::commands::journal::detail(&entry),
            entry,
        }
    }
}

impl Listed for Entry {
    fn id(&self) -> &str {
        &self.id
    }
    fn words(&self) -> String {
        let parts = [
            self.entry.kind.as_str(),
            &self.entry.stream,
            &self.told,
            &self.id,
        ];
        parts.join(" ")
    }
}
