//! `palyra exec`: one program through the corridor, as if it were run here.
//!
//! The arguments are read as typed ([`Exec`]) and then as meant ([`Meant`]): words in UTF-8, the
//! environment spelled out, folders absolute.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use palyra_api::wire::{Agent, CallRequest};
use palyra_api::{Client, ClientError};
use serde_json::{Map, Value};

use crate::args::Exec;
use crate::calling::{By, Calling, Input, quoted};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::place;
use crate::present;
use crate::session::Session;
use crate::stdin;
use crate::terminal;
use crate::values::SecretArg;

const TOOL: &str = "palyra.process.run";

/// What a program sees of the caller's environment unless told otherwise: enough to be found and
/// to speak to its terminal.
pub(crate) const PASSED_ON: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TERM", "TZ"];

pub(super) async fn run(args: &Exec, session: &Session) -> Result<Exit, Failure> {
    if let Some(token) = &args.call {
        return super::redeem::run(token, session).await;
    }
    let meant = Meant::new(args, |name| std::env::var_os(name))?;
    let given = args
        .workspace
        .as_deref()
        .map(place::workspace)
        .transpose()?;
    let input = args.stdin.then(stdin::read_text).transpose()?;
    if meant.input == Input::Terminal {
        if session.output.is_json() {
            let hint = "leave out -t for a JSON document at the end, or --json for a terminal";
            return Err(Failure::usage("`-t` and `--json` exclude each other", hint));
        }
        terminal::demand()?;
    }
    if input.is_none() && meant.input == Input::None && stdin::has_data() {
        let note = "standard input is not passed on; use --stdin";
        session.output.note(note);
    }
    let here = place::here();
    let client = session.connect_or_start().await?;
    let mut client = present::proving(session, client).await;
    let scope = match (given, &session.agent) {
        (Some(given), _) => Scope::Named(given),
        (None, None) => Scope::Named(here.clone()?),
        (None, Some(agent)) => Scope::Fixed(agents_workspace(&mut client, agent.0.as_str()).await?),
    };
    let request = meant.request(scope, here.ok(), input);
    let who = session
        .agent
        .as_ref()
        .map_or_else(|| "you".to_owned(), ToString::to_string);
    let body = serde_json::to_vec(&request).map_err(|error| {
        Failure::new(
            Meaning::Error,
            "internal",
            error.to_string(),
            "report this as a bug",
        )
    })?;
    let calling = Calling {
        body: body.into(),
        what: format!("{who}: {}", quoted(&meant.argv)),
        by: By::Exec,
        input: meant.input,
    };
    calling.run(&mut client, session).await
}

/// The folder an agent works on, as far as we may know it.
async fn agents_workspace(client: &mut Client, name: &str) -> Result<Option<String>, Failure> {
    let found: Result<Agent, ClientError> = client.get(&format!("/api/v1/agents/{name}")).await;
    match found {
        Ok(agent) => Ok(Some(agent.workspace)),
        // Not for an agent to see; then the daemon starts it in the agent's folder.
        Err(ClientError::Refused { status: 403, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The folder the call works on.
enum Scope {
    /// Sent with the call.
    Named(String),
    /// The agent's own, which the daemon knows; ours to know only if we may.
    Fixed(Option<String>),
}

/// The program as meant.
#[derive(Debug, PartialEq, Eq)]
struct Meant {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    timeout_ms: Option<u64>,
    input: Input,
    tier: Option<&'static str>,
    egress: Option<&'static str>,
    hosts: Vec<String>,
    secrets: Vec<Value>,
    why: Option<String>,
    detach: bool,
}

impl Meant {
    fn new(args: &Exec, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let timeout = args.timeout.map(|span| span.0.as_millis());
        Ok(Self {
            argv: args.command.iter().map(word).collect::<Result<_, _>>()?,
            env: environment(args, lookup)?,
            timeout_ms: timeout.and_then(|millis| u64::try_from(millis).ok()),
            input: match (args.interactive, args.tty) {
                (_, true) => Input::Terminal,
                (true, false) => Input::Stdin,
                (false, false) => Input::None,
            },
            tier: args.tier.map(crate::args::TierArg::as_str),
            egress: args.egress.map(crate::args::EgressArg::as_str),
            hosts: args.allow_host.clone(),
            secrets: args.secret.iter().map(SecretArg::as_json).collect(),
            why: args.why.clone(),
            detach: args.detach,
        })
    }

    /// The request. It starts where we stand if that is inside the workspace, else at its top.
    fn request(&self, scope: Scope, here: Option<String>, stdin: Option<String>) -> CallRequest {
        let (workspace, beneath) = match scope {
            Scope::Named(folder) => (Some(folder.clone()), Some(folder)),
            Scope::Fixed(folder) => (None, folder),
        };
        let cwd = here.filter(|here| {
            beneath.is_some_and(|folder| Path::new(here).starts_with(Path::new(&folder)))
        });
        let env: Map<String, Value> = self
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()))
            .collect();
        let mut arguments = Map::new();
        arguments.insert("argv".to_owned(), self.argv.clone().into());
        arguments.insert("env".to_owned(), env.into());
        let mut maybe = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                arguments.insert(name.to_owned(), value);
            }
        };
        maybe("cwd", cwd.map(Value::from));
        maybe("stdin", stdin.map(Value::from));
        let (interactive, window) = match self.input {
            Input::None => (None, None),
            Input::Stdin => (Some("stdin"), None),
            Input::Terminal => (Some("terminal"), terminal::window()),
        };
        maybe("interactive", interactive.map(Value::from));
        maybe("timeout_ms", self.timeout_ms.map(Value::from));
        maybe("tier", self.tier.map(Value::from));
        maybe("egress", self.egress.map(Value::from));
        let hosts = (!self.hosts.is_empty()).then(|| Value::from(self.hosts.clone()));
        maybe("allow_hosts", hosts);
        let secrets = (!self.secrets.is_empty()).then(|| Value::from(self.secrets.clone()));
        maybe("secrets", secrets);
        CallRequest {
            tool: TOOL.to_owned(),
            arguments: arguments.into(),
            workspace,
            window,
            said: self.why.clone(),
            detach: self.detach,
            patience_ms: None,
        }
    }
}

fn word(given: &OsString) -> Result<String, Failure> {
    given.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(
            format!("the word `{}` is not UTF-8", given.display()),
            "records are text: name the file by a UTF-8 path, or pass it through a script",
        )
    })
}

fn environment(
    args: &Exec,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<BTreeMap<String, String>, Failure> {
    use crate::values::EnvArg;
    let usual = PASSED_ON.iter().filter_map(|name| {
        let value = lookup(name)?.into_string().ok()?;
        Some(((*name).to_owned(), value))
    });
    let mut env: BTreeMap<String, String> = usual.collect();
    for arg in &args.env {
        let (name, value) = match arg {
            EnvArg::Set(name, value) => (name, value.clone()),
            EnvArg::Copy(name) => (name, own_value(name, lookup(name))?),
        };
        env.insert(name.clone(), value);
    }
    Ok(env)
}

fn own_value(name: &str, value: Option<OsString>) -> Result<String, Failure> {
    let value = value.ok_or_else(|| {
        Failure::usage(
            format!("`--env {name}`: the variable is not set here"),
            format!("set it with `--env {name}=VALUE`, or leave it out"),
        )
    })?;
    value.into_string().map_err(|_| {
        Failure::usage(
            format!("`--env {name}`: its value is not UTF-8"),
            format!("set it with `--env {name}=VALUE`"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::FromArgMatches;
    use serde_json::json;

    use super::*;
    use crate::args::{Command, Palyra};

    fn exec(words: &[&str]) -> Exec {
        let words = ["palyra", "exec"].iter().chain(words);
        let matches = crate::help::command().try_get_matches_from(words).unwrap();
        let parsed = Palyra::from_arg_matches(&matches).unwrap();
        let Command::Exec(exec) = parsed.command else {
            panic!("{parsed:?}")
        };
        exec
    }

    fn caller(name: &str) -> Option<OsString> {
        let set = [
            ("PATH", "/bin"),
            ("TERM", "xterm"),
            ("SECRET", "s3cret"),
            ("EMPTY", ""),
        ];
        set.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| OsString::from(value))
    }

    fn arguments(words: &[&str], scope: Scope, here: &str) -> (Value, Option<String>) {
        let request = Meant::new(&exec(words), caller).unwrap();
        let request = request.request(scope, Some(here.to_owned()), None);
        (request.arguments, request.workspace)
    }

    #[test]
    fn a_person_runs_here() {
        let (sent, workspace) = arguments(&["--", "ls", "-la"], Scope::Named("/w".into()), "/w");
        let expected = json!({
            "argv": ["ls", "-la"], "cwd": "/w", "env": {"PATH": "/bin", "TERM": "xterm"}
        });
        assert_eq!(sent, expected);
        assert_eq!(workspace.as_deref(), Some("/w"));
    }

    #[test]
    fn flags_become_arguments() {
        let words = [
            "--timeout",
            "30s",
            "--tier",
            "c",
            "--allow-host",
            "example.com",
            "--egress",
            "preflight",
            "--allow-host",
            "localhost:8080",
            "--secret",
            "TOKEN=github-token",
            "--secret",
            "@.npm-token=agent:claude/npm",
            "--env",
            "SECRET",
            "--env",
            "PATH=/x",
            "--env",
            "EMPTY",
            "--",
            "make",
        ];
        let (sent, _) = arguments(&words, Scope::Named("/w".into()), "/w/sub");
        let env = json!({"PATH": "/x", "TERM": "xterm", "SECRET": "s3cret", "EMPTY": ""});
        let expected = json!({
            "argv": ["make"], "cwd": "/w/sub", "env": env, "timeout_ms": 30_000, "tier": "c",
            "egress": "preflight", "allow_hosts": ["example.com", "localhost:8080"],
            "secrets": [
                {"secret": "github-token", "env": "TOKEN"},
                {"secret": "agent:claude/npm", "file": ".npm-token"}
            ]
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn outside_the_workspace_it_starts_at_its_top() {
        let (sent, _) = arguments(&["--", "ls"], Scope::Named("/w".into()), "/w-evil");
        assert_eq!(sent.get("cwd"), None);
    }

    #[test]
    fn an_agents_folder_is_the_daemons_to_know() {
        let inside = Scope::Fixed(Some("/a".into()));
        let (sent, workspace) = arguments(&["--", "ls"], inside, "/a/b");
        assert_eq!((sent["cwd"].as_str(), workspace), (Some("/a/b"), None));
        let (sent, workspace) = arguments(&["--", "ls"], Scope::Fixed(None), "/a/b");
        assert_eq!((sent.get("cwd"), workspace), (None, None));
    }

    #[test]
    fn everything_after_the_program_is_the_programs() {
        for words in [
            &["--", "sh", "--json", "--as", "x"][..],
            &["sh", "--json", "--as", "x"],
        ] {
            let args = exec(words);
            assert_eq!(args.command, ["sh", "--json", "--as", "x"]);
            assert!(args.whom.agent.is_none());
        }
        assert_eq!(exec(&["--", "sh", "--", "-c"]).command, ["sh", "--", "-c"]);
    }

    #[test]
    fn what_cannot_be_meant_is_a_usage_error() {
        let mut args = exec(&["--", "ls"]);
        args.command.push(OsString::from_vec(vec![b'a', 0xff]));
        assert_eq!(
            Meant::new(&args, caller).unwrap_err().meaning,
            Meaning::Usage
        );
        let failure = Meant::new(&exec(&["--env", "NONE", "--", "ls"]), caller).unwrap_err();
        assert_eq!(failure.meaning, Meaning::Usage);
        assert!(failure.hint.contains("--env NONE=VALUE"));
        let raw = |_: &str| Some(OsString::from_vec(vec![0xff]));
        assert!(Meant::new(&exec(&["--env", "A", "--", "ls"]), raw).is_err());
    }
}
