//! Explanations: what is named as the change that would help does help.

use palyra_policy::operator::{Bundle, Outcome, Question, RequestText, decide, explain};

use crate::operator::bundle;

/// Policies of many shapes over the baseline, so that a denial has many kinds of remedies.
const MINE: &str = r#"
@id("tier") @reason("contained well enough")
permit (principal is Palyra::Agent, action in Palyra::Action::"run", resource == Palyra::Tool::"contained")
when { context.tier >= 3 };
@id("rate") @reason("too many calls")
forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource)
when { context.calls_last_minute > 100 };
@id("etc") @reason("not there")
forbid (principal, action in Palyra::Action::"run", resource)
when { context.writes.contains("/etc/passwd") };
@id("where") @reason("only in the project")
forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource == Palyra::Tool::"r")
unless { context has workspace && context.workspace like "/src/*" };
@id("guest") @reason("a guest may run what is harmless, slowly")
permit (principal == Palyra::User::"guest", action in Palyra::Action::"run", resource is Palyra::Tool)
when { !resource.sensitive && (context.calls_last_minute < 5 || context.tier == 4) };
"#;

fn question(principal: &str, action: &str, resource: &str, context: serde_json::Value) -> Question {
    let text = serde_json::json!({
        "principal": principal, "action": action, "resource": resource, "context": context,
        "entity": [
            { "uid": "Tool::\"w\"", "attrs": { "sensitive": true } },
            { "uid": "Tool::\"r\"" },
            { "uid": "Tool::\"contained\"", "attrs": { "sensitive": true } },
            { "uid": "Agent::\"claude\"" },
            { "uid": "Agent::\"stray\"", "attrs": { "user": "User::\"guest\"" } },
            { "uid": "Call::\"this\"" },
            { "uid": "Approval::\"this\"" },
        ],
    });
    Question::read(&serde_json::from_value::<RequestText>(text).unwrap()).unwrap()
}

fn remedies(bundle: &Bundle, asked: &Question) -> Vec<String> {
    let explained = explain(bundle, asked).unwrap();
    let remedies = explained.remedies.iter();
    remedies.map(|it| it.sentences.join("; ")).collect()
}

#[test]
fn a_sensitive_call_needs_a_grant_or_another_tool() {
    let mine = bundle("");
    let asked = question(
        "Agent::\"claude\"",
        "tool.execute",
        "Tool::\"w\"",
        serde_json::json!({ "digest": "d" }),
    );
    let explained = explain(&mine, &asked).unwrap();
    assert_eq!(explained.outcome, Outcome::Ask);
    assert_eq!(explained.parties.len(), 1 + 1);
    let why = &explained.parties[0].because[0];
    assert_eq!(why.policy, "deny_sensitive_without_approval");
    assert!(why.reason.is_some() && why.hint.is_some() && !why.permits);
    let said = remedies(&mine, &asked);
    assert_eq!(
        said,
        ["a grant for this call", "the tool `w` not being sensitive"]
    );
    assert_eq!(explained.facts["context has grant"], "`false`");
}

#[test]
fn numbers_lists_and_texts_are_named() {
    let mine = bundle(MINE);
    let run = |tool: &str, context| question("Agent::\"claude\"", "tool.execute", tool, context);
    let busy = run(
        "Tool::\"r\"",
        serde_json::json!({ "calls_last_minute": 101, "workspace": "/src/x" }),
    );
    assert_eq!(remedies(&mine, &busy)[0], "`calls_last_minute` being `100`");
    let outside = run("Tool::\"r\"", serde_json::json!({ "workspace": "/home" }));
    assert_eq!(
        remedies(&mine, &outside)[0],
        "`workspace` being `\"/src/x\"`"
    );
    let passwd = run(
        "Tool::\"r\"",
        serde_json::json!({ "workspace": "/src/a", "writes": ["/etc/passwd"] }),
    );
    assert_eq!(remedies(&mine, &passwd)[0], "`writes` being empty");
    let nowhere = bundle(
        "@id(\"t\") @reason(\"r\") permit (principal == Palyra::User::\"guest\", action in Palyra::Action::\"run\", resource) when { context.tier >= 3 };",
    );
    let low = question(
        "User::\"guest\"",
        "tool.execute",
        "Tool::\"w\"",
        serde_json::json!({}),
    );
    assert_eq!(remedies(&nowhere, &low), ["`tier` being `3`"]);
}

#[test]
fn what_no_fact_can_change_has_no_remedy() {
    let asked = question(
        "Agent::\"claude\"",
        "approval.decide",
        "Approval::\"this\"",
        serde_json::json!({}),
    );
    let explained = explain(&bundle(""), &asked).unwrap();
    assert_eq!(explained.outcome, Outcome::Deny);
    assert!(explained.remedies.is_empty(), "{:?}", explained.remedies);
}

#[test]
fn what_is_watched_is_named_when_it_would_decide_otherwise() {
    let mine = bundle(
        "@id(\"w\") @mode(\"log_only\") forbid (principal, action in Palyra::Action::\"run\", resource);",
    );
    let asked = question(
        "User::\"owner\"",
        "tool.execute",
        "Tool::\"r\"",
        serde_json::json!({}),
    );
    let explained = explain(&mine, &asked).unwrap();
    assert_eq!(explained.outcome, Outcome::Allow);
    assert_eq!(explained.log_only, ["w"]);
}

/// The promise: for generated denials, making the named change makes the request allowed.
#[test]
fn applying_the_named_change_flips_the_decision() {
    let mine = bundle(MINE);
    let (mut denied, mut helped) = (0, 0);
    let principals = [
        "Agent::\"claude\"",
        "Agent::\"stray\"",
        "User::\"guest\"",
        "User::\"owner\"",
    ];
    for principal in principals {
        for tool in ["Tool::\"w\"", "Tool::\"r\"", "Tool::\"contained\""] {
            for (tier, calls) in [(2, 0), (3, 7), (2, 200), (4, 101)] {
                for writes in [
                    serde_json::json!([]),
                    serde_json::json!(["/etc/passwd", "/a"]),
                ] {
                    for place in ["/src/x", "/home"] {
                        let context = serde_json::json!({
                            "tier": tier, "calls_last_minute": calls, "writes": writes,
                            "workspace": place, "digest": "d", "now": "2026-11-15T10:00:00Z",
                        });
                        let asked = question(principal, "tool.execute", tool, context);
                        if decide(&mine, &asked).unwrap().allowed() {
                            continue;
                        }
                        denied += 1;
                        let explained = explain(&mine, &asked).unwrap();
                        for remedy in &explained.remedies {
                            assert!(!remedy.sentences.is_empty());
                            assert!(decide(&mine, remedy.applied()).unwrap().allowed());
                        }
                        helped += usize::from(!explained.remedies.is_empty());
                        assert!(
                            !explained.remedies.is_empty(),
                            "{principal} {tool} {tier} {calls} {writes} {place}"
                        );
                    }
                }
            }
        }
    }
    assert!(denied >= 50 && helped == denied, "{helped} of {denied}");
}
