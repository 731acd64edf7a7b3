//! The life of an approval, step by step and by chance.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "the helpers of tests fail as tests do"
)]

mod fixture;
mod grants;
mod lifecycle;
mod presence;
mod property;
