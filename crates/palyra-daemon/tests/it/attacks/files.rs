//! Probes 1 to 17: files that are not the call's, and files that outlive it.

use palyra_testkit::probes::{FILES, Privilege, SPECIAL};

use super::cells::{Cell, OWNER};
use super::place::Place;
use super::table;
use super::verdict::Verdict;

#[test]
fn attacks_on_files() {
    table::run("attacks_on_files", FILES);
}

#[test]
fn attacks_that_leave_something_special() {
    table::run("attacks_that_leave_something_special", SPECIAL);
}

/// How often the folder is exchanged while somebody writes through its name.
const TURNS: &str = "20000";

const NAIVE: &str = "naive-write {work}/swapping {outside}/target";

/// Probe 3 through the file tools: a call of the same agent exchanges a folder and a link all the
/// while. Somebody who looks first and then writes is led outside; the tool is not.
#[test]
fn a_race_does_not_lead_a_file_tool_outside() {
    let folder = tempfile::tempdir().unwrap();
    table::open_to_others(folder.path());
    let owner = palyra_testkit::is_root().then_some(OWNER);
    let control = Place::new(folder.path(), owner);
    control.lay_out();
    let spin = format!("spin {{work}}/swapping {{outside}}/target {TURNS}");
    let mut spinning = control.outside_command(&spin, Privilege::Owner);
    let mut spinning = spinning
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&control);
    let naive = control.outside(NAIVE, Privilege::Owner);
    assert!(Verdict::of(&naive).is_open(), "{naive:?}");
    spinning.kill().unwrap();
    spinning.wait().unwrap();

    for cell in Cell::all() {
        cell.place.lay_out();
        let words = cell.arguments(&spin, &[]);
        let mut spinning = cell.daemon.palyra_in_background(&words.each());
        wait_for(&cell.place);
        let mut written = 0;
        for _ in 0..60 {
            let arguments = r#"{"path":"swapping/raced","content":"x"}"#;
            let ran = cell
                .daemon
                .palyra(&["call", "palyra.fs.write", "--args", arguments]);
            written += i32::from(ran.code == Some(0));
        }
        let _ = spinning.kill();
        spinning.wait().unwrap();
        assert!(
            !cell.place.folder.join("outside/target/raced").exists(),
            "{}: the tool was led outside",
            cell.head
        );
        // It did write while the name was a folder: the race was on.
        assert!(written > 0, "{}", cell.head);
        cell.end();
    }
}

fn wait_for(place: &Place) {
    let link = place.work().join("swapping.link");
    palyra_testkit::eventually("the exchange begins", || {
        std::fs::symlink_metadata(&link).ok().map(drop)
    });
}
