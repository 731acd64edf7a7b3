//! The vocabulary of Palyra, and the corridor that every tool call walks.
//!
//! This room knows *words* (ids, principals, proposals, facts, plans, reports, journal entries)
//! and *order* ([`corridor`]: decide, admit, execute, attest, each step consuming the one before).
//! It knows nothing about files, sockets, threads, a runtime or the environment; the other rooms
//! implement the traits that the corridor asks for.

#![forbid(unsafe_code)]

pub mod attestation;
pub mod blob;
pub mod corridor;
pub mod decision;
pub mod digest;
pub mod egress;
pub mod entry;
pub mod facts;
pub mod fs_rule;
pub mod host;
pub mod id;
pub mod injection;
pub mod json;
pub mod plan;
pub mod posture;
pub mod presence;
pub mod principal;
pub mod program;
pub mod render;
pub mod risk;
pub mod scope;
pub mod secret;
pub mod time;
pub mod tool;

pub use attestation::{Ending, ExecutionReport, Layer, NetworkUse, RunErrorKind, ToolAttestation};
pub use blob::{Blob, BlobKind, Commitment};
pub use decision::{ApprovalDecision, Denial, DenialCode};
pub use digest::{CallDigest, Digest, DigestKey, Hashing, PlanDigest, PlanSeal, RecordedDigest};
pub use egress::{
    ConnectionRecord, EgressBudget, EgressEnd, EgressRule, EgressScheme, EgressVia, HostPattern,
};
pub use facts::{Backing, Channel, Effect, Facts, Grant, Understanding};
pub use fs_rule::{FsAccess, FsRule};
pub use host::EgressHost;
pub use id::{
    ApprovalId, AttestationId, CallId, DeviceId, GrantId, QuarantineId, RunId, SessionId,
};
pub use injection::{Audience, Injection, InjectionPlace, InjectionTable, Placeholder};
pub use json::CanonicalJson;
pub use plan::{
    EgressEnforcementMode, FileId, FileOperation, FilePlan, Limits, Plan, ProcView, ProcessPlan,
    ProgramId, ReplyPlan, SecretPlace, SecretUse, Stdin, Tier, Window,
};
pub use posture::{Posture, PostureLevel};
pub use presence::{
    ApproverKey, ApproverSignature, PresenceChange, PresenceMode, Question, Signed, Statement,
};
pub use principal::{AgentName, Principal, UserName};
pub use program::{CodeFact, CodePart, Content, Pinned, ScriptLine};
pub use risk::{ProgramFacts, ProgramGroup, Risk, RiskLevel};
pub use scope::{GrantTerms, Reach, Scope, ScopeKey, ScopeKind, WhyEnded};
pub use secret::{SecretAccess, SecretName, SecretRef, SecretValue, VaultChange, VaultScope};
pub use time::{Clock, Span, SystemClock, Timestamp};
pub use tool::{ToolCapability, ToolMetadata, ToolName, ToolProposal};
