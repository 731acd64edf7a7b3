//! The corridor from the outside, on a machine without a sandbox: what is decided, not what runs.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stop at what cannot be"
)]

mod answers;
mod detached;
mod fixture;
mod grants;
mod people;
mod rules;
mod scopes;
mod tools;
