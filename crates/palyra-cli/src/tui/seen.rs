//! What the daemon says, as far as the screen shows it, and what the screen says back.
//!
//! An older daemon says less and a newer one more; what is missing is simply not shown, and the risk
//! of what nobody judged is taken as high.

use palyra_api::wire::{CallSummary, JournalEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::list::Listed;

/// A call that waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the wire's own")]
pub struct Question {
    pub approval_id: String,
    pub state: String,
    pub call_id: String,
    pub tool: String,
    pub principal: String,
    pub requested_at: String,
    pub expires_at: String,
    pub decided_by: Option<String>,
    pub decided_at: Option<String>,
    pub reason: Option<String>,
    pub summary: String,
    pub program: Option<String>,
    pub workspace: Option<String>,
    pub effects: Vec<String>,
    pub arguments: Option<Value>,
    pub risk: String,
    pub risk_reasons: Vec<String>,
    pub warnings: Vec<String>,
    pub untrusted_words: Option<String>,
    pub diff: Option<String>,
    pub covers: Vec<Cover>,
    pub session_id: Option<String>,
    pub detached: bool,
    pub grant_id: Option<String>,
    pub hidden_bytes: u64,
    pub full: Option<String>,
    pub shown_code: Option<String>,
}

impl Question {
    /// Whether it can still be answered.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.state == "pending"
    }
}

/// One way in which a yes can cover more than this one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the wire's own")]
pub struct Cover {
    pub cover: String,
    pub sentence: String,
    pub rule: Option<String>,
    pub seen_before: Option<SeenBefore>,
}

/// What a cover would also have allowed among the last calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the wire's own")]
pub struct SeenBefore {
    pub looked_at: u64,
    pub covered: u64,
    pub examples: Vec<String>,
}

/// A yes to more than one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are the wire's own")]
pub struct Grant {
    pub grant_id: String,
    pub state: String,
    pub agent: String,
    pub tool: String,
    pub scope: String,
    pub cover: String,
    pub sentence: Option<String>,
    pub session_id: Option<String>,
    pub approval_id: String,
    pub call_id: String,
    pub made_by: String,
    pub made_at: String,
    pub not_after: String,
    pub ended_at: Option<String>,
    pub why_ended: Option<String>,
    pub ended_by: Option<String>,
    pub uses: u64,
    pub last_used_at: Option<String>,
    pub rule: Option<String>,
}

/// A person's answer. What is not said is not sent, so that an older daemon understands it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `allow` or `deny`.
    pub decision: &'static str,
    /// Why; a deny reason goes back to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `session` or `window`; once when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<&'static str>,
    /// What it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cover: Option<String>,
    /// How long a window lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts_ms: Option<u64>,
    /// The code that says that all of it was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

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

impl Listed for Question {
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
            &self.cover,
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
