//! What a client's own tools amount to, in calls that policy knows.
//!
//! A command is a program run in the sandbox. Reading and writing a file is the same file read or
//! written, whoever does it. Everything else is not known, and what is not known is not allowed.

use std::path::{Component, Path};

use crate::commands::PASSED_ON;
use serde_json::{Map, Value, json};

/// What the use of a tool amounts to.
#[derive(Debug, PartialEq)]
pub enum Amounts {
    /// A command, as arguments of `palyra.process.run`.
    Command(Value),
    /// A file, as a tool of ours and its arguments.
    File(&'static str, Value),
    /// A call to us, which is decided when it comes, or nothing that touches the machine.
    Ours,
    /// Nothing that is known, and why that is so.
    Unknown(String),
}

/// Tools that only speak with the person, or with what came through here before.
const INERT: [&str; 13] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "KillBash",
    "KillShell",
    "Task",
    "TaskOutput",
    "TaskStop",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
];

/// How much of a file is read to show what an edit makes of it.
const MOST_EDITED: u64 = 16 << 20;

/// What this amounts to, for a client that stands in this folder.
#[must_use]
pub fn amounts_to(tool: &str, input: &Map<String, Value>, cwd: Option<&str>) -> Amounts {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let missing = |name: &str| Amounts::Unknown(format!("`{tool}` says no `{name}`"));
    let file = |name: &str, ours: &'static str| match text(name) {
        Some(path) => of_file(ours, path, cwd),
        None => missing(name),
    };
    // A search without a folder is one of where the client stands.
    let folder = |ours: &'static str| of_file(ours, text("path").unwrap_or("."), cwd);
    match tool {
        "Bash" => match text("command") {
            Some(command) => Amounts::Command(run(command, input, cwd)),
            None => missing("command"),
        },
        "Read" => file("file_path", "palyra.fs.read"),
        "NotebookRead" => file("notebook_path", "palyra.fs.read"),
        "Glob" => match text("pattern").map(leads_out) {
            Some(false) => folder("palyra.fs.list"),
            Some(true) => Amounts::Unknown("write the pattern relative to its `path`".to_owned()),
            None => missing("pattern"),
        },
        "LS" => folder("palyra.fs.list"),
        // It reads whatever is in there.
        "Grep" => folder("palyra.fs.read"),
        "Write" => match (text("file_path"), text("content")) {
            (Some(path), Some(content)) => written(path, content, cwd),
            (None, _) => missing("file_path"),
            (_, None) => missing("content"),
        },
        "Edit" => match text("file_path") {
            Some(path) => edited(path, &[Value::Object(input.clone())], cwd),
            None => missing("file_path"),
        },
        "MultiEdit" => match (
            text("file_path"),
            input.get("edits").and_then(Value::as_array),
        ) {
            (Some(path), Some(edits)) => edited(path, edits, cwd),
            (None, _) => missing("file_path"),
            (_, None) => missing("edits"),
        },
        "NotebookEdit" => match text("notebook_path") {
            Some(path) => written(path, text("new_source").unwrap_or_default(), cwd),
            None => missing("notebook_path"),
        },
        ours if ours.starts_with("mcp__palyra__") => Amounts::Ours,
        inert if INERT.contains(&inert) => Amounts::Ours,
        "WebFetch" | "WebSearch" => Amounts::Unknown(format!(
            "`{tool}` reaches the network outside of the sandbox, which policy cannot decide about; \
             run a program for it instead"
        )),
        other => Amounts::Unknown(format!(
            "policy does not know the tool `{}`",
            crate::safe::line(other)
        )),
    }
}

/// The command by which a client has a decided one run here.
#[must_use]
pub fn command(token: &str) -> String {
    let own = std::env::current_exe().ok();
    let own = own.and_then(|own| own.into_os_string().into_string().ok());
    let own = own.unwrap_or_else(|| "palyra".to_owned());
    format!("'{}' exec --call {token}", own.replace('\'', "'\\''"))
}

fn run(command: &str, input: &Map<String, Value>, cwd: Option<&str>) -> Value {
    let mut arguments = Map::new();
    arguments.insert("argv".to_owned(), json!(["bash", "-c", command]));
    let env: Map<String, Value> = PASSED_ON
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?.into())))
        .collect();
    arguments.insert("env".to_owned(), env.into());
    if let Some(cwd) = cwd {
        arguments.insert("cwd".to_owned(), cwd.into());
    }
    if let Some(limit) = input
        .get("timeout")
        .and_then(Value::as_u64)
        .filter(|limit| *limit > 0)
    {
        arguments.insert("timeout_ms".to_owned(), limit.into());
    }
    arguments.into()
}

/// The file that the client means, whatever the folder it stands in.
fn meant(path: &str, cwd: Option<&str>) -> Result<String, Amounts> {
    let given = Path::new(path);
    // Clients read these as something else than the name that they are.
    if path.starts_with('~') || path.trim() != path {
        let why = "write the path without `~` and without space around it";
        return Err(Amounts::Unknown(why.to_owned()));
    }
    // By way of a link, what is above is not what the text says.
    if given.components().any(|part| part == Component::ParentDir) {
        return Err(Amounts::Unknown("write the path without `..`".to_owned()));
    }
    match (given.is_absolute(), cwd) {
        (true, _) => Ok(path.to_owned()),
        (false, Some(cwd)) => Ok(Path::new(cwd).join(given).display().to_string()),
        (false, None) => Err(Amounts::Unknown(
            "the client does not say where it stands".to_owned(),
        )),
    }
}

fn of_file(ours: &'static str, path: &str, cwd: Option<&str>) -> Amounts {
    match meant(path, cwd) {
        Ok(path) => Amounts::File(ours, json!({ "path": path })),
        Err(unknown) => unknown,
    }
}

fn written(path: &str, content: &str, cwd: Option<&str>) -> Amounts {
    match meant(path, cwd) {
        Ok(path) => {
            let arguments = json!({ "path": path, "content": content, "create_parents": true });
            Amounts::File("palyra.fs.write", arguments)
        }
        Err(unknown) => unknown,
    }
}

/// Whether a pattern may match outside of the folder it is looked for in.
fn leads_out(pattern: &str) -> bool {
    let parent = |part: &str| part == ".." || part.contains("{..") || part.contains(",..");
    let start = pattern.trim_start_matches(['{', '!', ' ']);
    start.starts_with(['/', '~', '\\'])
        || pattern.contains(",/")
        || pattern.contains(",~")
        || pattern.split('/').any(parent)
}

/// A file's text, if it is a plain file and not too long; never waits.
fn text_of(path: &str) -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    let fits = about.is_file() && about.len() <= MOST_EDITED;
    let mut text = String::new();
    let mut file = fits.then_some(file)?.take(MOST_EDITED);
    file.read_to_string(&mut text).ok()?;
    Some(text)
}

/// The file as it would be afterwards, so that a person sees what changes.
fn edited(path: &str, edits: &[Value], cwd: Option<&str>) -> Amounts {
    let whole = match meant(path, cwd) {
        Ok(whole) => whole,
        Err(unknown) => return unknown,
    };
    // What cannot be read now is new, or not the client's to edit either.
    let mut content = text_of(&whole).unwrap_or_default();
    for edit in edits {
        let text = |name: &str| edit.get(name).and_then(Value::as_str);
        let (Some(old), Some(new)) = (text("old_string"), text("new_string")) else {
            return Amounts::Unknown("an edit says no `old_string` and `new_string`".to_owned());
        };
        let everywhere = edit.get("replace_all") == Some(&Value::Bool(true));
        content = match (old.is_empty(), everywhere) {
            (true, _) => new.to_owned(),
            (false, true) => content.replace(old, new),
            (false, false) => content.replacen(old, new, 1),
        };
    }
    written(path, &content, cwd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tool: &str, input: Value) -> Amounts {
        let Value::Object(input) = input else {
            panic!("an object")
        };
        amounts_to(tool, &input, Some("/w"))
    }

    /// What a client reads as another place than the text says is not judged as that text.
    #[test]
    fn a_path_that_a_client_reads_otherwise_is_not_known() {
        for (tool, input) in [
            ("Grep", json!({"path": "~/.ssh", "pattern": "."})),
            ("Glob", json!({"path": "~", "pattern": "*"})),
            ("Glob", json!({"pattern": "/home/u/**/*.pem"})),
            ("Glob", json!({"pattern": "~/.ssh/*"})),
            ("Glob", json!({"pattern": "a/../../*"})),
            ("Glob", json!({"pattern": "{/etc,a}/*"})),
            ("Glob", json!({"pattern": "{a,/etc}/*"})),
            ("Glob", json!({"pattern": "{a,..}/*"})),
            ("Read", json!({"file_path": "~/.ssh/id_ed25519"})),
            ("Read", json!({"file_path": " /etc/shadow"})),
            ("Write", json!({"file_path": "~/.bashrc", "content": "x"})),
            ("mcp__fs__write_file", json!({"path": "x"})),
        ] {
            let found = of(tool, input.clone());
            assert!(matches!(found, Amounts::Unknown(_)), "{tool} {input}");
        }
        for (tool, input) in [
            ("Grep", json!({"path": "src", "pattern": "."})),
            ("Glob", json!({"pattern": "**/*.{rs,toml}"})),
            ("Read", json!({"file_path": "a~b.txt"})),
        ] {
            let found = of(tool, input.clone());
            assert!(matches!(found, Amounts::File(..)), "{tool} {input}");
        }
    }

    #[test]
    fn each_tool_amounts_to_one_of_ours_or_nothing() {
        let Amounts::Command(run) = of("Bash", json!({"command": "ls | wc", "timeout": 5})) else {
            panic!("a command")
        };
        assert_eq!(run["argv"], json!(["bash", "-c", "ls | wc"]));
        assert_eq!((&run["cwd"], &run["timeout_ms"]), (&json!("/w"), &json!(5)));
        let read = of("Read", json!({"file_path": "/w/a"}));
        assert_eq!(
            read,
            Amounts::File("palyra.fs.read", json!({"path": "/w/a"}))
        );
        assert_eq!(
            of("Grep", json!({})),
            Amounts::File("palyra.fs.read", json!({"path": "/w/."}))
        );
        assert_eq!(of("mcp__palyra__palyra_echo", json!({})), Amounts::Ours);
        for unknown in [
            "WebFetch",
            "SomethingNew",
            "mcp__other__tool",
            "bash",
            "mcp__palyra_evil__x",
            "",
        ] {
            assert!(
                matches!(of(unknown, json!({"command": "x"})), Amounts::Unknown(_)),
                "{unknown}"
            );
        }
        for (tool, input) in [
            ("Bash", json!({"command": 7})),
            ("Read", json!({})),
            ("Write", json!({"file_path": "a"})),
            ("Edit", json!({"file_path": "a", "old_string": "x"})),
        ] {
            assert!(matches!(of(tool, input), Amounts::Unknown(_)), "{tool}");
        }
    }

    #[test]
    fn an_edit_is_the_file_as_it_would_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "one two two").unwrap();
        let path = file.to_str().unwrap();
        let content = |input: Value| {
            let amounts = of("Edit", input);
            let Amounts::File("palyra.fs.write", arguments) = amounts else {
                panic!("{amounts:?}")
            };
            arguments["content"].clone()
        };
        let once = json!({"file_path": path, "old_string": "two", "new_string": "2"});
        assert_eq!(content(once), "one 2 two");
        let all =
            json!({"file_path": path, "old_string": "two", "new_string": "2", "replace_all": true});
        assert_eq!(content(all), "one 2 2");
    }
}
