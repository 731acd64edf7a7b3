//! A grant as a row and as Cedar text: both say the same about every call.

use std::time::{Duration, Instant};

use palyra_approval::LiveGrants;
use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::facts::Origin;
use palyra_core::{
    ApprovalId, Blob, BlobKind, CallId, CanonicalJson, Channel, DeviceId, DigestKey, Facts,
    GrantId, GrantTerms, Limits, Principal, Reach, ReplyPlan, Risk, RunId, Scope, ScopeKind, Tier,
    Timestamp, ToolCapability, ToolMetadata, ToolProposal, Understanding, UserName,
};
use palyra_policy::{GrantRule, PolicyEngine, grant_text};

const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_000);
const KINDS: [ScopeKind; 6] = [
    ScopeKind::Exact,
    ScopeKind::Shape,
    ScopeKind::Host,
    ScopeKind::Directory,
    ScopeKind::Program,
    ScopeKind::Tool,
];

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let place = self.roll(of.len() as u64);
        of.get(usize::try_from(place).unwrap()).unwrap()
    }

    /// A time at most so many milliseconds from now.
    fn near(&mut self, millis: i64) -> Timestamp {
        let moved = i64::try_from(self.roll(2 * millis.unsigned_abs())).unwrap() - millis;
        Timestamp::from_millis(NOW.as_millis() + moved)
    }
}

fn metadata() -> ToolMetadata {
    ToolMetadata {
        name: "palyra.process.run".parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: [ToolCapability::ProcessExec].into(),
        default_sensitive: false,
        max_input_bytes: 1_024,
        default_limits: Limits::default(),
    }
}

/// A call of one of two agents, with some scopes out of few; the time is anywhere near.
fn call(dice: &mut Dice, key: &DigestKey) -> Facts {
    let agent = dice.pick(&["claude", "codex"]);
    let now = dice.near(1_000);
    let argument = dice.roll(4);
    let value = serde_json::json!({ "argv": [argument] });
    let origin = Origin {
        principal: Principal::Agent {
            name: agent.parse().unwrap(),
            user: UserName::owner(),
        },
        run: RunId::mint(NOW),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let proposal = ToolProposal {
        tool: metadata().name,
        arguments: CanonicalJson::from_value(&value).unwrap(),
    };
    let plan = ReplyPlan { reply: value };
    let facts = Facts::new(
        CallId::mint(NOW),
        origin,
        &metadata(),
        &proposal,
        Vec::new(),
        None,
        Tier::C,
        &plan,
        key,
        now,
        1,
    );
    let exact = facts.digest().to_text();
    let mut scopes = Vec::new();
    for kind in KINDS {
        let of = match kind {
            ScopeKind::Exact => exact.clone(),
            ScopeKind::Shape
            | ScopeKind::Host
            | ScopeKind::Directory
            | ScopeKind::Program
            | ScopeKind::Tool => match dice.roll(3) {
                0 => continue,
                _ => dice.roll(3).to_string(),
            },
        };
        let keyed = |reach: &str| {
            let parts = [kind.as_str(), reach, *agent, &of].map(str::as_bytes);
            key.scope_key(&parts)
        };
        scopes.push(Scope {
            kind,
            session: keyed("session"),
            window: keyed("window"),
            sentence: format!("{} {of}", kind.as_str()),
        });
    }
    facts.with_understanding(Understanding {
        opaque: dice.roll(4) == 0,
        programs: Vec::new(),
        reads_more_code: false,
        risk: Risk::default(),
        scopes,
    })
}

/// A grant for one of the scopes of a call.
fn grant(dice: &mut Dice, of: &Facts) -> (GrantTerms, String) {
    let scope = dice.pick(&of.scopes);
    let reach = *dice.pick(&[Reach::Session, Reach::Window]);
    let terms = GrantTerms {
        id: GrantId::mint(NOW),
        approval: ApprovalId::mint(NOW),
        call: of.call.clone(),
        agent: of.origin.principal.agent().unwrap().clone(),
        user: UserName::owner(),
        tool: of.tool.clone(),
        reach,
        cover: scope.kind,
        key: match reach {
            Reach::Session => scope.session,
            Reach::Once | Reach::Window => scope.window,
        },
        session: None,
        not_after: dice.near(500),
        made_by: UserName::owner(),
        facts: Blob::new(BlobKind::Facts, Vec::new()).commitment(),
    };
    let hostile = "say \"hi\" \\ \u{202e}\n";
    (terms, format!("{}: {hostile}", scope.sentence))
}

#[test]
fn the_text_of_a_grant_and_its_row_agree_on_a_thousand_calls() {
    let key = DigestKey::from_bytes([7; 32]);
    let mut dice = Dice(1);
    let engine = PolicyEngine::standard().unwrap();
    engine.set_tools(&[metadata()]).unwrap();
    let agents = ["claude", "codex"].map(|name| (name.parse().unwrap(), UserName::owner()));
    engine.set_agents(agents).unwrap();
    let (mut covered, mut not) = (0, 0);
    for _ in 0..50 {
        let shown = call(&mut dice, &key);
        let (terms, sentence) = grant(&mut dice, &shown);
        let text = grant_text(&terms, &sentence);
        let mut rule = GrantRule::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let instant = Instant::now() + Duration::from_secs(3_600);
        let mut live = LiveGrants::default();
        // Only the time on the wall is compared here; the other clock has hours left.
        live.insert(terms.clone(), Timestamp::from_millis(0), instant);
        for _ in 0..20 {
            let facts = call(&mut dice, &key);
            let by_row = live
                .find(&facts, facts.now, Instant::now())
                .is_some_and(|grant| {
                    let now = facts.now;
                    let answer = engine.answer(&facts.clone().with_grant(grant, now));
                    matches!(answer, Ok(PolicyAnswer::Run { .. }))
                });
            let by_text = rule.covers(&facts, facts.now).unwrap();
            assert_eq!(by_row, by_text, "{text}\n{facts:?}");
            match by_row {
                true => covered += 1,
                false => not += 1,
            }
        }
    }
    assert_eq!(covered + not, 1_000);
    assert!(covered > 50 && not > 50, "{covered} covered, {not} not");
}
