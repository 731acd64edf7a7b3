//! `palyra.echo`: says what it was told. It needs nothing, so it shows that the corridor works.

use std::collections::BTreeSet;

use palyra_core::{CanonicalJson, Limits, ReplyPlan, ToolMetadata};
use serde_json::json;

use super::{AnyPlan, Place, Prepared, Tool, own_name};
use crate::error::Refusal;

pub(super) struct Echo;

impl Tool for Echo {
    fn metadata(&self) -> ToolMetadata {
        ToolMetadata {
            name: own_name("palyra.echo"),
            description: "Gives back the message it was given.".to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": { "message": { "type": "string", "description": "What to say." } },
                "required": ["message"],
                "additionalProperties": false
            }),
            capabilities: BTreeSet::new(),
            default_sensitive: false,
            max_input_bytes: 64 << 10,
            default_limits: Limits::default(),
        }
    }

    fn prepare(&self, arguments: &CanonicalJson, _: &Place<'_>) -> Result<Prepared, Refusal> {
        let reply = arguments.value().clone();
        Ok(Prepared {
            analysis: palyra_effects::of_nothing(),
            plan: AnyPlan::Reply(ReplyPlan { reply }),
            code: None,
        })
    }
}
