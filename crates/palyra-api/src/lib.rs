//! What goes over the wire, and the client that the command line and the tests use.
//!
//! This room knows shapes ([`wire`]), where a daemon lives ([`home`]) and how to reach it
//! ([`client`]). It decides nothing and stores nothing.

#![forbid(unsafe_code)]

pub mod client;
pub mod home;
pub mod wire;

pub use client::{Client, ClientError};
pub use home::Home;
