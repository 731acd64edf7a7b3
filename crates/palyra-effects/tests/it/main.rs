//! Effects, from the outside: vectors in files, hostile input, properties, scopes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at what cannot be"
)]

mod code;
mod controls;
mod machine;
mod properties;
mod scopes;
mod vectors;
