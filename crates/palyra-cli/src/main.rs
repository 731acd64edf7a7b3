//! The binary `palyra`; everything is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    palyra_cli::run(std::env::args_os().collect())
}
