//! The journal from outside: what it promises, held against a real file.

#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

mod appending;
mod attesting;
mod blobs;
mod concurrency;
mod editing;
mod files;
mod flipping;
mod full_disk;
mod fuzzing;
mod holding;
mod kernel_faults;
mod life;
mod locked;
mod projections;
mod recording;
mod sample;
mod sealing;
mod support;
mod verifying;
