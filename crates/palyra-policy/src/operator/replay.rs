//! Recorded calls, decided again.
//!
//! A record outlives the agent that made the call and the tool that it called. So the world in
//! which it is decided again is built from its facts alone: who asked and for whom, the tool as it
//! was, the device and the channel. The same facts ask the same questions as they did then.

use std::collections::{BTreeSet, HashMap};

use palyra_core::{Denial, DeviceId, Facts, Principal, ToolCapability, ToolName};

use super::bundle::Bundle;
use super::question::Question;
use crate::call::PreparedCall;
use crate::decision::{Deliberation, PolicyDecision};
use crate::error::{PolicyError, broken};
use crate::judge::Judge;
use crate::policies::Policies;
use crate::request::PolicyRequest;
use crate::vocabulary::Vocabulary;
use crate::world::{Registry, World};

/// How many worlds are kept. Calls of one agent to one tool share theirs.
const MOST_WORLDS: usize = 4_096;

/// Decides recorded calls with one bundle. Preparing it takes as long as a reload; a call then
/// takes about as long as it did in the daemon.
#[derive(Debug)]
pub struct Replay {
    words: Vocabulary,
    policies: Policies,
    worlds: HashMap<Around, World>,
}

/// What a world is built from.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Around {
    principal: Principal,
    device: DeviceId,
    channel: &'static str,
    tool: ToolName,
    sensitive: bool,
    capabilities: BTreeSet<ToolCapability>,
}

/// What this bundle says to a recorded call. For many calls, prepare a [`Replay`] once.
///
/// # Errors
/// As [`Replay::decide`].
pub fn decide_call(bundle: &Bundle, facts: &Facts) -> Result<Deliberation, Denial> {
    Replay::of(bundle).map_err(broken)?.decide(facts)
}

impl Replay {
    /// Prepares to decide with this bundle.
    ///
    /// # Errors
    /// The embedded schema is broken, which a test rules out.
    pub fn of(bundle: &Bundle) -> Result<Self, PolicyError> {
        let words = Vocabulary::new()?;
        Ok(Self {
            policies: Policies::of(bundle, &words)?,
            words,
            worlds: HashMap::new(),
        })
    }

    /// What the bundle says to a recorded call. It cannot be run with that: facts from a record
    /// name no plan.
    ///
    /// # Errors
    /// Policy could not tell, as in the daemon.
    pub fn decide(&mut self, facts: &Facts) -> Result<Deliberation, Denial> {
        self.judge(facts)?.deliberate(facts)
    }

    /// These questions of a call, each by itself, and then every question whether it may run.
    pub(crate) fn questions(
        &mut self,
        facts: &Facts,
        asked: &[PolicyDecision],
    ) -> Result<(Vec<Question>, Vec<Question>), Denial> {
        let judge = self.judge(facts)?;
        let call = judge.prepare(facts)?;
        let as_written = |asked: Vec<PolicyRequest>| -> Result<Vec<Question>, Denial> {
            let (requests, entities) = judge.as_cedar(&call, &asked)?;
            let questions = requests.iter();
            let questions = questions.map(|request| Question::of_request(request, &entities));
            questions.collect::<Result<_, String>>().map_err(broken)
        };
        let asked = asked.iter().map(PolicyDecision::request).collect();
        Ok((as_written(asked)?, as_written(to_run(&call))?))
    }

    fn judge(&mut self, facts: &Facts) -> Result<Judge<'_>, Denial> {
        let around = Around {
            principal: facts.origin.principal.clone(),
            device: facts.origin.device.clone(),
            channel: facts.origin.channel.as_str(),
            tool: facts.tool.clone(),
            sensitive: facts.sensitive,
            capabilities: facts.capabilities.clone(),
        };
        if !self.worlds.contains_key(&around) {
            if self.worlds.len() >= MOST_WORLDS {
                self.worlds.clear();
            }
            let registry = Registry::of_call(facts);
            let built = World::build(&self.words, self.policies.schema, &registry);
            self.worlds.insert(around, built.map_err(broken)?);
            return self.judge(facts);
        }
        let world = self.worlds.get(&around);
        let world = world.ok_or_else(|| broken("what the call names is not known"))?;
        Ok(Judge::new(&self.words, &self.policies, world))
    }
}

/// Everything that must be allowed for a call to run.
fn to_run(call: &PreparedCall) -> Vec<PolicyRequest> {
    let mut all = Vec::new();
    for step in &call.steps {
        all.extend(call.parties.iter().map(|(principal, _)| PolicyRequest {
            principal: principal.clone(),
            action: step.run,
            resource: step.on.clone(),
        }));
    }
    all
}
