//! A process with its network: the doors that the sandbox hands over are served for as long as the
//! call runs, and what went through them becomes part of its record.
//!
//! The counts stand in the attestation. Each connection, with its host, is among the contents: names
//! of hosts may say what arguments say.

use std::sync::{Arc, Mutex, PoisonError};

use palyra_core::corridor::{Executes, Running};
use palyra_core::{
    CallId, ConnectionRecord, EgressBudget, EgressEnd, ExecutionReport, InjectionTable, NetworkUse,
    ProcessPlan, SecretPlace, SecretRef, SecretUse,
};
use palyra_egress::{Authority, Egress, EgressCode, Terms};
use palyra_sandbox::{LaidFile, Outlet, ProcessRunner};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::drive::Event;

/// Where clients inside find whom to trust: the machine's authorities and the call's own.
pub(crate) const TRUST: &str = "/run/palyra/ca.pem";

/// Where machines have theirs.
const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// How many connections are kept one by one; the others are counted.
const MOST_KEPT: usize = 5_000;

/// How many alarms are kept beyond that.
const MOST_ALARMS: usize = 100;

/// How many records wait to be taken.
const WAITING: usize = 256;

/// Runs one process, and serves its network meanwhile.
pub(crate) struct Networked {
    runner: ProcessRunner,
    /// Until it ran; nothing when it reaches nobody.
    served: Mutex<Option<Served>>,
}

/// Who serves the network of which call, and who hears of it.
pub(crate) struct Network {
    pub(crate) egress: Arc<Egress>,
    pub(crate) call: CallId,
    pub(crate) budget: EgressBudget,
    /// Who hears of each connection while it runs.
    pub(crate) events: mpsc::Sender<Event>,
    /// What is put into its requests.
    pub(crate) injections: Arc<InjectionTable>,
    /// Who signs for the hosts that these go to.
    pub(crate) authority: Option<Arc<Authority>>,
    /// Authorities of the operator's own.
    pub(crate) trust: Option<Vec<u8>>,
}

impl Networked {
    /// A process of this plan.
    pub(crate) fn new(runner: ProcessRunner, network: Network, plan: &ProcessPlan) -> Self {
        if !plan.egress.is_enforced() || plan.allowed_egress_hosts.is_empty() {
            return Self {
                runner,
                served: Mutex::default(),
            };
        }
        let (outlet, served) = network.serve(plan);
        Self {
            runner: runner.with_outlet(Some(outlet)),
            served: Mutex::new(Some(served)),
        }
    }
}

impl Executes for Networked {
    type Plan = ProcessPlan;
    type Output = Value;

    async fn run(&self, running: Running<'_>, plan: ProcessPlan) -> (ExecutionReport, Value) {
        let (mut report, mut output) = self.runner.run(running, plan).await;
        let served = self.served.lock();
        let served = served.unwrap_or_else(PoisonError::into_inner).take();
        let Some(served) = served else {
            return (report, output);
        };
        if let Some((used, network)) = served.finish().await {
            report.network = Some(used);
            if let Value::Object(fields) = &mut output {
                fields.insert("network".to_owned(), network);
            }
        }
        (report, output)
    }
}

impl Network {
    fn serve(self, plan: &ProcessPlan) -> (Outlet, Served) {
        let (taker, mut doors) = mpsc::channel(1);
        let (records, came) = mpsc::channel(WAITING);
        let Self {
            egress,
            call,
            budget,
            events,
            injections,
            authority,
            trust,
        } = self;
        let files = authority
            .as_deref()
            .map(|own| authorities(own, trust.as_deref()));
        let (env, more) = placeholders(plan, &injections);
        let files = files.into_iter().chain(more).collect();
        let terms = Terms {
            budget,
            injections,
            authority,
            ..Terms::new(call.clone(), plan.allowed_egress_hosts.clone())
        };
        let over = CancellationToken::new();
        let ended = over.clone();
        let serving = tokio::spawn(async move {
            let doors: palyra_sandbox::Doors = tokio::select! {
                biased;
                doors = doors.recv() => doors?,
                () = ended.cancelled() => return None,
            };
            let served = egress.serve(terms, as_sockets(doors), records);
            served
                .inspect_err(|error| tracing::error!(%call, %error, "its network is not served"))
                .ok()
        });
        let outlet = Outlet {
            doors: taker,
            files,
            env,
        };
        let kept = tokio::spawn(keep(came, events));
        let served = Served {
            over,
            serving,
            kept,
        };
        (outlet, served)
    }
}

/// Whom clients inside trust.
fn authorities(own: &Authority, trust: Option<&[u8]>) -> LaidFile {
    let mut machines = AUTHORITIES.iter();
    let machines = machines.find_map(|path| std::fs::read_to_string(path).ok());
    let mut text = machines.unwrap_or_default();
    if let Some(trust) = trust {
        text.push_str(&String::from_utf8_lossy(trust));
        text.push('\n');
    }
    text.push_str(own.pem());
    let at = TRUST.into();
    LaidFile { at, text }
}

/// What stands for each secret, where the call finds it.
fn placeholders(
    plan: &ProcessPlan,
    table: &InjectionTable,
) -> (Vec<(String, String)>, Vec<LaidFile>) {
    let (mut env, mut files) = (Vec::new(), Vec::new());
    for (used, injection) in plan.secrets.iter().zip(table.all()) {
        let stands_for_it = injection.placeholder().as_str().to_owned();
        match &used.at {
            SecretPlace::Env(name) => env.push((name.clone(), stands_for_it)),
            SecretPlace::File(path) => files.push(LaidFile {
                at: path.clone(),
                text: stands_for_it,
            }),
        }
    }
    (env, files)
}

/// The secrets whose placeholder was sent where they may not go, by what was recorded.
pub(crate) fn misdirected<'a>(plan: &'a ProcessPlan, output: &Value) -> Vec<&'a SecretRef> {
    let list = output.get("network").and_then(|it| it.get("connections"));
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let is = |record: &&Value| {
        let code = record.get("code").and_then(Value::as_str);
        code == Some(EgressCode::SecretMisdirected.as_str())
    };
    let said: Vec<&str> = list
        .filter(is)
        .filter_map(|record| record.get("why")?.as_str())
        .collect();
    let named = |one: &&SecretUse| {
        let name = format!("`{}`", one.secret);
        said.iter().any(|why| why.contains(&name))
    };
    let mut found: Vec<&SecretRef> = Vec::new();
    for one in plan.secrets.iter().filter(named) {
        if !found.contains(&&one.secret) {
            found.push(&one.secret);
        }
    }
    found
}

fn as_sockets(doors: palyra_sandbox::Doors) -> palyra_egress::Doors {
    let forwards = doors.forwards.into_iter();
    palyra_egress::Doors {
        dns_udp: doors.dns_udp.into(),
        dns_tcp: doors.dns_tcp.into(),
        proxy: doors.proxy.into(),
        forwards: forwards.map(|(port, door)| (port, door.into())).collect(),
    }
}

/// A network while it is served.
struct Served {
    /// No doors come any more.
    over: CancellationToken,
    serving: JoinHandle<Option<palyra_egress::Running>>,
    kept: JoinHandle<Kept>,
}

/// The records of a call.
#[derive(Default)]
struct Kept {
    records: Vec<ConnectionRecord>,
    alarms: usize,
    beyond: u64,
}

fn is_an_alarm(record: &ConnectionRecord) -> bool {
    let alarm = EgressCode::SecretMisdirected.as_str();
    matches!(&record.end, EgressEnd::Refused { code, .. } | EgressEnd::Broken { code, .. } if code == alarm)
}

/// Takes records until there are no more. Who watches hears of them if there is room: nobody's
/// network waits for a slow reader, and the result has all of them.
async fn keep(mut came: mpsc::Receiver<ConnectionRecord>, events: mpsc::Sender<Event>) -> Kept {
    let mut kept = Kept::default();
    while let Some(record) = came.recv().await {
        // An alarm is never among those that are only counted.
        if kept.records.len() >= MOST_KEPT && !(is_an_alarm(&record) && kept.alarms < MOST_ALARMS) {
            kept.beyond += 1;
            continue;
        }
        kept.alarms += usize::from(is_an_alarm(&record));
        let _ = events.try_send(Event::Connection(Box::new(record.clone())));
        kept.records.push(record);
    }
    kept
}

impl Served {
    /// Ends every connection; what went through in all, and one by one. None when nothing began.
    async fn finish(self) -> Option<(NetworkUse, Value)> {
        self.over.cancel();
        let running = self.serving.await.ok().flatten()?;
        let summary = running.finish().await;
        let kept = self.kept.await.unwrap_or_default();
        let used = NetworkUse {
            connections: summary.connections,
            refused: summary.refused,
            sent: summary.sent,
            received: summary.received,
        };
        let network = json!({
            "connections": kept.records,
            "not_listed": kept.beyond.saturating_add(summary.unrecorded),
        });
        Some((used, network))
    }
}
