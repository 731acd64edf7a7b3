//! Grants: what a yes to more than one call says, and when it is over.
//!
//! A grant is made with the answer that gave it and ended once, for good: its stream holds
//! `grant_made` and then at most one `grant_ended`. What runs under it is counted from the admissions
//! that name it.

use std::time::Duration;

use palyra_core::entry::{Entry, Fold, Recorded, Row, Stream};
use palyra_core::{
    Commitment, Facts, GrantId, GrantTerms, Reach, Scope, ScopeKind, Timestamp, UserName, WhyEnded,
};

use crate::record::ApprovalRecord;
use crate::transition::{Refused, Transition};

/// How long a grant for a window lasts, unless said otherwise.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(15 * 60);

/// How long any grant lasts at most: a working day, and never over night.
pub const LONGEST_GRANT: Duration = Duration::from_secs(12 * 60 * 60);

/// How far a person wants their yes to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// In time: [`Reach::Once`] makes no grant.
    pub reach: Reach,
    /// In kind.
    pub cover: ScopeKind,
    /// How long; what is usual for its reach when not said.
    pub lasts: Option<Duration>,
}

/// Whether a grant can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantState {
    /// Until its end.
    Live,
    /// Not any more, and never again.
    Ended,
}

impl GrantState {
    /// The text that rows are selected by.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ended => "ended",
        }
    }
}

/// One grant, as the journal's entries tell it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GrantRecord {
    /// What it says.
    pub terms: GrantTerms,
    /// When it was given.
    pub made_at: Timestamp,
    /// Whether it can be used.
    pub state: GrantState,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why.
    pub why_ended: Option<WhyEnded>,
    /// The person who wanted that.
    pub ended_by: Option<UserName>,
    /// How many calls ran under it.
    pub uses: u64,
    /// When the last one did.
    pub last_used_at: Option<Timestamp>,
}

/// The terms of a grant for what `record` asked, with the scope of the call that it names.
///
/// # Errors
/// An agent did not ask; the call has no such scope, as interpreters, wrappers and what could not be
/// understood have none but `exact`; or the grant would last too long.
pub fn make_grant(
    record: &ApprovalRecord,
    shown: (&Facts, Commitment),
    wanted: Wanted,
    by: &UserName,
    now: Timestamp,
) -> Result<GrantTerms, Refused> {
    let (facts, committed) = shown;
    let covers: Vec<ScopeKind> = facts.scopes.iter().map(|scope| scope.kind).collect();
    let refused = |why: String| Refused::NotGrantable {
        why,
        covers: covers.clone(),
        reach: wanted.reach,
    };
    let agent = record.principal.agent().cloned();
    let agent = agent.ok_or_else(|| refused("a person's own call needs no grant".to_owned()))?;
    if record.digest != facts.digest().recorded(&record.call) {
        let why = "what was recorded of this call is not what was asked about";
        return Err(refused(why.to_owned()));
    }
    let scope = facts.scopes.iter().find(|it| it.kind == wanted.cover);
    let scope: &Scope = scope.ok_or_else(|| {
        let cover = wanted.cover.flag();
        refused(format!("a yes to this call cannot cover `{cover}`"))
    })?;
    let (key, session, usual) = match wanted.reach {
        Reach::Once => {
            let why = "a yes for once covers exactly this call, and makes no grant";
            return Err(refused(why.to_owned()));
        }
        Reach::Session => {
            let session = record.session.clone();
            let session =
                session.ok_or_else(|| refused("this call belongs to no session".to_owned()))?;
            (scope.session, Some(session), LONGEST_GRANT)
        }
        Reach::Window => (scope.window, None, DEFAULT_WINDOW),
    };
    let lasts = wanted.lasts.unwrap_or(usual);
    if lasts > LONGEST_GRANT || lasts.is_zero() {
        let hours = LONGEST_GRANT.as_secs() / 3_600;
        return Err(refused(format!(
            "a grant lasts more than nothing and at most {hours} hours"
        )));
    }
    Ok(GrantTerms {
        id: GrantId::mint(now),
        approval: record.id.clone(),
        call: record.call.clone(),
        agent,
        user: record.principal.user().clone(),
        tool: record.tool.clone(),
        reach: wanted.reach,
        cover: wanted.cover,
        key,
        session,
        not_after: now.plus(lasts),
        made_by: by.clone(),
        facts: committed,
    })
}

/// The step that ends a grant. Of two, the journal appends one.
pub fn end_grant(grant: &GrantId, why: WhyEnded, by: Option<UserName>) -> Transition {
    Transition {
        stream: Stream::Grant(grant.clone()),
        expected: 1,
        entry: Entry::GrantEnded { why, by },
    }
}

/// The projection `grants`: one row for each grant, keyed by its id, selected by its state.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantsFold;

impl GrantsFold {
    /// The projection's name.
    pub const NAME: &'static str = "grants";
}

impl Fold for GrantsFold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        if let Entry::Admitted { grant, .. } = &recorded.entry {
            return grant.as_ref().map(ToString::to_string);
        }
        let changes = matches!(
            recorded.entry,
            Entry::GrantMade { .. } | Entry::GrantEnded { .. }
        );
        let id = recorded.stream.parse::<GrantId>().ok()?;
        changes.then(|| id.to_string())
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let known = before.and_then(|value| serde_json::from_slice::<GrantRecord>(value).ok());
        let record = match known {
            Some(mut record) => {
                step(&mut record, &recorded.entry, recorded.at);
                record
            }
            // What was never made cannot end or be used.
            None => made(recorded)?,
        };
        Some(Row {
            key: record.terms.id.to_string(),
            state: record.state.as_str().to_owned(),
            value: serde_json::to_vec(&record).ok()?,
        })
    }
}

fn made(recorded: &Recorded) -> Option<GrantRecord> {
    let Entry::GrantMade { terms } = &recorded.entry else {
        return None;
    };
    // One that lies about its own name serves nobody.
    (recorded.stream == terms.id.as_str()).then(|| GrantRecord {
        terms: GrantTerms::clone(terms),
        made_at: recorded.at,
        state: GrantState::Live,
        ended_at: None,
        why_ended: None,
        ended_by: None,
        uses: 0,
        last_used_at: None,
    })
}

/// A later entry. What ended stays ended, whatever follows.
fn step(record: &mut GrantRecord, entry: &Entry, at: Timestamp) {
    if let Entry::GrantEnded { why, by } = entry
        && record.state == GrantState::Live
    {
        record.state = GrantState::Ended;
        record.ended_at = Some(at);
        record.why_ended = Some(*why);
        record.ended_by.clone_from(by);
    }
    if let Entry::Admitted { .. } = entry {
        record.uses += 1;
        record.last_used_at = Some(at);
    }
}
