//! How policies and what was found about them look.

use std::fmt::Write as _;

use palyra_policy::operator::{
    Analysis, Bundle, Diff, Explanation, Mode, OperatorPolicy, Outcome, Report, TestReport,
};
use serde::Serialize;
use serde_json::Value;

use super::sources::Sources;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, STRONG, WAITING};
use crate::safe;
use crate::table::{Cell, Column, Facts, Table};

/// A policy for programs.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'a> {
    id: &'a str,
    effect: &'static str,
    mode: &'static str,
    reason: Option<&'a str>,
    hint: Option<&'a str>,
    file: &'a str,
    line: usize,
    column: usize,
    in_baseline: bool,
}

impl<'a> Shown<'a> {
    pub(super) fn of(policy: &'a OperatorPolicy) -> Self {
        Self {
            id: &policy.notes.id,
            effect: effect(policy),
            mode: mode(policy),
            reason: policy.notes.reason.as_deref(),
            hint: policy.notes.hint.as_deref(),
            file: &policy.file,
            line: policy.place.line,
            column: policy.place.column,
            in_baseline: policy.baseline,
        }
    }
}

pub(super) fn effect(policy: &OperatorPolicy) -> &'static str {
    match policy.permits() {
        true => "permit",
        false => "forbid",
    }
}

pub(super) fn mode(policy: &OperatorPolicy) -> &'static str {
    match policy.notes.mode {
        Mode::Enforced => "enforced",
        Mode::LogOnly => "log_only",
    }
}

pub(super) fn effect_cell(policy: &OperatorPolicy) -> Cell {
    match (policy.notes.mode, policy.permits()) {
        (Mode::LogOnly, _) => Cell::styled(format!("{} (log only)", effect(policy)), DIM),
        (Mode::Enforced, true) => Cell::styled("permit", GOOD),
        (Mode::Enforced, false) => Cell::styled("forbid", WAITING),
    }
}

pub(super) fn list(bundle: &Bundle, sources: &Sources, output: &Output) -> String {
    table(bundle, sources.baseline.as_str(), output)
}

pub(super) fn table(bundle: &Bundle, baseline: &str, output: &Output) -> String {
    let mut table = Table::new([
        Column::left("ID"),
        Column::left("EFFECT"),
        Column::flexible("REASON"),
        Column::flexible("FILE"),
    ]);
    for policy in bundle.policies() {
        table.row([
            Cell::new(&policy.notes.id),
            effect_cell(policy),
            Cell::new(policy.notes.reason.as_deref().unwrap_or_default()),
            Cell::styled(place_of(policy, baseline), DIM),
        ]);
    }
    output.table(&table)
}

/// Where a policy is written: a file of the folder, or the baseline.
pub(super) fn place_of(policy: &OperatorPolicy, baseline: &str) -> String {
    match policy.baseline {
        true => format!("baseline {baseline}"),
        false => format!("{}:{}", policy.file, policy.place.line),
    }
}

pub(super) fn show(policy: &OperatorPolicy, sources: &Sources) -> String {
    Facts::default()
        .with("policy", &policy.notes.id)
        .with("effect", effect_cell(policy))
        .maybe("reason", policy.notes.reason.as_ref())
        .maybe("hint", policy.notes.hint.as_ref())
        .with("file", place_of(policy, sources.baseline.as_str()))
        .lines("text", safe::lines(&policy.text).map(Cell::rendered))
        .render()
}

pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn findings(report: &Report) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let said = problem.to_string();
        let _ = writeln!(text, "{BAD}problem{BAD:#}  {}", safe::once(&said));
    }
    for lint in &report.lints {
        let said = lint.to_string();
        let _ = writeln!(text, "{WAITING}lint{WAITING:#}     {}", safe::once(&said));
    }
    text
}

pub(super) fn failures(report: &TestReport) -> String {
    let mut text = String::new();
    for failure in &report.failures {
        let said = failure.to_string();
        let _ = writeln!(text, "{BAD}failed{BAD:#}  {}", safe::once(&said));
    }
    text
}

pub(super) const fn outcome_style(outcome: Outcome) -> anstyle::Style {
    match outcome {
        Outcome::Allow => GOOD,
        Outcome::Ask => WAITING,
        Outcome::Deny => BAD,
    }
}

pub(super) fn explained(found: &Explanation) -> String {
    let mut because = Vec::new();
    for party in &found.parties {
        let word = if party.allowed { "may" } else { "may not" };
        because.push(Cell::styled(format!("{} {word}", party.principal), STRONG));
        if party.because.is_empty() {
            because.push(Cell::rendered("  nothing permits it"));
        }
        for policy in &party.because {
            let reason = policy.reason.as_deref().unwrap_or("it gives no reason");
            let said = format!("  {}: {}", safe::line(&policy.policy), safe::line(reason));
            because.push(Cell::rendered(said));
            let hint = policy.hint.iter();
            because.extend(hint.map(|hint| Cell::rendered(format!("    {}", safe::line(hint)))));
        }
    }
    let facts = found.facts.iter();
    let facts = facts.map(|(name, value)| Cell::new(format!("{name} = {value}")));
    let mut remedies: Vec<Cell> = found
        .remedies
        .iter()
        .map(|remedy| Cell::new(remedy.sentences.join("; and ")))
        .collect();
    if remedies.is_empty() && found.outcome != Outcome::Allow {
        remedies.push(Cell::styled("no change of the facts that was tried", DIM));
    }
    let outcome = match found.outcome {
        Outcome::Allow => "allow",
        Outcome::Ask => "ask: it does not run unasked, and a person may be asked",
        Outcome::Deny => "deny",
    };
    Facts::default()
        .styled("decision", outcome, outcome_style(found.outcome))
        .lines("because", because)
        .lines("facts used", facts)
        .lines("allowed with", remedies)
        .lines("log only", found.log_only.iter().map(Cell::from))
        .render()
}

pub(super) fn compared(found: &Diff, output: &Output) -> String {
    let ids = |ids: &[String]| match ids.is_empty() {
        true => "none".to_owned(),
        false => ids.join(", "),
    };
    let flips = counted(found.flips.len(), "answer flips", "answers flip");
    let asked = counted(found.asked, "made-up request", "made-up requests");
    let widens = match (found.widens(), &found.analysis) {
        (true, _) => ("more may happen under the new policies", BAD),
        (false, Analysis::NothingNew { .. }) => ("no: nothing new is allowed", GOOD),
        (false, Analysis::AllowsMore { .. } | Analysis::NotAnalysed { .. }) => (
            "nothing was found that lets more happen; that is no proof",
            PLAIN,
        ),
    };
    let solver = match &found.analysis {
        Analysis::NothingNew { .. } => GOOD,
        Analysis::AllowsMore { .. } => BAD,
        Analysis::NotAnalysed { .. } => WAITING,
    };
    let said = found.analysis.to_string();
    let said = said
        .lines()
        .map(|line| Cell::styled(safe::line(line), solver));
    let mut text = Facts::default()
        .with("added", ids(&found.added))
        .with("removed", ids(&found.removed))
        .with("changed", ids(&found.changed))
        .with("asked", format!("{asked}, {flips}"))
        .styled("widens", widens.0, widens.1)
        .lines("solver", said)
        .render();
    if found.flips.is_empty() {
        return text;
    }
    let mut table = Table::new([
        Column::left("BEFORE"),
        Column::left("AFTER"),
        Column::left("WHO"),
        Column::left("WHAT"),
        Column::flexible("TO WHAT"),
        Column::flexible("BECAUSE"),
    ]);
    for flip in &found.flips {
        let part = |name: &str| {
            let part = flip.details.get(name).and_then(Value::as_str);
            Cell::new(part.unwrap_or_default().replace("Palyra::", ""))
        };
        let because = match flip.because.is_empty() {
            true => "nothing permits it".to_owned(),
            false => flip.because.join(", "),
        };
        table.row([
            Cell::styled(flip.before.to_string(), outcome_style(flip.before)),
            Cell::styled(flip.after.to_string(), outcome_style(flip.after)),
            part("principal"),
            part("action"),
            part("resource"),
            Cell::new(because),
        ]);
    }
    text.push('\n');
    text.push_str(&output.table(&table));
    text
}
