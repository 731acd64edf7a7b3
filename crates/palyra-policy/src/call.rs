//! A call, made ready to be asked about: its tool, and each of its effects.

use std::collections::HashMap;
use std::path::Path;

use cedar_policy::{Entities, Entity, EntityUid};
use palyra_core::{Channel, Denial, DeviceId, Effect, Facts, Principal, ProgramFacts, ToolName};

use crate::context::{self, Checked};
use crate::error::broken;
use crate::places;
use crate::policies::Policies;
use crate::request::{Action, Resource};
use crate::vocabulary::Vocabulary;
use crate::world::{Party, World};

/// Everyone who must be allowed, everything they must be allowed to do, and the facts that all
/// these questions share.
pub(crate) struct PreparedCall {
    pub(crate) parties: Vec<Party>,
    pub(crate) steps: Vec<Step>,
    pub(crate) context: Checked,
    /// The small world it is asked about in, when some of it was made for this call.
    pub(crate) around: Option<Entities>,
}

/// One thing that a call does: the two questions about it.
pub(crate) struct Step {
    pub(crate) run: Action,
    pub(crate) ask: Action,
    pub(crate) on: Resource,
    pub(crate) uid: EntityUid,
}

impl PreparedCall {
    /// A call, with everything checked that Cedar would take on trust.
    pub(crate) fn new(
        words: &Vocabulary,
        policies: &Policies,
        world: &World,
        facts: &Facts,
    ) -> Result<Self, Denial> {
        let parties = world.parties(words, &facts.origin.principal)?;
        world.check_origin(words, &facts.origin.device, facts.origin.channel)?;
        let (tool, sensitive) = world.tool(&facts.tool)?;
        if *sensitive != facts.sensitive {
            return Err(broken(format_args!(
                "the facts and the registry disagree about whether `{}` is sensitive",
                facts.tool
            )));
        }
        let context = context::of_call(words, policies.schema, Action::ToolExecute, facts)?;
        let mut steps = vec![Step::on_tool(&facts.tool, tool)];
        let mut made: HashMap<EntityUid, Entity> = HashMap::new();
        for effect in &facts.effects {
            let (step, entity) = Step::of_effect(words, facts, effect)?;
            // The same thing twice is one question.
            let is_it = |known: &Step| known.run == step.run && known.uid == step.uid;
            if steps.iter().any(is_it) {
                continue;
            }
            for verb in [step.run, step.ask].map(|action| words.action(action)) {
                let known = policies.actions.get(&verb);
                made.extend(known.map(|known| (verb, known.clone())));
            }
            made.insert(step.uid.clone(), entity);
            steps.push(step);
        }
        let around = if made.is_empty() {
            None
        } else {
            for verb in [Action::ToolExecute, Action::ToolExecuteAsk] {
                let verb = words.action(verb);
                let known = policies.actions.get(&verb);
                made.extend(known.map(|known| (verb, known.clone())));
            }
            let named = named(words, &parties, tool, facts);
            // Nothing that was made has attributes that a schema could check.
            Some(world.around(None, made.into_values(), named)?)
        };
        Ok(Self {
            parties,
            steps,
            context,
            around,
        })
    }

    /// The most ordinary call of this tool, with effects that nobody knows yet.
    pub(crate) fn for_listing(
        words: &Vocabulary,
        policies: &Policies,
        world: &World,
        principal: &Principal,
        tool: &ToolName,
    ) -> Result<Self, Denial> {
        let (uid, _) = world.tool(tool)?;
        let (device, channel) = (DeviceId::local(), Channel::Cli);
        Ok(Self {
            parties: world.parties(words, principal)?,
            steps: vec![Step::on_tool(tool, uid)],
            context: context::of_listing(words, policies.schema, tool, &device, channel)?,
            around: None,
        })
    }
}

impl Step {
    fn on_tool(name: &ToolName, uid: &EntityUid) -> Self {
        Self {
            run: Action::ToolExecute,
            ask: Action::ToolExecuteAsk,
            on: Resource::Tool(name.clone()),
            uid: uid.clone(),
        }
    }

    /// An effect in policy's words: what is done, and the entity it is done to.
    fn of_effect(
        words: &Vocabulary,
        facts: &Facts,
        effect: &Effect,
    ) -> Result<(Self, Entity), Denial> {
        let (run, ask, on, entity) = match effect {
            Effect::Exec { program } => {
                let known = known(facts, program)?;
                let entity = places::program(words, &known)?;
                let on = Resource::Program(known);
                (Action::Exec, Action::ExecAsk, on, entity)
            }
            Effect::FsRead { path } => {
                let (on, entity) = (Resource::Path(path.clone()), places::path(words, path)?);
                (Action::FsRead, Action::FsReadAsk, on, entity)
            }
            Effect::FsWrite { path } => {
                let (on, entity) = (Resource::Path(path.clone()), places::path(words, path)?);
                (Action::FsWrite, Action::FsWriteAsk, on, entity)
            }
            Effect::NetConnect { host, .. } => {
                let (on, entity) = (Resource::Host(host.clone()), places::host(words, host));
                (Action::NetConnect, Action::NetConnectAsk, on, entity)
            }
        };
        let uid = entity.uid();
        Ok((Self { run, ask, on, uid }, entity))
    }
}

/// What is known of a program that a call runs. Of an opaque call that may be nothing; it is judged
/// as opaque. One that was understood and has a program without facts contradicts itself.
fn known(facts: &Facts, program: &Path) -> Result<ProgramFacts, Denial> {
    let mut known = facts.programs.iter();
    match known.find(|known| known.program == program) {
        Some(known) => Ok(known.clone()),
        None if facts.opaque => Ok(ProgramFacts {
            program: program.to_owned(),
            real: None,
            groups: Vec::new(),
        }),
        None => Err(broken(format_args!(
            "the call was understood, and nothing is known of its program `{}`",
            program.display()
        ))),
    }
}

/// Everything known that a policy can read in a question about this call.
fn named(words: &Vocabulary, parties: &[Party], tool: &EntityUid, facts: &Facts) -> Vec<EntityUid> {
    let people = parties.iter().map(|(_, uid)| uid.clone());
    let origin = [
        words.device(&facts.origin.device),
        words.channel(facts.origin.channel),
        tool.clone(),
    ];
    let grant = facts.grant.iter().map(|grant| words.agent(&grant.agent));
    people.chain(origin).chain(grant).collect()
}
