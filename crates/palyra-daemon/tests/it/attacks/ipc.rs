//! Probes 38 to 44: what leaks in, other processes, and who listens.

use palyra_testkit::probes::{IPC, Privilege, Promise};

use super::cells::Cell;
use super::table;
use super::verdict::Verdict;

#[test]
fn attacks_on_other_processes() {
    table::run("attacks_on_other_processes", IPC);
}

/// On the machine's own network a call is in the namespace where abstract names are looked up.
#[test]
fn sockets_stay_out_of_reach_on_the_machines_own_network() {
    for cell in Cell::all() {
        if cell.promise != Promise::C {
            continue;
        }
        for attack in [
            "abstract {mark}",
            "pathname {outside}/stream {outside}/datagram",
            "pathname {work}/stream {work}/datagram",
        ] {
            let outside = cell.place.outside(attack, Privilege::Owner);
            assert!(Verdict::of(&outside).is_open(), "{attack}: {outside:?}");
            let inside = Verdict::of(&cell.run(attack, &["--egress", "none"]));
            assert!(
                matches!(inside, Verdict::Held(_)),
                "{}: {attack}: {inside:?}",
                cell.head
            );
        }
        cell.end();
    }
}
