//! What policy knows about: people, agents, tools, devices and channels, as prebuilt entities.
//!
//! A world is built when its contents change and shared by every question until then. Whatever a
//! question names must be in it: Cedar itself would take an unknown entity for one without
//! attributes, and a `forbid` that reads them would be skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use cedar_policy::{Entities, Entity, EntityUid, RestrictedExpression, Schema};
use palyra_core::facts::Origin;
use palyra_core::{
    AgentName, Channel, Denial, DeviceId, Facts, Principal, ToolCapability, ToolName, UserName,
};

use crate::error::{PolicyError, broken, unavailable};
use crate::places;
use crate::request::Resource;
use crate::vocabulary::Vocabulary;

/// What a world is built from.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    /// Each tool, whether it is sensitive, and what it needs.
    pub(crate) tools: BTreeMap<ToolName, (bool, BTreeSet<ToolCapability>)>,
    /// The people, besides those for whom an agent acts.
    pub(crate) people: BTreeSet<UserName>,
    /// Each agent, and for whom it acts.
    pub(crate) agents: BTreeMap<AgentName, UserName>,
    /// Each device, and whether it is paired.
    pub(crate) devices: Vec<(DeviceId, bool)>,
    /// Each channel, and whether it is authenticated.
    pub(crate) channels: Vec<(Channel, bool)>,
}

impl Default for Registry {
    /// This machine's socket, and nobody but the owner.
    fn default() -> Self {
        Self {
            tools: BTreeMap::new(),
            people: BTreeSet::from([UserName::owner()]),
            agents: BTreeMap::new(),
            devices: vec![(DeviceId::local(), true)],
            channels: vec![
                (Channel::Cli, true),
                (Channel::Mcp, true),
                (Channel::Hook, true),
            ],
        }
    }
}

impl Registry {
    /// Everybody and everything that a recorded call names, as it was then. Only a call that came
    /// from a paired device by an authenticated channel gets as far as having facts.
    pub(crate) fn of_call(facts: &Facts) -> Self {
        let Origin {
            principal,
            device,
            channel,
            ..
        } = &facts.origin;
        let user = principal.user().clone();
        let agent = principal.agent().map(|name| (name.clone(), user.clone()));
        let tool = (facts.sensitive, facts.capabilities.clone());
        Self {
            tools: BTreeMap::from([(facts.tool.clone(), tool)]),
            people: BTreeSet::from([user]),
            agents: agent.into_iter().collect(),
            devices: vec![(device.clone(), true)],
            channels: vec![(*channel, true)],
        }
    }
}

/// A principal to ask about: its name, and its entity.
pub(crate) type Party = (Principal, EntityUid);

/// Everything known, as entities.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) entities: Entities,
    tools: HashMap<ToolName, (EntityUid, bool)>,
    agents: HashMap<AgentName, (EntityUid, UserName)>,
}

impl World {
    /// A world in which nothing is known, so that everything is denied.
    pub(crate) fn empty() -> Self {
        Self {
            entities: Entities::empty(),
            tools: HashMap::new(),
            agents: HashMap::new(),
        }
    }

    pub(crate) fn build(
        words: &Vocabulary,
        schema: &Schema,
        registry: &Registry,
    ) -> Result<Self, PolicyError> {
        let wrong = |error: &dyn std::fmt::Display| PolicyError::World(error.to_string());
        let flag = |uid, name: &str, value| entity(uid, [(name, bool_of(value))]);
        let mut all = vec![Entity::with_uid(words.daemon.clone())];
        let people: BTreeSet<_> = registry.agents.values().chain(&registry.people).collect();
        for person in people {
            all.push(Entity::with_uid(words.user(person)));
        }
        for (name, user) in &registry.agents {
            let user = RestrictedExpression::new_entity_uid(words.user(user));
            all.push(entity(words.agent(name), [("user", user)])?);
        }
        for (name, (sensitive, needs)) in &registry.tools {
            all.push(tool(words, name, *sensitive, needs)?);
        }
        for (id, paired) in &registry.devices {
            all.push(flag(words.device(id), "paired", *paired)?);
        }
        for (channel, authenticated) in &registry.channels {
            all.push(flag(
                words.channel(*channel),
                "authenticated",
                *authenticated,
            )?);
        }
        let entities = Entities::from_entities(all, Some(schema)).map_err(|error| wrong(&error))?;
        let tools = registry.tools.iter();
        let agents = registry.agents.iter();
        Ok(Self {
            entities,
            tools: tools
                .map(|(name, (sensitive, _))| (name.clone(), (words.tool(name), *sensitive)))
                .collect(),
            agents: agents
                .map(|(name, user)| (name.clone(), (words.agent(name), user.clone())))
                .collect(),
        })
    }

    /// Everyone who must be allowed: the person, or the agent and then the person behind it.
    pub(crate) fn parties(
        &self,
        words: &Vocabulary,
        principal: &Principal,
    ) -> Result<Vec<Party>, Denial> {
        match principal {
            Principal::User { .. } => Ok(vec![self.party(words, principal)?]),
            Principal::Agent { user, .. } => {
                let person = Principal::User { name: user.clone() };
                Ok(vec![
                    self.party(words, principal)?,
                    self.party(words, &person)?,
                ])
            }
        }
    }

    /// One principal by itself.
    pub(crate) fn party(&self, words: &Vocabulary, principal: &Principal) -> Result<Party, Denial> {
        let uid = match principal {
            Principal::User { name } => {
                let uid = words.user(name);
                self.known(uid, || format!("there is no person `{name}`"))?
            }
            Principal::Agent { name, user } => match self.agents.get(name) {
                Some((uid, registered)) if registered == user => uid.clone(),
                Some(_) => {
                    return Err(unavailable(
                        format_args!("agent `{name}` does not act for `{user}`"),
                        format!("see for whom it acts with `palyra agents show {name}`"),
                    ));
                }
                None => return Err(not_registered(name)),
            },
        };
        Ok((principal.clone(), uid))
    }

    /// A tool, and whether it is sensitive.
    pub(crate) fn tool(&self, name: &ToolName) -> Result<&(EntityUid, bool), Denial> {
        self.tools.get(name).ok_or_else(|| {
            unavailable(
                format_args!("there is no tool `{name}`"),
                "see the tools with `palyra tools list`",
            )
        })
    }

    /// Refuses a device or channel nobody registered.
    pub(crate) fn check_origin(
        &self,
        words: &Vocabulary,
        device: &DeviceId,
        channel: Channel,
    ) -> Result<(), Denial> {
        self.known(words.device(device), || "the device is unknown".to_owned())?;
        let channel_uid = words.channel(channel);
        self.known(channel_uid, || {
            format!("the channel `{}` is unknown", channel.as_str())
        })?;
        Ok(())
    }

    /// The entity an action is done to. A record, a program, a path or a host is not part of this
    /// world, so its entity comes with it, to be evaluated in a small world [around](Self::around) it.
    pub(crate) fn resource(
        &self,
        words: &Vocabulary,
        resource: &Resource,
    ) -> Result<(EntityUid, Option<Entity>), Denial> {
        match resource {
            Resource::Daemon | Resource::Agents => Ok((words.daemon.clone(), None)),
            Resource::Tool(name) => Ok((self.tool(name)?.0.clone(), None)),
            Resource::Agent(name) => match self.agents.get(name) {
                Some((uid, _)) => Ok((uid.clone(), None)),
                None => Err(not_registered(name)),
            },
            Resource::Call { owner } => record(words, &words.call, "user", owner),
            Resource::Approval { requester } => {
                record(words, &words.approval, "requester", requester)
            }
            Resource::Program(known) => Ok(made(places::program(words, known)?)),
            Resource::Path(path) => Ok(made(places::path(words, path)?)),
            Resource::Host(host) => Ok(made(places::host(words, host))),
            Resource::Secret(secret) => Ok(made(places::secret(words, secret))),
        }
    }

    /// A small world of its own for a question about a record or a place. Policies follow
    /// attributes one step (`MAX_LEVEL`), so the entities that the request names are all that can
    /// be read. With a schema they are checked against it, and its actions are added.
    pub(crate) fn around(
        &self,
        schema: Option<&Schema>,
        made: impl IntoIterator<Item = Entity>,
        named: impl IntoIterator<Item = EntityUid>,
    ) -> Result<Entities, Denial> {
        let known = named
            .into_iter()
            .collect::<HashSet<_>>()
            .into_iter()
            .filter_map(|uid| self.entities.get(&uid).cloned());
        Entities::from_entities(known.chain(made), schema).map_err(broken)
    }

    fn known(&self, uid: EntityUid, what: impl Fn() -> String) -> Result<EntityUid, Denial> {
        match self.entities.get(&uid) {
            Some(_) => Ok(uid),
            None => Err(broken(what())),
        }
    }
}

fn not_registered(name: &AgentName) -> Denial {
    unavailable(
        format_args!("no agent `{name}` is registered"),
        format!("register it with `palyra agents add {name}`"),
    )
}

fn made(entity: Entity) -> (EntityUid, Option<Entity>) {
    (entity.uid(), Some(entity))
}

/// A record and who it belongs to.
fn record(
    words: &Vocabulary,
    uid: &EntityUid,
    person: &'static str,
    owner: &Principal,
) -> Result<(EntityUid, Option<Entity>), Denial> {
    let reference = RestrictedExpression::new_entity_uid;
    let user = (person, reference(words.user(owner.user())));
    let agent = owner
        .agent()
        .map(|name| ("agent", reference(words.agent(name))));
    let entity = entity(uid.clone(), [user].into_iter().chain(agent)).map_err(broken)?;
    Ok((uid.clone(), Some(entity)))
}

/// A tool, in one group for each capability it needs.
fn tool(
    words: &Vocabulary,
    name: &ToolName,
    sensitive: bool,
    needs: &BTreeSet<ToolCapability>,
) -> Result<Entity, PolicyError> {
    let attributes = [("sensitive".to_owned(), bool_of(sensitive))];
    let plain = needs.is_empty().then_some("plain");
    let groups = needs.iter().map(|need| need.as_str()).chain(plain);
    let groups = groups.map(|group| words.tool_group(group)).collect();
    Entity::new(words.tool(name), attributes.into(), groups)
        .map_err(|error| PolicyError::World(error.to_string()))
}

fn entity<'a>(
    uid: EntityUid,
    attributes: impl IntoIterator<Item = (&'a str, RestrictedExpression)>,
) -> Result<Entity, PolicyError> {
    let attributes = attributes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Entity::new(uid, attributes, HashSet::new())
        .map_err(|error| PolicyError::World(error.to_string()))
}

fn bool_of(value: bool) -> RestrictedExpression {
    RestrictedExpression::new_bool(value)
}
