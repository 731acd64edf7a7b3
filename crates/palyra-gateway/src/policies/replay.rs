//! A draft against the past: every decision of a time, made again from the facts that were kept.

use std::time::{Duration, Instant};

use palyra_core::corridor::PolicyAnswer;
use palyra_core::{Facts, Timestamp};
use palyra_journal::JournalStore;
use palyra_policy::operator::{Bundle, Outcome, Replay};
use palyra_policy::{Action, Resource};
use tokio::sync::mpsc;

use super::judging::{Decision, Draft, Kept};
use crate::error::Refusal;
use crate::service::{Caller, GatewayService};

/// How many entries are read at a time.
const CHUNK: usize = 1_000;
/// How often it is said how far it came.
const BREATH: Duration = Duration::from_millis(500);
/// How many differences and gaps are told one by one; all are counted.
const MOST_TOLD: u64 = 10_000;

/// What is heard of a replay, in the journal's order.
#[derive(Debug)]
pub enum ReplayEvent {
    /// How far it came.
    Progress {
        /// Entries that were read.
        read: u64,
        /// Of these.
        of: u64,
    },
    /// A decision that the draft makes otherwise.
    Flip(Box<Flip>),
    /// What policy saw is no longer kept, so nothing is said about it.
    Erased {
        /// The call's stream.
        call: String,
        /// When it was decided.
        at: Timestamp,
    },
    /// What policy saw is kept and cannot be read, so nothing is said about it either.
    Unreadable {
        /// The call's stream.
        call: String,
        /// When it was decided.
        at: Timestamp,
    },
    /// It ended; nothing follows.
    Finished(ReplaySummary),
    /// It broke off; nothing follows.
    Failed(Refusal),
}

/// A decision that a draft makes otherwise.
#[derive(Debug)]
pub struct Flip {
    /// What policy saw.
    pub facts: Facts,
    /// When it was decided.
    pub at: Timestamp,
    /// What came of it then.
    pub before: Outcome,
    /// What would come of it.
    pub after: Outcome,
    /// The policies behind that; none when nothing permits it.
    pub policies: Vec<String>,
    /// Why policy could not tell, which denies.
    pub could_not_tell: Option<String>,
}

impl Flip {
    /// Whether more would happen.
    #[must_use]
    pub const fn widens(&self) -> bool {
        self.after.widens(self.before)
    }
}

/// What a replay found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Decisions of that time.
    pub decisions: u64,
    /// Those that the draft makes otherwise.
    pub flips: u64,
    /// Those of them that let more happen.
    pub widening: u64,
    /// Those whose facts are no longer kept.
    pub erased: u64,
    /// Those whose facts cannot be read.
    pub unreadable: u64,
}

impl GatewayService {
    /// Decides again what was decided since then, with a draft. It goes on until it is done or
    /// nobody listens.
    ///
    /// # Errors
    /// Policy forbids it, or the draft cannot be used.
    pub async fn replay_policies(
        &self,
        caller: &Caller,
        draft: Draft,
        since: Duration,
    ) -> Result<mpsc::Receiver<ReplayEvent>, Refusal> {
        self.may_judge(caller)?;
        // A flip tells about a call, whoever made it.
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let gateway = self.clone();
        let bundle = super::keeper::blocking(move || gateway.draft(&draft)).await??;
        let (tell, heard) = mpsc::channel(64);
        let journal = self.0.journal.clone();
        let now = self.0.clock.now();
        tokio::task::spawn_blocking(move || {
            let mut told = Told::new(tell);
            let ended = match replay(&journal, &bundle, now, since, &mut told) {
                Ok(Some(summary)) => ReplayEvent::Finished(summary),
                Ok(None) => return,
                Err(refusal) => ReplayEvent::Failed(refusal),
            };
            told.say(ended);
        });
        Ok(heard)
    }
}

/// Who hears of it.
struct Told {
    to: mpsc::Sender<ReplayEvent>,
    last: Instant,
}

impl Told {
    fn new(to: mpsc::Sender<ReplayEvent>) -> Self {
        Self {
            to,
            last: Instant::now(),
        }
    }

    /// Whether somebody still listens.
    fn say(&mut self, event: ReplayEvent) -> bool {
        self.to.blocking_send(event).is_ok()
    }

    fn progress(&mut self, read: u64, of: u64) -> bool {
        if self.last.elapsed() < BREATH {
            return !self.to.is_closed();
        }
        self.last = Instant::now();
        self.say(ReplayEvent::Progress { read, of })
    }
}

/// Every entry is looked at, because a clock that was set back puts old times behind new ones.
/// Nothing when nobody listens any more.
fn replay(
    journal: &JournalStore,
    draft: &Bundle,
    now: Timestamp,
    since: Duration,
    told: &mut Told,
) -> Result<Option<ReplaySummary>, Refusal> {
    let mut again = Replay::of(draft)?;
    let mut summary = ReplaySummary::default();
    let (head, mut after) = (journal.head(), 0);
    loop {
        let entries = journal.read(after, CHUNK)?;
        let Some(last) = entries.last().map(|last| last.seq).filter(|_| after < head) else {
            return Ok(Some(summary));
        };
        after = last;
        for recorded in &entries {
            let Some(decision) = Decision::of(recorded) else {
                continue;
            };
            if now.since(decision.at) > since {
                continue;
            }
            let call = recorded.stream.as_str();
            let said = one(journal, &mut again, call, &decision, &mut summary)?;
            if said.is_some_and(|event| !told.say(event)) {
                return Ok(None);
            }
        }
        if !told.progress(last.min(head), head) {
            return Ok(None);
        }
    }
}

/// One decision, made again and counted; what there is to tell of it.
fn one(
    journal: &JournalStore,
    again: &mut Replay,
    call: &str,
    decision: &Decision<'_>,
    summary: &mut ReplaySummary,
) -> Result<Option<ReplayEvent>, Refusal> {
    summary.decisions += 1;
    let (call, at) = (call.to_owned(), decision.at);
    let (event, counted) = match decision.facts(journal)? {
        Kept::Facts(facts) => {
            let Some(flip) = flip(again, *facts, decision) else {
                return Ok(None);
            };
            summary.widening += u64::from(flip.widens());
            (ReplayEvent::Flip(Box::new(flip)), &mut summary.flips)
        }
        Kept::Erased => (ReplayEvent::Erased { call, at }, &mut summary.erased),
        Kept::Unreadable => (
            ReplayEvent::Unreadable { call, at },
            &mut summary.unreadable,
        ),
    };
    *counted += 1;
    Ok((*counted <= MOST_TOLD).then_some(event))
}

fn flip(again: &mut Replay, facts: Facts, decision: &Decision<'_>) -> Option<Flip> {
    let (after, policies, could_not_tell) = match again.decide(&facts) {
        Ok(found) => (Outcome::from(&found.answer), matched(found.answer), None),
        Err(denial) => (Outcome::Deny, Vec::new(), Some(denial.reason)),
    };
    (after != decision.outcome).then_some(Flip {
        facts,
        at: decision.at,
        before: decision.outcome,
        after,
        policies,
        could_not_tell,
    })
}

fn matched(answer: PolicyAnswer) -> Vec<String> {
    match answer {
        PolicyAnswer::Run { matched }
        | PolicyAnswer::Ask { matched }
        | PolicyAnswer::Deny { matched, .. } => matched,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palyra_core::entry::{Answer, Entry, Stream};
    use palyra_core::{Blob, BlobKind, CallId, Clock, DigestKey, SystemClock};
    use palyra_journal::{Append, Expected, JournalKeys, StreamAppend};
    use palyra_policy::Baseline;
    use palyra_policy::operator::NamedSource;

    use super::*;

    fn decided(facts: &Blob) -> StreamAppend {
        let digest = DigestKey::from_bytes([1; 32]).call_digest(&[b"x"]);
        let call = CallId::mint(SystemClock.now());
        StreamAppend {
            stream: Stream::Call(call.clone()),
            expected: Expected::Any,
            entries: vec![Entry::Decided {
                answer: Answer::Ask,
                matched: Vec::new(),
                policy_version: "abc".to_owned(),
                digest: digest.recorded(&call),
                facts: facts.commitment(),
            }],
        }
    }

    fn told(journal: &JournalStore, now: Timestamp) -> (Option<ReplaySummary>, Vec<ReplayEvent>) {
        let baseline = NamedSource::new("standard.cedar", Baseline::Standard.source());
        let bundle = Bundle::load(&baseline, &[]).unwrap();
        let (tell, mut heard) = mpsc::channel(64);
        let mut to = Told::new(tell);
        let hour = Duration::from_secs(3_600);
        let summary = replay(journal, &bundle, now, hour, &mut to).unwrap();
        let mut events = Vec::new();
        while let Ok(event) = heard.try_recv() {
            events.push(event);
        }
        (summary, events)
    }

    async fn told_on_a_thread(
        journal: &JournalStore,
        now: Timestamp,
    ) -> (Option<ReplaySummary>, Vec<ReplayEvent>) {
        let journal = journal.clone();
        let reading = tokio::task::spawn_blocking(move || told(&journal, now));
        reading.await.unwrap()
    }

    #[tokio::test]
    async fn what_was_erased_is_listed_and_never_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let keys = JournalKeys::generate().unwrap();
        let journal = JournalStore::open(&path, Vec::new(), Arc::new(SystemClock), keys).unwrap();
        let now = SystemClock.now();
        let (summary, events) = told_on_a_thread(&journal, now).await;
        assert_eq!(summary, Some(ReplaySummary::default()), "an empty journal");
        assert!(events.is_empty());
        let (gone, odd) = (
            Blob::new(BlobKind::Facts, b"{}".to_vec()),
            Blob::new(BlobKind::Facts, b"not facts".to_vec()),
        );
        let streams = vec![decided(&gone), decided(&odd)];
        let blobs = vec![odd];
        journal.append(Append { streams, blobs }).await.unwrap();
        let now = SystemClock.now();
        let (summary, events) = told_on_a_thread(&journal, now).await;
        let expected = ReplaySummary {
            decisions: 2,
            erased: 1,
            unreadable: 1,
            ..ReplaySummary::default()
        };
        assert_eq!(summary, Some(expected));
        assert!(matches!(
            events.as_slice(),
            [ReplayEvent::Erased { .. }, ReplayEvent::Unreadable { .. }]
        ));
        // What is older than asked for is passed over.
        let later = now.plus(Duration::from_secs(7_200));
        let (summary, _) = told_on_a_thread(&journal, later).await;
        assert_eq!(summary, Some(ReplaySummary::default()));
    }
}
