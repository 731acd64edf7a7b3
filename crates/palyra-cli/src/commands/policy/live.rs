//! Which policies decide, and changing that: through the daemon.

use palyra_api::wire::Page;
use palyra_api::wire::policy::{
    ActivatePolicies, PolicyChanged, PolicyOutcome, PolicyOverview, PolicyVersion,
    PolicyVersionDetail, ReloadPolicies, RollBackPolicies,
};
use palyra_core::{Clock, Digest, SystemClock};
use palyra_policy::operator::{Bundle, NamedSource};
use serde::Serialize;
use serde_json::json;

use super::shown::{self, Shown, counted};
use super::sources::Sources;
use crate::exit::Meaning;
use crate::failure::Failure;
use crate::output::{BAD, COMMAND, DIM, GOOD, Output, PLAIN, STRONG, WAITING};
use crate::present;
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};
use crate::{safe, when};

const PATH: &str = "/api/v1/policy";

/// What decides. Without a daemon, what one would read.
pub(super) async fn list(session: &Session) -> Result<(), Failure> {
    let output = &session.output;
    let Some(mut client) = session.connect_if_there().await? else {
        return list_files(output);
    };
    let now: PolicyOverview = in_time(client.get(PATH)).await?;
    let path = format!("{PATH}/versions/{}", now.active.number);
    let kept: PolicyVersionDetail = in_time(client.get(&path)).await?;
    let bundle = bundle(&kept)?;
    let items: Vec<_> = bundle.policies().iter().map(Shown::of).collect();
    let document = json!({
        "items": items,
        "folder": now.folder,
        "baseline": now.active.baseline,
        "daemon": now,
    });
    output.answer(&document, |_| {
        let baseline = &now.active.baseline;
        format!(
            "{}\n{}",
            shown::table(&bundle, baseline, output),
            standing(&now)
        )
    })
}

fn list_files(output: &Output) -> Result<(), Failure> {
    let place = crate::args::PolicyPlace {
        folder: None,
        over: crate::args::PolicyOver { baseline: None },
    };
    let sources = Sources::find(&place)?;
    let bundle = sources.bundle()?;
    let items: Vec<_> = bundle.policies().iter().map(Shown::of).collect();
    let document = sources.with(json!({ "items": items, "daemon": null }));
    output.answer(&document, |_| shown::list(&bundle, &sources, output))?;
    output.suggest("no daemon runs: this is what one would read");
    Ok(())
}

/// The policies of a version, as this program reads them.
fn bundle(kept: &PolicyVersionDetail) -> Result<Bundle, Failure> {
    let mut texts = kept.sources.iter();
    let mut texts = texts
        .by_ref()
        .map(|source| NamedSource::new(source.name.clone(), source.text.clone()));
    let baseline = texts.next();
    let files: Vec<NamedSource> = texts.collect();
    let loaded = baseline.and_then(|baseline| Bundle::load(&baseline, &files).ok());
    loaded.ok_or_else(|| {
        Failure::new(
            Meaning::Error,
            "policies_not_understood",
            "the daemon's policies cannot be read by this palyra; is it of the same version?",
            "`palyra policy versions NUMBER` prints their texts",
        )
    })
}

fn standing(now: &PolicyOverview) -> String {
    let active = &now.active;
    let refused = now.refused.iter().flat_map(|refused| {
        let problems = refused.problems.iter();
        let more = (refused.more > 0).then(|| format!("and {} more", refused.more));
        problems
            .cloned()
            .chain(more)
            .map(|it| Cell::styled(it, BAD))
    });
    let staged = now.staged.as_ref().map(|staged| {
        let files = counted(staged.files.len(), "file", "files");
        Cell::styled(
            format!("{}: {files} over {}", staged.digest, staged.baseline),
            WAITING,
        )
    });
    let aside = (now.set_aside && now.refused.is_none()).then_some(
        "what the folder holds was set aside by a rollback and does not count until it changes",
    );
    Facts::default()
        .with(
            "in force",
            format!("version {} ({})", active.number, active.policy_version),
        )
        .with("since", since(active))
        .with("folder", &now.folder)
        .lines("staged", staged)
        .lines("refused", refused)
        .lines("set aside", aside.map(|text| Cell::styled(text, WAITING)))
        .render()
}

fn since(version: &PolicyVersion) -> Cell {
    let at = when::instant(&version.activated_at, SystemClock.now());
    Cell::rendered(format!("{at}, {}", safe::line(&why(version))))
}

fn why(version: &PolicyVersion) -> String {
    let why = match (version.why.as_str(), version.rolled_back_to) {
        ("started", _) => "at the daemon's start".to_owned(),
        ("changed", _) => "the files changed".to_owned(),
        ("reloaded", _) => "read again".to_owned(),
        ("activated", _) => "activated after staging".to_owned(),
        ("rolled_back", Some(to)) => format!("rolled back to {to}"),
        (other, _) => other.to_owned(),
    };
    match &version.by {
        Some(by) => format!("{why} by {by}"),
        None => why,
    }
}

/// The versions there were.
pub(super) async fn versions(
    limit: u32,
    before: Option<u64>,
    session: &Session,
) -> Result<(), Failure> {
    let output = &session.output;
    let path = crate::commands::with_query(
        &format!("{PATH}/versions"),
        &[
            ("limit", Some(limit.to_string())),
            ("before", before.map(|number| number.to_string())),
        ],
    );
    let page: Page<PolicyVersion> = crate::commands::get(session, &path).await?;
    output.answer(&page, |page| version_table(&page.items, output))?;
    match &page.next {
        Some(next) => output.suggest(&format!("older ones: add `--before {}`", safe::line(next))),
        None if page.items.is_empty() => output.suggest("there are none before that"),
        None => {}
    }
    Ok(())
}

fn version_table(versions: &[PolicyVersion], output: &Output) -> String {
    if versions.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        Column::right("NUMBER"),
        Column::left("STATE"),
        Column::right("AGE"),
        Column::left("VERSION"),
        Column::left("BASELINE"),
        Column::right("FILES"),
        Column::flexible("WHY"),
    ]);
    let now = SystemClock.now();
    for version in versions {
        let style = if version.state == "active" {
            GOOD
        } else {
            PLAIN
        };
        table.row([
            Cell::new(version.number.to_string()),
            Cell::styled(&version.state, style),
            Cell::rendered(when::age(&version.activated_at, now)),
            Cell::new(&version.policy_version),
            Cell::new(&version.baseline),
            Cell::new(version.files.len().to_string()),
            Cell::new(why(version)),
        ]);
    }
    output.table(&table)
}

/// One version with its texts.
pub(super) async fn version(number: u64, session: &Session) -> Result<(), Failure> {
    let path = format!("{PATH}/versions/{number}");
    let detail: PolicyVersionDetail = crate::commands::get(session, &path).await?;
    session.output.answer(&detail, texts)
}

fn texts(detail: &PolicyVersionDetail) -> String {
    let version = &detail.version;
    let mut text = Facts::default()
        .with("version", format!("{} ({})", version.number, version.state))
        .with("named", &version.policy_version)
        .with("digest", &version.digest)
        .with("baseline", &version.baseline)
        .with("since", since(version))
        .render();
    // The baseline comes with the program; what the operator wrote is what is looked for.
    for source in detail.sources.iter().skip(1) {
        let name = safe::line(&source.name);
        text.push_str(&format!("\n{DIM}// {name}{DIM:#}\n"));
        for line in safe::lines(&source.text) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

pub(super) async fn reload(session: &Session) -> Result<(), Failure> {
    change(session, "reload", &ReloadPolicies {}).await
}

pub(super) async fn activate(digest: Digest, session: &Session) -> Result<(), Failure> {
    let digest = digest.to_string();
    change(session, "activate", &ActivatePolicies { digest }).await
}

pub(super) async fn roll_back(number: Option<u64>, session: &Session) -> Result<(), Failure> {
    change(session, "rollback", &RollBackPolicies { number }).await
}

async fn change(session: &Session, verb: &str, body: &impl Serialize) -> Result<(), Failure> {
    let done: PolicyChanged = present::post(session, &format!("{PATH}/{verb}"), body).await?;
    session.output.answer(&done, changed)?;
    if let Some(staged) = &done.now.staged {
        let next = format!("palyra policy activate {}", safe::line(&staged.digest));
        session.output.suggest(&format!(
            "it does not count yet; next: {COMMAND}{next}{COMMAND:#}"
        ));
    }
    Ok(())
}

fn changed(done: &PolicyChanged) -> String {
    let active = &done.now.active;
    let in_force = format!("version {} ({})", active.number, active.policy_version);
    let (word, style) = match done.outcome {
        PolicyOutcome::Unchanged => ("unchanged", DIM),
        PolicyOutcome::Activated => ("in force", GOOD),
        PolicyOutcome::Staged => ("staged", WAITING),
    };
    let what = match (done.outcome, &done.now.staged) {
        (PolicyOutcome::Staged, Some(staged)) => {
            format!("{}; {in_force} stays in force", safe::line(&staged.digest))
        }
        (
            PolicyOutcome::Unchanged | PolicyOutcome::Activated | PolicyOutcome::Staged,
            Some(_) | None,
        ) => {
            let files = counted(active.files.len(), "file", "files");
            let over = safe::line(&active.baseline);
            format!("{STRONG}{in_force}{STRONG:#}, {files} over {over}")
        }
    };
    format!("{style}{word}{style:#}  {what}\n")
}
