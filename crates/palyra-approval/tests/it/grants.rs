//! Over random sequences of events: nothing runs without a live decision or grant that covers it.
//!
//! The model beside it knows only what people said and what ended, and none of the machinery.

use std::time::{Duration, Instant};

use palyra_approval::{
    GRANT_LIFETIME, GrantsFold, LiveGrants, Wanted, decide, end_grant, grant, make_grant,
};
use palyra_core::entry::{Entry, Fold as _, Recorded, Row};
use palyra_core::facts::{Channel, Origin};
use palyra_core::{
    ApprovalDecision, ApprovalId, Blob, BlobKind, CallId, CanonicalJson, DeviceId, DigestKey,
    Facts, GrantTerms, Limits, Reach, ReplyPlan, Risk, RiskLevel, RunId, Scope, ScopeKind,
    SessionId, Tier, Timestamp, ToolMetadata, ToolProposal, Understanding, UserName, WhyEnded,
};
use proptest::prelude::*;

use crate::fixture::{Journal, START, agent, later, owner};

/// Whose call of what: small numbers, so that they meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct What {
    agent: usize,
    session: usize,
    word: usize,
}

#[derive(Debug, Clone)]
enum Event {
    /// A call is shown to a person, who answers.
    Answer(What, ApprovalDecision, Reach, ScopeKind),
    /// A call is made.
    Attempt(What),
    Revoke(usize),
    EndSession(usize),
    /// Time passes on both clocks.
    Pass(u64),
    /// The clock on the wall is turned.
    Turn(i64),
}

const AGENTS: [&str; 2] = ["claude", "codex"];

/// Two words of the first program, one of the second.
fn program(word: usize) -> usize {
    usize::from(word > 1)
}

fn facts(what: What, sessions: &[SessionId], now: Timestamp) -> Facts {
    let key = DigestKey::from_bytes([1; 32]);
    let name = AGENTS[what.agent];
    let metadata = ToolMetadata {
        name: "palyra.process.run".parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: [palyra_core::ToolCapability::ProcessExec].into(),
        default_sensitive: false,
        max_input_bytes: 1_024,
        default_limits: Limits::default(),
    };
    let value = serde_json::json!({ "word": what.word });
    let proposal = ToolProposal {
        tool: metadata.name.clone(),
        arguments: CanonicalJson::from_value(&value).unwrap(),
    };
    let session = sessions[what.session].clone();
    let origin = Origin {
        principal: agent(name),
        run: RunId::mint(START),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: Some(session.clone()),
    };
    let plan = ReplyPlan { reply: value };
    let call = CallId::mint(START);
    let facts = Facts::new(
        call,
        origin,
        &metadata,
        &proposal,
        Vec::new(),
        None,
        Tier::C,
        &plan,
        &key,
        now,
        1,
    );
    let exact = facts.digest().to_text();
    let scopes = [
        (ScopeKind::Exact, exact),
        (ScopeKind::Program, program(what.word).to_string()),
        (ScopeKind::Tool, String::new()),
    ];
    let scopes = scopes.map(|(kind, of)| {
        let keyed = |reach: &str, session: &str| {
            key.scope_key(&[kind.as_str(), reach, session, name, &of].map(str::as_bytes))
        };
        Scope {
            kind,
            session: keyed("session", session.as_str()),
            window: keyed("window", ""),
            sentence: String::new(),
        }
    });
    facts.with_understanding(Understanding {
        opaque: false,
        programs: Vec::new(),
        reads_more_code: false,
        risk: Risk::default(),
        scopes: scopes.to_vec(),
    })
}

/// What a person said, as the model remembers it.
struct Said {
    what: What,
    reach: Reach,
    cover: ScopeKind,
    /// On the clock that only goes forwards, and on the wall.
    at: (u64, Timestamp),
    lasts: Duration,
    over: bool,
}

impl Said {
    fn covers(&self, call: What, at: (u64, Timestamp)) -> bool {
        let same = match (self.reach, self.cover) {
            (Reach::Once, _) | (_, ScopeKind::Exact) => self.what.word == call.word,
            (_, ScopeKind::Program) => program(self.what.word) == program(call.word),
            (_, ScopeKind::Tool) => true,
            (_, ScopeKind::Shape | ScopeKind::Host | ScopeKind::Directory) => false,
        };
        let passed = Duration::from_millis(at.0 - self.at.0);
        let in_time = match self.reach {
            // A once-yes is judged by the time that policy sees.
            Reach::Once => at.1 < self.at.1.plus(self.lasts),
            Reach::Session | Reach::Window => passed < self.lasts,
        };
        let session = self.reach != Reach::Session || self.what.session == call.session;
        !self.over && same && in_time && session && self.what.agent == call.agent
    }
}

#[derive(Default)]
struct World {
    once: Vec<(Journal, What)>,
    grants: Vec<(GrantTerms, Option<Row>)>,
    live: LiveGrants,
    said: Vec<(Said, Option<usize>)>,
}

impl World {
    /// A step of a grant's stream, as the journal takes it.
    fn record(&mut self, place: usize, entry: Entry, at: Timestamp) {
        let (terms, row) = &mut self.grants[place];
        let recorded = Recorded {
            seq: 1,
            stream: terms.id.to_string(),
            revision: 1,
            at,
            entry,
        };
        *row = GrantsFold.fold(row.as_ref().map(|row| &*row.value), &recorded);
    }

    fn end(&mut self, place: usize, why: WhyEnded, at: Timestamp) {
        let id = self.grants[place].0.id.clone();
        let _ = self.live.remove(&id);
        self.record(place, end_grant(&id, why, None).entry, at);
        let said = self.said.iter_mut().filter(|(_, of)| *of == Some(place));
        said.for_each(|(said, _)| said.over = true);
    }
}

fn play(events: Vec<Event>) -> Result<(), TestCaseError> {
    let sessions = [SessionId::mint(START), SessionId::mint(START)];
    let began = Instant::now();
    let (mut passed, mut turned, mut latest) = (0_u64, 0_i64, START);
    let mut world = World::default();
    for event in events {
        let wall = later(i64::try_from(passed).unwrap() + turned);
        latest = latest.max(wall);
        let instant = began + Duration::from_millis(passed);
        match event {
            Event::Pass(millis) => passed += millis,
            Event::Turn(millis) => turned += millis,
            Event::Revoke(place) if place < world.grants.len() => {
                world.end(place, WhyEnded::Revoked, wall);
            }
            Event::Revoke(_) => {}
            Event::EndSession(session) => {
                for id in world.live.of_session(&sessions[session]) {
                    let mut all = world.grants.iter();
                    let place = all.position(|(terms, _)| terms.id == id).unwrap();
                    world.end(place, WhyEnded::SessionEnded, wall);
                }
            }
            Event::Answer(what, decision, reach, cover) => {
                let facts = facts(what, &sessions, wall);
                let pending = palyra_approval::PendingToolApproval {
                    id: ApprovalId::mint(wall),
                    call: facts.call.clone(),
                    principal: agent(AGENTS[what.agent]),
                    tool: facts.tool.clone(),
                    digest: *facts.digest(),
                    arguments: Blob::new(BlobKind::Arguments, Vec::new()).commitment(),
                    expires_at: wall.plus(Duration::from_secs(600)),
                    session: facts.origin.session.clone(),
                    risk: RiskLevel::Medium,
                    detached: true,
                    approver: None,
                    people: 1,
                };
                let mut journal = Journal::new(&pending.id);
                prop_assert!(journal.append(&palyra_approval::ask(&pending), wall));
                let record = journal.record();
                let step = decide(&record, decision, &owner(), None, wall).unwrap();
                prop_assert!(journal.append(&step, wall));
                let at = (passed, wall);
                let said = |reach, lasts, over| Said {
                    what,
                    reach,
                    cover,
                    at,
                    lasts,
                    over,
                };
                world.once.push((journal, what));
                let no = decision == ApprovalDecision::Deny;
                world
                    .said
                    .push((said(Reach::Once, GRANT_LIFETIME, no), None));
                let wanted = Wanted {
                    reach,
                    cover,
                    lasts: Some(Duration::from_secs(300)),
                };
                let committed = Blob::new(BlobKind::Facts, Vec::new()).commitment();
                let shown = (&facts, committed);
                let made = make_grant(&record, shown, wanted, &UserName::owner(), wall);
                let covered = facts.scopes.iter().any(|scope| scope.kind == cover);
                prop_assert_eq!(made.is_ok(), covered && reach != Reach::Once);
                if let (Ok(terms), false) = (made, no) {
                    let place = world.grants.len();
                    world.grants.push((terms.clone(), None));
                    let entry = Entry::GrantMade {
                        terms: Box::new(terms.clone()),
                    };
                    world.record(place, entry, wall);
                    world.live.insert(terms, latest.max(wall), instant);
                    let lasts = Duration::from_secs(300);
                    world.said.push((said(reach, lasts, false), Some(place)));
                }
            }
            Event::Attempt(what) => {
                let facts = facts(what, &sessions, wall);
                let at = (passed, wall);
                let allowed = |said: &[(Said, Option<usize>)], of: Option<usize>| {
                    let mut those = said.iter().filter(|(_, its)| *its == of);
                    those.any(|(said, _)| said.covers(what, at))
                };
                // A yes that was left, as the gateway looks for it and the admission spends it.
                let left = world.once.iter().position(|(journal, by)| {
                    let live = grant(&journal.record(), facts.digest());
                    by.agent == what.agent && live.is_some_and(|it| wall < it.not_after)
                });
                if let Some(place) = left {
                    prop_assert!(
                        allowed(&world.said, None),
                        "a yes that nobody gave: {what:?}"
                    );
                    prop_assert!(world.once[place].0.spend(&facts.call, wall));
                    let mut said = world.said.iter_mut().filter(|(_, of)| of.is_none());
                    said.nth(place).unwrap().0.over = true;
                    continue;
                }
                if let Some(found) = world.live.find(&facts, latest, instant) {
                    let id = found.standing.unwrap();
                    let place = world.grants.iter().position(|(terms, _)| terms.id == id);
                    let row = world.grants[place.unwrap()].1.as_ref().unwrap();
                    prop_assert_eq!(&row.state, "live");
                    prop_assert!(
                        allowed(&world.said, place),
                        "not what was granted: {what:?}"
                    );
                }
            }
        }
    }
    Ok(())
}

fn event() -> impl Strategy<Value = Event> {
    let what = || {
        (0..2_usize, 0..2_usize, 0..3_usize).prop_map(|(agent, session, word)| What {
            agent,
            session,
            word,
        })
    };
    let reach = prop_oneof![Just(Reach::Once), Just(Reach::Session), Just(Reach::Window)];
    let cover = prop_oneof![
        Just(ScopeKind::Exact),
        Just(ScopeKind::Program),
        Just(ScopeKind::Tool),
        Just(ScopeKind::Host)
    ];
    let decision = prop_oneof![
        3 => Just(ApprovalDecision::Allow),
        1 => Just(ApprovalDecision::Deny)
    ];
    prop_oneof![
        4 => (what(), decision, reach, cover)
            .prop_map(|(what, decision, reach, cover)| Event::Answer(what, decision, reach, cover)),
        8 => what().prop_map(Event::Attempt),
        1 => (0..4_usize).prop_map(Event::Revoke),
        1 => (0..2_usize).prop_map(Event::EndSession),
        2 => (0..200_000_u64).prop_map(Event::Pass),
        1 => (-400_000..400_000_i64).prop_map(Event::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_runs_what_nobody_allowed(events in prop::collection::vec(event(), 1..40)) {
        play(events)?;
    }
}
