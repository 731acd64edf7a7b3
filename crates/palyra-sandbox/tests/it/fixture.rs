//! A daemon's home to hide, a workspace to work in, and the corridor in between.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palyra_core::corridor::{
    self, Admits, Attests, Decides, Evidence, Executes, Intent, PolicyAnswer, ToolDecision,
};
use palyra_core::facts::Origin;
use palyra_core::plan::RunAs;
use palyra_core::{
    CallId, CanonicalJson, Channel, CodePart, Content, Denial, DenialCode, DeviceId, Digest,
    DigestKey, EgressEnforcementMode, Ending, ExecutionReport, Facts, FileId, FileOperation,
    FilePlan, Limits, Pinned, Principal, ProcView, ProcessPlan, RunId, Stdin, SystemClock, Tier,
    Timestamp, ToolAttestation, ToolMetadata, ToolProposal, UserName,
};
use palyra_sandbox::{CodeWanted, MoreCode, OutputSink, Sandbox, SandboxSettings, TierCBackend};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Where the binaries are, when this runs as somebody who cannot reach the build's folder.
pub(crate) const BINARIES: &str = "PALYRA_IT_BINARIES";

fn binary(name: &str, built: &str) -> PathBuf {
    std::env::var_os(BINARIES).map_or_else(|| built.into(), |folder| Path::new(&folder).join(name))
}

pub(crate) fn jail() -> PathBuf {
    binary("palyra-jail", env!("CARGO_BIN_EXE_palyra-jail"))
}

pub(crate) fn attacker() -> PathBuf {
    binary("palyra-attacker", env!("CARGO_BIN_EXE_palyra-attacker"))
}

/// A helper that leaves out the wall whose name is at the end of its file.
pub(crate) fn broken_jail() -> PathBuf {
    binary(
        "palyra-broken-jail",
        env!("CARGO_BIN_EXE_palyra-broken-jail"),
    )
}

/// An owner that is nobody on this machine.
pub(crate) const OWNER: u32 = 65_532;

/// What is in the masked folder.
pub(crate) const SECRET: &str = "the daemon's key";

pub(crate) struct House {
    pub(crate) sandbox: Sandbox,
    root: tempfile::TempDir,
    pub(crate) run_as: RunAs,
    pub(crate) tier: Tier,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// As whom Tier-C runs in a house of somebody's.
fn lent() -> RunAs {
    match is_root() {
        true => RunAs::Lent {
            uid: OWNER,
            gid: OWNER,
        },
        false => RunAs::Daemon,
    }
}

impl House {
    /// Tier-B, under the uid of this test, or that of somebody else if this is root: then everything
    /// in the house belongs to them, and what holds them back is not the file's owner.
    pub(crate) async fn new() -> Self {
        let run_as = if is_root() {
            RunAs::Owner {
                uid: OWNER,
                gid: OWNER,
            }
        } else {
            RunAs::Daemon
        };
        Self::with(Tier::B, run_as).await
    }

    /// Tier-C. A root daemon lends a uid, and everything in the house belongs to somebody else.
    pub(crate) async fn caged() -> Self {
        Self::with(Tier::C, lent()).await
    }

    /// The same through `bwrap`. A root daemon's calls run as whom the house belongs to.
    pub(crate) async fn wrapped() -> Self {
        Self::by(Tier::C, lent(), Some(TierCBackend::LinuxBubblewrap)).await
    }

    /// Tier-C of a root daemon in a house of root's own. Only as root.
    pub(crate) async fn caged_by_root() -> Self {
        Self::with(Tier::C, RunAs::Lent { uid: 0, gid: 0 }).await
    }

    /// Tier-B, once for each uid that calls can run under here.
    pub(crate) async fn all() -> Vec<Self> {
        vec![Self::new().await]
    }

    /// One for each tier, and for each kind of owner that this test can have. What calls say about
    /// process numbers means nothing outside of a cage.
    pub(crate) async fn every() -> Vec<Self> {
        let mut all = vec![Self::new().await, Self::caged().await];
        if is_root() {
            all.push(Self::caged_by_root().await);
        }
        all
    }

    async fn with(tier: Tier, run_as: RunAs) -> Self {
        // What these tests are about, whatever else the machine has.
        Self::by(tier, run_as, Some(TierCBackend::LinuxNamespaces)).await
    }

    async fn by(tier: Tier, run_as: RunAs, tier_c: Option<TierCBackend>) -> Self {
        let root = tempfile::Builder::new()
            .prefix("palyra-it-")
            .tempdir()
            .unwrap();
        let path = root.path().canonicalize().unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(path.join("deep/home/inner")).unwrap();
        std::fs::create_dir(path.join("work")).unwrap();
        std::fs::write(path.join("deep/home/secret"), SECRET).unwrap();
        std::fs::write(path.join("deep/home/inner/secret"), SECRET).unwrap();
        std::fs::write(path.join("deep/beside"), "not secret").unwrap();
        std::fs::copy(attacker(), path.join("attacker")).unwrap();
        if let RunAs::Owner { uid, gid } | RunAs::Lent { uid, gid } = run_as {
            for name in [
                "",
                "deep",
                "deep/home",
                "deep/home/inner",
                "work",
                "deep/home/secret",
                "deep/home/inner/secret",
            ] {
                chown(path.join(name), Some(uid), Some(gid)).unwrap();
            }
        }
        let sandbox = Sandbox::start(SandboxSettings {
            helper: jail(),
            masked: vec![path.join("deep/home")],
            quarantine: path.join("deep/home/quarantine"),
            clock: Arc::new(SystemClock),
            tier_c,
        })
        .await
        .unwrap();
        assert_eq!(sandbox.status().why, None, "{:?}", sandbox.status());
        Self {
            sandbox,
            root,
            run_as,
            tier,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn plan(&self, argv: &[&str]) -> ProcessPlan {
        ProcessPlan {
            program: argv[0].into(),
            argv: argv.iter().map(|&text| text.to_owned()).collect(),
            env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            code: Vec::new(),
            cwd: self.path("work"),
            cwd_id: UNKNOWN,
            workspace: self.path("work"),
            workspace_id: UNKNOWN,
            stdin: Stdin::Nothing,
            tier: self.tier,
            limits: Limits {
                wall: Duration::from_secs(30),
                ..Limits::default()
            },
            masked: vec![self.path("deep/home")],
            rules: Vec::new(),
            run_as: self.run_as,
            home: None,
            // Beside the workspace.
            read_only: vec![self.path("attacker")],
            egress: match self.tier {
                Tier::B | Tier::Builtin => EgressEnforcementMode::None,
                Tier::C => EgressEnforcementMode::Strict,
            },
            allowed_egress_hosts: Vec::new(),
            secrets: Vec::new(),
            proc: ProcView::default(),
        }
    }

    pub(crate) async fn run_plan(&self, plan: ProcessPlan) -> Ran {
        self.run_with(plan, None, CancellationToken::new()).await
    }

    pub(crate) async fn run_with(
        &self,
        plan: ProcessPlan,
        sink: Option<OutputSink>,
        cancel: CancellationToken,
    ) -> Ran {
        let runner = self.sandbox.processes(sink, None, cancel);
        let (report, output) = execute(&runner, identified(plan)).await;
        Ran { report, output }
    }

    pub(crate) async fn run(&self, argv: &[&str]) -> Ran {
        self.run_plan(self.plan(argv)).await
    }

    pub(crate) async fn sh(&self, script: &str) -> Ran {
        self.run(&["/bin/sh", "-c", script]).await
    }

    /// An attack inside.
    pub(crate) async fn attack(&self, arguments: &[&str]) -> Ran {
        let attacker = self.text("attacker");
        let argv: Vec<&str> = std::iter::once(attacker.as_str())
            .chain(arguments.iter().copied())
            .collect();
        self.run(&argv).await
    }

    /// The same attack outside, under the same uid.
    pub(crate) fn outside(&self, arguments: &[&str]) -> std::process::Output {
        self.outside_command(arguments).output().unwrap()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the control runs outside on purpose"
    )]
    pub(crate) fn outside_command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(self.path("attacker"));
        command.args(arguments).current_dir(self.path("work"));
        if let RunAs::Owner { uid, gid } | RunAs::Lent { uid, gid } = self.run_as {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// The attack works outside and is refused inside.
    pub(crate) async fn holds(&self, arguments: &[&str]) {
        self.works_outside(arguments);
        self.refuses(arguments).await;
    }

    pub(crate) fn works_outside(&self, arguments: &[&str]) {
        let outside = self.outside(arguments);
        assert!(
            outside.status.success(),
            "{arguments:?} does not even work outside: {} {:?}",
            String::from_utf8_lossy(&outside.stdout),
            outside.status.signal(),
        );
    }

    pub(crate) async fn refuses(&self, arguments: &[&str]) {
        let ran = self.attack(arguments).await;
        // EXDEV is how Landlock refuses to link or move something between folders. In a cage most
        // of the machine is not there, and the rest is read-only.
        let refused: &[&str] = match self.tier {
            Tier::B | Tier::Builtin => &["EACCES", "EPERM", "EXDEV"],
            Tier::C => &["EACCES", "EPERM", "EXDEV", "ENOENT", "EROFS", "ESRCH"],
        };
        let refused = refused
            .iter()
            .any(|name| ran.stdout() == format!("refused: {name}\n"));
        assert!(
            refused && ran.report.ending == Ending::Exited { code: 1 },
            "{arguments:?} as {:?}: {} {:?}",
            self.run_as,
            ran.stdout(),
            ran.report
        );
    }

    pub(crate) fn file_plan(&self, operation: FileOperation) -> FilePlan {
        FilePlan {
            workspace: self.path("work"),
            workspace_id: UNKNOWN,
            operation,
            limits: Limits {
                wall: Duration::from_secs(30),
                ..Limits::default()
            },
            masked: vec![self.path("deep/home")],
            rules: Vec::new(),
            tier: self.tier,
            run_as: self.run_as,
        }
    }

    pub(crate) async fn run_file_plan(&self, mut plan: FilePlan) -> Ran {
        if plan.workspace_id == UNKNOWN {
            plan.workspace_id = folder_id(&plan.workspace);
        }
        let runner = self.sandbox.files(CancellationToken::new());
        let (report, output) = execute(&runner, plan).await;
        Ran { report, output }
    }

    pub(crate) async fn file(&self, operation: FileOperation) -> Ran {
        self.run_file_plan(self.file_plan(operation)).await
    }

    /// Makes a file in the workspace that belongs to whom calls run as.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path("work").join(name);
        std::fs::write(&path, content).unwrap();
        self.give(&path);
        path
    }

    pub(crate) fn give(&self, path: &Path) {
        if let RunAs::Owner { uid, gid } | RunAs::Lent { uid, gid } = self.run_as {
            std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
        }
    }
}

pub(crate) struct Ran {
    pub(crate) report: ExecutionReport,
    pub(crate) output: Value,
}

impl Ran {
    pub(crate) fn stdout(&self) -> &str {
        self.output["stdout"]["text"].as_str().unwrap_or_default()
    }

    pub(crate) fn stderr(&self) -> &str {
        self.output["stderr"]["text"].as_str().unwrap_or_default()
    }

    /// It ended well; what it printed.
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(
            self.report.ending,
            Ending::Exited { code: 0 },
            "{} {} {:?}",
            self.stdout(),
            self.stderr(),
            self.report
        );
        self.stdout()
    }

    /// It did not run; of what kind that was, and the message.
    pub(crate) fn failed(&self) -> (&'static str, &str) {
        match &self.report.ending {
            Ending::Failed { kind, message } => (kind.as_str(), message),
            other @ (Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::TimedOut
            | Ending::Cancelled { .. }) => {
                panic!("{other:?}: {} {}", self.stdout(), self.stderr())
            }
        }
    }

    pub(crate) fn layer(&self, name: &str) -> Option<&str> {
        let layer = self.report.layers.iter().find(|layer| layer.name == name);
        layer.map(|layer| layer.observed.as_str())
    }
}

/// Whether a process with this number is alive (a zombie is not).
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// The process ids that an attacker noted in a file.
pub(crate) fn noted(path: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if check() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Nobody who noted himself there lives.
pub(crate) fn all_gone(path: &Path) {
    let all = noted(path);
    assert!(!all.is_empty(), "nobody was ever there");
    let alive: Vec<i32> = all.into_iter().filter(|pid| is_alive(*pid)).collect();
    assert!(alive.is_empty(), "still alive: {alive:?}");
}

/// Says yes to everything: these tests are about what comes after.
struct Anything;

impl Decides for Anything {
    fn answer(&self, _: &Facts) -> Result<PolicyAnswer, Denial> {
        Ok(PolicyAnswer::Run {
            matched: Vec::new(),
        })
    }
}

impl Admits for Anything {
    async fn admit(&mut self, _: Intent<'_>) -> Result<(), Denial> {
        Ok(())
    }
}

/// Not looked at yet: [`identified`] fills it in, as the gateway does before a decision.
pub(crate) const UNKNOWN: FileId = FileId {
    device: 0,
    inode: 0,
};

/// The plan with what its paths lead to now.
pub(crate) fn identified(mut plan: ProcessPlan) -> ProcessPlan {
    if plan.code.is_empty() {
        plan.code = code_of(&plan, &[]);
    }
    if plan.cwd_id == UNKNOWN {
        plan.cwd_id = folder_id(&plan.cwd);
    }
    if plan.workspace_id == UNKNOWN {
        plan.workspace_id = folder_id(&plan.workspace);
    }
    plan
}

/// What is in a plan's program and in these files that it is given.
pub(crate) fn code_of(plan: &ProcessPlan, operands: &[&Path]) -> Vec<Pinned> {
    let missing = Pinned {
        path: plan.program.clone(),
        real: plan.program.clone(),
        part: CodePart::Program,
        content: Content::Nothing,
        seen: None,
        fixed: false,
    };
    let Ok(program_id) = palyra_sandbox::program_id(&plan.program) else {
        return vec![missing];
    };
    let more = |path: &&Path| MoreCode {
        path: path.to_path_buf(),
        part: CodePart::Operand,
    };
    let wanted = CodeWanted {
        program: plan.program.clone(),
        program_id,
        more: operands.iter().map(more).collect(),
        cwd: plan.cwd.clone(),
        masked: Vec::new(),
    };
    // What the gateway would have refused already, as far as it can be told.
    palyra_sandbox::read_code(&wanted).unwrap_or_else(|_| {
        let bytes = std::fs::read(&plan.program).unwrap_or_default();
        vec![Pinned {
            content: Content::Sha256(Digest::of(&bytes)),
            seen: Some(program_id),
            ..missing
        }]
    })
}

fn folder_id(path: &Path) -> FileId {
    palyra_sandbox::look_at_folder(path).map_or(UNKNOWN, |found| found.id)
}

/// Walks the corridor with a plan.
pub(crate) async fn execute<E>(runner: &E, plan: E::Plan) -> (ExecutionReport, Value)
where
    E: Executes<Output = Value>,
{
    let now = Timestamp::from_millis(0);
    let key = DigestKey::from_bytes([0; 32]);
    let metadata = ToolMetadata {
        name: "palyra.process.run".parse().unwrap(),
        description: String::new(),
        input_schema: json!({}),
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
    let call = CallId::mint(now);
    let (workspace, tier) = (None, Tier::B);
    let facts = Facts::new(
        call,
        origin,
        &metadata,
        &proposal,
        Vec::new(),
        workspace,
        tier,
        &plan,
        &key,
        now,
        0,
    );
    let ToolDecision::Permit(permit) = corridor::decide(&Anything, &facts) else {
        panic!("not permitted");
    };
    let admitted = permit.admit(&mut Anything).await.unwrap();
    let finished = admitted.execute(runner, plan).await.unwrap();
    finish(finished).await
}

async fn finish(finished: corridor::Finished<Value>) -> (ExecutionReport, Value) {
    struct Both(Option<(ExecutionReport, Value)>);
    impl Attests<Value> for Both {
        async fn attest(&mut self, seen: Evidence<'_, Value>) -> Result<ToolAttestation, Denial> {
            self.0 = Some((seen.report.clone(), seen.output.clone()));
            Err(Denial::new(DenialCode::JournalUnavailable, "", ""))
        }
    }
    let mut both = Both(None);
    let _ = finished.attest(&mut both).await;
    both.0.unwrap()
}
