//! The attack matrix: every probe of [`palyra_testkit::probes`] outside, where it must work, and in
//! every tier, under a daemon of root and under one of an ordinary user.
//!
//! A probe that a tier promises to hold and does not is a failure. So is a control that does not
//! work, unless the kernel lacks what it aims at, and anything that is left behind.
//! `make attacks` prints the table.

mod cells;
mod files;
mod ipc;
mod kernel;
pub(crate) mod leftovers;
mod place;
mod promises;
mod resources;
mod table;
mod verdict;
