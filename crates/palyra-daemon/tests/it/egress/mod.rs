//! Strict egress from end to end: real clients, hosts that the tests make, and what is recorded.

mod clients;
mod modes;
mod refusals;
mod secrets;
mod world;
