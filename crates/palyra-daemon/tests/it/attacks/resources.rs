//! Probes 55 to 61: using up the machine, and outliving the call.
//!
//! Each bomb is small, and its control runs in the open for a moment only. What is looked at is
//! never the clock: who is still there, how much was kept.

use std::io::Read;
use std::process::Stdio;

use palyra_testkit::probes::{Privilege, Probe, Promise, RESOURCES};
use palyra_testkit::{Ran, eventually, is_root, not_run};

use super::cells::{Cell, OWNER};
use super::leftovers::processes_that_name;
use super::place::Place;
use super::table::{self, Table};
use super::verdict::Verdict;

/// How much is tried where nothing is promised: enough to see that it works, and no harm.
const LITTLE: [(&str, &str); 5] = [
    ("{forks}", "600"),
    ("{mib}", "64"),
    ("{memory}", "/dev/shm"),
    ("{disk}", "64"),
    ("{output}", "32"),
];

/// How much is tried where a limit is promised: more than that.
const TOO_MUCH: [(&str, &str); 5] = [
    ("{forks}", "600"),
    ("{mib}", "1100"),
    ("{memory}", "/dev/shm"),
    ("{disk}", "64"),
    ("{output}", "32"),
];

fn how_much(probe: &Probe, tier: Option<Promise>) -> String {
    let amounts = match tier.is_some_and(|tier| probe.is_held_by(tier)) {
        true => TOO_MUCH,
        false => LITTLE,
    };
    let filled = amounts.iter();
    filled.fold(probe.attack.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}

/// As much of each stream as a call keeps.
const KEPT: usize = 8 << 20;

#[test]
fn attacks_on_resources() {
    let folder = tempfile::tempdir().unwrap();
    table::open_to_others(folder.path());
    let control = Place::new(folder.path(), is_root().then_some(OWNER));
    let cells = Cell::all();
    let mut table = Table::new(&cells);
    for probe in RESOURCES {
        control.lay_out();
        let outside = outside(&control, probe);
        let inside: Vec<(&Cell, Verdict)> = cells
            .iter()
            .filter(|_| probe.number() != 60)
            .map(|cell| {
                cell.place.lay_out();
                (cell, inside(cell, probe))
            })
            .collect();
        // Whoever kills a daemon needs one to kill.
        let killed: Vec<Verdict> = match probe.number() {
            60 => Cell::all()
                .into_iter()
                .map(|cell| killed(cell, probe))
                .collect(),
            _ => Vec::new(),
        };
        let inside = match killed.is_empty() {
            true => inside,
            false => cells.iter().zip(killed).collect(),
        };
        table.row(probe, Some(&outside), &inside);
    }
    if !is_root() {
        not_run(
            "attacks_on_resources",
            "daemons of root need root; run the tests as root",
        );
    }
    for cell in cells {
        cell.end();
    }
    drop(control);
    table.done();
}

fn outside(control: &Place, probe: &Probe) -> Verdict {
    let attack = how_much(probe, None);
    match probe.number() {
        58 => {
            let mut command = control.outside_command(&attack, Privilege::Owner);
            let output = command.output().unwrap();
            flood(output.stdout.len())
        }
        59..=61 => {
            let mut command = control.outside_command(&attack, Privilege::Owner);
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            if probe.number() == 59 {
                // It says that it is away, and ends.
                child.wait().unwrap();
            }
            eventually("it is there", || {
                (survivors(&control.mark).len() >= least(probe)).then_some(())
            });
            let _ = child.kill();
            let _ = child.wait();
            // Whoever started it is gone; it is still there.
            let left = survivors(&control.mark);
            for pid in &left {
                let _ = std::process::Command::new("kill")
                    .args(["-KILL", pid])
                    .status();
            }
            outlived(left.len())
        }
        _ => Verdict::of(&control.outside(&attack, Privilege::Owner)),
    }
}

fn inside(cell: &Cell, probe: &Probe) -> Verdict {
    let attack = how_much(probe, Some(cell.promise));
    match probe.number() {
        58 => {
            let ran = cell.run(&attack, &["--json"]);
            let kept = ran.json()["output"]["stdout"]["text"]
                .as_str()
                .map_or(0, str::len);
            let marked = ran.json()["attestation"]["truncated"] == true;
            match marked && kept > 0 {
                true => flood(kept),
                false => Verdict::Broken(format!("kept {kept}, marked: {marked}")),
            }
        }
        59 => {
            let ran = cell.run(&attack, &[]);
            match Verdict::of(&ran).is_open() {
                true => outlived(survivors(&cell.place.mark).len()),
                false => Verdict::Broken(format!("it did not get away: {ran:?}")),
            }
        }
        61 => {
            let ran = cell.run(&attack, &["--timeout", "2s"]);
            match ran.code {
                Some(124) => outlived(survivors(&cell.place.mark).len()),
                _ => Verdict::Broken(format!("it was not timed out: {ran:?}")),
            }
        }
        _ => Verdict::of(&cell.run(&attack, &[])),
    }
}

/// `kill -9` of the daemon while a call holds on.
fn killed(mut cell: Cell, probe: &Probe) -> Verdict {
    cell.place.lay_out();
    let words = cell.arguments(&how_much(probe, Some(cell.promise)), &[]);
    let mut waiting = cell.daemon.palyra_in_background(&words.each());
    eventually("the call is under way", || {
        (survivors(&cell.place.mark).len() >= least(probe)).then_some(())
    });
    cell.daemon.kill();
    let mut said = String::new();
    let _ = waiting.stdout.take().unwrap().read_to_string(&mut said);
    let ran = Ran::from(waiting.wait_with_output().unwrap());
    assert_ne!(ran.code, Some(0), "{said} {ran:?}");
    // The kernel tells those who watch over the call; that takes a moment.
    eventually("nobody of the call is left", || {
        survivors(&cell.place.mark).is_empty().then_some(())
    });
    outlived(0)
}

/// How many processes an attacker of this kind is.
fn least(probe: &Probe) -> usize {
    if probe.number() == 59 { 1 } else { 3 }
}

/// Processes of an attacker, known by its mark; whoever is attacked has it too.
fn survivors(mark: &str) -> Vec<String> {
    let mut found = processes_that_name(mark);
    found.retain(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        // A zombie has no words left.
        let mut words = words.split('\0');
        let program = words.next().unwrap_or_default();
        program.ends_with("/attack") && words.next() != Some("bystander")
    });
    found
}

fn outlived(count: usize) -> Verdict {
    match count {
        0 => Verdict::Held("NOBODY_LEFT".to_owned()),
        count => Verdict::Open(format!("{count} are still there")),
    }
}

fn flood(bytes: usize) -> Verdict {
    match bytes <= KEPT + 4_096 {
        true => Verdict::Held("CUT".to_owned()),
        false => Verdict::Open(format!("{bytes} bytes were kept")),
    }
}
