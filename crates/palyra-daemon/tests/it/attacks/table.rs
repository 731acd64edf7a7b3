//! Running a group of probes in every column, and printing what came of it.

use std::fmt::Write as _;

use palyra_testkit::probes::{Privilege, Probe};
use palyra_testkit::{is_root, not_run};

use super::cells::{Cell, OWNER};
use super::place::Place;
use super::verdict::Verdict;

/// What came of a group of probes.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: String,
    problems: Vec<String>,
}

impl Table {
    pub(crate) fn new(cells: &[Cell]) -> Self {
        let heads = std::iter::once("outside").chain(cells.iter().map(|cell| cell.head));
        Self {
            heads: heads.collect(),
            rows: String::new(),
            problems: Vec::new(),
        }
    }

    /// One row: what came of it outside, and in every cell.
    pub(crate) fn row(
        &mut self,
        probe: &Probe,
        control: Option<&Verdict>,
        inside: &[(&Cell, Verdict)],
    ) {
        let shown = control.map_or_else(|| "needs root".to_owned(), Verdict::short);
        let _ = write!(self.rows, "{:<30}{shown:<20}", probe.name);
        if let Some(problem) = control.and_then(not_shown) {
            self.problems
                .push(format!("{}: outside {problem}", probe.name));
        }
        for (cell, verdict) in inside {
            let promised = probe.is_held_by(cell.promise);
            let mark = if promised { "" } else { " *" };
            let _ = write!(self.rows, "{:<24}", format!("{}{mark}", verdict.short()));
            if let Some(problem) = broken(probe, verdict, promised) {
                self.problems
                    .push(format!("{} in {}: {problem}", probe.name, cell.head));
            }
        }
        self.rows.push('\n');
    }

    /// Prints the table, and fails when a promise is not kept.
    pub(crate) fn done(self) {
        let mut head = format!("\n{:<30}", "probe");
        for (at, name) in self.heads.iter().enumerate() {
            let wide = if at == 0 { 20 } else { 24 };
            let _ = write!(head, "{name:<wide$}");
        }
        println!("{head}\n{}(* not promised)", self.rows);
        assert!(self.problems.is_empty(), "{:#?}", self.problems);
    }
}

/// A control that does not work proves nothing about the sandbox.
fn not_shown(control: &Verdict) -> Option<String> {
    match control {
        Verdict::Open(_) | Verdict::Absent(_) => None,
        Verdict::Held(_) | Verdict::Broken(_) => {
            Some(format!("it does not even work: {control:?}"))
        }
    }
}

fn broken(probe: &Probe, verdict: &Verdict, promised: bool) -> Option<String> {
    match (verdict, probe.filter) {
        (Verdict::Broken(why), _) => Some(why.clone()),
        (Verdict::Open(got), _) if promised => Some(format!("it works: {got}")),
        (Verdict::Held(why) | Verdict::Absent(why), Some(answer)) if promised && why != answer => {
            Some(format!(
                "the filter did not answer {answer}, but somebody {why}"
            ))
        }
        (Verdict::Open(_) | Verdict::Held(_) | Verdict::Absent(_), _) => None,
    }
}

/// Every probe of a group outside and in every column; nothing may be left behind.
pub(crate) fn run(name: &str, probes: &[Probe]) {
    let folder = tempfile::Builder::new()
        .prefix("palyra-control-")
        .tempdir()
        .unwrap();
    open_to_others(folder.path());
    let control = Place::new(folder.path(), is_root().then_some(OWNER));
    let cells = Cell::all();
    let mut table = Table::new(&cells);
    for probe in probes {
        let outside = outside(&control, probe);
        let inside: Vec<(&Cell, Verdict)> = cells
            .iter()
            .map(|cell| {
                cell.place.lay_out();
                (cell, cell.attack(probe))
            })
            .collect();
        table.row(probe, outside.as_ref(), &inside);
    }
    if !is_root() {
        not_run(
            name,
            "controls and daemons of root need root; run the tests as root",
        );
    }
    for cell in cells {
        cell.end();
    }
    drop(control);
    table.done();
}

/// What came of it outside; none when its privilege cannot be had here.
fn outside(control: &Place, probe: &Probe) -> Option<Verdict> {
    if probe.control != Privilege::Owner && !is_root() {
        return None;
    }
    control.lay_out();
    let ran = control.outside(probe.attack, probe.control);
    Some(control.weigh(probe, Verdict::of(&ran)))
}

pub(crate) fn open_to_others(folder: &std::path::Path) {
    let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, anybody).unwrap();
    std::fs::create_dir(folder.join("w")).unwrap();
}
