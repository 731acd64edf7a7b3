//! `palyra doctor`: what this machine gives to the sandbox, tried in the daemon's context.

use palyra_api::wire::{Doctor, DoctorCheck};

use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::{BAD, GOOD, Output, PLAIN, WAITING};
use crate::safe;
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Table};

pub(super) async fn run(session: &Session) -> Result<Exit, Failure> {
    let Some(mut client) = session.connect_if_there().await? else {
        return Err(Failure::new(
            Meaning::Unreachable,
            "no_daemon",
            "no daemon is running",
            "examine this machine without one: `palyrad doctor`",
        ));
    };
    let doctor: Doctor = in_time(client.get("/api/v1/doctor")).await?;
    let output = &session.output;
    output.answer(&doctor, |doctor| render(doctor, output))?;
    Ok(match doctor.tier_c {
        true => Exit::OK,
        false => Exit::Ours(Meaning::NoSandbox),
    })
}

fn render(doctor: &Doctor, output: &Output) -> String {
    let mut table = Table::new([
        Column::left("WHAT"),
        Column::left("STATE"),
        Column::left("NEEDED FOR"),
        Column::flexible("FOUND"),
    ]);
    for check in &doctor.checks {
        let state = check.state.replace('_', " ");
        table.row([
            Cell::new(&check.name),
            Cell::styled(state, colour(check)),
            Cell::new(&check.needed_for),
            Cell::new(&check.found),
        ]);
    }
    let mut text = output.table(&table);
    for check in &doctor.checks {
        let Some(remedy) = &check.remedy else {
            continue;
        };
        text.push_str(&format!("\n{}:\n", safe::line(&check.name)));
        // Lines to be copied: each stands for itself, and none is cut.
        for line in remedy.lines() {
            text.push_str(&format!("  {}\n", safe::line(line)));
        }
    }
    for (tier, runs) in [("Tier-B", doctor.tier_b), ("Tier-C", doctor.tier_c)] {
        let word = if runs { "can run" } else { "cannot run" };
        let how = match tier == "Tier-C" && runs && lacks_namespaces(doctor) {
            true => ", through `bwrap`",
            false => "",
        };
        text.push_str(&format!("\n{tier} {word} here{how}"));
    }
    text.push('\n');
    text
}

/// Whether our own helper cannot make Tier-C's walls here.
fn lacks_namespaces(doctor: &Doctor) -> bool {
    let mut needed = doctor.checks.iter().filter(|it| it.needed_for == "Tier-C");
    needed.any(|check| check.state == "missing")
}

fn colour(check: &DoctorCheck) -> anstyle::Style {
    match (check.state.as_str(), check.needed_for.as_str()) {
        ("works", _) => GOOD,
        ("missing", "every tier" | "Tier-C") => BAD,
        ("missing", _) => WAITING,
        _ => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Style;

    #[test]
    fn what_is_missing_is_told_with_lines_to_copy() {
        let check = |name: &str, state: &str, remedy: Option<&str>| DoctorCheck {
            name: name.to_owned(),
            state: state.to_owned(),
            needed_for: "Tier-C".to_owned(),
            found: "seen".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let doctor = Doctor {
            tier_c: false,
            tier_b: true,
            checks: vec![
                check("landlock", "works", None),
                check(
                    "user_namespace",
                    "missing",
                    Some("give it a profile:\nsudo x\u{1b}[2J"),
                ),
                check("idmapped_mount", "not_needed", None),
            ],
        };
        let style = Style {
            json: false,
            quiet: false,
        };
        let text = render(&doctor, &Output::new(style));
        let text = anstream::adapter::strip_str(&text).to_string();
        for part in [
            "user_namespace:\n  give it a profile:\n  sudo x\\u{1b}[2J\n",
            "not needed",
            "Tier-B can run here",
            "Tier-C cannot run here",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
