//! `test`: cases beside the policies, each a request and the answer it must get.
//!
//! ```toml
//! [[entity]]                       # known to every case of this file
//! uid = 'Tool::"palyra.fs.write"'
//! attrs = { sensitive = true }
//!
//! [[case]]
//! name = "an agent does not write unasked"
//! principal = 'Agent::"claude"'
//! action = "tool.execute"
//! resource = 'Tool::"palyra.fs.write"'
//! context = { tier = 2 }           # what is left out is the plainest there is
//! expect = "ask"                   # allow, ask, or deny
//! policy = "deny_sensitive_without_approval"   # optional: this one is among the reasons
//! ```

use serde_json::{Map, Value};
use toml::Spanned;

use super::bundle::Bundle;
use super::question::{EntityText, Outcome, Question, RequestText, outcome_of, verdict};
use super::shape::Shapes;
use super::source::{NamedSource, Problem, place_at};

/// How many cases one file may hold.
const MAX_CASES: usize = 10_000;
/// How deep brackets may nest: TOML is read recursively.
const MAX_DEPTH: usize = 32;

/// What running the cases of a bundle came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct TestReport {
    /// How many cases got the answer they expected.
    pub passed: usize,
    /// Which did not, and which could not be read.
    pub failures: Vec<Failure>,
}

/// A case that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Failure {
    /// The case's name, when it could be read.
    pub case: Option<String>,
    /// Where, and in words.
    #[serde(flatten)]
    pub problem: Problem,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.problem.fmt(f)
    }
}

impl TestReport {
    /// Whether every case holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the cases of these files against a bundle.
#[must_use]
pub fn test(bundle: &Bundle, files: &[NamedSource]) -> TestReport {
    let mut report = TestReport::default();
    let shapes = match Shapes::load() {
        Ok(shapes) => shapes,
        Err(error) => {
            let problem = Problem::whole("schema", error.to_string());
            let case = None;
            report.failures.push(Failure { case, problem });
            return report;
        }
    };
    for file in files {
        match parse(file) {
            Ok(suite) => run_all(bundle, shapes, file, suite, &mut report),
            Err(problem) => {
                let case = None;
                report.failures.push(Failure { case, problem });
            }
        }
    }
    report
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite {
    #[serde(default, rename = "entity")]
    entities: Vec<EntityText>,
    #[serde(default, rename = "case")]
    cases: Vec<Spanned<Case>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    principal: String,
    action: String,
    resource: String,
    #[serde(default)]
    context: Map<String, Value>,
    #[serde(default, rename = "entity")]
    entities: Vec<EntityText>,
    expect: Outcome,
    policy: Option<String>,
}

fn parse(file: &NamedSource) -> Result<Suite, Problem> {
    if nests_deeper_than(MAX_DEPTH, &file.text) {
        let message = format!("brackets nest deeper than {MAX_DEPTH} levels");
        return Err(Problem::whole(&file.name, message));
    }
    let suite: Suite = toml::from_str(&file.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let place = place_at(&file.text, at);
        Problem::at(&file.name, place, error.message())
    })?;
    if suite.cases.len() > MAX_CASES {
        let message = format!("there are more than {MAX_CASES} cases; split the file");
        return Err(Problem::whole(&file.name, message));
    }
    Ok(suite)
}

fn nests_deeper_than(most: usize, text: &str) -> bool {
    let mut depth = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > most
    })
}

fn run_all(
    bundle: &Bundle,
    shapes: &Shapes,
    file: &NamedSource,
    suite: Suite,
    report: &mut TestReport,
) {
    for case in suite.cases {
        let place = place_at(&file.text, case.span().start);
        let case = case.into_inner();
        let name = case.name.clone();
        match run(bundle, shapes, case, &suite.entities) {
            Ok(()) => report.passed += 1,
            Err(message) => report.failures.push(Failure {
                problem: Problem::at(&file.name, place, format!("`{name}`: {message}")),
                case: Some(name),
            }),
        }
    }
}

fn run(bundle: &Bundle, shapes: &Shapes, case: Case, shared: &[EntityText]) -> Result<(), String> {
    let text = RequestText {
        principal: case.principal,
        action: case.action,
        resource: case.resource,
        context: case.context,
        entities: case.entities,
    };
    let question = Question::complete(&text, shared, shapes)?;
    let found = outcome_of(&bundle.enforced, bundle.schema, &question)?;
    let mut behind = verdict(&bundle.enforced, bundle.schema, &question)?.matched();
    if found != Outcome::Allow
        && let Some(asking) = question.asking(bundle.schema)
    {
        behind.extend(verdict(&bundle.enforced, bundle.schema, &asking)?.matched());
    }
    let because = match behind.as_slice() {
        [] => "nothing permits it".to_owned(),
        ids => format!("because of `{}`", ids.join("`, `")),
    };
    if found != case.expect {
        return Err(format!("expected {}, got {found}, {because}", case.expect));
    }
    match case.policy {
        Some(id) if bundle.policy(&id).is_none() => {
            Err(format!("there is no policy `{id}` in this bundle"))
        }
        Some(id) if !behind.contains(&id) => Err(format!(
            "got {found} as expected, but not by `{id}`: {because}"
        )),
        Some(_) | None => Ok(()),
    }
}
