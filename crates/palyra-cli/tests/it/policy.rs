//! `palyra policy`: without a daemon, and without a home that was set up.

use crate::palyra::Palyra;

const GOOD: &str = r#"@id("no_etc")
@reason("nothing is written there")
forbid (principal, action in [Palyra::Action::"run", Palyra::Action::"ask"], resource)
when { context.writes.contains("/etc/passwd") };
"#;

const CASE: &str = r#"
[[entity]]
uid = 'Tool::"palyra.fs.write"'
attrs = { sensitive = true }

[[entity]]
uid = 'Agent::"claude"'

[[case]]
name = "an agent does not write unasked"
principal = 'Agent::"claude"'
action = "tool.execute"
resource = 'Tool::"palyra.fs.write"'
expect = "ask"
"#;

const REQUEST: &str = r#"
principal = 'Agent::"claude"'
action = "tool.execute"
resource = 'Tool::"palyra.fs.write"'
context = { writes = ["/etc/passwd"] }

[[entity]]
uid = 'Tool::"palyra.fs.write"'
attrs = { sensitive = true }

[[entity]]
uid = 'Agent::"claude"'
"#;

fn with(files: &[(&str, &str)]) -> Palyra {
    let palyra = Palyra::new();
    for (name, text) in files {
        let path = palyra.path("work").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    palyra
}

#[test]
fn a_good_folder_is_listed_checked_and_tested() {
    let palyra = with(&[("mine/a.cedar", GOOD), ("mine/a.test.toml", CASE)]);
    let listed = palyra.run(&["policy", "list", "mine"]).exits(0).stdout;
    assert!(
        listed.contains("no_etc") && listed.contains("a.cedar:1"),
        "{listed}"
    );
    assert!(listed.contains("baseline standard"), "{listed}");
    let listed = palyra
        .run(&["policy", "list", "mine", "--json"])
        .exits(0)
        .json();
    let mine = listed["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(mine["id"], "no_etc");
    assert_eq!(mine["effect"], "forbid");
    assert_eq!(mine["in_baseline"], false);
    let shown = palyra
        .run(&["policy", "show", "no_etc", "mine"])
        .exits(0)
        .stdout;
    assert!(shown.contains("nothing is written there") && shown.contains("/etc/passwd"));
    let checked = palyra
        .run(&["policy", "check", "mine", "--json"])
        .exits(0)
        .json();
    assert_eq!(checked["ok"], true);
    assert_eq!(checked["problems"], serde_json::json!([]));
    let tested = palyra.run(&["policy", "test", "mine"]).exits(0);
    assert!(
        tested.stderr.contains("1 case holds in 1 file"),
        "{tested:?}"
    );
    palyra
        .run(&["policy", "show", "nobody", "mine"])
        .exits(1)
        .complains("no policy `nobody`", "palyra policy list");
    assert!(!palyra.home().exists(), "nothing is set up or started");
}

#[test]
fn a_lint_is_no_problem() {
    let palyra = with(&[(
        "mine/a.cedar",
        "@id(\"all\") forbid (principal, action, resource);\n",
    )]);
    let ran = palyra.run(&["policy", "check", "mine"]).exits(0);
    assert!(ran.stdout.contains("lint     a.cedar:1:1: "), "{ran:?}");
}

#[test]
fn a_broken_file_is_told_with_its_position() {
    let broken = format!(
        "{GOOD}\n@id(\"oops\")\npermit (principal, action, resource)\n  when {{ context.nothing }};\n"
    );
    let palyra = with(&[("mine/a.cedar", &broken)]);
    let ran = palyra
        .run(&["policy", "check", "mine"])
        .exits(1)
        .complains("in `mine`", "palyra policy schema");
    assert!(ran.stdout.contains("problem  a.cedar:8:"), "{ran:?}");
    let report = palyra
        .run(&["policy", "check", "mine", "--json"])
        .exits(1)
        .json();
    assert_eq!(report["ok"], false);
    assert_eq!(report["problems"][0]["line"], 8);
    for words in [["policy", "list", "mine"], ["policy", "test", "mine"]] {
        palyra
            .run(&words)
            .exits(1)
            .complains("a.cedar:8:", "palyra policy check mine");
    }
    palyra
        .run(&["policy", "check", "nowhere"])
        .exits(1)
        .complains("no folder `nowhere`", "*.cedar");
}

#[test]
fn a_failing_case_fails_the_command() {
    let wrong = CASE.replace("\"ask\"", "\"allow\"");
    let palyra = with(&[("mine/a.test.toml", &wrong)]);
    let ran = palyra
        .run(&["policy", "test", "mine"])
        .exits(1)
        .complains("1 does not", "explain");
    assert!(
        ran.stdout.contains("a.test.toml:9:1: ") && ran.stdout.contains("expected allow, got ask"),
        "{ran:?}"
    );
    let report = palyra
        .run(&["policy", "test", "mine", "--json"])
        .exits(1)
        .json();
    assert_eq!(report["passed"], 0);
    assert_eq!(
        report["failures"][0]["case"],
        "an agent does not write unasked"
    );
}

#[test]
fn a_denied_request_is_explained() {
    let palyra = with(&[("mine/a.cedar", GOOD), ("r.toml", REQUEST)]);
    let words = ["policy", "explain", "--request", "r.toml", "mine"];
    let text = palyra.run(&words).exits(0).stdout;
    assert!(text.contains("no_etc: nothing is written there"), "{text}");
    assert!(
        text.contains("facts used") && text.contains("allowed with"),
        "{text}"
    );
    let found = palyra
        .run(&[&words[..], &["--json"]].concat())
        .exits(0)
        .json();
    assert_eq!(found["outcome"], "deny");
    assert_eq!(found["parties"][0]["allowed"], false);
    assert_eq!(found["baseline"], "standard");
    std::fs::write(palyra.path("work/bad.toml"), "principal = 3\n").unwrap();
    palyra
        .run(&["policy", "explain", "--request", "bad.toml", "mine"])
        .exits(2)
        .complains("`bad.toml`", "palyra policy schema");
}

#[test]
fn a_flip_is_found_and_no_proof_is_claimed() {
    let frozen = r#"@id("frozen") @reason("a quiet week")
forbid (principal is Palyra::Agent, action in Palyra::Action::"run", resource);
"#;
    let palyra = with(&[
        ("old/README.md", ""),
        ("new/a.cedar", frozen),
        ("quiet/a.cedar", GOOD),
    ])
    // Whether or not the solver is installed here.
    .with("PALYRA_CVC5", "/nowhere/cvc5");
    let text = palyra
        .run(&["policy", "diff", "old", "new"])
        .exits(0)
        .stdout;
    assert!(
        text.contains("frozen") && text.contains("not analysed"),
        "{text}"
    );
    let found = palyra
        .run(&["policy", "diff", "old", "new", "--json"])
        .exits(0)
        .json();
    assert_eq!(found["added"], serde_json::json!(["frozen"]));
    assert_eq!(found["analysis"]["analysis"], "not_analysed");
    let flips = found["flips"].as_array().unwrap();
    assert!(
        flips.iter().any(|flip| flip["before"] == "allow"),
        "{found}"
    );
    // The other way round more may happen, and that is said.
    let back = palyra
        .run(&["policy", "diff", "new", "old"])
        .exits(0)
        .stdout;
    assert!(back.contains("more may happen"), "{back}");
    // What no made-up request meets is not called harmless.
    let quiet = palyra
        .run(&["policy", "diff", "old", "quiet"])
        .exits(0)
        .stdout;
    assert!(quiet.contains("that is no proof"), "{quiet}");
}

#[test]
fn the_schema_and_the_configured_baseline() {
    let palyra = Palyra::new();
    let schema = palyra.run(&["policy", "schema"]).exits(0).stdout;
    assert!(schema.contains("namespace Palyra"), "{schema}");
    let document = palyra.run(&["policy", "schema", "--json"]).exits(0).json();
    assert_eq!(document["schema"], schema);
    std::fs::create_dir(palyra.home()).unwrap();
    let config = palyra.home().join("palyra.toml");
    std::fs::write(&config, "[policy]\nbaseline = \"locked\"\n").unwrap();
    let listed = palyra.run(&["policy", "list", "--json"]).exits(0).json();
    assert_eq!(listed["baseline"], "locked");
    let folder = palyra.home().join("policies");
    assert_eq!(listed["folder"], folder.to_str().unwrap());
    std::fs::write(&config, "[policy]\nbaseline = \"open\"\n").unwrap();
    palyra
        .run(&["policy", "list"])
        .exits(1)
        .complains("no baseline `open`", "--baseline standard");
    palyra
        .run(&["policy", "list", "--baseline", "sandboxed"])
        .exits(0);
}
