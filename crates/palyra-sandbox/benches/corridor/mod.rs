//! What the benches share: a plain spawn, and one run through the corridor.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use palyra_core::corridor::{
    self, Admits, Attests, Decides, Evidence, Intent, PolicyAnswer, ToolDecision,
};
use palyra_core::facts::Origin;
use palyra_core::{
    CallId, CanonicalJson, Channel, Denial, DenialCode, DeviceId, DigestKey, Ending, Facts, Limits,
    Principal, ProcessPlan, RunId, Timestamp, ToolAttestation, ToolMetadata, ToolProposal,
    UserName,
};
use palyra_sandbox::Sandbox;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

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
    let runner = sandbox.processes(None, CancellationToken::new());
    let begun = Instant::now();
    let finished = admitted.execute(&runner, plan).await.unwrap();
    let took = begun.elapsed();
    let mut seen = Seen::default();
    let _ = finished.attest(&mut seen).await;
    (took, seen.0)
}
