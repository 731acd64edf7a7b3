//! The schema's names as Cedar values, parsed once.

use cedar_policy::{EntityId, EntityTypeName, EntityUid};
use palyra_core::{AgentName, Channel, DeviceId, ToolName, UserName};

use crate::error::PolicyError;
use crate::request::Action;

/// The schema's names.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    user: EntityTypeName,
    agent: EntityTypeName,
    device: EntityTypeName,
    channel: EntityTypeName,
    tool: EntityTypeName,
    action: EntityTypeName,
    pub(crate) daemon: EntityUid,
    /// One entity stands for "the record in question": a request is about one record at a time.
    pub(crate) call: EntityUid,
    pub(crate) approval: EntityUid,
}

impl Vocabulary {
    pub(crate) fn new() -> Result<Self, PolicyError> {
        Ok(Self {
            user: type_name("User")?,
            agent: type_name("Agent")?,
            device: type_name("Device")?,
            channel: type_name("Channel")?,
            tool: type_name("Tool")?,
            action: type_name("Action")?,
            daemon: uid(&type_name("Daemon")?, "palyrad"),
            call: uid(&type_name("Call")?, "this"),
            approval: uid(&type_name("Approval")?, "this"),
        })
    }

    pub(crate) fn user(&self, name: &UserName) -> EntityUid {
        uid(&self.user, name.as_str())
    }

    pub(crate) fn agent(&self, name: &AgentName) -> EntityUid {
        uid(&self.agent, name.as_str())
    }

    pub(crate) fn device(&self, id: &DeviceId) -> EntityUid {
        uid(&self.device, id.as_str())
    }

    pub(crate) fn channel(&self, channel: Channel) -> EntityUid {
        uid(&self.channel, channel.as_str())
    }

    pub(crate) fn tool(&self, name: &ToolName) -> EntityUid {
        uid(&self.tool, name.as_str())
    }

    pub(crate) fn action(&self, action: Action) -> EntityUid {
        uid(&self.action, action.as_str())
    }
}

fn type_name(name: &str) -> Result<EntityTypeName, PolicyError> {
    format!("Palyra::{name}")
        .parse()
        .map_err(|error: cedar_policy::ParseErrors| PolicyError::Schema(error.to_string()))
}

fn uid(type_name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(type_name.clone(), EntityId::new(id))
}
