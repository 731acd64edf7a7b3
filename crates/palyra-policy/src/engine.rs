//! The engine: a validated policy set, the world it decides about, and the questions.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request};
use palyra_core::corridor::{Decides, PolicyAnswer};
use palyra_core::{
    AgentName, Channel, Denial, DeviceId, Facts, Principal, ToolMetadata, ToolName, UserName,
};

use crate::call::{PreparedCall, Step};
use crate::context;
use crate::decision::{Deliberation, PolicyDecision, denial, matched};
use crate::error::{PolicyError, broken};
use crate::policies::{DEFAULT_POLICY_SRC, Policies};
use crate::request::{Action, PolicyRequest, PolicyRequestContext, Resource};
use crate::vocabulary::Vocabulary;
use crate::world::{Party, Registry, World};

/// Decides, with Cedar. Shared between threads; a question never waits for a change of policies,
/// tools or agents, it sees everything as it was before or after.
#[derive(Debug)]
pub struct PolicyEngine {
    words: Vocabulary,
    authorizer: Authorizer,
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

impl PolicyEngine {
    /// An engine that decides with these policies, in a world of the owner and nobody else.
    ///
    /// # Errors
    /// The source does not parse, does not validate strictly against the schema, or has a policy
    /// without a plain `@id`. The error says where.
    pub fn new(source: &str) -> Result<Self, PolicyError> {
        let words = Vocabulary::new()?;
        let policies = Policies::load(source, &words)?;
        let registry = Registry::default();
        let world = World::build(&words, policies.schema, &registry)?;
        let now = Now {
            policies: Arc::new(policies),
            world: Arc::new(world),
        };
        Ok(Self {
            words,
            authorizer: Authorizer::new(),
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
        let policies = Arc::new(Policies::load(source, &self.words)?);
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut now.policies, policies);
        drop(now);
        // Freeing ten thousand policies takes a while: not under the lock.
        drop(before);
        Ok(())
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
        let call = PreparedCall::new(&self.words, &now.policies, &now.world, facts)?;
        let mut asked = Vec::with_capacity(2 * call.parties.len() * call.steps.len());
        // Where the questions begin and end that let somebody be asked.
        let mut to_ask: Vec<Range<usize>> = Vec::new();
        for step in &call.steps {
            let first = asked.len();
            if self.all_may(step.run, step, &call, &now, &mut asked)? {
                continue;
            }
            let refused = asked.len();
            if !call.by_agent || !self.all_may(step.ask, step, &call, &now, &mut asked)? {
                let questions = asked.get(first..).unwrap_or_default();
                let answer = no(&now.policies, questions)?;
                return Ok(Deliberation { answer, asked });
            }
            to_ask.push(refused..asked.len());
        }
        let answer = if to_ask.is_empty() {
            PolicyAnswer::Run {
                matched: matched(&asked),
            }
        } else {
            let questions = to_ask.into_iter().filter_map(|range| asked.get(range));
            PolicyAnswer::Ask {
                matched: matched(questions.flatten()),
            }
        };
        Ok(Deliberation { answer, asked })
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
            let decision = self.evaluate_in(&now, &request, &context, Extent::Slice)?;
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
        self.evaluate_in(&self.now(), request, context, Extent::Slice)
    }

    /// Whether a tool could be run or asked for by this principal, for filtering lists. What a
    /// particular call does is not known here: it is taken for the most ordinary one, from this
    /// machine. It opens nothing, so "could not tell" is a plain no.
    #[must_use]
    pub fn may_list(&self, principal: &Principal, tool: &ToolName) -> bool {
        let now = self.now();
        let could = || -> Result<bool, Denial> {
            let call = PreparedCall::for_listing(&self.words, &now.world, principal, tool)?;
            let may = |action, step| {
                let answer = self.all_may(action, step, &call, &now, &mut Vec::new());
                answer.unwrap_or(false)
            };
            let mut steps = call.steps.iter();
            Ok(steps.all(|step| may(step.run, step) || call.by_agent && may(step.ask, step)))
        };
        could().unwrap_or(false)
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

    /// Asks about each party in turn, and stops at the first no.
    fn all_may(
        &self,
        action: Action,
        step: &Step,
        call: &PreparedCall,
        now: &Now,
        asked: &mut Vec<PolicyDecision>,
    ) -> Result<bool, Denial> {
        for party in &call.parties {
            let question = Question {
                party,
                action,
                on: &step.on,
                resource: step.uid.clone(),
                context: call.context.clone(),
            };
            let entities = step.around.as_ref().unwrap_or(&now.world.entities);
            let decision = self.ask(&now.policies, entities, question, Extent::Slice)?;
            let allowed = decision.allowed;
            asked.push(decision);
            if !allowed {
                return Ok(false);
            }
        }
        // Nobody to ask about is nobody who may.
        Ok(!call.parties.is_empty())
    }

    fn evaluate_in(
        &self,
        now: &Now,
        request: &PolicyRequest,
        context: &PolicyRequestContext<'_>,
        extent: Extent,
    ) -> Result<PolicyDecision, Denial> {
        let (words, Now { policies, world }) = (&self.words, now);
        let party = world.party(words, &request.principal)?;
        world.check_origin(words, context.device_id, context.channel)?;
        let (resource, record) = world.resource(words, &request.resource)?;
        let question = Question {
            party: &party,
            action: request.action,
            on: &request.resource,
            resource,
            context: match context.call {
                Some(facts) => context::of_call(words, facts)?,
                None => context::of_api(words, context.device_id, context.channel)?,
            },
        };
        let Some(record) = record else {
            return self.ask(policies, &world.entities, question, extent);
        };
        let mut named = vec![
            party.1.clone(),
            words.device(context.device_id),
            words.channel(context.channel),
        ];
        if let Some(facts) = context.call {
            named.push(world.tool(&facts.tool)?.0.clone());
            named.extend(facts.grant.iter().map(|grant| words.agent(&grant.agent)));
        }
        let entities = world.around(Some(policies.schema), [record], named)?;
        self.ask(policies, &entities, question, extent)
    }

    /// The one place where Cedar is asked. A request that does not fit the schema, and any error
    /// while evaluating, is "could not tell".
    fn ask(
        &self,
        policies: &Policies,
        entities: &Entities,
        question: Question<'_>,
        extent: Extent,
    ) -> Result<PolicyDecision, Denial> {
        let Question {
            party: (principal, uid),
            action,
            on,
            resource,
            context,
        } = question;
        let set = match extent {
            Extent::Slice => policies.slices.of(action, uid, &resource, entities),
            Extent::Whole => Arc::clone(&policies.set),
        };
        let verb = self.words.action(action);
        let request = Request::new(uid.clone(), verb, resource, context, Some(policies.schema))
            .map_err(broken)?;
        let response = self.authorizer.is_authorized(&request, &set, entities);
        let diagnostics = response.diagnostics();
        if let Some(error) = diagnostics.errors().next() {
            return Err(broken(error));
        }
        let allowed = match response.decision() {
            Decision::Allow => true,
            Decision::Deny => false,
        };
        let mut matched: Vec<String> = diagnostics
            .reason()
            .map(|id| AsRef::<str>::as_ref(id).to_owned())
            .collect();
        matched.sort_unstable();
        Ok(PolicyDecision {
            principal: principal.clone(),
            action,
            resource: on.clone(),
            allowed,
            matched,
        })
    }
}

/// The denial of a call that may neither run nor be asked about.
fn no(policies: &Policies, asked: &[PolicyDecision]) -> Result<PolicyAnswer, Denial> {
    let refusals = || asked.iter().filter(|decision| !decision.allowed);
    let last = refusals().next_back();
    let last = last.ok_or_else(|| broken("nobody was asked about"))?;
    Ok(PolicyAnswer::Deny {
        matched: matched(refusals()),
        denial: denial(policies, last),
    })
}

impl Decides for PolicyEngine {
    fn answer(&self, facts: &Facts) -> Result<PolicyAnswer, Denial> {
        self.deliberate(facts)
            .map(|deliberation| deliberation.answer)
    }
}

/// One question, ready for Cedar.
struct Question<'a> {
    party: &'a Party,
    action: Action,
    on: &'a Resource,
    resource: EntityUid,
    context: Context,
}

/// How much of the policy set a question is evaluated with. The answer is the same.
#[derive(Debug, Clone, Copy)]
enum Extent {
    /// What can matter to it.
    Slice,
    /// Everything, to compare with.
    Whole,
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
        let Now { policies, world } = self.now();
        let call = PreparedCall::new(&self.words, &policies, &world, facts)?;
        let mut requests = Vec::new();
        for decision in self.deliberate(facts)?.asked {
            let (_, uid) = world.party(&self.words, &decision.principal)?;
            let verb = self.words.action(decision.action);
            let (resource, _) = world.resource(&self.words, &decision.resource)?;
            let (context, schema) = (call.context.clone(), Some(policies.schema));
            requests.push(Request::new(uid, verb, resource, context, schema).map_err(broken)?);
        }
        let made = call.steps.iter().filter_map(|step| {
            let entity = step.around.as_ref()?.get(&step.uid);
            entity.cloned()
        });
        let entities = world.entities.clone().upsert_entities(made, None);
        Ok(RawQuestions {
            requests,
            policies: policies.set.as_ref().clone(),
            entities: entities.map_err(broken)?,
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
        self.evaluate_in(&self.now(), request, context, Extent::Whole)
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
