//! `palyra.fs.*`: read, list, write and patch beneath the workspace.

use std::collections::BTreeSet;
use std::path::PathBuf;

use palyra_core::{CanonicalJson, FileOperation, FilePlan, Limits, ToolCapability, ToolMetadata};
use palyra_effects::FileAccess;
use serde_json::{Value, json};

use super::{AnyPlan, Place, Prepared, Tool, own_name, text};
use crate::error::{Refusal, RefusalKind};
use crate::resolver::Files;
use crate::workspace::beneath;

const MOST_BYTES: u64 = 8 << 20;
const MOST_ENTRIES: u64 = 10_000;

#[derive(Clone, Copy)]
pub(super) enum FileTool {
    Read,
    List,
    Write,
    ApplyPatch,
}

impl FileTool {
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "palyra.fs.read",
            Self::List => "palyra.fs.list",
            Self::Write => "palyra.fs.write",
            Self::ApplyPatch => "palyra.fs.apply_patch",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Read => "Gives the content of a file in the workspace.",
            Self::List => "Lists a folder in the workspace.",
            Self::Write => "Creates or replaces a file in the workspace, in one step.",
            Self::ApplyPatch => {
                "Applies a unified diff to one file in the workspace; all hunks or none."
            }
        }
    }

    fn properties(self) -> (Value, Value) {
        let path = json!({ "type": "string", "minLength": 1, "description": "Relative to the workspace." });
        match self {
            Self::Read => (
                json!({ "path": path, "max_bytes": { "type": "integer", "minimum": 1, "maximum": MOST_BYTES } }),
                json!(["path"]),
            ),
            Self::List => (
                json!({ "path": path, "max_entries": { "type": "integer", "minimum": 1, "maximum": MOST_ENTRIES } }),
                json!([]),
            ),
            Self::Write => (
                json!({
                    "path": path,
                    "content": { "type": "string" },
                    "create_parents": { "type": "boolean", "description": "Make missing folders." }
                }),
                json!(["path", "content"]),
            ),
            Self::ApplyPatch => (
                json!({ "path": path, "patch": { "type": "string", "description": "A unified diff." } }),
                json!(["path", "patch"]),
            ),
        }
    }

    fn operation(self, arguments: &CanonicalJson, path: PathBuf) -> FileOperation {
        let number = |member: &str| arguments.value().get(member).and_then(Value::as_u64);
        let owned = |member: &str| text(arguments, member).unwrap_or_default().to_owned();
        match self {
            Self::Read => {
                let max_bytes = number("max_bytes").unwrap_or(1 << 20);
                FileOperation::Read { path, max_bytes }
            }
            Self::List => {
                let max_entries = number("max_entries").unwrap_or(1_000);
                FileOperation::List { path, max_entries }
            }
            Self::Write => FileOperation::Write {
                path,
                content: owned("content"),
                create_parents: arguments.value().get("create_parents") == Some(&Value::Bool(true)),
            },
            Self::ApplyPatch => FileOperation::ApplyPatch {
                path,
                patch: owned("patch"),
            },
        }
    }
}

impl Tool for FileTool {
    fn metadata(&self) -> ToolMetadata {
        let (properties, required) = self.properties();
        let capability = match self {
            Self::Read | Self::List => ToolCapability::FilesystemRead,
            Self::Write | Self::ApplyPatch => ToolCapability::FilesystemWrite,
        };
        ToolMetadata {
            name: own_name(self.name()),
            description: self.description().to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false
            }),
            capabilities: BTreeSet::from([capability]),
            default_sensitive: false,
            max_input_bytes: 4 << 20,
            default_limits: Limits::default(),
        }
    }

    fn prepare(&self, arguments: &CanonicalJson, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let tier = place.strongest();
        let ground = place.ground(tier)?;
        let workspace = ground.path;
        let given = text(arguments, "path").unwrap_or(".");
        if given.contains('\0') {
            return Err(Refusal::arguments(
                "`/path` contains a NUL byte",
                self.name(),
            ));
        }
        let path = beneath(workspace, given)?;
        let whole = workspace.join(&path);
        if let Some(own) = place.masked.iter().find(|own| whole.starts_with(own)) {
            return Err(Refusal::new(
                RefusalKind::Forbidden,
                "daemon_home",
                format!(
                    "`{}` belongs to the daemon (`{}`)",
                    whole.display(),
                    own.display()
                ),
                "no tool may touch it; use `palyra` itself",
            ));
        }
        let access = match self {
            Self::Read | Self::List => FileAccess::Read,
            Self::Write | Self::ApplyPatch => FileAccess::Write,
        };
        let plan = FilePlan {
            workspace: workspace.to_owned(),
            workspace_id: ground.id,
            operation: self.operation(arguments, path),
            limits: Limits::default(),
            masked: place.masked.to_vec(),
            rules: place.rules.to_vec(),
            tier,
            run_as: ground.run_as,
        };
        Ok(Prepared {
            analysis: palyra_effects::of_file(access, &whole, workspace, &Files),
            plan: AnyPlan::File(Box::new(plan)),
            code: None,
        })
    }
}
