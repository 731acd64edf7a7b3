//! A gateway in a folder of its own, with an agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use palyra_approval::{ApprovalsFold, GrantsFold, PosturesFold, Wanted};
use palyra_core::entry::Fold;
use palyra_core::{
    ApprovalDecision, ApprovalId, CanonicalJson, Clock, DigestKey, Facts, Principal, Reach,
    ScopeKind, SystemClock, Timestamp, UserName,
};
use palyra_gateway::calls::CallsFold;
use palyra_gateway::deciding::PersonsAnswer;
use palyra_gateway::policies::{PolicyBesideFold, PolicyPlace, PolicyVersionsFold};
use palyra_gateway::records::ApprovalView;
use palyra_gateway::sessions::Anchor;
use palyra_gateway::tools::Registry;
use palyra_gateway::{
    Budget, CallHandle, Caller, Conclusion, Event, FloodLimits, GatewayService, People,
    ProposedCall, Refusal, Settings,
};
use palyra_identity::AgentsFold;
use palyra_journal::{BlobKey, JournalKeys, JournalStore};
use palyra_policy::Baseline;
use palyra_sandbox::{Sandbox, SandboxSettings};

pub(crate) const AGENT: &str = "a";

pub(crate) struct House {
    pub(crate) gateway: GatewayService,
    pub(crate) owner: Caller,
    pub(crate) agent: Caller,
    pub(crate) workspace: PathBuf,
    pub(crate) clock: Arc<Hands>,
    keys: String,
    folder: tempfile::TempDir,
}

/// The time of day, moved forwards or back by hand.
#[derive(Debug, Default)]
pub(crate) struct Hands(AtomicI64);

impl Hands {
    pub(crate) fn turn(&self, by: i64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now().as_millis();
        Timestamp::from_millis(now + self.0.load(Ordering::SeqCst))
    }
}

/// Closed to others, as the daemon's folder is.
fn close(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

async fn gateway(
    home: &Path,
    clock: &Arc<Hands>,
    keys: &str,
    key: u8,
    approval_wait: Duration,
) -> GatewayService {
    let own = home.join("palyra");
    let clock: Arc<dyn Clock> = Arc::<Hands>::clone(clock);
    let sandbox = Sandbox::start(SandboxSettings {
        helper: own.join("no-helper"),
        masked: vec![own.clone()],
        quarantine: own.join("quarantine"),
        clock: Arc::clone(&clock),
        tier_c: None,
    });
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
    let keys = JournalKeys::from_text(keys, BlobKey::from_bytes(&[7; 32])).unwrap();
    let journal = JournalStore::open(&own.join("journal"), folds, Arc::clone(&clock), keys);
    let place = PolicyPlace {
        folder: home.join("policies"),
        baseline: Baseline::Standard,
        settings: palyra_policy::operator::settings::Settings::default(),
        staging: false,
    };
    let settings = Settings {
        budget: Budget::default(),
        floods: FloodLimits::default(),
        approval_wait,
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
        sandbox.await.unwrap(),
        Registry::standard().unwrap(),
        Some(DigestKey::from_bytes([key; 32])),
        settings,
        clock,
    );
    gateway.await.unwrap()
}

impl House {
    /// With the standard baseline, policies beside it, and this key. Nobody answers here.
    pub(crate) async fn open(policies: &str, key: u8) -> Self {
        Self::waiting(policies, key, Duration::from_millis(20)).await
    }

    /// The same, where a question waits this long.
    pub(crate) async fn waiting(policies: &str, key: u8, wait: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for name in ["workspace", "palyra", "policies"] {
            std::fs::create_dir(home.join(name)).unwrap();
        }
        close(&home.join("palyra"));
        std::fs::write(home.join("policies/own.cedar"), policies).unwrap();
        let (clock, keys) = (Arc::new(Hands::default()), JournalKeys::generate().unwrap());
        let keys = keys.to_text();
        let gateway = gateway(&home, &clock, &keys, key, wait).await;
        let name = UserName::owner();
        let owner = Caller::on_new_run(Principal::User { name }, clock.as_ref());
        let workspace = home.join("workspace");
        let added = gateway.add_agent(&owner, AGENT, &workspace, false).await;
        let agent = gateway.lower(&owner, &added.unwrap().name).unwrap();
        Self {
            gateway,
            owner,
            agent,
            workspace,
            clock,
            keys,
            folder,
        }
    }

    /// The daemon ends and another one begins, on the same home.
    pub(crate) async fn restart(self, key: u8, wait: Duration) -> Self {
        let home = self.folder.path().canonicalize().unwrap();
        self.gateway.stop(Duration::ZERO).await;
        drop(self.gateway);
        let gateway = gateway(&home, &self.clock, &self.keys, key, wait).await;
        Self { gateway, ..self }
    }

    /// The same agent, coming from the process of this number.
    pub(crate) fn in_session(&self, pid: i32) -> Caller {
        let anchor = Anchor { pid, started: 1 };
        let (session, _) = self.gateway.session_of(anchor);
        self.agent.clone().in_session(session)
    }

    /// The agent proposes this.
    pub(crate) async fn propose(&self, by: &Caller, argv: &[&str], detached: bool) -> CallHandle {
        let arguments = serde_json::json!({ "argv": argv });
        self.propose_call(by, &arguments, detached).await
    }

    /// The agent proposes this, with everything it can say.
    pub(crate) async fn propose_with(
        &self,
        by: &Caller,
        arguments: &serde_json::Value,
    ) -> CallHandle {
        self.propose_call(by, arguments, false).await
    }

    async fn propose_call(
        &self,
        by: &Caller,
        arguments: &serde_json::Value,
        detached: bool,
    ) -> CallHandle {
        let wanted = ProposedCall {
            tool: "palyra.process.run".to_owned(),
            arguments: CanonicalJson::from_value(arguments).unwrap(),
            workspace: Some(self.workspace.clone()),
            window: None,
            said: None,
            detached,
            patience: std::time::Duration::ZERO,
            advice: None,
            bound_to: None,
        };
        self.gateway.call(by, wanted).await.unwrap()
    }

    /// The agent asks this: the approval that waits, and the call that waits for it.
    pub(crate) async fn ask(&self, by: &Caller, argv: &[&str]) -> (ApprovalId, CallHandle) {
        let mut call = self.propose(by, argv, false).await;
        match call.next().await {
            Some(Event::ApprovalPending { approval, .. }) => (approval, call),
            other => panic!("{argv:?} is not asked about: {other:?}"),
        }
    }

    /// Whether a person would be asked about this; the question is withdrawn.
    pub(crate) async fn is_asked(&self, by: &Caller, argv: &[&str]) -> bool {
        let mut call = self.propose(by, argv, false).await;
        matches!(call.next().await, Some(Event::ApprovalPending { .. }))
    }

    /// A person says yes.
    pub(crate) async fn allow(
        &self,
        id: &ApprovalId,
        reach: Reach,
        cover: ScopeKind,
    ) -> Result<ApprovalView, Refusal> {
        let answer = PersonsAnswer {
            decision: ApprovalDecision::Allow,
            reason: None,
            wanted: Wanted {
                reach,
                cover,
                lasts: None,
            },
            shown: None,
        };
        let decided = self
            .gateway
            .decide_approval(&self.owner, id.as_str(), answer);
        decided.await
    }

    /// A person says no.
    pub(crate) async fn deny(&self, id: &ApprovalId) -> Result<ApprovalView, Refusal> {
        let answer = PersonsAnswer {
            decision: ApprovalDecision::Deny,
            reason: Some("not today".to_owned()),
            wanted: Wanted {
                reach: Reach::Once,
                cover: ScopeKind::Exact,
                lasts: None,
            },
            shown: None,
        };
        let decided = self
            .gateway
            .decide_approval(&self.owner, id.as_str(), answer);
        decided.await
    }

    /// Why the call was not executed; there is no sandbox here, so one that was let through says so.
    pub(crate) async fn code(&self, call: CallHandle) -> String {
        let report = call.finish().await.unwrap();
        match &report.conclusion {
            Conclusion::Denied(denial) => denial.code.as_str().to_owned(),
            Conclusion::Executed { .. } => "executed".to_owned(),
            Conclusion::Advised { .. } => "advised".to_owned(),
        }
    }

    /// The agent runs this: whether a person was asked, and what policy saw.
    pub(crate) async fn run(&self, argv: &[&str]) -> (bool, Facts) {
        let mut call = self.propose(&self.agent, argv, false).await;
        let mut asked = false;
        while let Some(event) = call.next().await {
            match event {
                Event::ApprovalPending { .. } => asked = true,
                Event::Started | Event::Output(_) | Event::Connection(_) => {}
            }
        }
        let id = call.call().to_string();
        let _ = call.finish().await.unwrap();
        let record = self.gateway.call_record(&self.owner, &id).unwrap();
        let facts = serde_json::from_value(record.facts.unwrap()).unwrap();
        (asked, facts)
    }
}
