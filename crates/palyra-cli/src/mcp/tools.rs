//! The daemon's tools as an MCP client sees them.

use std::sync::Arc;

use palyra_api::wire;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a client calls a tool by. MCP would allow the dots, but those who pass names on to a model's
/// interface may not: letters, digits, `_` and `-` are legal everywhere.
#[must_use]
pub fn public_name(name: &str) -> String {
    name.replace('.', "_")
}

/// A tool as it is listed.
#[must_use]
pub fn listed(tool: &wire::Tool) -> Tool {
    let title = title(&tool.name);
    let annotations = annotations(tool, &title);
    let input = object(without_terminals(tool.input_schema.clone()));
    let description = match tool.sensitive {
        true => format!(
            "{} A person may have to approve it first; the result then says so.",
            tool.description
        ),
        false => tool.description.clone(),
    };
    Tool::new(public_name(&tool.name), description, input)
        .with_title(title)
        .with_annotations(annotations)
        .with_raw_output_schema(object(output_schema()))
}

/// A name for people.
fn title(name: &str) -> String {
    match name {
        "palyra.echo" => "Echo".to_owned(),
        "palyra.process.run" => "Run a program".to_owned(),
        "palyra.fs.read" => "Read a file".to_owned(),
        "palyra.fs.list" => "List a folder".to_owned(),
        "palyra.fs.write" => "Write a file".to_owned(),
        "palyra.fs.apply_patch" => "Patch a file".to_owned(),
        other => {
            let own = other.strip_prefix("palyra.").unwrap_or(other);
            own.replace(['.', '_', '-'], " ")
        }
    }
}

/// Hints for a client. They follow from what the tool needs, and nothing here rests on them.
fn annotations(tool: &wire::Tool, title: &str) -> ToolAnnotations {
    let needs = |what: &str| tool.capabilities.iter().any(|need| need == what);
    let changes = needs("process_exec") || needs("filesystem_write");
    ToolAnnotations::with_title(title)
        .read_only(!changes && !needs("network"))
        .destructive(changes)
        .idempotent(!changes && !needs("network"))
        .open_world(needs("network"))
}

/// There is nobody at a terminal here.
fn without_terminals(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("interactive");
    }
    schema
}

fn object(value: Value) -> Arc<JsonObject> {
    let fields = serde_json::from_value(value);
    Arc::new(fields.unwrap_or_default())
}

/// What every result has, whichever tool it is of.
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {
                "enum": ["permitted", "denied", "pending"],
                "description": "Whether it ran; pending waits for a person."
            },
            "outcome": { "type": "string", "description": "How it came out, in one word." },
            "code": { "type": "string", "description": "Why not, stable." },
            "reason": { "type": "string", "description": "Why not, in a sentence." },
            "next_step": { "type": "string", "description": "What to do about it." },
            "output": { "description": "What the tool gave back." },
            "output_resource": {
                "type": "string",
                "description": "Where all of the output is, when it was too long for here."
            },
            "exit_code": { "type": "integer" },
            "signal": { "type": "integer" },
            "call_id": { "type": "string" },
            "approval_id": { "type": "string" },
            "attestation_id": { "type": "string", "description": "The record of its execution." }
        },
        "required": ["decision", "outcome"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, capabilities: &[&str]) -> wire::Tool {
        wire::Tool {
            name: name.to_owned(),
            description: "Does it.".to_owned(),
            capabilities: capabilities.iter().map(ToString::to_string).collect(),
            sensitive: false,
            max_input_bytes: 1,
            input_schema: json!({"type": "object", "properties": {"a": {}, "interactive": {}}}),
            default_limits: Value::Null,
        }
    }

    #[test]
    fn names_are_legal_everywhere() {
        let name = public_name("palyra.fs.apply_patch");
        assert_eq!(name, "palyra_fs_apply_patch");
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        assert!(name.bytes().all(legal) && name.len() <= 64);
    }

    #[test]
    fn hints_follow_from_what_a_tool_needs() {
        let hints = |needs: &[&str]| listed(&tool("palyra.x", needs)).annotations.unwrap();
        let read = hints(&["filesystem_read"]);
        assert_eq!(
            (read.read_only_hint, read.open_world_hint),
            (Some(true), Some(false))
        );
        let run = hints(&["process_exec", "network"]);
        assert_eq!(run.read_only_hint, Some(false));
        assert_eq!(
            (run.destructive_hint, run.open_world_hint),
            (Some(true), Some(true))
        );
        let net = hints(&["network"]);
        assert_eq!(
            (net.read_only_hint, net.idempotent_hint),
            (Some(false), Some(false))
        );
    }

    #[test]
    fn nobody_is_at_a_terminal() {
        let listed = listed(&tool("palyra.x", &[]));
        let properties = listed.input_schema.get("properties").unwrap();
        assert!(properties.get("a").is_some() && properties.get("interactive").is_none());
    }
}
