//! Questions answered: one state of policies and world, and everything that is asked of it.

use std::mem::discriminant;
use std::ops::Range;
use std::sync::Arc;

use cedar_policy::{
    AuthorizationError, Authorizer, Decision, Entities, EntityUid, Request,
    validate_scope_variables,
};
use palyra_core::corridor::PolicyAnswer;
use palyra_core::{Denial, Facts, Principal, ToolName};

use crate::call::{PreparedCall, Step};
use crate::context::{self, Checked};
use crate::decision::{Deliberation, PolicyDecision, denial, matched};
use crate::error::broken;
use crate::policies::{Policies, Watched};
use crate::request::{Action, PolicyRequest, PolicyRequestContext, Resource};
use crate::slices::Slices;
use crate::vocabulary::Vocabulary;
use crate::world::{Party, World};

/// Answers from one state of things: all questions of a call see the same.
pub(crate) struct Judge<'a> {
    words: &'a Vocabulary,
    policies: &'a Policies,
    world: &'a World,
    authorizer: Authorizer,
}

/// How much of the policy set a question is evaluated with. The answer is the same.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    /// What can matter to it.
    Slice,
    /// Everything, to compare with.
    Whole,
}

/// No answer could be had.
struct Failed {
    /// The policy that failed, if one did.
    policy: Option<String>,
    denial: Denial,
}

impl From<Failed> for Denial {
    fn from(failed: Failed) -> Self {
        failed.denial
    }
}

/// One question, ready for Cedar.
struct Question<'a> {
    party: &'a Party,
    action: Action,
    on: &'a Resource,
    resource: EntityUid,
    context: Checked,
}

/// An answer, and every question it took.
type Weighed = (PolicyAnswer, Vec<PolicyDecision>);

impl<'a> Judge<'a> {
    pub(crate) fn new(words: &'a Vocabulary, policies: &'a Policies, world: &'a World) -> Self {
        Self {
            words,
            policies,
            world,
            authorizer: Authorizer::new(),
        }
    }

    /// The answer to a call, with every question it took.
    pub(crate) fn deliberate(&self, facts: &Facts) -> Result<Deliberation, Denial> {
        let call = self.prepare(facts)?;
        let (answer, asked) = self.weigh(&call, &self.policies.slices)?;
        let log_only = match &self.policies.watched {
            Some(watched) => self.watch(watched, &call, &answer),
            None => Vec::new(),
        };
        Ok(Deliberation {
            answer,
            asked,
            version: self.policies.version.clone(),
            log_only,
        })
    }

    /// A call, ready to be asked about.
    pub(crate) fn prepare(&self, facts: &Facts) -> Result<PreparedCall, Denial> {
        PreparedCall::new(self.words, self.policies, self.world, facts)
    }

    /// These questions of a call as Cedar gets them, and everything that is known about them.
    pub(crate) fn as_cedar(
        &self,
        call: &PreparedCall,
        asked: &[PolicyRequest],
    ) -> Result<(Vec<Request>, Entities), Denial> {
        let requests = asked.iter().map(|asked| {
            let (_, uid) = self.world.party(self.words, &asked.principal)?;
            let (resource, _) = self.world.resource(self.words, &asked.resource)?;
            self.request(&uid, asked.action, resource, call.context.clone())
        });
        let requests = requests.collect::<Result<_, _>>()?;
        let around = call.around.iter();
        let made = around.flat_map(|around| {
            let steps = call.steps.iter();
            steps.filter_map(|step| around.get(&step.uid).cloned())
        });
        let entities = self.world.entities.clone().upsert_entities(made, None);
        Ok((requests, entities.map_err(broken)?))
    }

    /// One question, exactly as it stands.
    pub(crate) fn evaluate(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext<'_>,
        extent: Extent,
    ) -> Result<PolicyDecision, Denial> {
        let (words, policies, world) = (self.words, self.policies, self.world);
        let party = world.party(words, &request.principal)?;
        world.check_origin(words, context.device_id, context.channel)?;
        let (resource, record) = world.resource(words, &request.resource)?;
        let question = Question {
            party: &party,
            action: request.action,
            on: &request.resource,
            resource,
            context: match (context.call, context.device_id, context.channel) {
                (Some(facts), _, _) => {
                    context::of_call(words, policies.schema, request.action, facts)?
                }
                (None, device, channel) => {
                    context::of_api(words, policies.schema, request.action, device, channel)?
                }
            },
        };
        let Some(record) = record else {
            return Ok(self.ask(&policies.slices, &world.entities, question, extent)?);
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
        let entities = match request.resource {
            // These have nothing but a name and what they are in: no schema can find fault.
            Resource::Program(_) | Resource::Path(_) | Resource::Host(_) | Resource::Secret(_) => {
                let verb = policies.actions.get(&words.action(request.action)).cloned();
                world.around(None, verb.into_iter().chain([record]), named)?
            }
            Resource::Daemon
            | Resource::Tool(_)
            | Resource::Call { .. }
            | Resource::Approval { .. }
            | Resource::Agents
            | Resource::Agent(_) => world.around(Some(policies.schema), [record], named)?,
        };
        Ok(self.ask(&policies.slices, &entities, question, extent)?)
    }

    /// Whether the most ordinary call of this tool would run or be asked about.
    pub(crate) fn may_list(&self, principal: &Principal, tool: &ToolName) -> bool {
        let call =
            PreparedCall::for_listing(self.words, self.policies, self.world, principal, tool);
        call.is_ok_and(|call| {
            let may = |action, step| {
                let answer =
                    self.all_may(action, step, &call, &self.policies.slices, &mut Vec::new());
                answer.unwrap_or(false)
            };
            let mut steps = call.steps.iter();
            steps.all(|step| may(step.run, step) || call.by_agent && may(step.ask, step))
        })
    }

    /// Asks everything about a call that its answer takes.
    fn weigh(&self, call: &PreparedCall, slices: &Slices) -> Result<Weighed, Failed> {
        let mut asked = Vec::with_capacity(2 * call.parties.len() * call.steps.len());
        // Where the questions begin and end that let somebody be asked.
        let mut to_ask: Vec<Range<usize>> = Vec::new();
        for step in &call.steps {
            let first = asked.len();
            if self.all_may(step.run, step, call, slices, &mut asked)? {
                continue;
            }
            let refused = asked.len();
            if !call.by_agent || !self.all_may(step.ask, step, call, slices, &mut asked)? {
                let questions = asked.get(first..).unwrap_or_default();
                let answer = no(self.policies, questions)?;
                return Ok((answer, asked));
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
        Ok((answer, asked))
    }

    /// The policies that are only watched and would have made this another answer. It is weighed
    /// once more with all of them; of those, the ones that turned a question around.
    fn watch(&self, watched: &Watched, call: &PreparedCall, answer: &PolicyAnswer) -> Vec<String> {
        let (otherwise, asked) = match self.weigh(call, &watched.slices) {
            Ok(weighed) => weighed,
            Err(failed) => return vec![failed.in_words()],
        };
        if discriminant(&otherwise) == discriminant(answer) {
            return Vec::new();
        }
        let turned = asked.iter().filter(|then| {
            let now = self.ask_again(then, call, &self.policies.slices);
            now.is_none_or(|allowed| allowed != then.allowed)
        });
        let mut ids = matched(turned);
        ids.retain(|id| watched.ids.contains(id));
        ids
    }

    /// The answer to a question that was asked of other policies.
    fn ask_again(
        &self,
        asked: &PolicyDecision,
        call: &PreparedCall,
        slices: &Slices,
    ) -> Option<bool> {
        let mut parties = call.parties.iter();
        let party = parties.find(|(principal, _)| *principal == asked.principal)?;
        let mut steps = call.steps.iter();
        let step = steps.find(|step| {
            (step.run == asked.action || step.ask == asked.action) && step.on == asked.resource
        })?;
        let decision = self.ask_step(asked.action, step, party, call, slices);
        decision.ok().map(|decision| decision.allowed)
    }

    /// Asks about each party in turn, and stops at the first no.
    fn all_may(
        &self,
        action: Action,
        step: &Step,
        call: &PreparedCall,
        slices: &Slices,
        asked: &mut Vec<PolicyDecision>,
    ) -> Result<bool, Failed> {
        for party in &call.parties {
            let decision = self.ask_step(action, step, party, call, slices)?;
            let allowed = decision.allowed;
            asked.push(decision);
            if !allowed {
                return Ok(false);
            }
        }
        // Nobody to ask about is nobody who may.
        Ok(!call.parties.is_empty())
    }

    fn ask_step(
        &self,
        action: Action,
        step: &Step,
        party: &Party,
        call: &PreparedCall,
        slices: &Slices,
    ) -> Result<PolicyDecision, Failed> {
        let question = Question {
            party,
            action,
            on: &step.on,
            resource: step.uid.clone(),
            context: call.context.clone(),
        };
        let entities = call.around.as_ref().unwrap_or(&self.world.entities);
        self.ask(slices, entities, question, Extent::Slice)
    }

    /// A request that fits the schema: the context does already.
    fn request(
        &self,
        uid: &EntityUid,
        action: Action,
        resource: EntityUid,
        context: Checked,
    ) -> Result<Request, Denial> {
        let verb = self.words.action(action);
        validate_scope_variables(uid, &verb, &resource, self.policies.schema).map_err(broken)?;
        let context = context.into_inner();
        Request::new(uid.clone(), verb, resource, context, None).map_err(broken)
    }

    /// The one place where Cedar is asked. A request that does not fit the schema, and any error
    /// while evaluating, is "could not tell".
    fn ask(
        &self,
        slices: &Slices,
        entities: &Entities,
        question: Question<'_>,
        extent: Extent,
    ) -> Result<PolicyDecision, Failed> {
        let Question {
            party: (principal, uid),
            action,
            on,
            resource,
            context,
        } = question;
        let set = match extent {
            Extent::Slice => slices.of(action, uid, &resource, entities),
            Extent::Whole => Arc::clone(slices.whole()),
        };
        let request = self.request(uid, action, resource, context);
        let request = request.map_err(|denial| Failed {
            policy: None,
            denial,
        })?;
        let response = self.authorizer.is_authorized(&request, &set, entities);
        let diagnostics = response.diagnostics();
        if let Some(error) = diagnostics.errors().next() {
            let AuthorizationError::PolicyEvaluationError(failed) = error;
            return Err(Failed {
                policy: Some(AsRef::<str>::as_ref(failed.policy_id()).to_owned()),
                denial: broken(error),
            });
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

impl Failed {
    /// As it stands among the ids of what was watched, none of which holds a space.
    fn in_words(self) -> String {
        match self.policy {
            Some(id) => format!("{id} failed"),
            None => format!("watching failed: {}", self.denial.reason),
        }
    }
}

/// The denial of a call that may neither run nor be asked about.
fn no(policies: &Policies, asked: &[PolicyDecision]) -> Result<PolicyAnswer, Failed> {
    let refusals = || asked.iter().filter(|decision| !decision.allowed);
    let last = refusals().next_back().ok_or_else(|| Failed {
        policy: None,
        denial: broken("nobody was asked about"),
    })?;
    Ok(PolicyAnswer::Deny {
        matched: matched(refusals()),
        denial: denial(policies, last),
    })
}
