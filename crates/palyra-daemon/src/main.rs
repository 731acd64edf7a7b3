//! The daemon's entry: parse, prepare, then run until told to stop.

use std::process::ExitCode;

use clap::Parser;
use palyra_daemon::args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match args.command {
        Some(Command::Doctor { json }) => palyra_daemon::doctor::run(json),
        None => palyra_daemon::start::run(&args).map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            palyra_daemon::log::last_words(&error);
            ExitCode::FAILURE
        }
    }
}
