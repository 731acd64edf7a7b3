//! A filtered page out of a million entries: the newest of one rare agent, of a tool, of an outcome,
//! of all three, and of a time.
//!
//! `PALYRA_FILTER_CALLS` sets another number of calls; each has five entries.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops at the first thing that is not as it should be"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_approval::ApprovalsFold;
use palyra_core::entry::{Answer, Entry, Fold, Stream};
use palyra_core::facts::Origin;
use palyra_core::{
    AgentName, Blob, BlobKind, CallId, Channel, Clock, Denial, DenialCode, DeviceId, DigestKey,
    Principal, RunId, SystemClock, Timestamp, UserName,
};
use palyra_gateway::calls::{CallState, CallsFold};
use palyra_gateway::filtering::JournalFilter;
use palyra_gateway::policies::{PolicyBesideFold, PolicyPlace, PolicyVersionsFold};
use palyra_gateway::tools::Registry;
use palyra_gateway::{Budget, Caller, FloodLimits, GatewayService, People, Settings};
use palyra_identity::AgentsFold;
use palyra_journal::{Append, Expected, JournalKeys, JournalStore, StreamAppend};
use palyra_policy::Baseline;
use palyra_sandbox::{Sandbox, SandboxSettings};

const CALLS: i64 = 200_000;
const GROUP: i64 = 50;
const PAGES: usize = 200;
const LIMIT: usize = 50;
const START: i64 = 1_794_733_261_000;

fn main() {
    let calls = std::env::var("PALYRA_FILTER_CALLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(CALLS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let real = folder.path().canonicalize().unwrap();
    let (gateway, owner) = runtime.block_on(open(&real, calls));
    let rare = JournalFilter {
        agent: Some(agent(calls / 2 / 1_000 * 1_000)),
        ..JournalFilter::default()
    };
    let tool = JournalFilter {
        tool: Some("palyra.fs.write".parse().unwrap()),
        ..JournalFilter::default()
    };
    let outcome = JournalFilter {
        outcome: Some(CallState::ApprovalExpired),
        ..JournalFilter::default()
    };
    let all = JournalFilter {
        tool: tool.tool.clone(),
        outcome: Some(CallState::Denied),
        ..rare.clone()
    };
    let page = |name: &'static str, filter: &JournalFilter| {
        let mut taken: Vec<Duration> = (0..PAGES)
            .map(|_| {
                let start = Instant::now();
                let page = gateway.journal_page(&owner, filter, None, LIMIT).unwrap();
                let taken = start.elapsed();
                assert!(!page.entries.is_empty(), "{name}");
                taken
            })
            .collect();
        taken.sort();
        let worst = taken.get(PAGES * 99 / 100).copied().unwrap_or_default();
        (name, worst.as_secs_f64() * 1_000.0)
    };
    let rows = [
        page("one rare agent", &rare),
        page("one tool", &tool),
        page("one rare outcome", &outcome),
        page("agent, tool and outcome", &all),
    ];
    let worst = rows.iter().map(|(_, millis)| *millis).fold(0.0, f64::max);
    for (name, millis) in rows {
        println!("{name:<44} {millis:>12.3} ms (99th percentile)");
    }
    let ratio = 20.0 / worst;
    let verdict = if ratio >= 1.0 { "ok" } else { "MISSED" };
    println!("20 ms / the slowest filtered page               {ratio:>12.2} x  (min 1) {verdict}");
    let rows =
        rows.map(|(name, millis)| serde_json::json!({"name": name, "value": millis, "unit": "ms"}));
    let report = serde_json::json!({
        "bench": "filtered", "rows": rows.as_slice(),
        "ratios": [{"name": "20 ms / the slowest filtered page", "ratio": ratio, "bar": 1.0, "kind": "min", "ok": ratio >= 1.0}],
    });
    println!("JSON {report}");
}

/// Twenty agents share nearly everything; now and then comes one of a hundred others.
fn agent(call: i64) -> AgentName {
    let name = match call % 1_000 {
        0 => format!("rare-{}", call / 1_000 % 100),
        number => format!("busy-{}", number % 20),
    };
    name.parse().unwrap()
}

fn entries(call: i64, id: &CallId) -> Vec<Entry> {
    let digest = DigestKey::from_bytes([1; 32]).call_digest(&[b"x"]);
    let at = Timestamp::from_millis(START + call);
    let arguments = Blob::new(BlobKind::Arguments, Vec::new()).commitment();
    let tool = match call % 10 {
        0 => "palyra.fs.write",
        _ => "palyra.process.run",
    };
    let decided = || Entry::Decided {
        answer: Answer::Ask,
        matched: vec!["ask_agent_sensitive".to_owned()],
        policy_version: "0123456789abcdef".to_owned(),
        digest: digest.recorded(id),
        facts: arguments,
    };
    let code = match call % 5_000 {
        1 => DenialCode::ApprovalExpired,
        _ => DenialCode::DeniedByPolicy,
    };
    let origin = Origin {
        principal: Principal::Agent {
            name: agent(call),
            user: UserName::owner(),
        },
        run: RunId::mint(at),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    vec![
        Entry::Proposed {
            tool: tool.parse().unwrap(),
            origin: Box::new(origin),
            arguments,
        },
        decided(),
        decided(),
        decided(),
        Entry::Closed {
            denial: Denial::new(code, "because", "nothing"),
        },
    ]
}

async fn open(folder: &std::path::Path, calls: i64) -> (GatewayService, Caller) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let folds: Vec<Box<dyn Fold>> = vec![
        Box::new(CallsFold),
        Box::new(ApprovalsFold),
        Box::new(AgentsFold),
        Box::new(PolicyVersionsFold),
        Box::new(PolicyBesideFold),
    ];
    let keys = JournalKeys::generate().unwrap();
    let file = folder.join("journal.db");
    let journal = JournalStore::open(&file, folds, Arc::clone(&clock), keys).unwrap();
    for group in 0..calls / GROUP {
        let streams = (0..GROUP)
            .map(|number| {
                let call = group * GROUP + number;
                let id = CallId::mint(Timestamp::from_millis(START + call));
                StreamAppend {
                    entries: entries(call, &id),
                    stream: Stream::Call(id),
                    expected: Expected::NoStream,
                }
            })
            .collect();
        let blobs = Vec::new();
        journal.append(Append { streams, blobs }).await.unwrap();
    }
    let place = PolicyPlace {
        folder: folder.join("policies"),
        baseline: Baseline::Standard,
        settings: palyra_policy::operator::settings::Settings::default(),
        staging: false,
    };
    std::fs::create_dir(&place.folder).unwrap();
    let sandbox = Sandbox::start(SandboxSettings {
        helper: folder.join("no-helper"),
        masked: vec![folder.to_owned()],
        quarantine: folder.join("quarantine"),
        clock: Arc::clone(&clock),
        tier_c: None,
    });
    let settings = Settings {
        budget: Budget::default(),
        floods: FloodLimits::default(),
        approval_wait: Duration::from_millis(20),
        masked: Vec::new(),
        rules: Vec::new(),
        user_homes: Vec::new(),
        people: People::of("", folder.to_owned()),
        vault: palyra_gateway::vault::VaultPlace::key_file(folder.to_owned()),
        egress: palyra_gateway::EgressSettings::default(),
        presence: palyra_core::PresenceMode::Off,
        give_up_presence: false,
    };
    let gateway = GatewayService::open(
        place,
        journal,
        sandbox.await.expect("it says that it is not available"),
        Registry::standard().unwrap(),
        Some(DigestKey::from_bytes([1; 32])),
        settings,
        Arc::clone(&clock),
    );
    let owner = Principal::User {
        name: UserName::owner(),
    };
    let owner = Caller::on_new_run(owner, clock.as_ref());
    (gateway.await.unwrap(), owner)
}
