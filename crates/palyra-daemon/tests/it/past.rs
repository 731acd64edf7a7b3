//! Drafts against calls of the past: replayed, simulated, explained.

use palyra_testkit::Daemon;

use crate::policies::{BROKEN, ECHO, NO_CRON, NO_ECHO, becomes, json, number, with, write};

/// A folder beside the daemon's, with a draft.
fn draft(daemon: &Daemon, text: &str) -> String {
    let folder = daemon.folder().join("draft");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("house.cedar"), text).unwrap();
    folder.to_str().unwrap().to_owned()
}

/// The last call.
fn last_call(daemon: &Daemon) -> String {
    let calls = json(daemon, &["calls", "list"]);
    calls["items"][0]["call_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_replay_lists_what_a_draft_would_answer_otherwise() {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    let _ = daemon.palyra(&ECHO).expect_code(0);
    let echo = last_call(&daemon);
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
    let folder = draft(&daemon, NO_ECHO);
    let found = json(&daemon, &["policy", "replay", &folder]);
    let summary = &found["summary"];
    assert_eq!(
        (&summary["decisions"], &summary["flips"]),
        (&2.into(), &1.into())
    );
    assert_eq!(summary["widening"], 0);
    let flip = &found["flips"][0];
    assert_eq!(flip["call_id"], echo);
    assert_eq!(
        (&flip["before"], &flip["after"]),
        (&"allow".into(), &"deny".into())
    );
    assert_eq!(flip["tool"], "palyra.echo");
    assert_eq!(flip["policies"], serde_json::json!(["house.no-echo"]));
    let shown = daemon.palyra(&["policy", "replay", &folder]).expect_code(0);
    assert!(shown.stdout.contains("house.no-echo"), "{}", shown.stdout);
    // The agent that made a call may be gone; its calls are judged all the same.
    let as_agent = [&ECHO[..], &["--as", "agent:a"]].concat();
    let _ = daemon.palyra(&as_agent).expect_code(0);
    let _ = daemon.palyra(&["agents", "remove", "a"]).expect_code(0);
    let found = json(&daemon, &["policy", "replay", &folder, "--since", "1h"]);
    assert_eq!(found["summary"]["flips"], 2);
    // Under the draft nothing changed for the daemon.
    let _ = daemon.palyra(&ECHO).expect_code(0);
    assert_eq!(number(&daemon), 1);
}

#[test]
fn a_past_call_is_explained_and_simulated() {
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(None);
    let _ = daemon.palyra(&ECHO).expect_code(3);
    let call = last_call(&daemon);
    let found = json(&daemon, &["policy", "explain", &call]);
    assert_eq!(
        (&found["recorded"], &found["now"]),
        (&"deny".into(), &"deny".into())
    );
    assert_eq!(found["number"], 1);
    assert!(
        found["matched"].to_string().contains("house.no-echo"),
        "{found}"
    );
    let shown = daemon
        .palyra(&["policy", "explain", &call])
        .expect_code(0)
        .stdout;
    assert!(shown.contains("nobody echoes in this house"), "{shown}");
    // The version that decided it explains it, also when another one is in force.
    write(&daemon, "house.cedar", NO_CRON);
    becomes(&daemon, 2);
    let found = json(&daemon, &["policy", "explain", &call]);
    assert_eq!(
        (&found["outcome"], &found["now"]),
        (&"deny".into(), &"allow".into())
    );
    assert_eq!(found["explained_with"], 1);
    let folder = draft(&daemon, NO_ECHO);
    let found = json(&daemon, &["policy", "simulate", &folder, "--call", &call]);
    assert_eq!(found["before"], "allow");
    assert_eq!(
        (&found["flips"], &found["draft"]["outcome"]),
        (&true.into(), &"deny".into())
    );
    let request = daemon.folder().join("r.toml");
    std::fs::write(
        &request,
        "principal = 'User::\"owner\"'\naction = \"tool.execute\"\n\
         resource = 'Tool::\"palyra.echo\"'\n\
         [[entity]]\nuid = 'Tool::\"palyra.echo\"'\nattrs = { sensitive = false }\n",
    )
    .unwrap();
    let request = request.to_str().unwrap();
    let found = json(
        &daemon,
        &["policy", "simulate", &folder, "--request", request],
    );
    assert_eq!(found["before"], "allow");
    assert_eq!(found["draft"]["outcome"], "deny");
}

#[test]
fn bad_drafts_and_unknown_calls_are_told() {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    let _ = daemon.palyra(&ECHO).expect_code(0);
    let call = last_call(&daemon);
    let broken = draft(&daemon, BROKEN);
    for words in [
        &["policy", "replay", &broken][..],
        &["policy", "simulate", &broken, "--call", &call],
    ] {
        let refused = daemon.palyra(words).expect_code(1);
        assert!(
            refused.stderr.contains("house.cedar:3:"),
            "{}",
            refused.stderr
        );
    }
    let good = draft(&daemon, NO_CRON);
    let unknown = "call_01kgq5r7h3e8x2m4n6p8q0s2t4";
    for (words, code) in [
        (&["policy", "explain", unknown][..], "unknown_call"),
        (
            &["policy", "simulate", &good, "--call", unknown],
            "unknown_call",
        ),
        (&["policy", "versions", "7"], "unknown_policy_version"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let refused = daemon.palyra(&words).expect_code(1).json();
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    for words in [
        &["policy", "explain", &call][..],
        &["policy", "replay", &good],
        &["policy", "simulate", &good, "--call", &call],
    ] {
        let as_agent = [words, &["--as", "agent:a"]].concat();
        let _ = daemon.palyra(&as_agent).expect_code(3);
    }
}

/// The daemon judges what comes over the wire itself.
#[tokio::test]
async fn a_draft_over_the_wire_is_checked_and_bounded() {
    let daemon = Daemon::start();
    let mut client = daemon.client().await;
    let body = |text: &str| {
        let files = serde_json::json!([{ "name": "a.cedar", "text": text }]);
        serde_json::json!({ "draft": { "files": files }, "since_ms": 1000 }).to_string()
    };
    let mut post = async |body: String| {
        let path = "/api/v1/policy/replay";
        let answer = client.raw(hyper::Method::POST, path, body.into()).await;
        let (status, body) = answer.unwrap();
        (status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    };
    let (status, said) = post(body(BROKEN)).await;
    assert_eq!(status, 400);
    assert!(
        said.contains("draft_invalid") && said.contains("a.cedar:3:"),
        "{said}"
    );
    let (status, said) = post(body(&" ".repeat(50 << 20))).await;
    assert_eq!(status, 413);
    assert!(said.contains("input_too_large"), "{said}");
    let (status, said) = post(body(NO_CRON)).await;
    assert_eq!(status, 200);
    assert!(said.contains(r#""event":"finished""#), "{said}");
}

/// What was erased is named, and nothing is claimed about it.
#[test]
fn erased_facts_are_listed() {
    let daemon = Daemon::start();
    let _ = daemon.palyra(&ECHO).expect_code(0);
    let gone = last_call(&daemon);
    let _ = daemon.palyra(&["journal", "erase", &gone]).expect_code(0);
    let _ = daemon.palyra(&ECHO).expect_code(0);
    let folder = draft(&daemon, NO_ECHO);
    let found = json(&daemon, &["policy", "replay", &folder]);
    assert_eq!(found["summary"]["erased"], 1, "{found}");
    assert_eq!(found["summary"]["flips"], 1, "{found}");
    assert_eq!(found["erased"][0]["call_id"], gone);
    let refused = daemon
        .palyra(&["policy", "explain", &gone, "--json"])
        .expect_code(1);
    assert_eq!(refused.json()["error"]["code"], "facts_erased");
}

/// A replay tells about everybody's calls, so the right to read policies is not enough for it.
#[test]
fn who_may_read_policies_replays_only_with_the_journal() {
    let may = |action: &str| {
        format!(
            "@id(\"{action}\") @reason(\"an auditor\")\n\
             permit (principal is Palyra::Agent, action == Palyra::Action::\"{action}\", resource);\n"
        )
    };
    let mut daemon = with("", &[("house.cedar", may("policy.read").as_str())]);
    daemon.start_again(None);
    daemon.add_agent("a");
    let folder = draft(&daemon, NO_ECHO);
    let replay = ["policy", "replay", &folder, "--as", "agent:a"];
    let _ = daemon.palyra(&replay).expect_code(3);
    let _ = daemon
        .palyra(&["policy", "versions", "--as", "agent:a"])
        .expect_code(0);
    write(&daemon, "more.cedar", &may("journal.read"));
    becomes(&daemon, 2);
    let _ = daemon.palyra(&replay).expect_code(0);
}
