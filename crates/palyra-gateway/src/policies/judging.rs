//! Asking policies about a call of the past: why it was answered so, and what a draft would say.
//! Nothing is changed, and nothing can be run with the answers.

use palyra_core::entry::{Answer, Entry, Recorded, Stream};
use palyra_core::{CallId, Denial, Facts, Timestamp};
use palyra_journal::JournalStore;
use palyra_policy::operator::{
    Bundle, CallExplanation, Outcome, Problem, Question, RequestText, Simulation, decide_call,
    explain_call, simulate,
};
use palyra_policy::{Action, Baseline, Resource};
use serde_json::Value;

use super::versions::{self, PolicyVersion, SourceText, Sources};
use crate::calls::CallRow;
use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// How many versions are read at a time.
const PAGE: usize = 200;

/// Policies that are not in force, and may never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// What stands under them; what the daemon is configured with when absent.
    pub baseline: Option<Baseline>,
    /// The files.
    pub files: Vec<SourceText>,
}

/// Why a call was answered as it was.
#[derive(Debug)]
pub struct CallJudged {
    /// The call.
    pub call: CallId,
    /// What came of it then.
    pub recorded: Outcome,
    /// The policies behind that.
    pub matched: Vec<String>,
    /// What the record names the policies by that said so.
    pub policy_version: String,
    /// The version that this was, when it is known.
    pub number: Option<u64>,
    /// The version that is explained here: that one, or the one in force when it is not known.
    pub explained_with: u64,
    /// The explanation.
    pub explanation: CallExplanation,
    /// What would come of it now.
    pub now: Outcome,
}

/// What a draft says, beside what is in force.
#[derive(Debug)]
pub enum Simulated {
    /// To a call of the past.
    Call {
        /// What comes of it under the policies in force.
        before: Outcome,
        /// What would come of it under the draft, and why.
        draft: Box<CallExplanation>,
    },
    /// To a request that somebody wrote.
    Request(Box<Simulation>),
}

impl GatewayService {
    /// Whether this caller may ask about policies at all: before anything large is read for them.
    ///
    /// # Errors
    /// Policy forbids it.
    pub fn may_judge(&self, caller: &Caller) -> Result<(), Refusal> {
        self.allowed(caller, Action::PolicyRead, Resource::Daemon)
    }

    /// Why a call was answered as it was, by the policies that were in force then. This blocks.
    ///
    /// # Errors
    /// Policy forbids it, there is no such call, or what policy saw of it is no longer kept.
    pub fn explain_call(&self, caller: &Caller, id: &str) -> Result<CallJudged, Refusal> {
        self.may_judge(caller)?;
        let decided = self.decided(caller, id)?;
        let active = self.policies_now().standing.active.clone();
        let then = version_of(&self.0.journal, &decided.policy_version, decided.at)?;
        let number = then.as_ref().map(|version| version.number);
        let version = then.unwrap_or_else(|| active.clone());
        let bundle = self.bundle_of(&version)?;
        let explanation = explain_call(&bundle, &decided.facts).map_err(could_not_tell)?;
        let now = match version.digest == active.digest {
            true => explanation.outcome,
            false => outcome(&self.bundle_of(&active)?, &decided.facts),
        };
        Ok(CallJudged {
            call: decided.call,
            recorded: decided.outcome,
            matched: decided.matched,
            policy_version: decided.policy_version,
            number,
            explained_with: version.number,
            explanation,
            now,
        })
    }

    /// What a draft would say to a call of the past. This blocks.
    ///
    /// # Errors
    /// As [`GatewayService::explain_call`]; or the draft cannot be used.
    pub fn simulate_call(
        &self,
        caller: &Caller,
        draft: &Draft,
        id: &str,
    ) -> Result<Simulated, Refusal> {
        self.may_judge(caller)?;
        let draft = self.draft(draft)?;
        let facts = self.decided(caller, id)?.facts;
        let active = self.bundle_of(&self.policies_now().standing.active)?;
        let found = explain_call(&draft, &facts).map_err(could_not_tell)?;
        Ok(Simulated::Call {
            before: outcome(&active, &facts),
            draft: Box::new(found),
        })
    }

    /// What a draft would say to a request as people write it. This blocks.
    ///
    /// # Errors
    /// Policy forbids it, the draft cannot be used, or the request makes no sense.
    pub fn simulate_request(
        &self,
        caller: &Caller,
        draft: &Draft,
        request: Value,
    ) -> Result<Simulated, Refusal> {
        self.may_judge(caller)?;
        let draft = self.draft(draft)?;
        let request: RequestText =
            serde_json::from_value(request).map_err(|error| unfit(&error.to_string()))?;
        let question = Question::read(&request).map_err(|why| unfit(&why))?;
        let active = self.bundle_of(&self.policies_now().standing.active)?;
        let found = simulate(&active, &draft, &question).map_err(|why| unfit(&why))?;
        Ok(Simulated::Request(Box::new(found)))
    }

    /// A draft, checked.
    pub(super) fn draft(&self, draft: &Draft) -> Result<Bundle, Refusal> {
        let baseline = draft.baseline.unwrap_or(self.0.policies.place.baseline);
        let mut files = draft.files.clone();
        // What the daemon's own settings say stands under a draft that does not choose otherwise.
        let settings = self.0.policies.place.settings.source();
        let settings = settings.filter(|own| {
            draft.baseline.is_none() && files.iter().all(|file| file.name != own.name)
        });
        files.extend(settings.iter().map(SourceText::from));
        let sources = Sources {
            baseline: SourceText {
                name: format!("{baseline}.cedar"),
                text: baseline.source().to_owned(),
            },
            files,
        };
        sources.bundle().map_err(|problems| broken_draft(&problems))
    }

    fn bundle_of(&self, version: &PolicyVersion) -> Result<Bundle, Refusal> {
        let sources = Sources::kept(&self.0.journal, &version.sources)?;
        let unusable = |problems: Vec<Problem>| super::refusals::unusable(&problems);
        sources.bundle().map_err(unusable)
    }

    /// The last decision about a call, with everything that policy saw.
    fn decided(&self, caller: &Caller, id: &str) -> Result<Decided, Refusal> {
        let CallRow { call, .. } = self.call_row_of(caller, id)?;
        let entries = self.0.journal.read_stream(&Stream::Call(call.clone()))?;
        let decided = entries.iter().rev().find_map(Decision::of);
        let decided = decided.ok_or_else(|| undecided(&call))?;
        let facts = decided.facts(&self.0.journal)?;
        let facts = match facts {
            Kept::Facts(facts) => *facts,
            Kept::Erased => return Err(erased(&call)),
            Kept::Unreadable => return Err(crate::records::unreadable(call.as_str())),
        };
        Ok(Decided {
            outcome: decided.outcome,
            matched: decided.matched.to_vec(),
            policy_version: decided.policy_version.to_owned(),
            at: decided.at,
            call,
            facts,
        })
    }
}

struct Decided {
    call: CallId,
    outcome: Outcome,
    matched: Vec<String>,
    policy_version: String,
    at: Timestamp,
    facts: Facts,
}

/// A `decided` entry.
pub(super) struct Decision<'a> {
    pub(super) outcome: Outcome,
    pub(super) matched: &'a [String],
    pub(super) policy_version: &'a str,
    pub(super) at: Timestamp,
    facts: palyra_core::Commitment,
}

/// What is left of the facts of a decision.
pub(super) enum Kept {
    Facts(Box<Facts>),
    Erased,
    Unreadable,
}

impl<'a> Decision<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> Option<Self> {
        let Entry::Decided {
            answer,
            matched,
            policy_version,
            facts,
            ..
        } = &recorded.entry
        else {
            return None;
        };
        Some(Self {
            outcome: match answer {
                Answer::Permit => Outcome::Allow,
                Answer::Ask => Outcome::Ask,
                Answer::Deny(_) => Outcome::Deny,
            },
            matched,
            policy_version,
            at: recorded.at,
            facts: *facts,
        })
    }

    pub(super) fn facts(&self, journal: &JournalStore) -> Result<Kept, Refusal> {
        let blob = match journal.kept(&self.facts)? {
            palyra_journal::Kept::Whole(blob) => blob,
            palyra_journal::Kept::Erased | palyra_journal::Kept::Unknown => {
                return Ok(Kept::Erased);
            }
            palyra_journal::Kept::Unreadable => return Ok(Kept::Unreadable),
        };
        let read = serde_json::from_slice(&blob.bytes);
        Ok(read.map_or(Kept::Unreadable, Kept::Facts))
    }
}

/// What comes of a call. Where policy cannot tell, the daemon denies.
fn outcome(bundle: &Bundle, facts: &Facts) -> Outcome {
    let found = decide_call(bundle, facts);
    found.map_or(Outcome::Deny, |found| Outcome::from(&found.answer))
}

/// The version that records named like this at that time.
fn version_of(
    journal: &JournalStore,
    policy_version: &str,
    at: Timestamp,
) -> Result<Option<PolicyVersion>, Refusal> {
    let mut before = None;
    loop {
        let page = versions::list(journal, before, PAGE)?;
        let Some(last) = page.last().map(|version| version.number) else {
            return Ok(None);
        };
        let mut named = page
            .into_iter()
            .filter(|version| version.policy_version == policy_version);
        // The same set may have been in force more than once.
        if let Some(first) = named.next() {
            let fits = |version: &PolicyVersion| version.activated_at <= at;
            let earlier = named.find(fits).filter(|_| !fits(&first));
            return Ok(Some(earlier.unwrap_or(first)));
        }
        before = Some(last);
    }
}

fn could_not_tell(denial: Denial) -> Refusal {
    Refusal::new(
        RefusalKind::Invalid,
        "policy_could_not_tell",
        format!("policy could not tell: {}", denial.reason),
        denial.next_step,
    )
}

fn erased(call: &CallId) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        "facts_erased",
        format!("what policy saw of `{call}` is no longer kept"),
        "write the request down and use `--request FILE`",
    )
}

fn undecided(call: &CallId) -> Refusal {
    Refusal::new(
        RefusalKind::Conflict,
        "not_decided",
        format!("policy was never asked about `{call}`"),
        format!("see `palyra calls show {call}`"),
    )
}

fn unfit(why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Invalid,
        "request_invalid",
        format!("the request cannot be asked about: {why}"),
        "it has `principal`, `action`, `resource`, `context` and `entity`; \
         `palyra policy schema` names them",
    )
}

fn broken_draft(problems: &[Problem]) -> Refusal {
    let first = problems
        .first()
        .map_or_else(String::new, ToString::to_string);
    let message = match problems.len() {
        0 | 1 => format!("the draft cannot be used: {first}"),
        all => format!("the draft cannot be used: {first} (and {} more)", all - 1),
    };
    Refusal::new(
        RefusalKind::Invalid,
        "draft_invalid",
        message,
        "`palyra policy check DIR` shows everything that is wrong with it",
    )
}
