//! Calls of the past: why they were answered so, and what a draft would say to them.

use std::time::{Duration, Instant};

use palyra_api::wire::policy::{
    CallExplained, ExplainCall, PolicyDraft, PolicyExplanation, PolicyQuestion, PolicySimulation,
    PolicySource, ReplayEvent, ReplayFlip, ReplayGap, ReplayPolicies, ReplaySummary,
    SimulatePolicies, Verdict,
};
use palyra_core::CallId;
use serde::Serialize;
use serde_json::Value;

use super::shown::counted;
use super::sources::Sources;
use crate::exit::Meaning;
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, STRONG, WAITING};
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};

const PATH: &str = "/api/v1/policy";
/// Who waits longer than this wants to know how long it will take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a draft is asked about.
pub(super) enum About {
    Call(String),
    Request(Value),
}

pub(super) async fn explain(call: &CallId, session: &Session) -> Result<(), Failure> {
    let mut client = session.connect().await?;
    let wanted = ExplainCall {
        call_id: call.to_string(),
    };
    let found: CallExplained = in_time(client.post(&format!("{PATH}/explain"), &wanted)).await?;
    session.output.answer(&found, explained)
}

fn explained(found: &CallExplained) -> String {
    let version = match found.number {
        Some(number) => format!("version {number} ({})", found.policy_version),
        None => format!(
            "{}, which is not kept; explained with version {}",
            found.policy_version, found.explained_with
        ),
    };
    let facts = Facts::default()
        .with("call", &found.call_id)
        .styled("decision", words(found.recorded), style(found.recorded))
        .with("decided by", version)
        .lines("policies", found.matched.iter().map(Cell::from));
    let facts = match found.now == found.recorded {
        true => facts,
        false => facts.styled("now", words(found.now), style(found.now)),
    };
    because(facts, &found.explanation).render()
}

pub(super) async fn simulate(
    draft: &Sources,
    asked: About,
    session: &Session,
) -> Result<(), Failure> {
    let (call_id, request) = match asked {
        About::Call(call) => (Some(call), None),
        About::Request(request) => (None, Some(request)),
    };
    let wanted = SimulatePolicies {
        draft: on_the_wire(draft)?,
        call_id,
        request,
    };
    let mut client = session.connect().await?;
    let found: PolicySimulation =
        in_time(client.post(&format!("{PATH}/simulate"), &wanted)).await?;
    session.output.answer(&found, simulated)
}

fn simulated(found: &PolicySimulation) -> String {
    let facts = Facts::default()
        .styled("in force", words(found.before), style(found.before))
        .styled(
            "draft",
            words(found.draft.outcome),
            style(found.draft.outcome),
        );
    because(facts, &found.draft).render()
}

const fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask: it does not run unasked, and a person may be asked",
        Verdict::Deny => "deny",
    }
}

const fn style(verdict: Verdict) -> anstyle::Style {
    match verdict {
        Verdict::Allow => GOOD,
        Verdict::Ask => WAITING,
        Verdict::Deny => BAD,
    }
}

fn because(facts: Facts, found: &PolicyExplanation) -> Facts {
    let mut remedies: Vec<Cell> = found
        .remedies
        .iter()
        .map(|sentences| Cell::new(sentences.join("; and ")))
        .collect();
    if remedies.is_empty() && found.outcome != Verdict::Allow {
        remedies.push(Cell::styled("no change of the facts that was tried", DIM));
    }
    facts
        .lines("because", found.questions.iter().flat_map(asked))
        .lines("allowed with", remedies)
        .lines("log only", found.log_only.iter().map(Cell::from))
}

/// One question: who may what, why, and the facts it was about.
fn asked(question: &PolicyQuestion) -> Vec<Cell> {
    let may = if question.allowed { "may" } else { "may not" };
    let line = format!(
        "{} {may} {} {}",
        question.principal, question.action, question.resource
    );
    let mut lines = vec![Cell::styled(line, STRONG)];
    if question.because.is_empty() {
        lines.push(Cell::rendered("  nothing permits it"));
    }
    for policy in &question.because {
        let reason = policy.reason.as_deref().unwrap_or("it gives no reason");
        let said = format!("  {}: {}", safe::line(&policy.policy), safe::line(reason));
        lines.push(Cell::rendered(said));
    }
    for (name, value) in &question.facts {
        let fact = format!("    {} = {}", safe::line(name), safe::line(value));
        lines.push(Cell::rendered(fact));
    }
    let unexplained = question.unexplained.iter();
    lines.extend(unexplained.map(|why| Cell::rendered(format!("    {}", safe::line(why)))));
    lines
}

/// A draft that can be used, as the daemon gets it.
fn on_the_wire(draft: &Sources) -> Result<PolicyDraft, Failure> {
    // Told here, where the files are, with every place.
    let _checked = draft.bundle()?;
    let files = draft.files()?.policies.iter().map(|file| PolicySource {
        name: file.name.clone(),
        text: file.text.clone(),
    });
    Ok(PolicyDraft {
        baseline: Some(draft.baseline.as_str().to_owned()),
        files: files.collect(),
    })
}

/// What a replay found, whole.
#[derive(Debug, Default, Serialize)]
struct Replayed {
    summary: ReplaySummary,
    flips: Vec<ReplayFlip>,
    erased: Vec<ReplayGap>,
    unreadable: Vec<ReplayGap>,
}

pub(super) async fn replay(
    draft: &Sources,
    since: Duration,
    session: &Session,
) -> Result<(), Failure> {
    let wanted = ReplayPolicies {
        draft: on_the_wire(draft)?,
        since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    };
    let body = serde_json::to_vec(&wanted).unwrap_or_default();
    let mut client = session.connect().await?;
    let mut events = client
        .events::<ReplayEvent>(&format!("{PATH}/replay"), body.into())
        .await?;
    let mut found = Replayed::default();
    let mut last = Instant::now();
    loop {
        match events.next().await? {
            Some(ReplayEvent::Progress { read, of }) => {
                if last.elapsed() >= PATIENCE {
                    last = Instant::now();
                    session.output.note(&format!("{read} of {of} entries read"));
                }
            }
            Some(ReplayEvent::Flip(flip)) => found.flips.push(flip),
            Some(ReplayEvent::Erased(gap)) => found.erased.push(gap),
            Some(ReplayEvent::Unreadable(gap)) => found.unreadable.push(gap),
            Some(ReplayEvent::Finished(summary)) => {
                found.summary = summary;
                break;
            }
            Some(ReplayEvent::Failed { error }) => return Err(Failure::stated(None, error)),
            None => return Err(broke_off()),
        }
    }
    let output = &session.output;
    output.answer(&found, |found| replayed(found, output))
}

fn broke_off() -> Failure {
    Failure::new(
        Meaning::Error,
        "connection_broken",
        "the replay broke off before its end",
        "`palyra status` shows whether the daemon is there; then try again",
    )
}

fn replayed(found: &Replayed, output: &Output) -> String {
    let summary = &found.summary;
    let widening = match summary.widening {
        0 => ("none".to_owned(), PLAIN),
        some => (format!("{some}: more would happen under the draft"), BAD),
    };
    let mut text = Facts::default()
        .with("decisions", summary.decisions.to_string())
        .with("flips", summary.flips.to_string())
        .styled("widening", widening.0, widening.1)
        .lines("not known", gaps(summary))
        .render();
    if !found.flips.is_empty() {
        text.push('\n');
        text.push_str(&output.table(&flips(&found.flips)));
    }
    let left = summary.flips.saturating_sub(found.flips.len() as u64);
    if left > 0 {
        text.push_str(&format!("{DIM}and {left} more{DIM:#}\n"));
    }
    let gone = found.erased.iter().chain(&found.unreadable);
    for gap in gone.take(20) {
        let call = safe::line(&gap.call_id);
        text.push_str(&format!("{DIM}not known:{DIM:#} {call}\n"));
    }
    text
}

fn gaps(summary: &ReplaySummary) -> Vec<Cell> {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let gone = (summary.erased > 0).then(|| {
        let calls = counted(count(summary.erased), "decision whose", "decisions whose");
        format!("{calls} facts were erased")
    });
    let odd = (summary.unreadable > 0).then(|| {
        let calls = counted(
            count(summary.unreadable),
            "decision whose",
            "decisions whose",
        );
        format!("{calls} facts cannot be read")
    });
    let said = [gone, odd].into_iter().flatten();
    said.map(|text| Cell::styled(text, WAITING)).collect()
}

fn flips(flips: &[ReplayFlip]) -> Table {
    let mut table = Table::new([
        Column::left("BEFORE"),
        Column::left("AFTER"),
        Column::left("CALL"),
        Column::left("WHO"),
        Column::flexible("TOOL"),
        Column::flexible("BECAUSE"),
    ]);
    for flip in flips {
        let because = match (&flip.could_not_tell, flip.policies.is_empty()) {
            (Some(why), _) => format!("could not tell: {why}"),
            (None, true) => "nothing permits it".to_owned(),
            (None, false) => flip.policies.join(", "),
        };
        table.row([
            Cell::styled(flip.before.to_string(), style(flip.before)),
            Cell::styled(flip.after.to_string(), style(flip.after)),
            Cell::new(&flip.call_id),
            Cell::new(&flip.principal),
            Cell::new(&flip.tool),
            Cell::new(because),
        ]);
    }
    table
}
