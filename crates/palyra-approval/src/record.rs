//! What is known about one approval.

use palyra_core::entry::AnsweredFrom;
use palyra_core::{
    ApprovalId, ApproverKey, CallDigest, CallId, Commitment, GrantId, Principal, Question,
    RecordedDigest, RiskLevel, SessionId, Signed, Timestamp, ToolName, UserName,
};

/// A call that waits for a person: everything that is recorded when they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingToolApproval {
    /// The approval.
    pub id: ApprovalId,
    /// The call that waits.
    pub call: CallId,
    /// Who asks.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolName,
    /// Keyed digest of exactly this call.
    pub digest: CallDigest,
    /// Commitment to its arguments.
    pub arguments: Commitment,
    /// When it is denied for want of an answer.
    pub expires_at: Timestamp,
    /// The session it is asked in.
    pub session: Option<SessionId>,
    /// How bad the call can be.
    pub risk: RiskLevel,
    /// Whether the question stays when its asker is gone, for the same call made again.
    pub detached: bool,
    /// The key that an answer must be signed with, when persons prove that they are there.
    pub approver: Option<ApproverKey>,
    /// How many people must say yes.
    pub people: u8,
}

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered yet.
    Pending,
    /// A person said yes; the call has not used it.
    Allowed,
    /// A person said no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The asker went away first.
    Cancelled,
    /// A grant came into force that covers the call.
    Superseded,
    /// A person said yes, and the call used it.
    Spent,
}

impl ApprovalState {
    /// The text that rows are selected by.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::Spent => "spent",
        }
    }
}

impl std::fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One approval, as the journal's entries tell it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApprovalRecord {
    /// The approval.
    pub id: ApprovalId,
    /// The call that waits, or waited.
    pub call: CallId,
    /// Who asks.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolName,
    /// Digest of exactly the call that was shown, keyed and bound to it.
    pub digest: RecordedDigest,
    /// Commitment to its arguments.
    pub arguments: Commitment,
    /// When a person was asked.
    pub requested_at: Timestamp,
    /// When it is denied for want of an answer.
    pub expires_at: Timestamp,
    /// Where it stands.
    pub state: ApprovalState,
    /// Who answered; nobody when it expired or was cancelled.
    pub decided_by: Option<UserName>,
    /// When it stopped being pending.
    pub decided_at: Option<Timestamp>,
    /// Why, in the words of whoever decided or cancelled.
    pub reason: Option<String>,
    /// The call that used the yes.
    pub spent_by: Option<CallId>,
    /// The session it was asked in.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// How bad the call can be; what nobody assessed is critical.
    #[serde(default)]
    pub risk: RiskLevel,
    /// Whether it stays when its asker is gone.
    #[serde(default)]
    pub detached: bool,
    /// From where it was answered.
    #[serde(default)]
    pub answered_from: Option<AnsweredFrom>,
    /// The grant that was given with the yes, or the one that made the question needless.
    #[serde(default)]
    pub grant: Option<GrantId>,
    /// The key that an answer must be signed with.
    #[serde(default)]
    pub approver: Option<ApproverKey>,
    /// The answer's signature. The fold checked it.
    #[serde(default)]
    pub signed: Option<Signed>,
    /// How many people must say yes.
    #[serde(default = "one")]
    pub people: u8,
    /// Those who said yes, each once.
    #[serde(default)]
    pub allowed_by: Vec<UserName>,
    /// How many entries its stream has: what the next one must be appended at.
    pub revision: u64,
}

const fn one() -> u8 {
    1
}

impl ApprovalRecord {
    /// The question, as whoever checks an answer sees it.
    #[must_use]
    pub const fn question(&self) -> Question<'_> {
        Question {
            approval: &self.id,
            call: &self.call,
            digest: &self.digest,
            approver: self.approver.as_ref(),
        }
    }
}
