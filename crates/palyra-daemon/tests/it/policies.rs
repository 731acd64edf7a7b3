//! The operator's own policies: in force from the start, or no start.

use palyra_testkit::{Daemon, Ran};

fn with(config: &str, policies: &[(&str, &str)]) -> Daemon {
    let daemon = Daemon::builder().config(config).prepare();
    let folder = daemon.home().policies();
    std::fs::create_dir(&folder).unwrap();
    for (name, text) in policies {
        std::fs::write(folder.join(name), text).unwrap();
    }
    daemon
}

const NO_ECHO: &str = r#"
@id("house.no-echo")
@reason("nobody echoes in this house")
forbid (principal, action == Palyra::Action::"tool.execute", resource == Palyra::Tool::"palyra.echo");
"#;

const ECHO: [&str; 4] = ["call", "palyra.echo", "--args", r#"{"message":"x"}"#];

#[test]
fn an_operators_forbid_is_obeyed_and_gives_its_reason() {
    let mut control = Daemon::builder().prepare();
    control.start_again(None);
    let _ = control.palyra(&ECHO).expect_code(0);
    let mut daemon = with("", &[("house.cedar", NO_ECHO)]);
    daemon.start_again(None);
    let denied = daemon.palyra(&ECHO).expect_code(3);
    assert!(
        denied.stderr.contains("nobody echoes in this house"),
        "{}",
        denied.stderr
    );
    let _ = daemon.palyra(&["exec", "--", "true"]).expect_code(0);
}

#[test]
fn a_policy_that_cannot_be_used_ends_the_start_and_names_its_place() {
    for (text, place) in [
        ("forbid (principal, action, resource", "house.cedar:1:"),
        (
            "@id(\"a\") permit (principal is Palyra::Nobody, action, resource);",
            "house.cedar:1:",
        ),
        ("\npermit (principal, action, resource);", "house.cedar:2:"),
    ] {
        let daemon = with("", &[("house.cedar", text)]);
        let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
        assert!(refused.stderr.contains(place), "{text}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("palyra policy check"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn the_locked_baseline_asks_about_everything_an_agent_does() {
    let daemon = Daemon::builder()
        .config("[policy]\nbaseline = \"locked\"\n[approvals]\nwait = \"200ms\"\n")
        .start();
    daemon.add_agent("a");
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    assert_eq!(status["baseline"], "locked");
    let mut as_agent = ECHO.to_vec();
    as_agent.extend(["--as", "agent:a"]);
    // Under `standard` it runs unasked; here nobody answers, so it is denied.
    let _ = daemon.palyra(&as_agent).expect_code(4);
    let _ = daemon.palyra(&ECHO).expect_code(0);
}

#[test]
fn an_unknown_baseline_is_named() {
    let daemon = Daemon::builder()
        .config("[policy]\nbaseline = \"lax\"\n")
        .prepare();
    let refused = Ran::from(daemon.program("palyrad").output().unwrap()).expect_code(1);
    assert!(
        refused
            .stderr
            .contains("`standard`, `sandboxed` or `locked`"),
        "{}",
        refused.stderr
    );
}
