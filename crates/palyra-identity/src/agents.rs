//! The registry of agents: entries that change it, the fold that keeps it, a view to look in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use palyra_core::entry::{Entry, Fold, Recorded, Row};
use palyra_core::{AgentName, Timestamp, UserName};

/// The state of every row: an agent is registered, or it has no row.
const ACTIVE: &str = "active";

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Agent {
    /// Its name.
    pub name: AgentName,
    /// The person it acts for.
    pub user: UserName,
    /// The folder it works on, fixed when it was registered.
    pub workspace: PathBuf,
    /// Since when.
    pub registered_at: Timestamp,
    /// How often its arguments held a secret, since it was last resumed.
    #[serde(default)]
    pub secret_hits: u64,
    /// Whether it may do nothing until a person resumes it.
    #[serde(default)]
    pub paused: bool,
    /// Why it is paused, when somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_for: Option<String>,
    /// When a person last let it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// Whether nobody is there to be asked about its calls.
    #[serde(default)]
    pub unattended: bool,
}

/// Why the registry does not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryRefused {
    /// The name is taken; an agent's workspace never moves under it.
    #[error("an agent `{0}` is registered already")]
    Taken(AgentName),
    /// There is none of that name.
    #[error("no agent `{0}` is registered")]
    Unknown(AgentName),
}

impl RegistryRefused {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Taken(name) => format!(
                "see it with `palyra agents show {name}`, or free the name with `palyra agents remove {name}`"
            ),
            Self::Unknown(_) => "see who is registered with `palyra agents list`".to_owned(),
        }
    }
}

/// The entry that registers an agent. The workspace went through
/// [`check_agent_workspace`](crate::check_agent_workspace) before.
///
/// # Errors
/// The name is taken.
pub fn register(
    registry: &Agents,
    name: AgentName,
    user: UserName,
    workspace: PathBuf,
    unattended: bool,
) -> Result<Entry, RegistryRefused> {
    if registry.get(&name).is_some() {
        return Err(RegistryRefused::Taken(name));
    }
    Ok(Entry::AgentAdded {
        name,
        user,
        workspace,
        unattended,
    })
}

/// The entry that removes an agent.
///
/// # Errors
/// There is none of that name.
pub fn remove(registry: &Agents, name: &AgentName) -> Result<Entry, RegistryRefused> {
    match registry.get(name) {
        Some(agent) => Ok(Entry::AgentRemoved {
            name: agent.name.clone(),
        }),
        None => Err(RegistryRefused::Unknown(name.clone())),
    }
}

/// The projection `agents`: one row for each registered agent, keyed by its name.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentsFold;

impl AgentsFold {
    /// The projection's name.
    pub const NAME: &'static str = "agents";
}

impl Fold for AgentsFold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        match &recorded.entry {
            Entry::AgentAdded { name, .. }
            | Entry::AgentRemoved { name }
            | Entry::AgentPaused { name, .. }
            | Entry::AgentResumed { name, .. } => Some(name.to_string()),
            Entry::SecretInArguments { principal, .. } => {
                principal.agent().map(ToString::to_string)
            }
            Entry::Proposed { .. }
            | Entry::Decided { .. }
            | Entry::ApprovalRequested { .. }
            | Entry::ApprovalDecided { .. }
            | Entry::ApprovalExpired
            | Entry::ApprovalCancelled { .. }
            | Entry::GrantSpent { .. }
            | Entry::ApprovalSuperseded { .. }
            | Entry::GrantMade { .. }
            | Entry::GrantEnded { .. }
            | Entry::PostureSet { .. }
            | Entry::Admitted { .. }
            | Entry::Finished { .. }
            | Entry::Attested { .. }
            | Entry::Advised { .. }
            | Entry::Closed { .. }
            | Entry::Interrupted
            | Entry::PolicyActivated { .. }
            | Entry::PolicyRefused { .. }
            | Entry::PolicyStaged { .. }
            | Entry::PolicyWithdrawn { .. }
            | Entry::Flooded { .. }
            | Entry::DaemonStarted { .. }
            | Entry::AppendedOnce { .. }
            | Entry::QuarantineRestored { .. }
            | Entry::BlobErased { .. }
            | Entry::ProjectionMended { .. }
            | Entry::PresenceChanged { .. }
            | Entry::Notified { .. }
            | Entry::KeyRotated { .. }
            | Entry::VaultChanged { .. }
            | Entry::SecretAccessed { .. } => None,
        }
    }

    fn fold(&self, before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let known = || before.and_then(|value| serde_json::from_slice::<Agent>(value).ok());
        if let Entry::SecretInArguments { times, paused, .. } = &recorded.entry {
            return row(&Agent {
                secret_hits: *times,
                paused: *paused,
                paused_for: paused.then(|| format!("{times} of its calls held a secret")),
                ..known()?
            });
        }
        if let Entry::AgentPaused { why, .. } = &recorded.entry {
            return row(&Agent {
                paused: true,
                paused_for: Some(why.clone()),
                ..known()?
            });
        }
        if let Entry::AgentResumed { .. } = &recorded.entry {
            return row(&Agent {
                secret_hits: 0,
                paused: false,
                paused_for: None,
                resumed_at: Some(recorded.at),
                ..known()?
            });
        }
        let Entry::AgentAdded {
            name,
            user,
            workspace,
            unattended,
        } = &recorded.entry
        else {
            return None;
        };
        // Two registrations can race to the journal. The first one wins: the second must not
        // move a registered agent to another folder or another person.
        let agent = known().unwrap_or_else(|| Agent {
            name: name.clone(),
            user: user.clone(),
            workspace: workspace.clone(),
            registered_at: recorded.at,
            secret_hits: 0,
            paused: false,
            paused_for: None,
            resumed_at: None,
            unattended: *unattended,
        });
        row(&agent)
    }
}

fn row(agent: &Agent) -> Option<Row> {
    Some(Row {
        key: agent.name.to_string(),
        state: ACTIVE.to_owned(),
        value: serde_json::to_vec(agent).ok()?,
    })
}

/// Who is registered, as one reader sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agents {
    by_name: BTreeMap<AgentName, Agent>,
}

impl Agents {
    /// The registry from the rows of the projection `agents`. A row that cannot be read is an
    /// agent that does not exist: nothing can be done in its name.
    #[must_use]
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter()
            .filter(|row| row.state == ACTIVE)
            .filter_map(|row| {
                let agent: Agent = serde_json::from_slice(&row.value).ok()?;
                (row.key == agent.name.as_str()).then_some(agent)
            })
            .collect()
    }

    /// The agent of this name.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<&Agent> {
        self.by_name.get(name)
    }

    /// Every agent, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.by_name.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl FromIterator<Agent> for Agents {
    fn from_iter<I: IntoIterator<Item = Agent>>(agents: I) -> Self {
        Self {
            by_name: agents
                .into_iter()
                .map(|agent| (agent.name.clone(), agent))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn added(agent: &str, workspace: &str) -> Entry {
        Entry::AgentAdded {
            name: name(agent),
            user: UserName::owner(),
            workspace: workspace.into(),
            unattended: false,
        }
    }

    fn recorded(revision: u64, entry: Entry) -> Recorded {
        Recorded {
            seq: revision,
            stream: "agents".to_owned(),
            revision,
            at: Timestamp::from_millis(i64::try_from(revision).unwrap()),
            entry,
        }
    }

    /// Plays entries through the fold as the journal does.
    fn play(entries: impl IntoIterator<Item = Entry>) -> Agents {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for (revision, entry) in (1..).zip(entries) {
            let recorded = recorded(revision, entry);
            let Some(key) = AgentsFold.key(&recorded) else {
                continue;
            };
            let before = rows.remove(&key);
            if let Some(row) = AgentsFold.fold(before.as_ref().map(|row| &*row.value), &recorded) {
                assert_eq!(row.key, key);
                assert_eq!(row.state, "active");
                rows.insert(key, row);
            }
        }
        Agents::from_rows(rows.values())
    }

    #[test]
    fn registered_agents_are_found_and_removed_ones_are_not() {
        let registry = play([
            added("claude", "/src/a"),
            added("codex", "/src/b"),
            Entry::AgentRemoved {
                name: name("claude"),
            },
            Entry::DaemonStarted {
                version: "1".to_owned(),
                blob_key: None,
            },
        ]);
        assert_eq!(registry.len(), 1);
        assert!(registry.get(&name("claude")).is_none());
        let codex = registry.get(&name("codex")).unwrap();
        assert_eq!(codex.workspace, PathBuf::from("/src/b"));
        assert_eq!(codex.registered_at, Timestamp::from_millis(2));
        assert_eq!(registry.iter().count(), 1);
    }

    #[test]
    fn a_second_registration_moves_nothing() {
        let registry = play([added("claude", "/src/a"), added("claude", "/etc")]);
        let claude = registry.get(&name("claude")).unwrap();
        assert_eq!(claude.workspace, PathBuf::from("/src/a"));
        assert_eq!(claude.registered_at, Timestamp::from_millis(1));
    }

    #[test]
    fn a_removed_name_can_be_registered_afresh() {
        let again = play([
            added("claude", "/src/a"),
            Entry::AgentRemoved {
                name: name("claude"),
            },
            added("claude", "/src/b"),
        ]);
        let claude = again.get(&name("claude")).unwrap();
        assert_eq!(claude.workspace, PathBuf::from("/src/b"));
    }

    #[test]
    fn taken_and_unknown_names_are_refused_with_a_way_on() {
        let registry = play([added("claude", "/src/a")]);
        let taken = register(
            &registry,
            name("claude"),
            UserName::owner(),
            "/src/b".into(),
            false,
        );
        assert_eq!(taken, Err(RegistryRefused::Taken(name("claude"))));
        assert!(
            taken
                .unwrap_err()
                .hint()
                .contains("palyra agents remove claude")
        );
        let unknown = remove(&registry, &name("codex"));
        assert_eq!(unknown, Err(RegistryRefused::Unknown(name("codex"))));

        let fresh = register(
            &registry,
            name("codex"),
            UserName::owner(),
            "/src/b".into(),
            false,
        );
        assert_eq!(fresh.unwrap(), added("codex", "/src/b"));
        assert_eq!(
            remove(&registry, &name("claude")).unwrap().kind(),
            "agent_removed"
        );
    }

    #[test]
    fn a_row_that_lies_about_itself_is_nobody() {
        let row = AgentsFold
            .fold(None, &recorded(1, added("claude", "/src/a")))
            .unwrap();
        let renamed = Row {
            key: "codex".to_owned(),
            ..row.clone()
        };
        let torn = Row {
            value: b"{".to_vec(),
            ..row.clone()
        };
        let paused = Row {
            state: "paused".to_owned(),
            ..row.clone()
        };
        assert!(Agents::from_rows([&renamed, &torn, &paused]).is_empty());
        assert_eq!(Agents::from_rows([&row]).len(), 1);
    }
}
