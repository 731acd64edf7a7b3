//! The daemon's entry: parse, prepare, then run until told to stop.

use std::process::ExitCode;

use clap::Parser;
use palyra_daemon::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    match palyra_daemon::start::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            palyra_daemon::log::last_words(&error);
            ExitCode::FAILURE
        }
    }
}
