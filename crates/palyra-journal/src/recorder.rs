//! The corridor's ledger for one call.
//!
//! A call that nobody has to be asked about costs two commits: what led to the decision waits
//! here and is written with the admission; the report and the output are written with the
//! attestation. A call that waits for a person costs one more, and so does one that is closed.
//!
//! An approval's stream is `approval_requested` at revision 1 and its end (decided, expired or
//! cancelled) at revision 2. So a yes is spent by appending `grant_spent` where the stream is
//! expected at revision 2 and that entry is an allow: whoever comes second finds revision 3.
//!
//! A grant's stream is `grant_made` at revision 1 and its end at revision 2. An execution under a
//! grant adds nothing to it, and expects it at revision 1: what was revoked admits nothing more.

use std::sync::Arc;

use palyra_core::attestation::Ending;
use palyra_core::corridor::{Admits, Attests, Evidence, Intent};
use palyra_core::entry::{Answer, Entry, Stream};
use palyra_core::facts::Origin;
use palyra_core::json::canonical_bytes;
use palyra_core::{
    ApprovalDecision, ApprovalId, AttestationId, Backing, Blob, BlobKind, CallDigest, CallId,
    Clock, Commitment, Denial, DenialCode, GrantId, Question, ToolAttestation, ToolName,
};

use crate::batch::{Committed, Expected, StreamAppend};
use crate::error::JournalError;
use crate::store::JournalStore;

/// The revision of an approval that was answered and whose yes is not spent.
const ANSWERED: u64 = 2;

/// The revision of a grant that is in force.
const IN_FORCE: u64 = 1;

/// A yes by its approval or its grant, and the append that holds only while it does.
type RestsOn = (Option<ApprovalId>, Option<GrantId>, Option<StreamAppend>);

/// Records one call, from its proposal to its end.
pub struct CallRecorder {
    store: JournalStore,
    call: CallId,
    clock: Arc<dyn Clock>,
    /// Where the call's stream stands on disk.
    revision: u64,
    /// What happened and is not on disk yet.
    entries: Vec<Entry>,
    /// What `entries` commit to.
    blobs: Vec<Committed>,
    ended: bool,
}

impl CallRecorder {
    /// A recorder for a call that has no entries yet.
    #[must_use]
    pub fn new(store: JournalStore, call: CallId, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            call,
            clock,
            revision: 0,
            entries: Vec::new(),
            blobs: Vec::new(),
            ended: false,
        }
    }

    /// The call.
    #[must_use]
    pub const fn call(&self) -> &CallId {
        &self.call
    }

    /// The call came in. Written with what follows; gives the commitment to its arguments.
    pub fn proposed(&mut self, tool: ToolName, origin: Origin, arguments: Blob) -> Commitment {
        let arguments = self.keep(arguments);
        self.entries.push(Entry::Proposed {
            tool,
            origin: Box::new(origin),
            arguments,
        });
        arguments
    }

    /// Policy answered. Written with what follows; gives the commitment to the facts.
    pub fn decided(
        &mut self,
        answer: Answer,
        matched: Vec<String>,
        policy_version: String,
        digest: CallDigest,
        facts: Blob,
    ) -> Commitment {
        let facts = self.keep(facts);
        self.entries.push(Entry::Decided {
            answer,
            matched,
            policy_version,
            digest: digest.recorded(&self.call),
            facts,
        });
        facts
    }

    /// A person is asked: opens the approval's stream with this question, and writes everything
    /// that led to it.
    ///
    /// # Errors
    /// It could not be made durable, so nobody may be asked.
    pub async fn request_approval(
        &mut self,
        stream: Stream,
        question: Entry,
    ) -> Result<(), Denial> {
        let expected = Expected::NoStream;
        let asked = StreamAppend {
            stream,
            expected,
            entries: vec![question],
        };
        self.write(Vec::new(), Some(asked), Vec::new())
            .await
            .map_err(unavailable)
    }

    /// The call does not run, or its record ends here. One that ended already keeps its end.
    ///
    /// # Errors
    /// It could not be made durable. What was buffered is kept, so it can be tried again.
    pub async fn close(&mut self, denial: Denial) -> Result<(), Denial> {
        if self.ended {
            return Ok(());
        }
        self.write(vec![Entry::Closed { denial }], None, Vec::new())
            .await
            .map_err(unavailable)?;
        self.ended = true;
        Ok(())
    }

    /// A client was told that it may do this by itself, and nothing runs here. A yes for once is
    /// spent with that, as by an admission, unless the call is still `to_come`.
    ///
    /// # Errors
    /// It could not be made durable, or what it rests on is over.
    pub async fn advise(
        &mut self,
        digest: &CallDigest,
        backing: Option<&Backing>,
        to_come: bool,
    ) -> Result<(), Denial> {
        let call = self.call.clone();
        self.is_about(&call)?;
        let (approval, grant, rests_on) = self.resting_on(digest, backing)?;
        let advised = Entry::Advised {
            rewritten: to_come,
            approval,
            grant,
        };
        let rests_on = rests_on.filter(|_| !to_come);
        let written = self.write(vec![advised], rests_on, Vec::new()).await;
        written.map_err(|error| not_in_force(error, backing))?;
        self.ended = true;
        Ok(())
    }

    /// What an execution rests on, and the append that holds only while that is so.
    fn resting_on(
        &self,
        digest: &CallDigest,
        backing: Option<&Backing>,
    ) -> Result<RestsOn, Denial> {
        Ok(match backing {
            None => (None, None, None),
            Some(Backing::Once(approval)) => {
                self.is_allowed(approval, digest)?;
                let spend = StreamAppend {
                    stream: Stream::Approval(approval.clone()),
                    expected: Expected::Revision(ANSWERED),
                    entries: vec![Entry::GrantSpent {
                        call: self.call.clone(),
                    }],
                };
                (Some(approval.clone()), None, Some(spend))
            }
            Some(Backing::Standing(grant)) => {
                let in_force = StreamAppend {
                    stream: Stream::Grant(grant.clone()),
                    expected: Expected::Revision(IN_FORCE),
                    entries: Vec::new(),
                };
                (None, Some(grant.clone()), Some(in_force))
            }
        })
    }

    fn keep(&mut self, blob: Blob) -> Commitment {
        let committed = Committed::from(blob);
        let commitment = committed.commitment;
        self.blobs.push(committed);
        commitment
    }

    /// Writes what was buffered, then `entries`, in one transaction with `also` and `blobs`. The
    /// buffer is emptied only when that went through.
    async fn write(
        &mut self,
        entries: Vec<Entry>,
        also: Option<StreamAppend>,
        blobs: Vec<Committed>,
    ) -> Result<(), JournalError> {
        let own = StreamAppend {
            stream: Stream::Call(self.call.clone()),
            expected: Expected::Revision(self.revision),
            entries: self.entries.iter().cloned().chain(entries).collect(),
        };
        let blobs = self.blobs.iter().cloned().chain(blobs).collect();
        let streams = std::iter::once(own).chain(also).collect();
        let appended = self.store.submit(streams, blobs).await?;
        self.revision = appended.revisions.first().copied().unwrap_or(self.revision);
        self.entries.clear();
        self.blobs.clear();
        Ok(())
    }

    /// Refuses what the corridor hands over for another call, or after the end of this one.
    fn is_about(&self, call: &CallId) -> Result<(), Denial> {
        if *call == self.call && !self.ended {
            return Ok(());
        }
        Err(Denial::new(
            DenialCode::JournalUnavailable,
            format!("the recorder of `{}` cannot record `{call}`", self.call),
            "run the call again; if it stays, report it with the daemon's log",
        ))
    }

    /// Whether the approval was allowed for exactly this call. The append that follows expects
    /// the revision looked at here, and entries never change, so nothing can slip in between.
    fn is_allowed(&self, approval: &ApprovalId, digest: &CallDigest) -> Result<(), Denial> {
        let stream = Stream::Approval(approval.clone());
        let recorded = self.store.read_stream(&stream).map_err(unavailable)?;
        let mut entries = recorded.iter().map(|recorded| &recorded.entry);
        let (asked, answered, more) = (entries.next(), entries.next(), entries.next());
        let Some(Entry::ApprovalRequested {
            call: of,
            digest: asked,
            approver,
            ..
        }) = asked
        else {
            return Err(spent(approval));
        };
        let allowed = matches!(
            answered,
            Some(Entry::ApprovalDecided {
                decision: ApprovalDecision::Allow,
                ..
            })
        );
        if !allowed || more.is_some() {
            return Err(spent(approval));
        }
        // Once more, right before it runs: a yes that its person did not sign is none.
        let question = Question {
            approval,
            call: of,
            digest: asked,
            approver: approver.as_ref(),
        };
        if !answered.is_some_and(|answer| question.is_answered_by(answer)) {
            return Err(Denial::new(
                DenialCode::ApprovalDenied,
                format!("the answer to `{approval}` is not signed by the person who gave it"),
                "see `palyra journal verify`, then propose the call again",
            ));
        }
        // The call that asked, or one that is equal to it.
        if *asked != digest.recorded(of) {
            return Err(Denial::new(
                DenialCode::PlanChanged,
                format!("`{approval}` allows another call than this one"),
                "run the call again and let it be approved as it is now",
            ));
        }
        Ok(())
    }
}

impl Admits for CallRecorder {
    async fn admit(&mut self, intent: Intent<'_>) -> Result<(), Denial> {
        self.is_about(intent.call)?;
        let (approval, grant, rests_on) = self.resting_on(intent.digest, intent.grant)?;
        let admitted = Entry::Admitted {
            digest: intent.digest.recorded(&self.call),
            plan: *intent.plan,
            approval,
            grant,
        };
        let outcome = self.write(vec![admitted], rests_on, Vec::new()).await;
        outcome.map_err(|error| not_in_force(error, intent.grant))
    }
}

impl Attests<serde_json::Value> for CallRecorder {
    async fn attest(
        &mut self,
        evidence: Evidence<'_, serde_json::Value>,
    ) -> Result<ToolAttestation, Denial> {
        self.is_about(evidence.call)?;
        let report = evidence.report;
        let output = canonical_bytes(&with_words(evidence.output, &report.ending));
        let output = Committed::from(Blob::new(BlobKind::Output, output));
        let attestation = ToolAttestation {
            attestation_id: AttestationId::mint(self.clock.now()),
            call_id: self.call.clone(),
            execution_sha256: output.commitment,
            executed_at: report.started_at,
            timed_out: report.ending == Ending::TimedOut,
            plan: *evidence.plan,
            report: report.clone(),
        };
        let entries = vec![
            Entry::Finished {
                report: report.clone(),
                output: output.commitment,
            },
            Entry::Attested {
                attestation: attestation.clone(),
            },
        ];
        self.write(entries, None, vec![output])
            .await
            .map_err(unavailable)?;
        self.ended = true;
        Ok(attestation)
    }
}

/// The output, with what an executor said about a failure: its words may name what the arguments
/// name, so they belong to what can be erased, not into an entry.
fn with_words<'a>(
    output: &'a serde_json::Value,
    ending: &Ending,
) -> std::borrow::Cow<'a, serde_json::Value> {
    let Ending::Failed { message, .. } = ending else {
        return std::borrow::Cow::Borrowed(output);
    };
    let mut whole = output.clone();
    match whole.as_object_mut() {
        Some(members) => {
            members.insert("error".to_owned(), message.clone().into());
        }
        None => whole = serde_json::json!({ "error": message }),
    }
    std::borrow::Cow::Owned(whole)
}

/// Why an append that rests on a yes did not go through.
fn not_in_force(error: JournalError, backing: Option<&Backing>) -> Denial {
    match (&error, backing) {
        (JournalError::Conflict { stream, .. }, Some(Backing::Once(approval)))
            if stream == approval.as_str() =>
        {
            spent(approval)
        }
        (JournalError::Conflict { stream, .. }, Some(Backing::Standing(grant)))
            if stream == grant.as_str() =>
        {
            over(grant)
        }
        _ => unavailable(error),
    }
}

fn spent(approval: &ApprovalId) -> Denial {
    Denial::new(
        DenialCode::GrantSpent,
        format!("the yes of `{approval}` was used already, or it ended"),
        "run the call again to ask anew",
    )
}

fn over(grant: &GrantId) -> Denial {
    Denial::new(
        DenialCode::GrantSpent,
        format!("the grant `{grant}` ended before the call started"),
        format!("run the call again to ask anew; see `palyra grants show {grant}`"),
    )
}

fn unavailable(error: JournalError) -> Denial {
    Denial::new(
        DenialCode::JournalUnavailable,
        format!("what happens could not be recorded: {error}"),
        error.remedy(),
    )
}
