//! A gateway with a real sandbox, those who ask there, and a person who answers.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use palyra_approval::{ApprovalsFold, GrantsFold, PosturesFold, Wanted};
use palyra_core::entry::Fold;
use palyra_core::{
    ApprovalDecision, ApprovalId, CanonicalJson, Clock, DigestKey, Ending, Principal, Reach,
    ScopeKind, SystemClock, UserName,
};
use palyra_gateway::calls::CallsFold;
use palyra_gateway::deciding::PersonsAnswer;
use palyra_gateway::policies::{PolicyBesideFold, PolicyPlace, PolicyVersionsFold};
use palyra_gateway::records::ListQuery;
use palyra_gateway::tools::Registry;
use palyra_gateway::{
    Budget, CallHandle, CallReport, Caller, Conclusion, Event, FloodLimits, GatewayService, People,
    ProposedCall, Settings,
};
use palyra_identity::AgentsFold;
use palyra_journal::{JournalKeys, JournalStore};
use palyra_policy::Baseline;
use palyra_sandbox::{Sandbox, SandboxSettings};
use serde_json::json;

/// Who asks.
const AGENTS: usize = 100;
/// How many ask or are answered at the same time.
const LANES: usize = 64;
/// How long to wait before each call that is measured.
pub(crate) const PAUSE: Duration = Duration::from_millis(4);
/// A page as the API reads it, when nobody says how long: one more, to know whether another follows.
const PAGE: usize = 51;
/// Any key.
pub(crate) const KEY: [u8; 32] = [1; 32];

/// A gateway with a real sandbox, and one agent.
#[derive(Clone)]
pub(crate) struct House {
    pub(crate) gateway: GatewayService,
    pub(crate) owner: Caller,
    pub(crate) agent: Caller,
    workspace: PathBuf,
    _folder: Arc<tempfile::TempDir>,
}

impl House {
    pub(crate) async fn open() -> Self {
        // Not in the shared temporary folder: what others leave there would be granted name by name.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = folder.path().canonicalize().unwrap();
        for name in ["workspace", "palyra", "policies"] {
            std::fs::create_dir(home.join(name)).unwrap();
        }
        close(&home.join("palyra"));
        let gateway = gateway(&home).await;
        let name = UserName::owner();
        let owner = Caller::on_new_run(Principal::User { name }, &SystemClock);
        let workspace = home.join("workspace");
        let agent = add(&gateway, &owner, "one", &workspace).await;
        Self {
            gateway,
            owner,
            agent,
            workspace,
            _folder: Arc::new(folder),
        }
    }

    pub(crate) async fn agents(&self) -> Arc<Vec<Caller>> {
        let mut agents = Vec::new();
        for number in 0..AGENTS {
            let name = format!("agent-{number}");
            agents.push(add(&self.gateway, &self.owner, &name, &self.workspace).await);
        }
        Arc::new(agents)
    }

    pub(crate) async fn propose(&self, by: &Caller, word: &str, detached: bool) -> CallHandle {
        let arguments = json!({ "argv": ["/bin/echo", word] });
        let wanted = ProposedCall {
            tool: "palyra.process.run".to_owned(),
            arguments: CanonicalJson::from_value(&arguments).unwrap(),
            workspace: Some(self.workspace.clone()),
            window: None,
            said: None,
            detached,
            patience: Duration::ZERO,
            advice: None,
            bound_to: None,
        };
        self.gateway.call(by, wanted).await.unwrap()
    }

    /// The agent asks and waits.
    pub(crate) async fn ask(&self, by: &Caller, word: &str) -> (ApprovalId, CallHandle) {
        let mut call = self.propose(by, word, false).await;
        let Some(Event::ApprovalPending { approval, .. }) = call.next().await else {
            let report = call.finish().await.unwrap();
            panic!("`{word}` is not asked about: {:?}", report.conclusion);
        };
        (approval, call)
    }

    /// A person says yes.
    pub(crate) async fn allow(&self, id: &ApprovalId, reach: Reach) {
        let answer = PersonsAnswer {
            decision: ApprovalDecision::Allow,
            reason: None,
            wanted: Wanted {
                reach,
                cover: ScopeKind::Exact,
                lasts: None,
            },
            shown: None,
        };
        let decided = self
            .gateway
            .decide_approval(&self.owner, id.as_str(), answer);
        decided.await.unwrap();
    }

    /// From a yes to the start of the call and to what its program says first, in milliseconds.
    pub(crate) async fn answers(&self, warm_up: usize, rounds: usize) -> (f64, f64) {
        let (mut starts, mut outputs) = (Vec::new(), Vec::new());
        for round in 0..warm_up + rounds {
            let (id, call) = self.ask(&self.agent, &format!("answer-{round}")).await;
            tokio::time::sleep(PAUSE).await;
            // It listens in a task of its own, as a connection does.
            let listens = tokio::spawn(heard(call));
            let yes = Instant::now();
            self.allow(&id, Reach::Once).await;
            let (started, spoke) = listens.await.unwrap();
            if round >= warm_up {
                starts.push(started - yes);
                outputs.push(spoke - yes);
            }
        }
        (median(&mut starts), median(&mut outputs))
    }

    /// So many questions of callers who do not wait.
    pub(crate) async fn leave(&self, agents: &Arc<Vec<Caller>>, many: usize) -> Vec<ApprovalId> {
        at_once(many, |number| {
            let (house, agents) = (self.clone(), Arc::clone(agents));
            async move {
                let by = agents.get(number % AGENTS).unwrap();
                let call = house.propose(by, &format!("left-{number}"), true).await;
                let report = call.finish().await.unwrap();
                report.approval.clone().unwrap()
            }
        })
        .await
    }

    /// So many calls that wait.
    pub(crate) async fn wait(&self, agents: &Arc<Vec<Caller>>, many: usize) -> Vec<CallHandle> {
        at_once(many, |number| {
            let (house, agents) = (self.clone(), Arc::clone(agents));
            async move {
                let by = agents.get(number % AGENTS).unwrap();
                house.ask(by, &format!("waits-{number}")).await.1
            }
        })
        .await
    }

    /// A yes to each, for a while.
    pub(crate) async fn grant_all(&self, left: Vec<ApprovalId>) {
        let left = Arc::new(left);
        at_once(left.len(), |number| {
            let (house, left) = (self.clone(), Arc::clone(&left));
            async move {
                let id = left.get(number).unwrap();
                house.allow(id, Reach::Window).await;
            }
        })
        .await;
    }

    pub(crate) fn pending(&self) -> usize {
        let overview = self.gateway.overview(&self.owner).unwrap();
        overview.pending_approvals
    }

    pub(crate) async fn idle(&self) {
        while !self.gateway.is_idle() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The first page of the inbox, in milliseconds.
    pub(crate) fn first_page(&self, rounds: usize) -> f64 {
        let query = ListQuery {
            approval_state: Some("pending".to_owned()),
            limit: PAGE,
            ..ListQuery::default()
        };
        let mut taken = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            let page = self.gateway.approvals(&self.owner, &query).unwrap();
            taken.push(begun.elapsed());
            assert_eq!(page.len(), PAGE);
        }
        median(&mut taken)
    }
}

/// When a call started, and when its program said something first; it ended well.
pub(crate) async fn heard(mut call: CallHandle) -> (Instant, Instant) {
    let (mut started, mut spoke) = (None, None);
    while let Some(event) = call.next().await {
        match event {
            Event::ApprovalPending { .. } | Event::Connection(_) => {}
            Event::Started => started = Some(Instant::now()),
            Event::Output(_) => {
                spoke.get_or_insert_with(Instant::now);
            }
        }
    }
    executed(&call.finish().await.unwrap());
    (started.unwrap(), spoke.unwrap())
}

pub(crate) fn executed(report: &CallReport) {
    match &report.conclusion {
        Conclusion::Executed { attestation, .. } => {
            assert_eq!(attestation.report.ending, Ending::Exited { code: 0 });
        }
        other @ (Conclusion::Denied(_) | Conclusion::Advised { .. }) => panic!("{other:?}"),
    }
}

/// So many of the same, a few at a time.
async fn at_once<T, F>(many: usize, one: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut done = Vec::with_capacity(many);
    let mut under_way = futures::stream::iter((0..many).map(one))
        .map(tokio::spawn)
        .buffer_unordered(LANES);
    while let Some(ended) = under_way.next().await {
        done.push(ended.unwrap());
    }
    done
}

async fn add(gateway: &GatewayService, owner: &Caller, name: &str, workspace: &Path) -> Caller {
    let added = gateway.add_agent(owner, name, workspace, false).await;
    gateway.lower(owner, &added.unwrap().name).unwrap()
}

/// Closed to others, as the daemon's folder is.
fn close(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

async fn gateway(home: &Path) -> GatewayService {
    let own = home.join("palyra");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bench = std::env::current_exe().unwrap();
    let helper = bench.parent().and_then(Path::parent).unwrap();
    let sandbox = Sandbox::start(SandboxSettings {
        helper: helper.join("palyra-jail"),
        masked: vec![own.clone()],
        quarantine: own.join("quarantine"),
        clock: Arc::clone(&clock),
        tier_c: None,
    });
    let sandbox = sandbox.await.unwrap();
    let lacks = "build it first: cargo build --release --bin palyra-jail";
    assert_eq!(sandbox.status().why, None, "{lacks}");
    let folds: Vec<Box<dyn Fold>> = vec![
        Box::new(CallsFold),
        Box::new(ApprovalsFold),
        Box::new(GrantsFold),
        Box::new(PosturesFold),
        Box::new(AgentsFold),
        Box::new(PolicyVersionsFold),
        Box::new(PolicyBesideFold),
        Box::new(palyra_gateway::vault::VaultFold),
    ];
    let keys = JournalKeys::generate().unwrap();
    let journal = JournalStore::open(&own.join("journal"), folds, Arc::clone(&clock), keys);
    let place = PolicyPlace {
        folder: home.join("policies"),
        baseline: Baseline::Standard,
        settings: palyra_policy::operator::settings::Settings::default(),
        staging: false,
    };
    let settings = Settings {
        budget: Budget {
            calls: u64::MAX,
            ..Budget::default()
        },
        floods: FloodLimits {
            pending: usize::MAX,
            asks_per_minute: usize::MAX,
            proposals_per_minute: usize::MAX,
        },
        approval_wait: Duration::from_secs(3_600),
        masked: vec![own.clone()],
        rules: Vec::new(),
        user_homes: Vec::new(),
        people: People::of("", home.to_owned()),
        vault: palyra_gateway::vault::VaultPlace::key_file(own),
        egress: palyra_gateway::EgressSettings::default(),
        presence: palyra_core::PresenceMode::Off,
        give_up_presence: false,
    };
    let gateway = GatewayService::open(
        place,
        journal.unwrap(),
        sandbox,
        Registry::standard().unwrap(),
        Some(DigestKey::from_bytes(KEY)),
        settings,
        clock,
    );
    gateway.await.unwrap()
}

/// In milliseconds.
pub(crate) fn median(taken: &mut [Duration]) -> f64 {
    taken.sort();
    let middle = taken.get(taken.len() / 2).copied().unwrap_or_default();
    middle.as_secs_f64() * 1e3
}
