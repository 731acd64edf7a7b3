//! Probes 18 to 37: the kernel's own doors.

use palyra_testkit::probes::KERNEL;

use super::table;

#[test]
fn attacks_on_the_kernel() {
    table::run("attacks_on_the_kernel", KERNEL);
}
