//! Whole calls through the recorder, as the corridor does them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::corridor::{Admits as _, Attests as _, Evidence, Intent};
use palyra_core::entry::Answer;
use palyra_core::facts::{Channel, Origin};
use palyra_core::{
    Blob, BlobKind, CallId, Clock, DeviceId, DigestKey, Ending, ExecutionReport, Plan as _,
    Principal, ReplyPlan, RunId, SystemClock, UserName,
};
use palyra_journal::{CallRecorder, JournalKeys, JournalStore};
use serde_json::json;
use tokio::runtime::Runtime;

const CALLERS: usize = 64;

pub(crate) struct Calls {
    journal: JournalStore,
}

impl Calls {
    pub(crate) fn open(file: &Path) -> Self {
        Self {
            journal: JournalStore::open(
                file,
                Vec::new(),
                Arc::new(SystemClock),
                JournalKeys::generate().unwrap(),
            )
            .unwrap(),
        }
    }

    /// Calls per second in one window.
    pub(crate) fn round(&self, runtime: &Runtime, window: Duration) -> f64 {
        let start = Instant::now();
        let calls = runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| tokio::spawn(caller(self.journal.clone(), start + window)))
                .collect();
            let mut calls = 0;
            for caller in callers {
                calls += caller.await.unwrap();
            }
            calls
        });
        super::per_second(calls, start)
    }
}

async fn caller(journal: JournalStore, end: Instant) -> u64 {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let key = DigestKey::from_bytes([7; 32]);
    let mut calls = 0;
    while Instant::now() < end {
        let now = clock.now();
        let call = CallId::mint(now);
        let output = json!({"text": "hello"});
        let plan = ReplyPlan {
            reply: output.clone(),
        }
        .digest();
        let plan = DigestKey::from_bytes([1; 32]).plan_seal(&call, &plan);
        let digest = key.call_digest(&[call.as_str().as_bytes()]);
        let origin = Origin {
            principal: Principal::User {
                name: UserName::owner(),
            },
            run: RunId::mint(now),
            device: DeviceId::local(),
            channel: Channel::Cli,
            session: None,
        };
        let mut recorder = CallRecorder::new(journal.clone(), call.clone(), Arc::clone(&clock));
        recorder.proposed(
            "palyra.echo".parse().unwrap(),
            origin,
            Blob::new(BlobKind::Arguments, br#"{"text":"hello"}"#.to_vec()),
        );
        recorder.decided(
            Answer::Permit,
            vec!["owner-runs".to_owned()],
            "baseline-1".to_owned(),
            digest,
            Blob::new(BlobKind::Facts, vec![b'x'; 700]),
        );
        let intent = Intent {
            call: &call,
            digest: &digest,
            plan: &plan,
            grant: None,
        };
        recorder.admit(intent).await.unwrap();
        let report = ExecutionReport {
            executor: "builtin".to_owned(),
            sandbox_enforcement: "none".to_owned(),
            layers: Vec::new(),
            started_at: now,
            ended_at: now,
            ending: Ending::Exited { code: 0 },
            truncated: false,
            running_as_root: false,
            network: None,
        };
        let evidence = Evidence {
            call: &call,
            plan: &plan,
            report: &report,
            output: &output,
        };
        recorder.attest(evidence).await.unwrap();
        calls += 1;
    }
    calls
}
