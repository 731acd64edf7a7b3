//! `palyra policy`: the operator's policies. What is in a folder is read and judged here, without a
//! daemon; which version decides, and changing that, is the daemon's
//! ([`live`]), and so are the calls of the past ([`past`]).

mod live;
mod past;
mod shown;
mod sources;

use std::io::Read as _;
use std::path::Path;

use palyra_core::{CallId, CanonicalJson};
use palyra_policy::SCHEMA_SRC;
use palyra_policy::operator::{Question, Report, RequestText};
use palyra_policy::operator::{analyse, check, diff, explain, find_solver, test};
use serde_json::{Value, json};

use crate::args::{PolicyAction, PolicyOver, PolicyPlace};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::Output;
use crate::safe;
use crate::session::Session;

use self::shown::{Shown, compared, counted, explained, failures, findings, list, show};
pub(super) use self::sources::configured_baseline;
use self::sources::{Sources, Under, shown_path};

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
            let draft = Sources::at(draft, &Under::of(over.baseline)?)?;
            let asked = match (call, request) {
                (Some(call), _) => past::About::Call(call.to_string()),
                (None, Some(request)) => past::About::Request(json!(read_request(request)?)),
                (None, None) => return Err(neither()),
            };
            past::simulate(&draft, asked, &session()?).await?;
        }
        PolicyAction::Replay { draft, since, over } => {
            let draft = Sources::at(draft, &Under::of(over.baseline)?)?;
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
            let under = Under::of(over.baseline)?;
            let (old, new) = (Sources::named(old, &under)?, Sources::named(new, &under)?);
            let (before, after) = (old.bundle()?, new.bundle()?);
            let mut found = diff(&before, &after, &[]);
            found.analysis = analyse(&before, &after, find_solver().as_deref()).await;
            let mut document = json!(found);
            if let Value::Object(fields) = &mut document {
                fields.insert("old".to_owned(), json!(old.folder));
                fields.insert("new".to_owned(), json!(new.folder));
                fields.insert("baseline".to_owned(), json!(under.baseline.as_str()));
            }
            output.answer(&document, |_| compared(&found, output))?;
        }
    }
    Ok(Exit::OK)
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
