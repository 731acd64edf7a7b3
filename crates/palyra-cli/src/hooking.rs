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
    /// A call to us, which is decided when it comes.
    Ours,
    /// Nothing that is known, and why that is so.
    Unknown(String),
}

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
        "Glob" | "LS" => folder("palyra.fs.list"),
        // It reads whatever is in there.
        "Grep" => folder("palyra.fs.read"),
        "Write" => match (text("file_path"), text("content")) {
            (Some(path), Some(content)) => written(path, content, cwd),
            (None, _) => missing("file_path"),
            (_, None) => missing("content"),
        },
        "Edit" | "MultiEdit" => match text("file_path") {
            Some(path) => edited(path, input, cwd),
            None => missing("file_path"),
        },
        "NotebookEdit" => match text("notebook_path") {
            Some(path) => written(path, text("new_source").unwrap_or_default(), cwd),
            None => missing("notebook_path"),
        },
        ours if ours.starts_with("mcp__palyra__") => Amounts::Ours,
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

/// The file as it would be afterwards, so that a person sees what changes.
fn edited(path: &str, input: &Map<String, Value>, cwd: Option<&str>) -> Amounts {
    let whole = match meant(path, cwd) {
        Ok(whole) => whole,
        Err(unknown) => return unknown,
    };
    // What cannot be read now is new, or not the client's to edit either.
    let mut content = std::fs::read_to_string(whole).unwrap_or_default();
    let one = [Value::Object(input.clone())];
    let edits = match input.get("edits").and_then(Value::as_array) {
        Some(edits) => edits.as_slice(),
        None => &one,
    };
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
            "Task",
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
