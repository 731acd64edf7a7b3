//! A call, made ready to be asked about: its tool, and each of its effects.

use cedar_policy::{Context, Entities, Entity, EntityUid};
use palyra_core::{Channel, Denial, DeviceId, Effect, Facts, Principal, ToolName};

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
        for (number, effect) in facts.effects.iter().enumerate() {
            // The same thing twice is one question.
            if !facts
                .effects
                .iter()
                .take(number)
                .any(|other| other == effect)
            {
                steps.push(Step::of_effect(words, policies, world, effect, &named)?);
            }
        }
        Ok(Self {
            parties,
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
        effect: &Effect,
        named: &[EntityUid],
    ) -> Result<Self, Denial> {
        let (run, ask, on, entity) = match effect {
            Effect::Exec { program } => (
                Action::Exec,
                Action::ExecAsk,
                Resource::Program(program.clone()),
                places::program(words, program)?,
            ),
            Effect::FsRead { path } => (
                Action::FsRead,
                Action::FsReadAsk,
                Resource::Path(path.clone()),
                places::path(words, path)?,
            ),
            Effect::FsWrite { path } => (
                Action::FsWrite,
                Action::FsWriteAsk,
                Resource::Path(path.clone()),
                places::path(words, path)?,
            ),
            Effect::NetConnect { host, .. } => (
                Action::NetConnect,
                Action::NetConnectAsk,
                Resource::Host(host.to_string()),
                places::host(words, host.as_str())?,
            ),
        };
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
