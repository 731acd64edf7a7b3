//! A client's configuration with us in it, and without: texts in, texts out.
//!
//! What is not ours is left as it is. What cannot be read is not written over.

use serde_json::{Map, Value, json};

/// What a client's configuration names us by.
pub const NAME: &str = "palyra";

/// Every tool of Claude Code, those of other servers among them: a tool that nobody thought of must
/// not pass by the hook.
const CLAUDE_TOOLS: &str = "*";
/// The same of Codex.
const CODEX_TOOLS: &str = "Bash|apply_patch";

const BEGIN: &str = "# palyra connect: begin (undo with `palyra connect codex --undo`)";
const END: &str = "# palyra connect: end";

/// Who is served, and by which program.
#[derive(Debug, Clone)]
pub struct Served {
    /// The program `palyra`, absolute.
    pub program: String,
    /// The agent, by name.
    pub agent: String,
}

impl Served {
    fn arguments(&self) -> [String; 4] {
        let agent = format!("agent:{}", self.agent);
        [
            "mcp".to_owned(),
            "serve".to_owned(),
            "--as".to_owned(),
            agent,
        ]
    }

    /// The server as an entry of `mcpServers`.
    #[must_use]
    pub fn server(&self) -> Value {
        json!({ "command": self.program, "args": self.arguments() })
    }

    /// The hook's command. Whatever goes wrong with it blocks: only this exit code does.
    fn hook(&self, client: &str) -> String {
        let program = self.program.replace('\'', "'\\''");
        format!(
            "'{program}' hook {client} --as agent:{} || exit 2",
            self.agent
        )
    }

    /// `.mcp.json` with the server in it.
    ///
    /// # Errors
    /// What is there is not what it should be.
    pub fn claude_servers(&self, text: Option<&str>) -> Result<String, String> {
        let mut whole = object(text)?;
        let servers = whole.entry("mcpServers").or_insert_with(|| json!({}));
        let servers = servers.as_object_mut().ok_or("`mcpServers` is no object")?;
        servers.insert(NAME.to_owned(), self.server());
        Ok(written(&whole))
    }

    /// `.claude/settings.json` with the hook in it.
    ///
    /// # Errors
    /// What is there is not what it should be.
    pub fn claude_settings(&self, text: Option<&str>) -> Result<String, String> {
        self.hooks(text, "claude-code", CLAUDE_TOOLS)
    }

    /// `.codex/hooks.json` with the hook in it.
    ///
    /// # Errors
    /// What is there is not what it should be.
    pub fn codex_hooks(&self, text: Option<&str>) -> Result<String, String> {
        self.hooks(text, "codex", CODEX_TOOLS)
    }

    fn hooks(&self, text: Option<&str>, client: &str, tools: &str) -> Result<String, String> {
        let mut whole = object(text)?;
        drop_hooks(&mut whole);
        let hooks = whole.entry("hooks").or_insert_with(|| json!({}));
        let hooks = hooks.as_object_mut().ok_or("`hooks` is no object")?;
        let before = hooks.entry("PreToolUse").or_insert_with(|| json!([]));
        let before = before
            .as_array_mut()
            .ok_or("`hooks.PreToolUse` is no list")?;
        before.push(json!({
            "matcher": tools,
            "hooks": [{ "type": "command", "command": self.hook(client), "timeout": 60 }],
        }));
        Ok(written(&whole))
    }

    /// `.codex/config.toml` with the server in it.
    ///
    /// # Errors
    /// It is no TOML, or names another server like this already.
    pub fn codex_config(&self, text: Option<&str>) -> Result<String, String> {
        let text = without_codex_config(text.unwrap_or_default());
        let before: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
        if before
            .get("mcp_servers")
            .and_then(|all| all.get(NAME))
            .is_some()
        {
            return Err(format!(
                "`mcp_servers.{NAME}` is there already, and not from here"
            ));
        }
        let gap = if text.is_empty() || text.ends_with("\n\n") {
            ""
        } else {
            "\n"
        };
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let words: Vec<String> = self.arguments().iter().map(|word| quoted(word)).collect();
        let whole = format!(
            "{text}{gap}{BEGIN}\n[mcp_servers.{NAME}]\ncommand = {}\nargs = [{}]\n\
             tool_timeout_sec = 60\n{END}\n",
            quoted(&self.program),
            words.join(", ")
        );
        match whole.parse::<toml::Table>() {
            Ok(_) => Ok(whole),
            Err(error) => Err(format!("it could not be added to: {error}")),
        }
    }
}

/// `.mcp.json` without the server; nothing when nothing is left.
///
/// # Errors
/// It cannot be read.
pub fn without_servers(text: &str) -> Result<Option<String>, String> {
    let mut whole = object(Some(text))?;
    if let Some(servers) = whole.get_mut("mcpServers").and_then(Value::as_object_mut) {
        servers.remove(NAME);
        if servers.is_empty() {
            whole.remove("mcpServers");
        }
    }
    Ok(left(&whole))
}

/// A file of hooks without ours; nothing when nothing is left.
///
/// # Errors
/// It cannot be read.
pub fn without_hooks(text: &str) -> Result<Option<String>, String> {
    let mut whole = object(Some(text))?;
    drop_hooks(&mut whole);
    Ok(left(&whole))
}

/// The names of other servers.
#[must_use]
pub fn other_servers(text: &str) -> Vec<String> {
    let whole = object(Some(text)).unwrap_or_default();
    let servers = whole.get("mcpServers").and_then(Value::as_object);
    let names = servers.into_iter().flat_map(Map::keys);
    names.filter(|name| *name != NAME).cloned().collect()
}

/// `.codex/config.toml` without our block.
#[must_use]
pub fn without_codex_config(text: &str) -> String {
    match (text.find(BEGIN), text.find(END)) {
        (Some(begin), Some(end)) if begin < end => {
            let before = text.get(..begin).unwrap_or_default();
            let after = text.get(end + END.len()..).unwrap_or_default();
            let after = after.strip_prefix('\n').unwrap_or(after);
            format!("{before}{after}")
        }
        _ => text.to_owned(),
    }
}

fn drop_hooks(whole: &mut Map<String, Value>) {
    let Some(hooks) = whole.get_mut("hooks").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(before) = hooks.get_mut("PreToolUse").and_then(Value::as_array_mut) {
        before.retain(|entry| !is_ours(entry));
        if before.is_empty() {
            hooks.remove("PreToolUse");
        }
    }
    if hooks.is_empty() {
        whole.remove("hooks");
    }
}

/// Whether an entry runs our hook.
fn is_ours(entry: &Value) -> bool {
    let commands = entry
        .get("hooks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    commands
        .filter_map(|hook| hook.get("command")?.as_str())
        .any(|command| {
            command.contains(" hook ") && command.contains(" --as agent:") && command.contains(NAME)
        })
}

fn object(text: Option<&str>) -> Result<Map<String, Value>, String> {
    let text = text.unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|error| format!("it is no JSON object: {error}"))
}

fn written(whole: &Map<String, Value>) -> String {
    let text = serde_json::to_string_pretty(whole).unwrap_or_default();
    format!("{text}\n")
}

fn left(whole: &Map<String, Value>) -> Option<String> {
    (!whole.is_empty()).then(|| written(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        Served {
            program: "/opt/it's/palyra".to_owned(),
            agent: "claude".to_owned(),
        }
    }

    #[test]
    fn what_was_there_stays_and_comes_back() {
        let servers = r#"{"mcpServers":{"git":{"command":"x"}},"other":1}"#;
        let with = served().claude_servers(Some(servers)).unwrap();
        assert!(
            with.contains("\"palyra\"") && with.contains("\"git\""),
            "{with}"
        );
        assert_eq!(other_servers(&with), ["git"]);
        let without = without_servers(&with).unwrap().unwrap();
        let same = |a: &str, b: &str| {
            serde_json::from_str::<Value>(a).unwrap() == serde_json::from_str::<Value>(b).unwrap()
        };
        assert!(same(&without, servers));
        let settings = r#"{"hooks":{"PreToolUse":[{"matcher":"X","hooks":[{"type":"command","command":"y"}]}]}}"#;
        let once = served().claude_settings(Some(settings)).unwrap();
        let twice = served().claude_settings(Some(&once)).unwrap();
        assert_eq!(once, twice, "connecting again changes nothing");
        assert!(once.contains("|| exit 2"), "{once}");
        assert!(same(&without_hooks(&twice).unwrap().unwrap(), settings));
        let toml = "# mine\n[mcp_servers.git]\ncommand = \"x\"\n";
        let with = served().codex_config(Some(toml)).unwrap();
        assert_eq!(served().codex_config(Some(&with)).unwrap(), with);
        assert!(with.starts_with(toml), "{with}");
        assert_eq!(without_codex_config(&with).trim_end(), toml.trim_end());
    }

    #[test]
    fn a_file_of_ours_alone_goes_away() {
        let with = served().claude_servers(None).unwrap();
        assert_eq!(without_servers(&with).unwrap(), None);
        let with = served().codex_hooks(None).unwrap();
        assert_eq!(without_hooks(&with).unwrap(), None);
        assert_eq!(
            without_codex_config(&served().codex_config(None).unwrap()),
            ""
        );
    }

    #[test]
    fn what_is_not_understood_is_not_written_over() {
        for broken in ["{", "[]", "// no\n{}", "{\"mcpServers\":[]}"] {
            assert!(served().claude_servers(Some(broken)).is_err(), "{broken}");
        }
        assert!(
            served()
                .claude_settings(Some("{\"hooks\":{\"PreToolUse\":7}}"))
                .is_err()
        );
        assert!(served().codex_config(Some("x = ")).is_err());
        let theirs = "[mcp_servers.palyra]\ncommand = \"x\"\n";
        assert!(served().codex_config(Some(theirs)).is_err());
    }
}
