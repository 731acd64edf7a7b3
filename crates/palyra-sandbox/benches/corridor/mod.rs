//! What the benches share: a sandbox with a plan for it, a plain spawn, and one run through the
//! corridor.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::corridor::{
    self, Admits, Attests, Decides, Evidence, Intent, PolicyAnswer, ToolDecision,
};
use palyra_core::facts::Origin;
use palyra_core::{
    CallId, CanonicalJson, Channel, Denial, DenialCode, DeviceId, DigestKey, EgressEnforcementMode,
    Ending, Facts, Limits, Pinned, Principal, ProcView, ProcessPlan, RunId, Stdin, SystemClock,
    Tier, Timestamp, ToolAttestation, ToolMetadata, ToolProposal, UserName,
};
use palyra_sandbox::{CodeWanted, Sandbox, SandboxSettings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Runs a bench on two threads, as the daemon has them here.
pub(crate) fn run(bench: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::spawn(bench).await.unwrap() });
}

/// Folders of a daemon and of somebody who works; gone with it.
pub(crate) struct Place {
    _folder: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) work: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        // Not in the shared temporary folder: what others leave there would be granted name by name.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let here = folder.path().canonicalize().unwrap();
        let (home, work) = (here.join("home"), here.join("work"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&work).unwrap();
        Self {
            home,
            work,
            _folder: folder,
        }
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        let settings = SandboxSettings {
            helper: env!("CARGO_BIN_EXE_palyra-jail").into(),
            masked: vec![self.home.clone()],
            quarantine: self.home.join("quarantine"),
            clock: Arc::new(SystemClock),
            tier_c: None,
        };
        Sandbox::start(settings).await.unwrap()
    }

    /// `/bin/true` in this tier.
    pub(crate) fn plan(&self, tier: Tier, egress: EgressEnforcementMode) -> ProcessPlan {
        let found = palyra_sandbox::look_at_folder(&self.work).unwrap();
        ProcessPlan {
            program: "/bin/true".into(),
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            code: code("/bin/true"),
            cwd: self.work.clone(),
            cwd_id: found.id,
            workspace: self.work.clone(),
            workspace_id: found.id,
            stdin: Stdin::Nothing,
            tier,
            limits: Limits::default(),
            masked: vec![self.home.clone()],
            rules: Vec::new(),
            run_as: palyra_sandbox::run_as(found.uid, None, tier).unwrap(),
            home: None,
            read_only: Vec::new(),
            egress,
            allowed_egress_hosts: Vec::new(),
            secrets: Vec::new(),
            proc: ProcView::default(),
        }
    }
}

/// What is in a program without arguments.
pub(crate) fn code(program: &str) -> Vec<Pinned> {
    palyra_sandbox::read_code(&CodeWanted {
        program: program.into(),
        program_id: palyra_sandbox::program_id(Path::new(program)).unwrap(),
        more: Vec::new(),
        cwd: "/".into(),
        masked: Vec::new(),
    })
    .unwrap()
}

/// How many of `runs` a second since then.
#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
pub(crate) fn rate(begun: Instant, runs: usize) -> f64 {
    runs as f64 / begun.elapsed().as_secs_f64()
}

/// A plain `/bin/true`. `std` uses `posix_spawn` here.
#[expect(clippy::disallowed_methods, reason = "the baseline")]
pub(crate) fn spawn() {
    let status = std::process::Command::new("/bin/true").env_clear().status();
    assert!(status.unwrap().success());
}

/// One run through the corridor: how long its execution took, and the layers that were observed.
pub(crate) async fn confined(sandbox: &Sandbox, plan: ProcessPlan) -> (Duration, String) {
    struct Open;
    impl Decides for Open {
        fn answer(&self, _: &Facts) -> Result<PolicyAnswer, Denial> {
            let matched = Vec::new();
            Ok(PolicyAnswer::Run { matched })
        }
    }
    impl Admits for Open {
        async fn admit(&mut self, _: Intent<'_>) -> Result<(), Denial> {
            Ok(())
        }
    }
    #[derive(Default)]
    struct Seen(String);
    impl Attests<Value> for Seen {
        async fn attest(&mut self, seen: Evidence<'_, Value>) -> Result<ToolAttestation, Denial> {
            assert_eq!(seen.report.ending, Ending::Exited { code: 0 });
            let names = seen.report.layers.iter().map(|layer| layer.name.as_str());
            self.0 = names.collect::<Vec<_>>().join(", ");
            Err(Denial::new(DenialCode::JournalUnavailable, "", ""))
        }
    }

    let now = Timestamp::from_millis(0);
    let metadata = ToolMetadata {
        name: "palyra.process.run".parse().unwrap(),
        description: String::new(),
        input_schema: Value::Null,
        capabilities: std::collections::BTreeSet::default(),
        default_sensitive: false,
        max_input_bytes: 0,
        default_limits: Limits::default(),
    };
    let proposal = ToolProposal {
        tool: metadata.name.clone(),
        arguments: CanonicalJson::parse(b"{}").unwrap(),
    };
    let origin = Origin {
        principal: Principal::User {
            name: UserName::owner(),
        },
        run: RunId::mint(now),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let key = DigestKey::from_bytes([0; 32]);
    let (call, workspace): (_, Option<PathBuf>) = (CallId::mint(now), None);
    let facts = Facts::new(
        call,
        origin,
        &metadata,
        &proposal,
        Vec::new(),
        workspace,
        plan.tier,
        &plan,
        &key,
        now,
        0,
    );
    let ToolDecision::Permit(permit) = corridor::decide(&Open, &facts) else {
        return (Duration::ZERO, String::new());
    };
    let admitted = permit.admit(&mut Open).await.unwrap();
    let runner = sandbox.processes(None, None, CancellationToken::new());
    let begun = Instant::now();
    let finished = admitted.execute(&runner, plan).await.unwrap();
    let took = begun.elapsed();
    let mut seen = Seen::default();
    let _ = finished.attest(&mut seen).await;
    (took, seen.0)
}
