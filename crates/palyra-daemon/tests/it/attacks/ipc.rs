//! Probes 38 to 44: what leaks in, other processes, and who listens.

use palyra_testkit::probes::IPC;

use super::table;

#[test]
fn attacks_on_other_processes() {
    table::run("attacks_on_other_processes", IPC);
}
