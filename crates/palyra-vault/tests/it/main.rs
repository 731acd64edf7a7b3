//! The vault's tests: what is kept is given back, and what was done to the file is noticed.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "tests stop at the first thing that is not as it should be"
)]

mod attacks;
mod backup;
mod keystores;
mod own;
mod places;
mod rotation;
mod secret_service;
mod spoiled;
mod storing;
mod support;
