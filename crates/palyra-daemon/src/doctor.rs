//! `palyrad doctor`: the examination without a daemon, for when none can be started.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use palyra_api::wire::{Doctor, DoctorCheck};

use crate::routes::doctor::on_the_wire;
use crate::start;

/// The code for "the sandbox cannot be built here", the same as `palyra`'s.
const NO_SANDBOX: u8 = 6;

/// Examines the machine as this process is, and prints what was seen.
///
/// # Errors
/// The helper cannot be started, or nobody reads.
pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let report = runtime.block_on(palyra_sandbox::examine(&start::helper()?))?;
    let report = on_the_wire(report);
    let text = match json {
        true => serde_json::to_string_pretty(&report)?,
        false => told(&report),
    };
    writeln!(std::io::stdout(), "{text}").context("nobody reads")?;
    Ok(match report.tier_c {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(NO_SANDBOX),
    })
}

fn told(report: &Doctor) -> String {
    let mut lines: Vec<String> = report.checks.iter().flat_map(lines_of).collect();
    lines.push(String::new());
    for (tier, runs) in [("Tier-B", report.tier_b), ("Tier-C", report.tier_c)] {
        let word = if runs { "can run" } else { "cannot run" };
        lines.push(format!("{tier} {word} here"));
    }
    lines.join("\n")
}

fn lines_of(check: &DoctorCheck) -> Vec<String> {
    let DoctorCheck {
        name,
        state,
        needed_for,
        found,
        remedy,
    } = check;
    let state = state.replace('_', " ");
    let mut lines = vec![format!("{name:<16}{state:<12}{found}")];
    if let Some(remedy) = remedy {
        lines.push(format!("{:<28}for {needed_for}; to get it:", ""));
        let remedy = remedy.lines().map(|line| format!("{:<28}  {line}", ""));
        lines.extend(remedy);
    }
    lines
}
