//! A grant as a rule: the Cedar text that says what its row says.
//!
//! What decides is the row, put before the one policy that honours grants. The text is made from the
//! row for a person to read, and to find out what a draft would have covered; a test holds both to
//! the same answers.

use std::collections::BTreeMap;

use palyra_core::{Denial, Facts, GrantTerms, Principal, ScopeKind, Timestamp, ToolName};

use crate::error::{PolicyError, broken};
use crate::judge::{Extent, Judge};
use crate::policies::Policies;
use crate::request::{Action, PolicyRequest, PolicyRequestContext, Resource};
use crate::vocabulary::Vocabulary;
use crate::world::{Registry, World};

/// The Cedar text of a grant. `sentence` is what it covers, in words.
#[must_use]
pub fn grant_text(terms: &GrantTerms, sentence: &str) -> String {
    let (id, agent, until) = (&terms.id, &terms.agent, &terms.not_after);
    let reason = quoted(sentence);
    let key = terms.key.to_text();
    // An exact key is that of one call, whatever it does; the others are of calls that were
    // understood.
    let understood = match terms.cover {
        ScopeKind::Exact => "",
        ScopeKind::Shape
        | ScopeKind::Host
        | ScopeKind::Directory
        | ScopeKind::Program
        | ScopeKind::Tool => " &&\n  !context.opaque",
    };
    format!(
        "@id(\"{id}\")\n@reason(\"{reason}\")\npermit (\n  principal == \
         Palyra::Agent::\"{agent}\",\n  action in Palyra::Action::\"run\",\n  resource\n)\nwhen {{\n  \
         context.scopes.contains(\"{key}\") &&\n  context.now < datetime(\"{until}\"){understood}\n}};\n"
    )
}

/// A text in a Cedar string. What does not print is spelled out, as wherever a person reads it.
fn quoted(text: &str) -> String {
    let shown = palyra_core::render::visible(text);
    shown.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A rule that can be asked what it covers.
pub struct GrantRule {
    words: Vocabulary,
    policies: Policies,
    /// The little that is known around each kind of call, made once.
    worlds: BTreeMap<(String, ToolName, bool), World>,
}

impl GrantRule {
    /// Reads a rule.
    ///
    /// # Errors
    /// It is not Cedar, or does not fit the schema.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let words = Vocabulary::new()?;
        let policies = Policies::load(text, &words)?;
        Ok(Self {
            words,
            policies,
            worlds: BTreeMap::new(),
        })
    }

    /// Whether the rule by itself would let this call of an agent run, asked at `now`.
    ///
    /// # Errors
    /// The facts do not fit the schema.
    pub fn covers(&mut self, facts: &Facts, now: Timestamp) -> Result<bool, Denial> {
        let Principal::Agent { .. } = &facts.origin.principal else {
            return Ok(false);
        };
        let principal = facts.origin.principal.clone();
        let kind = (principal.to_string(), facts.tool.clone(), facts.sensitive);
        let world = match self.worlds.entry(kind) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let registry = Registry::of_call(facts);
                let world = World::build(&self.words, self.policies.schema, &registry);
                new.insert(world.map_err(broken)?)
            }
        };
        let mut facts = facts.clone();
        facts.now = now;
        facts.grant = None;
        let request = PolicyRequest {
            principal,
            action: Action::ToolExecute,
            resource: Resource::Tool(facts.tool.clone()),
        };
        let context = PolicyRequestContext {
            device_id: &facts.origin.device,
            channel: facts.origin.channel,
            call: Some(&facts),
        };
        let judge = Judge::new(&self.words, &self.policies, world);
        let decision = judge.evaluate(&request, &context, Extent::Whole)?;
        Ok(decision.allowed)
    }
}
