//! A gateway in a folder of its own, with an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use palyra_approval::ApprovalsFold;
use palyra_core::entry::Fold;
use palyra_core::{CanonicalJson, Clock, DigestKey, Facts, Principal, SystemClock, UserName};
use palyra_gateway::calls::CallsFold;
use palyra_gateway::policies::{PolicyBesideFold, PolicyPlace, PolicyVersionsFold};
use palyra_gateway::tools::Registry;
use palyra_gateway::{
    Budget, Caller, Event, FloodLimits, GatewayService, People, ProposedCall, Settings,
};
use palyra_identity::AgentsFold;
use palyra_journal::{JournalKeys, JournalStore};
use palyra_policy::Baseline;
use palyra_sandbox::{Sandbox, SandboxSettings};

pub(crate) const AGENT: &str = "a";

pub(crate) struct House {
    pub(crate) gateway: GatewayService,
    pub(crate) owner: Caller,
    pub(crate) agent: Caller,
    pub(crate) workspace: PathBuf,
    _folder: tempfile::TempDir,
}

/// Closed to others, as the daemon's folder is.
fn close(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

impl House {
    /// With the standard baseline, policies beside it, and this key.
    pub(crate) async fn open(policies: &str, key: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let (workspace, own) = (home.join("workspace"), home.join("palyra"));
        std::fs::create_dir(&workspace).unwrap();
        std::fs::create_dir(&own).unwrap();
        let vault = own.clone();
        close(&vault);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
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
        std::fs::create_dir(&place.folder).unwrap();
        std::fs::write(place.folder.join("own.cedar"), policies).unwrap();
        let settings = Settings {
            budget: Budget::default(),
            floods: FloodLimits::default(),
            // Nobody answers here.
            approval_wait: Duration::from_millis(20),
            masked: vec![own],
            rules: Vec::new(),
            user_homes: Vec::new(),
            people: People::of("", home),
            vault: palyra_gateway::vault::VaultPlace::key_file(vault),
        };
        let gateway = GatewayService::open(
            place,
            journal.unwrap(),
            sandbox.await.unwrap(),
            Registry::standard().unwrap(),
            Some(DigestKey::from_bytes([key; 32])),
            settings,
            Arc::clone(&clock),
        );
        let gateway = gateway.await.unwrap();
        let name = UserName::owner();
        let owner = Caller::on_new_run(Principal::User { name }, clock.as_ref());
        let added = gateway.add_agent(&owner, AGENT, &workspace).await;
        let agent = gateway.lower(&owner, &added.unwrap().name).unwrap();
        Self {
            gateway,
            owner,
            agent,
            workspace,
            _folder: folder,
        }
    }

    /// The agent runs this: whether a person was asked, and what policy saw.
    pub(crate) async fn run(&self, argv: &[&str]) -> (bool, Facts) {
        let arguments = serde_json::json!({ "argv": argv });
        let wanted = ProposedCall {
            tool: "palyra.process.run".to_owned(),
            arguments: CanonicalJson::from_value(&arguments).unwrap(),
            workspace: Some(self.workspace.clone()),
            window: None,
        };
        let mut call = self.gateway.call(&self.agent, wanted).await.unwrap();
        let mut asked = false;
        while let Some(event) = call.next().await {
            match event {
                Event::ApprovalPending { .. } => asked = true,
                Event::Started | Event::Output(_) => {}
            }
        }
        let id = call.call().to_string();
        let _ = call.finish().await.unwrap();
        let record = self.gateway.call_record(&self.owner, &id).unwrap();
        let facts = serde_json::from_value(record.facts.unwrap()).unwrap();
        (asked, facts)
    }
}
