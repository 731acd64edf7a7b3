//! `palyra connect`: an agent's client with us between it and the machine, in one command.

use std::path::{Path, PathBuf};

use palyra_api::ClientError;
use palyra_api::wire::{Agent, NewAgent};
use serde::Serialize;

use crate::args::{Connect, ConnectArg};
use crate::connecting::{self, Served};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::place;
use crate::safe;
use crate::session::{Session, in_time};

/// A file of the client's, and what becomes of it.
#[derive(Debug, Serialize)]
struct Change {
    file: PathBuf,
    /// Its new text; nothing when it goes away.
    text: Option<String>,
    /// Where what was there before is kept.
    backup: Option<PathBuf>,
    #[serde(skip)]
    before: Option<String>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    agent: String,
    workspace: String,
    dry_run: bool,
    changes: Vec<Change>,
    notes: Vec<String>,
}

pub(super) async fn run(args: &Connect, session: &Session) -> Result<Exit, Failure> {
    let workspace = match &args.workspace {
        Some(given) => place::workspace(given)?,
        None => place::here()?,
    };
    let usual = match args.client {
        ConnectArg::ClaudeCode => "claude",
        ConnectArg::Codex => "codex",
        ConnectArg::Generic => "agent",
    };
    let agent = args
        .agent
        .as_ref()
        .map_or_else(|| usual.to_owned(), ToString::to_string);
    let served = Served {
        program: own_path()?,
        agent: agent.clone(),
    };
    let folder = Path::new(&workspace);
    let changes = match args.undo {
        true => undone(args.client, folder)?,
        false => done(args.client, folder, &served)?,
    };
    if !args.dry_run {
        if !args.undo {
            register(session, &agent, &workspace).await?;
        }
        for change in &changes {
            change.make()?;
        }
    }
    let notes = notes(args, folder, &served);
    let done = Done {
        agent,
        workspace,
        dry_run: args.dry_run,
        changes,
        notes,
    };
    session.output.answer(&done, told)?;
    Ok(Exit::OK)
}

/// The files of a client and what they will say.
fn done(client: ConnectArg, folder: &Path, served: &Served) -> Result<Vec<Change>, Failure> {
    type Edit = fn(&Served, Option<&str>) -> Result<String, String>;
    let edits: [(&str, Edit); 2] = match client {
        ConnectArg::ClaudeCode => [
            (".mcp.json", Served::claude_servers),
            (".claude/settings.json", Served::claude_settings),
        ],
        ConnectArg::Codex => [
            (".codex/config.toml", Served::codex_config),
            (".codex/hooks.json", Served::codex_hooks),
        ],
        ConnectArg::Generic => return Ok(Vec::new()),
    };
    let mut changes = Vec::new();
    for (name, edit) in edits {
        let (file, before) = read(folder, name)?;
        let text = edit(served, before.as_deref()).map_err(|why| unfit(&file, &why))?;
        changes.extend(Change::of(file, before, Some(text)));
    }
    Ok(changes)
}

/// The same files, without us.
fn undone(client: ConnectArg, folder: &Path) -> Result<Vec<Change>, Failure> {
    type Edit = fn(&str) -> Result<Option<String>, String>;
    let toml: Edit = |text| {
        let left = connecting::without_codex_config(text);
        Ok((!left.trim().is_empty()).then_some(left))
    };
    let edits: [(&str, Edit); 2] = match client {
        ConnectArg::ClaudeCode => [
            (".mcp.json", connecting::without_servers),
            (".claude/settings.json", connecting::without_hooks),
        ],
        ConnectArg::Codex => [
            (".codex/config.toml", toml),
            (".codex/hooks.json", connecting::without_hooks),
        ],
        ConnectArg::Generic => return Ok(Vec::new()),
    };
    let mut changes = Vec::new();
    for (name, edit) in edits {
        let (file, before) = read(folder, name)?;
        let Some(before) = before else { continue };
        let text = edit(&before).map_err(|why| unfit(&file, &why))?;
        changes.extend(Change::of(file, Some(before), text));
    }
    Ok(changes)
}

impl Change {
    /// Nothing when the file says so already.
    fn of(file: PathBuf, before: Option<String>, text: Option<String>) -> Option<Self> {
        if before == text {
            return None;
        }
        let name = file.file_name()?.to_str()?;
        let backup = file.with_file_name(format!("{name}.before-palyra"));
        Some(Self {
            // The first one is what was there before us.
            backup: (before.is_some() && !backup.exists()).then_some(backup),
            file,
            text,
            before,
        })
    }

    fn make(&self) -> Result<(), Failure> {
        let unwritable = |error: std::io::Error| unfit(&self.file, &error.to_string());
        if let (Some(backup), Some(before)) = (&self.backup, &self.before) {
            std::fs::write(backup, before).map_err(unwritable)?;
        }
        let Some(text) = &self.text else {
            return std::fs::remove_file(&self.file).map_err(unwritable);
        };
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        // In one step: a client that reads it meanwhile finds the one or the other.
        let mut beside = self.file.clone().into_os_string();
        beside.push(".palyra-new");
        std::fs::write(&beside, text).map_err(unwritable)?;
        if let Ok(known) = std::fs::metadata(&self.file) {
            std::fs::set_permissions(&beside, known.permissions()).map_err(unwritable)?;
        }
        std::fs::rename(&beside, &self.file).map_err(unwritable)
    }
}

fn read(folder: &Path, name: &str) -> Result<(PathBuf, Option<String>), Failure> {
    let file = folder.join(name);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok((file, Some(text))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((file, None)),
        Err(error) => Err(unfit(&file, &error.to_string())),
    }
}

/// Registers the agent, or finds that it is.
async fn register(session: &Session, name: &str, workspace: &str) -> Result<(), Failure> {
    let mut client = session.connect_or_start().await?;
    let known: Result<Agent, ClientError> = client.get(&format!("/api/v1/agents/{name}")).await;
    match known {
        Ok(agent) if agent.workspace == workspace => Ok(()),
        Ok(agent) => Err(Failure::usage(
            format!(
                "agent `{name}` works on `{}` already",
                safe::line(&agent.workspace)
            ),
            "name another with `--agent NAME`: an agent has one folder",
        )),
        Err(ClientError::Refused { status: 404, .. }) => {
            let wish = NewAgent {
                name: name.to_owned(),
                workspace: workspace.to_owned(),
                unattended: false,
            };
            let _: Agent = in_time(client.post("/api/v1/agents", &wish)).await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn own_path() -> Result<String, Failure> {
    let own = std::env::current_exe()
        .ok()
        .and_then(|own| own.canonicalize().ok());
    let own = own.and_then(|own| own.into_os_string().into_string().ok());
    own.ok_or_else(|| {
        Failure::usage(
            "this program cannot find itself, or its path is not UTF-8",
            "install it in an ordinary folder",
        )
    })
}

fn notes(args: &Connect, folder: &Path, served: &Served) -> Vec<String> {
    let mut notes = Vec::new();
    if args.undo {
        notes.push(format!(
            "the agent stays registered; remove it with `palyra agents remove {}`",
            served.agent
        ));
        return notes;
    }
    match args.client {
        ConnectArg::ClaudeCode => {
            notes.push("start Claude Code in this folder and trust its server `palyra`".to_owned());
            let servers = std::fs::read_to_string(folder.join(".mcp.json")).unwrap_or_default();
            let others = connecting::other_servers(&servers);
            if !others.is_empty() {
                notes.push(format!(
                    "left as they are, outside of Palyra; the hook denies their tools: {}",
                    safe::line(&others.join(", "))
                ));
            }
        }
        ConnectArg::Codex => notes.push(
            "Codex reads this folder once you trust it; it has no setting that blocks when a hook \
             cannot be run, so the hook itself does: whatever fails ends with the code that blocks"
                .to_owned(),
        ),
        ConnectArg::Generic => notes.push(format!(
            "add this server to your client: {}",
            serde_json::json!({ connecting::NAME: served.server() })
        )),
    }
    notes.push("a daemon that is not running is started when the client starts".to_owned());
    notes
}

fn told(done: &Done) -> String {
    let mut text = String::new();
    let would = if done.dry_run { "would " } else { "" };
    for change in &done.changes {
        let file = safe::line(&change.file.display().to_string());
        match &change.text {
            Some(_) => text.push_str(&format!("{would}write {file}\n")),
            None => text.push_str(&format!("{would}remove {file}\n")),
        }
        if let Some(backup) = &change.backup {
            let backup = safe::line(&backup.display().to_string());
            text.push_str(&format!("  {would}keep what was there in {backup}\n"));
        }
        if let (true, Some(new)) = (done.dry_run, &change.text) {
            for line in new.lines() {
                text.push_str(&format!("  | {}\n", safe::line(line)));
            }
        }
    }
    if done.changes.is_empty() {
        text.push_str("nothing to change in its files\n");
    }
    for note in &done.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

fn unfit(file: &Path, why: &str) -> Failure {
    Failure::new(
        Meaning::Error,
        "client_config",
        format!("`{}`: {why}", file.display()),
        "mend it, or move it away, then connect again; it was not changed",
    )
}
