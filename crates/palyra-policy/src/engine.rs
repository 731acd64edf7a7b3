//! The engine: what decides and what is known, swapped as a whole while questions are answered.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cedar_policy::{Entities, PolicySet, Request};
use palyra_core::corridor::{Decides, PolicyAnswer};
use palyra_core::{
    AgentName, Channel, Denial, DeviceId, Facts, Principal, ToolMetadata, ToolName, UserName,
};

use crate::decision::{Deliberation, PolicyDecision, denial, matched};
use crate::error::PolicyError;
use crate::judge::{Extent, Judge};
use crate::operator::Bundle;
use crate::policies::{DEFAULT_POLICY_SRC, Policies};
use crate::request::{Action, PolicyRequest, PolicyRequestContext, Resource};
use crate::vocabulary::Vocabulary;
use crate::world::{Registry, World};

/// Decides, with Cedar. Shared between threads; a question never waits for a change of policies,
/// tools or agents, it sees everything as it was before or after.
#[derive(Debug)]
pub struct PolicyEngine {
    words: Vocabulary,
    /// What the world is built from; held while it is rebuilt.
    registry: Mutex<Registry>,
    /// Locked only to copy or swap the references.
    now: RwLock<Now>,
}

/// What decides, and what is known. An answer takes one copy and asks all its questions of it.
#[derive(Debug, Clone)]
struct Now {
    policies: Arc<Policies>,
    world: Arc<World>,
}

/// Policies that only have to be put in force.
#[derive(Debug)]
pub struct ReadyPolicies(Policies);

impl PolicyEngine {
    /// An engine that decides with these policies, in a world of the owner and nobody else.
    ///
    /// # Errors
    /// The source does not parse, does not validate strictly against the schema, or has a policy
    /// without a plain `@id`. The error says where.
    pub fn new(source: &str) -> Result<Self, PolicyError> {
        let words = Vocabulary::new()?;
        let policies = Policies::load(source, &words)?;
        Self::deciding_with(policies, words)
    }

    /// An engine that decides with this bundle, and watches what is only to be watched.
    ///
    /// # Errors
    /// The embedded schema is broken, which a test rules out.
    pub fn of(bundle: &Bundle) -> Result<Self, PolicyError> {
        let words = Vocabulary::new()?;
        let policies = Policies::of(bundle, &words)?;
        Self::deciding_with(policies, words)
    }

    fn deciding_with(policies: Policies, words: Vocabulary) -> Result<Self, PolicyError> {
        let registry = Registry::default();
        let world = World::build(&words, policies.schema, &registry)?;
        let now = Now {
            policies: Arc::new(policies),
            world: Arc::new(world),
        };
        Ok(Self {
            words,
            registry: Mutex::new(registry),
            now: RwLock::new(now),
        })
    }

    /// An engine that decides with the embedded baseline, [`DEFAULT_POLICY_SRC`].
    ///
    /// # Errors
    /// The embedded baseline is broken, which a test rules out.
    pub fn standard() -> Result<Self, PolicyError> {
        Self::new(DEFAULT_POLICY_SRC)
    }

    /// Decides with these policies from the next answer on. Answers under way end with those they
    /// began with; none waits.
    ///
    /// # Errors
    /// As [`PolicyEngine::new`]; the policies before stay in force.
    pub fn replace_policies(&self, source: &str) -> Result<(), PolicyError> {
        self.take_into_use(Policies::load(source, &self.words)?);
        Ok(())
    }

    /// Decides with this bundle from the next answer on, as [`PolicyEngine::replace_policies`] does
    /// with a text. What decides and what is only watched change at once.
    ///
    /// # Errors
    /// As [`PolicyEngine::of`]; the policies before stay in force.
    pub fn replace(&self, bundle: &Bundle) -> Result<(), PolicyError> {
        self.put_in_force(self.ready(bundle)?);
        Ok(())
    }

    /// Everything about a replacement that takes time or can fail.
    ///
    /// # Errors
    /// As [`PolicyEngine::of`].
    pub fn ready(&self, bundle: &Bundle) -> Result<ReadyPolicies, PolicyError> {
        Policies::of(bundle, &self.words).map(ReadyPolicies)
    }

    /// The rest of it, which cannot fail.
    pub fn put_in_force(&self, ready: ReadyPolicies) {
        self.take_into_use(ready.0);
    }

    fn take_into_use(&self, policies: Policies) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut now.policies, Arc::new(policies));
        drop(now);
        // Freeing ten thousand policies takes a while: not under the lock.
        drop(before);
    }

    /// A short digest of the schema and the policies in force.
    #[must_use]
    pub fn version(&self) -> String {
        self.now().policies.version.clone()
    }

    /// The sentence that a policy has for people, by its id.
    #[must_use]
    pub fn reason(&self, id: &str) -> Option<String> {
        self.now().policies.reason(id).map(str::to_owned)
    }

    /// Replaces the tools that are known.
    ///
    /// # Errors
    /// The tools do not fit the schema. Nothing is known then, so everything is denied.
    pub fn set_tools(&self, tools: &[ToolMetadata]) -> Result<(), PolicyError> {
        let tools = tools
            .iter()
            .map(|tool| {
                let needs = tool.capabilities.clone();
                (tool.name.clone(), (tool.is_sensitive(), needs))
            })
            .collect();
        self.change(|registry| registry.tools = tools)
    }

    /// Replaces the agents that are known, each with the person it acts for.
    ///
    /// # Errors
    /// The agents do not fit the schema. Nothing is known then, so everything is denied.
    pub fn set_agents(
        &self,
        agents: impl IntoIterator<Item = (AgentName, UserName)>,
    ) -> Result<(), PolicyError> {
        let agents = agents.into_iter().collect();
        self.change(|registry| registry.agents = agents)
    }

    /// The answer to a call, with every question it took.
    ///
    /// A call is its tool and each of its effects. About each, "may it run now" is asked for the
    /// agent and then for the person behind it, or for the person alone; if anyone may not, "may a
    /// person be asked" is, in the same way. The strictest answer counts. Nobody is asked about a
    /// person's own call: a yes is given to an agent.
    ///
    /// # Errors
    /// Policy could not tell: something the call names is unknown, or evaluation failed.
    pub fn deliberate(&self, facts: &Facts) -> Result<Deliberation, Denial> {
        let now = self.now();
        now.judge(&self.words).deliberate(facts)
    }

    /// Whether this principal may do this, from there: the ids of the policies that allow it. For
    /// an agent, the person behind it must be allowed too. Executing a tool is not asked here but
    /// in the corridor, with the facts of the call.
    ///
    /// # Errors
    /// A denial: policy says no, or could not tell.
    pub fn authorize(
        &self,
        principal: &Principal,
        device: &DeviceId,
        channel: Channel,
        action: Action,
        resource: Resource,
    ) -> Result<Vec<String>, Denial> {
        let now = self.now();
        let context = PolicyRequestContext {
            device_id: device,
            channel,
            call: None,
        };
        let parties = now.world.parties(&self.words, principal)?;
        let mut asked = Vec::with_capacity(parties.len());
        for (principal, _) in parties {
            let request = PolicyRequest {
                principal,
                action,
                resource: resource.clone(),
            };
            let decision = now
                .judge(&self.words)
                .evaluate(&request, &context, Extent::Slice)?;
            if !decision.allowed {
                return Err(denial(&now.policies, &decision));
            }
            asked.push(decision);
        }
        Ok(matched(&asked))
    }

    /// One question, exactly as it stands: an agent is asked about without its person.
    ///
    /// # Errors
    /// Policy could not tell: the request names something unknown, does not fit the schema, or
    /// evaluation failed.
    pub fn evaluate_with_context(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext<'_>,
    ) -> Result<PolicyDecision, Denial> {
        let now = self.now();
        now.judge(&self.words)
            .evaluate(request, context, Extent::Slice)
    }

    /// Whether a tool could be run or asked for by this principal, for filtering lists. What a
    /// particular call does is not known here: it is taken for the most ordinary one, from this
    /// machine. It opens nothing, so "could not tell" is a plain no.
    #[must_use]
    pub fn may_list(&self, principal: &Principal, tool: &ToolName) -> bool {
        let now = self.now();
        now.judge(&self.words).may_list(principal, tool)
    }

    fn now(&self) -> Now {
        // The lock guards two references, which are whole even after a panic elsewhere.
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    fn change(&self, edit: impl FnOnce(&mut Registry)) -> Result<(), PolicyError> {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        edit(&mut registry);
        let built = World::build(&self.words, self.now().policies.schema, &registry);
        // The world before might still know an agent that was removed: on failure, know nothing.
        let (world, result) = match built {
            Ok(world) => (world, Ok(())),
            Err(error) => (World::empty(), Err(error)),
        };
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        now.world = Arc::new(world);
        result
    }
}

impl Now {
    fn judge<'a>(&'a self, words: &'a Vocabulary) -> Judge<'a> {
        Judge::new(words, &self.policies, &self.world)
    }
}

impl Decides for PolicyEngine {
    fn answer(&self, facts: &Facts) -> Result<PolicyAnswer, Denial> {
        self.deliberate(facts)
            .map(|deliberation| deliberation.answer)
    }
}

/// What a decision costs is compared with Cedar alone on the very same questions.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawQuestions {
    /// Every question that the answer took, in order.
    pub requests: Vec<Request>,
    /// The policies in force.
    pub policies: PolicySet,
    /// The world as it is.
    pub entities: Entities,
}

impl PolicyEngine {
    /// The questions of a call as Cedar gets them, for the bench.
    ///
    /// # Errors
    /// As [`PolicyEngine::deliberate`].
    #[doc(hidden)]
    pub fn raw_questions(&self, facts: &Facts) -> Result<RawQuestions, Denial> {
        let now = self.now();
        let judge = now.judge(&self.words);
        let asked = judge.deliberate(facts)?.asked;
        let asked: Vec<_> = asked.iter().map(PolicyDecision::request).collect();
        let (requests, entities) = judge.as_cedar(&judge.prepare(facts)?, &asked)?;
        Ok(RawQuestions {
            requests,
            policies: now.policies.slices.whole().as_ref().clone(),
            entities,
        })
    }

    /// [`PolicyEngine::evaluate_with_context`] over the whole policy set, to compare with.
    ///
    /// # Errors
    /// The same.
    #[doc(hidden)]
    pub fn evaluate_whole(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext<'_>,
    ) -> Result<PolicyDecision, Denial> {
        let now = self.now();
        now.judge(&self.words)
            .evaluate(request, context, Extent::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_core::DenialCode;

    /// Whether the owner sees the status, in a world changed like this.
    fn status(edit: impl FnOnce(&mut Registry)) -> Result<Vec<String>, Denial> {
        let engine = PolicyEngine::standard().unwrap();
        engine.change(edit).unwrap();
        let owner = Principal::User {
            name: UserName::owner(),
        };
        let (device, channel) = (DeviceId::local(), Channel::Cli);
        let (action, daemon) = (Action::DaemonStatus, Resource::Daemon);
        engine.authorize(&owner, &device, channel, action, daemon)
    }

    #[test]
    fn the_floor_is_a_paired_device_on_an_authenticated_channel() {
        assert!(status(|_| ()).is_ok());
        let unpaired = status(|registry| registry.devices = vec![(DeviceId::local(), false)]);
        let unauthenticated = status(|registry| registry.channels = vec![(Channel::Cli, false)]);
        for denial in [unpaired.unwrap_err(), unauthenticated.unwrap_err()] {
            assert_eq!(denial.code, DenialCode::DeniedByPolicy);
            assert_eq!(
                denial.reason,
                "the device is not paired or the channel is not authenticated"
            );
        }
    }

    #[test]
    fn an_unknown_device_or_channel_is_not_even_asked_about() {
        let no_device = status(|registry| registry.devices.clear());
        let no_channel = status(|registry| registry.channels.clear());
        for denial in [no_device.unwrap_err(), no_channel.unwrap_err()] {
            assert_eq!(denial.code, DenialCode::PolicyUnavailable);
        }
    }

    #[test]
    fn a_world_that_cannot_be_built_knows_nobody() {
        let engine = PolicyEngine::standard().unwrap();
        // The same device twice, once paired and once not: which is it?
        let twice = vec![(DeviceId::local(), true), (DeviceId::local(), false)];
        let error = engine.change(|registry| registry.devices = twice);
        assert!(matches!(error, Err(PolicyError::World(_))), "{error:?}");
        assert!(engine.now().world.entities.is_empty());
    }
}
