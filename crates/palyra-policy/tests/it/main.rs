//! Who may do what, and what an attacker gets instead.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod attacks;
mod baselines;
mod fixture;
mod hostile;
mod idle;
mod load;
mod operator;
mod operator_diff;
mod operator_explain;
mod operator_files;
mod property;
mod recorded;
mod secrets;
mod slices;
mod table;
mod watched;
