//! What each command means and does: one file a noun.

mod agents;
pub(crate) mod approvals;
mod attest;
mod call;
mod calls;
mod connect;
mod doctor;
mod exec;
mod grants;
mod hook;
mod in_place;
mod init;
pub(crate) mod journal;
mod keeping;
mod mcp;
mod policy;
mod postures;
mod presence;
mod proofs;
mod quarantine;
mod redeem;
mod restoring;
mod shell;
mod status;
mod tools;
mod vault;

pub(crate) use self::exec::PASSED_ON;
use serde::de::DeserializeOwned;

use crate::args::Command;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{Session, in_time};
use crate::tui;

/// Runs one command to its end.
///
/// # Errors
/// It did not do what was asked.
pub async fn run(command: Command, output: Output) -> Result<Exit, Failure> {
    let agent = command.whom().cloned();
    let session = || Session::new(agent, output);
    match command {
        Command::Init(args) => init::run(&args, &output),
        Command::Completions(args) => shell::completions(&args, &output),
        Command::Man(args) => shell::man(&args, &output),
        Command::ExitCodes => shell::exit_codes(&output),
        Command::Policy(args) => policy::run(&args.action, &output, session).await,
        Command::Status(_) => status::run(&session()?).await,
        Command::Doctor(_) => doctor::run(&session()?).await,
        Command::Exec(args) => exec::run(&args, &session()?).await,
        Command::Call(args) => call::run(&args, &session()?).await,
        Command::Agents(args) => agents::run(&args.action, &session()?).await,
        Command::Tools(args) => tools::run(&args.action, &session()?).await,
        Command::Calls(args) => calls::run(&args.action, &session()?).await,
        Command::Approvals(args) => approvals::run(&args.action, &session()?).await,
        Command::Connect(args) => connect::run(&args, &session()?).await,
        Command::Hook(args) => hook::run(&args, &session()?).await,
        Command::Mcp(args) => mcp::run(&args.action, &session()?).await,
        Command::Tui => tui::run(&session()?).await,
        Command::Grants(args) => grants::run(&args.action, &session()?).await,
        Command::Postures(args) => postures::run(&args.action, &session()?).await,
        Command::Presence(args) => presence::run(&args.action, &session()?).await,
        Command::Journal(args) => journal::run(&args.action, &session()?).await,
        Command::Quarantine(args) => quarantine::run(&args.action, &session()?).await,
        Command::Vault(args) => vault::run(&args.action, &session()?).await,
        Command::Attest(args) => attest::run(&args.action, &session()?).await,
    }
}

/// Connects and gets one thing.
async fn get<T: DeserializeOwned>(session: &Session, path: &str) -> Result<T, Failure> {
    let mut client = session.connect().await?;
    in_time(client.get(path)).await
}

/// `path?one=1&other=2` of those that are there; the values are names, ids and numbers.
fn with_query(path: &str, parts: &[(&str, Option<String>)]) -> String {
    let given = parts
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let query: Vec<String> = given
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", query.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_hold_what_is_given() {
        assert_eq!(with_query("/a", &[("x", None)]), "/a");
        let both = [
            ("x", Some("1".to_owned())),
            ("y", None),
            ("z", Some("b".to_owned())),
        ];
        assert_eq!(with_query("/a", &both), "/a?x=1&z=b");
    }
}
