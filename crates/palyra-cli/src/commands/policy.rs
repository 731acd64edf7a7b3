//! `palyra policy`: the operator's policies. What is in a folder is read and judged here, without a
//! daemon; which version decides, and changing that, is the daemon's
//! ([`live`]), and so are the calls of the past ([`past`]).

mod live;
mod past;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use palyra_api::Home;
use palyra_core::{CallId, CanonicalJson};
use palyra_policy::operator::files::{Folder, read_folder};
use palyra_policy::operator::{
    Analysis, Bundle, Diff, Explanation, Mode, NamedSource, OperatorPolicy, Outcome, Problem,
    Question, Report, RequestText, TestReport,
};
use palyra_policy::operator::{analyse, check, diff, explain, find_solver, test};
use palyra_policy::{Baseline, SCHEMA_SRC};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{PolicyAction, PolicyOver, PolicyPlace};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::{BAD, DIM, GOOD, Output, PLAIN, STRONG, WAITING};
use crate::safe;
use crate::session::Session;
use crate::table::{Cell, Column, Facts, Table};

/// A request is a few facts.
const MAX_REQUEST_BYTES: u64 = 1024 * 1024;

/// What reads only files needs no session, and so no home.
pub(super) async fn run(
    action: &PolicyAction,
    output: &Output,
    session: impl FnOnce() -> Result<Session, Failure>,
) -> Result<Exit, Failure> {
    match action {
        PolicyAction::List(place) if place.is_the_daemons() => live::list(&session()?).await?,
        PolicyAction::List(place) => {
            let sources = Sources::find(place)?;
            let bundle = sources.bundle()?;
            let items: Vec<_> = bundle.policies().iter().map(Shown::of).collect();
            let document = sources.with(json!({ "items": items }));
            output.answer(&document, |_| list(&bundle, &sources, output))?;
        }
        PolicyAction::Show { id, place } => {
            let sources = Sources::find(place)?;
            let bundle = sources.bundle()?;
            let policy = bundle.policy(id).ok_or_else(|| unknown(id, &sources))?;
            let mut document = json!(Shown::of(policy));
            if let Value::Object(fields) = &mut document {
                fields.insert("text".to_owned(), json!(policy.text));
            }
            output.answer(&document, |_| show(policy, &sources))?;
        }
        PolicyAction::Schema => {
            let document = json!({ "schema": SCHEMA_SRC });
            output.answer(&document, |_| SCHEMA_SRC.to_owned())?;
        }
        PolicyAction::Check(place) => return checked(&Sources::find(place)?, output),
        PolicyAction::Test(place) => return tested(&Sources::find(place)?, output),
        PolicyAction::Explain {
            what,
            request: Some(request),
            over,
        } => {
            let (folder, over) = (what.clone(), *over);
            let sources = Sources::find(&PolicyPlace { folder, over })?;
            let bundle = sources.bundle()?;
            let question = Question::read(&read_request(request)?);
            let question = question.map_err(|why| unfit(request, &why))?;
            let found = explain(&bundle, &question).map_err(|why| unfit(request, &why))?;
            output.answer(&sources.with(json!(found)), |_| explained(&found))?;
        }
        PolicyAction::Explain {
            what,
            request: None,
            over,
        } => past::explain(&call_of(what.as_deref(), *over)?, &session()?).await?,
        PolicyAction::Simulate {
            draft,
            call,
            request,
            over,
        } => {
            let draft = Sources::at(draft, baseline_of(over.baseline)?)?;
            let asked = match (call, request) {
                (Some(call), _) => past::About::Call(call.to_string()),
                (None, Some(request)) => past::About::Request(json!(read_request(request)?)),
                (None, None) => return Err(neither()),
            };
            past::simulate(&draft, asked, &session()?).await?;
        }
        PolicyAction::Replay { draft, since, over } => {
            let draft = Sources::at(draft, baseline_of(over.baseline)?)?;
            past::replay(&draft, since.0, &session()?).await?;
        }
        PolicyAction::Versions {
            number,
            limit,
            before,
        } => match number {
            Some(number) => live::version(*number, &session()?).await?,
            None => live::versions(*limit, *before, &session()?).await?,
        },
        PolicyAction::Reload => live::reload(&session()?).await?,
        PolicyAction::Activate { digest } => live::activate(*digest, &session()?).await?,
        PolicyAction::Rollback { number } => live::roll_back(*number, &session()?).await?,
        PolicyAction::Diff { old, new, over } => {
            let baseline = baseline_of(over.baseline)?;
            let (old, new) = (Sources::at(old, baseline)?, Sources::at(new, baseline)?);
            let (before, after) = (old.bundle()?, new.bundle()?);
            let mut found = diff(&before, &after, &[]);
            found.analysis = analyse(&before, &after, find_solver().as_deref()).await;
            let mut document = json!(found);
            if let Value::Object(fields) = &mut document {
                fields.insert("old".to_owned(), json!(old.folder));
                fields.insert("new".to_owned(), json!(new.folder));
                fields.insert("baseline".to_owned(), json!(baseline.as_str()));
            }
            output.answer(&document, |_| compared(&found, output))?;
        }
    }
    Ok(Exit::OK)
}

/// A folder of policies and the baseline under them.
struct Sources {
    folder: PathBuf,
    baseline: Baseline,
    read: Result<Folder, Vec<Problem>>,
}

impl Sources {
    /// What the arguments name, else what a daemon of this home reads.
    fn find(place: &PolicyPlace) -> Result<Self, Failure> {
        let baseline = baseline_of(place.over.baseline)?;
        if let Some(folder) = &place.folder {
            return Self::at(folder, baseline);
        }
        let folder = Home::from_env()?.config_file().with_file_name("policies");
        Ok(Self::read(folder, baseline))
    }

    /// A folder that somebody named has to be there.
    fn at(folder: &Path, baseline: Baseline) -> Result<Self, Failure> {
        if !folder.is_dir() {
            return Err(Failure::new(
                Meaning::Error,
                "no_policy_folder",
                format!("there is no folder `{}`", shown_path(folder)),
                "name the folder that holds your *.cedar files, or leave it out for the daemon's",
            ));
        }
        Ok(Self::read(folder.to_owned(), baseline))
    }

    fn read(folder: PathBuf, baseline: Baseline) -> Self {
        let read = read_folder(&folder);
        Self {
            folder,
            baseline,
            read,
        }
    }

    fn under(&self) -> NamedSource {
        NamedSource::new(format!("{}.cedar", self.baseline), self.baseline.source())
    }

    fn files(&self) -> Result<&Folder, Failure> {
        self.read.as_ref().map_err(|problems| self.broken(problems))
    }

    fn bundle(&self) -> Result<Bundle, Failure> {
        let loaded = Bundle::load(&self.under(), &self.files()?.policies);
        loaded.map_err(|problems| self.broken(&problems))
    }

    fn broken(&self, problems: &[Problem]) -> Failure {
        let first = problems
            .first()
            .map_or_else(String::new, ToString::to_string);
        let message = match problems.len() {
            0 | 1 => format!("these policies cannot be used: {first}"),
            more => {
                format!("these policies cannot be used, for {more} reasons; the first: {first}")
            }
        };
        Failure::new(
            Meaning::Error,
            "policies_invalid",
            message,
            format!(
                "`palyra policy check {}` shows everything that is wrong",
                shown_path(&self.folder)
            ),
        )
    }

    /// A document that says what it is about.
    fn with(&self, mut document: Value) -> Value {
        if let Value::Object(fields) = &mut document {
            fields.insert("folder".to_owned(), json!(self.folder));
            fields.insert("baseline".to_owned(), json!(self.baseline.as_str()));
        }
        document
    }
}

fn shown_path(path: &Path) -> String {
    safe::line(&path.display().to_string())
}

/// The baseline that was asked for, else the one that `palyra.toml` names.
fn baseline_of(given: Option<crate::args::BaselineArg>) -> Result<Baseline, Failure> {
    match given {
        Some(given) => Ok(given.into()),
        None => configured_baseline(),
    }
}

/// The baseline that `palyra.toml` names.
pub(super) fn configured_baseline() -> Result<Baseline, Failure> {
    let config = Home::from_env()?.config_file();
    let refused = |why: String| {
        Failure::new(
            Meaning::Error,
            "config_unreadable",
            format!(
                "`{}` does not tell the baseline: {why}",
                shown_path(&config)
            ),
            "put that right, or name one with `--baseline standard`",
        )
    };
    let text = match std::fs::read_to_string(&config) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Baseline::default());
        }
        Err(error) => return Err(refused(error.to_string())),
    };
    let settings: toml::Table =
        toml::from_str(&text).map_err(|error| refused(error.message().to_owned()))?;
    let named = settings.get("policy").and_then(|part| part.get("baseline"));
    match named.map(toml::Value::as_str) {
        None => Ok(Baseline::default()),
        Some(None) => Err(refused("`policy.baseline` is not text".to_owned())),
        Some(Some(name)) => name
            .parse()
            .map_err(|error: palyra_policy::UnknownBaseline| refused(error.to_string())),
    }
}

/// A policy for programs.
#[derive(Debug, Serialize)]
struct Shown<'a> {
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
    fn of(policy: &'a OperatorPolicy) -> Self {
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

fn effect(policy: &OperatorPolicy) -> &'static str {
    match policy.permits() {
        true => "permit",
        false => "forbid",
    }
}

fn mode(policy: &OperatorPolicy) -> &'static str {
    match policy.notes.mode {
        Mode::Enforced => "enforced",
        Mode::LogOnly => "log_only",
    }
}

fn effect_cell(policy: &OperatorPolicy) -> Cell {
    match (policy.notes.mode, policy.permits()) {
        (Mode::LogOnly, _) => Cell::styled(format!("{} (log only)", effect(policy)), DIM),
        (Mode::Enforced, true) => Cell::styled("permit", GOOD),
        (Mode::Enforced, false) => Cell::styled("forbid", WAITING),
    }
}

fn list(bundle: &Bundle, sources: &Sources, output: &Output) -> String {
    table(bundle, sources.baseline.as_str(), output)
}

fn table(bundle: &Bundle, baseline: &str, output: &Output) -> String {
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
fn place_of(policy: &OperatorPolicy, baseline: &str) -> String {
    match policy.baseline {
        true => format!("baseline {baseline}"),
        false => format!("{}:{}", policy.file, policy.place.line),
    }
}

fn show(policy: &OperatorPolicy, sources: &Sources) -> String {
    Facts::default()
        .with("policy", &policy.notes.id)
        .with("effect", effect_cell(policy))
        .maybe("reason", policy.notes.reason.as_ref())
        .maybe("hint", policy.notes.hint.as_ref())
        .with("file", place_of(policy, sources.baseline.as_str()))
        .lines("text", safe::lines(&policy.text).map(Cell::rendered))
        .render()
}

fn unknown(id: &str, sources: &Sources) -> Failure {
    Failure::new(
        Meaning::Error,
        "no_policy",
        format!(
            "there is no policy `{}` in `{}` or the baseline `{}`",
            safe::line(id),
            shown_path(&sources.folder),
            sources.baseline
        ),
        "`palyra policy list` names them",
    )
}

fn checked(sources: &Sources, output: &Output) -> Result<Exit, Failure> {
    let report = match &sources.read {
        Ok(folder) => check(&sources.under(), &folder.policies),
        Err(problems) => Report {
            problems: problems.clone(),
            lints: Vec::new(),
        },
    };
    let files = sources.read.as_ref().map_or(0, |it| it.policies.len());
    let document = sources.with(json!({
        "ok": report.problems.is_empty(),
        "files": files,
        "problems": report.problems,
        "lints": report.lints,
    }));
    output.answer(&document, |_| findings(&report))?;
    let folder = shown_path(&sources.folder);
    if report.problems.is_empty() {
        let lints = counted(report.lints.len(), "thing to look at", "things to look at");
        let files = counted(files, "file", "files");
        output.note(&format!(
            "no problems in `{folder}` ({files} over {}), {lints}",
            sources.baseline
        ));
        return Ok(Exit::OK);
    }
    let problems = counted(report.problems.len(), "problem", "problems");
    output.complain(
        &format!("{problems} in `{folder}`: the daemon does not use these policies"),
        "put them right; `palyra policy schema` shows what a policy can talk about",
    );
    Ok(Exit::Ours(Meaning::Error))
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn findings(report: &Report) -> String {
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

fn tested(sources: &Sources, output: &Output) -> Result<Exit, Failure> {
    let bundle = sources.bundle()?;
    let files = &sources.files()?.tests;
    let report = test(&bundle, files);
    let document = sources.with(json!({
        "ok": report.holds(),
        "files": files.len(),
        "passed": report.passed,
        "failures": report.failures,
    }));
    output.answer(&document, |_| failures(&report))?;
    let ran = format!(
        "{} in {}",
        counted(report.passed, "case holds", "cases hold"),
        counted(files.len(), "file", "files")
    );
    if report.holds() {
        output.note(&ran);
        return Ok(Exit::OK);
    }
    let failed = counted(report.failures.len(), "does not", "do not");
    output.complain(
        &format!("{ran}, {failed}"),
        "`palyra policy explain --request FILE` shows why a request is answered as it is",
    );
    Ok(Exit::Ours(Meaning::Error))
}

fn failures(report: &TestReport) -> String {
    let mut text = String::new();
    for failure in &report.failures {
        let said = failure.to_string();
        let _ = writeln!(text, "{BAD}failed{BAD:#}  {}", safe::once(&said));
    }
    text
}

fn unfit(path: &Path, why: &str) -> Failure {
    Failure::new(
        Meaning::Usage,
        "request_invalid",
        format!("the request in `{}`: {}", shown_path(path), safe::line(why)),
        "it is TOML or JSON with `principal`, `action`, `resource`, `context` and `entity`; \
         `palyra policy schema` names them",
    )
}

/// A request as a test case writes it, in TOML or JSON.
fn read_request(path: &Path) -> Result<RequestText, Failure> {
    let wrong = |why: String| unfit(path, &why);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    file.and_then(|file| file.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_REQUEST_BYTES {
        return Err(wrong(format!("is larger than {MAX_REQUEST_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8".to_owned()))?;
    // No TOML document begins with a brace.
    if text.trim_start().starts_with('{') {
        CanonicalJson::parse(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.unwrap_or_default().matches('\n').count() + 1;
            wrong(format!("line {line}: {}", error.message()))
        })
    }
}

/// The call that `explain` is about.
fn call_of(what: Option<&Path>, over: PolicyOver) -> Result<CallId, Failure> {
    if over.baseline.is_some() {
        return Err(Failure::usage(
            "a call is explained with the policies that decided it, whatever the baseline",
            "leave `--baseline` out, or use `palyra policy simulate DRAFT_DIR --call CALL`",
        ));
    }
    let given = what.map(|what| what.display().to_string());
    let call = given.as_deref().and_then(|given| given.parse().ok());
    call.ok_or_else(|| {
        let given = safe::line(given.as_deref().unwrap_or_default());
        Failure::usage(
            format!("`{given}` is not a call"),
            "name a call of `palyra calls list`, or a request with `--request FILE`",
        )
    })
}

fn neither() -> Failure {
    Failure::usage(
        "a draft is asked about a call or a request",
        "add `--call CALL` or `--request FILE`",
    )
}

const fn outcome_style(outcome: Outcome) -> anstyle::Style {
    match outcome {
        Outcome::Allow => GOOD,
        Outcome::Ask => WAITING,
        Outcome::Deny => BAD,
    }
}

fn explained(found: &Explanation) -> String {
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

fn compared(found: &Diff, output: &Output) -> String {
    let ids = |ids: &[String]| match ids.is_empty() {
        true => "none".to_owned(),
        false => ids.join(", "),
    };
    let flips = counted(found.flips.len(), "answer flips", "answers flip");
    let asked = counted(found.asked, "made-up request", "made-up requests");
    let widens = match (found.widens(), &found.analysis) {
        (true, _) => ("more may happen under the new policies", BAD),
        (false, Analysis::NothingNew { .. }) => ("nothing new is allowed", GOOD),
        (false, Analysis::AllowsMore { .. } | Analysis::NotAnalysed { .. }) => (
            "nothing was found that lets more happen; that is no proof",
            PLAIN,
        ),
    };
    let mut text = Facts::default()
        .with("added", ids(&found.added))
        .with("removed", ids(&found.removed))
        .with("changed", ids(&found.changed))
        .with("asked", format!("{asked}, {flips}"))
        .styled("widens", widens.0, widens.1)
        .styled("solver", found.analysis.to_string(), WAITING)
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
