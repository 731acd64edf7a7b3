//! A call, made ready to be asked about: its tool, and each of its effects.

use std::path::Path;

use cedar_policy::{Context, Entities, Entity, EntityUid};
use palyra_core::{Channel, Denial, DeviceId, Effect, Facts, Principal, ProgramFacts, ToolName};

use crate::context;
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
    /// Whether an agent makes it; only then can a person be asked.
    pub(crate) by_agent: bool,
    pub(crate) steps: Vec<Step>,
    pub(crate) context: Context,
}

/// One thing that a call does: the two questions about it.
pub(crate) struct Step {
    pub(crate) run: Action,
    pub(crate) ask: Action,
    pub(crate) on: Resource,
    pub(crate) uid: EntityUid,
    /// The small world it is asked in, when it is about something made for this call.
    pub(crate) around: Option<Entities>,
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
        let context = context::of_call(words, facts)?;
        let mut steps = vec![Step::on_tool(&facts.tool, tool)];
        let named = named(words, &parties, tool, facts);
        for effect in &facts.effects {
            let done = Done::of(words, facts, effect)?;
            // The same thing twice is one question.
            let uid = done.entity.uid();
            if !steps
                .iter()
                .any(|step| step.run == done.run && step.uid == uid)
            {
                steps.push(Step::of_effect(words, policies, world, done, &named)?);
            }
        }
        Ok(Self {
            parties,
            by_agent: facts.origin.principal.agent().is_some(),
            steps,
            context,
        })
    }

    /// The most ordinary call of this tool, with effects that nobody knows yet.
    pub(crate) fn for_listing(
        words: &Vocabulary,
        world: &World,
        principal: &Principal,
        tool: &ToolName,
    ) -> Result<Self, Denial> {
        let (uid, _) = world.tool(tool)?;
        Ok(Self {
            parties: world.parties(words, principal)?,
            by_agent: principal.agent().is_some(),
            steps: vec![Step::on_tool(tool, uid)],
            context: context::of_listing(words, tool, &DeviceId::local(), Channel::Cli)?,
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
            around: None,
        }
    }

    fn of_effect(
        words: &Vocabulary,
        policies: &Policies,
        world: &World,
        done: Done,
        named: &[EntityUid],
    ) -> Result<Self, Denial> {
        let Done {
            run,
            ask,
            on,
            entity,
        } = done;
        let uid = entity.uid();
        let verbs = [run, ask].map(|action| words.action(action));
        let verbs = verbs.iter().filter_map(|verb| policies.actions.get(verb));
        let made: Vec<Entity> = verbs.cloned().chain([entity]).collect();
        // Nothing here has attributes that a schema could check.
        let around = world.around(None, made, named.iter().cloned())?;
        Ok(Self {
            run,
            ask,
            on,
            uid,
            around: Some(around),
        })
    }
}

/// An effect in policy's words: what is done, and the entity it is done to.
struct Done {
    run: Action,
    ask: Action,
    on: Resource,
    entity: Entity,
}

impl Done {
    fn of(words: &Vocabulary, facts: &Facts, effect: &Effect) -> Result<Self, Denial> {
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
        Ok(Self {
            run,
            ask,
            on,
            entity,
        })
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
