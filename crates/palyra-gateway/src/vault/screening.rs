//! A value of the vault in a call's arguments: refused before anything of the call is recorded.
//!
//! Guessing must not pay. The answer never says which secret it was, each hit is a security event,
//! and an agent is paused at its third.

use palyra_core::entry::{Entry, Stream};
use palyra_core::{Denial, DenialCode};
use palyra_journal::Expected;
use serde_json::Value;

use crate::error::Refusal;
use crate::service::{Caller, GatewayService, ProposedCall};

/// At so many hits an agent is paused.
const MOST_HITS: u64 = 3;

impl GatewayService {
    /// Refuses a call of a paused agent, a call while the vault is locked, and a call whose
    /// arguments hold a value of the vault.
    pub(crate) async fn screen(
        &self,
        caller: &Caller,
        wanted: &ProposedCall,
    ) -> Result<(), Refusal> {
        self.not_paused(caller)?;
        let locked = || Refusal::denied(self.0.vault.denial());
        let vault = self.0.vault.vault()?;
        let in_text = |text: &[u8]| vault.recognises(text).ok_or_else(locked);
        let mut found = in_text(wanted.arguments.bytes())?;
        // In canonical JSON quotes, backslashes and control characters are written otherwise than
        // in the value itself: those texts are looked at as they are meant.
        for text in escaped_texts(wanted.arguments.value()) {
            found |= in_text(text.as_bytes())?;
        }
        if let Some(folder) = wanted
            .workspace
            .as_deref()
            .and_then(std::path::Path::to_str)
        {
            found |= in_text(folder.as_bytes())?;
        }
        match found {
            false => Ok(()),
            true => Err(self.refuse_secret(caller, wanted).await?),
        }
    }

    fn not_paused(&self, caller: &Caller) -> Result<(), Refusal> {
        let Some(name) = caller.principal.agent() else {
            return Ok(());
        };
        let known = self.0.agents().get(name).cloned();
        let Some(agent) = known.filter(|agent| agent.paused) else {
            return Ok(());
        };
        let why = agent.paused_for.as_deref().unwrap_or("a person must look");
        Err(Refusal::denied(Denial::new(
            DenialCode::AgentPaused,
            format!(
                "agent `{name}` is paused: {}",
                palyra_core::render::line(why)
            ),
            format!("a person lets it go on with `palyra agents resume {name}`"),
        )))
    }

    async fn refuse_secret(
        &self,
        caller: &Caller,
        wanted: &ProposedCall,
    ) -> Result<Refusal, Refusal> {
        let _one_at_a_time = self.0.registry_change.lock().await;
        let agent = caller.principal.agent();
        let hits = agent.and_then(|name| self.0.agents().get(name).map(|agent| agent.secret_hits));
        let times = hits.unwrap_or(0) + 1;
        let paused = agent.is_some() && times >= MOST_HITS;
        // A name that is no tool's is not recorded: it could be the value itself.
        let tool = self.0.registry.find(&wanted.tool);
        let entry = Entry::SecretInArguments {
            principal: caller.principal.clone(),
            tool: tool.map_or_else(
                || "unknown".to_owned(),
                |tool| tool.metadata.name.to_string(),
            ),
            times,
            paused,
        };
        tracing::warn!(principal = %caller.principal, times, paused, "a secret was in a call's arguments");
        let appended = self
            .0
            .journal
            .append_if(Stream::Agents, Expected::Any, vec![entry]);
        appended.await?;
        self.reread_agents()?;
        if let Some(name) = agent.filter(|_| paused) {
            self.was_paused(name).await;
        }
        Ok(Refusal::denied(Denial::new(
            DenialCode::SecretInArguments,
            "the arguments hold a value that is kept in the vault",
            "name the secret instead of its value: see the names with `palyra vault list`",
        )))
    }
}

/// Texts, keys among them, that canonical JSON does not spell as they are.
fn escaped_texts(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                found.extend(fields.keys().map(String::as_str));
                left.extend(fields.values());
            }
        }
    }
    let escaped = |text: &&str| text.contains(|c: char| c == '"' || c == '\\' || c.is_control());
    found.retain(escaped);
    found
}
