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
    tool_group: EntityTypeName,
    program: EntityTypeName,
    program_group: EntityTypeName,
    path: EntityTypeName,
    host: EntityTypeName,
    domain: EntityTypeName,
    skill: EntityTypeName,
    secret: EntityTypeName,
    vault_scope: EntityTypeName,
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
            tool_group: type_name("ToolGroup")?,
            program: type_name("Program")?,
            program_group: type_name("ProgramGroup")?,
            path: type_name("Path")?,
            host: type_name("Host")?,
            domain: type_name("Domain")?,
            skill: type_name("Skill")?,
            secret: type_name("Secret")?,
            vault_scope: type_name("VaultScope")?,
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

    pub(crate) fn tool_group(&self, name: &str) -> EntityUid {
        uid(&self.tool_group, name)
    }

    pub(crate) fn program(&self, path: &str) -> EntityUid {
        uid(&self.program, path)
    }

    pub(crate) fn program_group(&self, name: &str) -> EntityUid {
        uid(&self.program_group, name)
    }

    pub(crate) fn path(&self, path: &str) -> EntityUid {
        uid(&self.path, path)
    }

    pub(crate) fn host(&self, name: &str) -> EntityUid {
        uid(&self.host, name)
    }

    pub(crate) fn domain(&self, name: &str) -> EntityUid {
        uid(&self.domain, name)
    }

    pub(crate) fn channel_named(&self, name: &str) -> EntityUid {
        uid(&self.channel, name)
    }

    pub(crate) fn skill(&self, name: &str) -> EntityUid {
        uid(&self.skill, name)
    }

    pub(crate) fn secret(&self, name: &str) -> EntityUid {
        uid(&self.secret, name)
    }

    pub(crate) fn vault_scope(&self, name: &str) -> EntityUid {
        uid(&self.vault_scope, name)
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
