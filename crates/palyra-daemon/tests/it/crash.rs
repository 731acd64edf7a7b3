//! `kill -9` at random points under load: every acknowledged call is in the journal, and nothing
//! was executed without a durable intent.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use palyra_api::wire::CallRequest;
use palyra_api::{Client, Home};
use palyra_testkit::Daemon;
use serde_json::{Value, json};

/// 25 in the suite; `make crash` sets more.
fn rounds() -> u64 {
    std::env::var("PALYRA_CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(25)
}

#[test]
fn crash_kill_9_under_load() {
    let mut daemon = Daemon::builder().prepare();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let mut marker = 0;
    for round in 0..rounds() {
        daemon.start_again(None);
        let over = Arc::new(AtomicBool::new(false));
        let load: Vec<_> = (0..6)
            .map(|caller| {
                marker += 1_000;
                let loaded = load(
                    daemon.home(),
                    daemon.workspace(),
                    caller,
                    marker,
                    Arc::clone(&over),
                    Arc::clone(&acknowledged),
                );
                runtime.spawn(loaded)
            })
            .collect();
        // A different moment each round, from before the first answer to the thick of it.
        std::thread::sleep(Duration::from_millis(3 + (round * 37) % 211));
        daemon.kill();
        over.store(true, Ordering::Release);
        for caller in load {
            runtime.block_on(caller).unwrap();
        }
    }
    daemon.start_again(None);
    let acknowledged = acknowledged.lock().unwrap().clone();
    let entries = runtime.block_on(whole_journal(&daemon));
    assert!(
        acknowledged.len() as u64 > rounds(),
        "no load: {}",
        acknowledged.len()
    );
    let calls = |kind: &str| -> BTreeSet<String> {
        let of_kind = entries.iter().filter(|entry| entry["kind"] == kind);
        of_kind
            .map(|entry| entry["stream"].as_str().unwrap().to_owned())
            .collect()
    };
    let (admitted, attested, interrupted) =
        (calls("admitted"), calls("attested"), calls("interrupted"));
    let lost: Vec<_> = acknowledged.difference(&attested).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    // What was executed left a file named by its marker: each was named by an admitted call.
    let intended = runtime.block_on(markers(&daemon, &admitted));
    let executed: BTreeSet<String> = std::fs::read_dir(daemon.workspace())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!executed.is_empty(), "nothing was executed at all");
    let unintended: Vec<_> = executed.difference(&intended).collect();
    assert!(
        unintended.is_empty(),
        "executed without a durable intent: {unintended:?}"
    );
    // Every admitted call is either attested or reported as interrupted, never both, never neither.
    let ended: BTreeSet<_> = attested.union(&interrupted).cloned().collect();
    assert_eq!(ended, admitted);
    assert!(attested.is_disjoint(&interrupted));
    // The journal has no gaps.
    let places: Vec<u64> = entries
        .iter()
        .map(|entry| entry["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
}

async fn load(
    home: Home,
    workspace: std::path::PathBuf,
    caller: u64,
    marker: u64,
    over: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
) {
    let Ok(mut client) = Client::connect(&home).await else {
        return;
    };
    for number in 0..999 {
        if over.load(Ordering::Acquire) {
            return;
        }
        let request = match caller % 2 {
            0 => CallRequest {
                tool: "palyra.echo".to_owned(),
                arguments: json!({ "message": "x" }),
                workspace: None,
                window: None,
                said: None,
                detach: false,
                patience_ms: None,
            },
            _ => CallRequest {
                tool: "palyra.process.run".to_owned(),
                arguments: json!({ "argv": ["touch", format!("m{}", marker + number)] }),
                workspace: Some(workspace.to_str().unwrap().to_owned()),
                window: None,
                said: None,
                detach: false,
                patience_ms: None,
            },
        };
        let Ok(result) = client.call(&request).await else {
            return;
        };
        acknowledged.lock().unwrap().insert(result.call_id);
    }
}

async fn whole_journal(daemon: &Daemon) -> Vec<Value> {
    let mut client = daemon.client().await;
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let after = entries.len();
        let page: Value = client
            .get(&format!("/api/v1/journal?after={after}&limit=1000"))
            .await
            .unwrap();
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            return entries;
        }
        entries.extend(items.iter().cloned());
    }
}

/// The files that the admitted calls were to make.
async fn markers(daemon: &Daemon, admitted: &BTreeSet<String>) -> BTreeSet<String> {
    let mut client = daemon.client().await;
    let mut markers = BTreeSet::new();
    for call in admitted {
        let path = format!("/api/v1/calls/{call}");
        let record: Value = client.get(&path).await.unwrap();
        markers.extend(record["arguments"]["argv"][1].as_str().map(str::to_owned));
    }
    markers
}
