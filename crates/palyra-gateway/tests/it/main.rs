//! The corridor from the outside, on a machine without a sandbox: what is decided, not what runs.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at what cannot be"
)]

mod fixture;
mod scopes;
mod tools;
