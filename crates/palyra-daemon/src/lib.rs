//! `palyrad`: configuration, wiring and the servers. No rules live here.
//!
//! [`config`] is read as written and then as meant; [`start`] takes the lock, opens the rooms and
//! wires the gateway; `watch` tells it when
//! the policies changed; [`door`] accepts connections and finds out who is calling; [`routes`] turn
//! requests into calls of the gateway and its answers into JSON.

#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod doctor;
pub mod door;
pub mod folders;
pub mod log;
pub mod notices;
pub mod openapi;
mod problem;
pub mod routes;
pub mod start;
mod watch;
