//! From a credential to a principal, and down from there; never up.

use palyra_core::{AgentName, Principal, UserName};

use crate::agents::Agents;

/// The peer of the socket is nobody this daemon knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("uid {peer} is not the user this daemon runs for (uid {daemon})")]
pub struct UnknownPeer {
    /// Whose connection it is.
    pub peer: u32,
    /// Whose daemon it is.
    pub daemon: u32,
}

impl UnknownPeer {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        "start a daemon of your own: `palyra init`, then `palyra status`"
    }
}

/// The principal behind a Unix socket connection: the daemon's own uid is the owner, everybody
/// else is nobody. That includes root, whose commands are not the owner's word.
///
/// # Errors
/// The peer has another uid.
pub fn peer_principal(peer_uid: u32, daemon_uid: u32) -> Result<Principal, UnknownPeer> {
    if peer_uid != daemon_uid {
        return Err(UnknownPeer {
            peer: peer_uid,
            daemon: daemon_uid,
        });
    }
    Ok(Principal::User {
        name: UserName::owner(),
    })
}

/// Why a connection does not become an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerRefused {
    /// No such agent.
    #[error("no agent `{0}` is registered")]
    Unknown(AgentName),
    /// It acts for somebody else.
    #[error("agent `{agent}` does not act for `{user}`")]
    NotTheirs {
        /// The agent that was named.
        agent: AgentName,
        /// The person who named it.
        user: UserName,
    },
    /// The connection is an agent's already; it is neither switched nor raised.
    #[error("this connection belongs to agent `{0}` and stays so")]
    AlreadyAnAgent(AgentName),
}

impl LowerRefused {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown(name) => format!("register it with `palyra agents add {name}`"),
            Self::NotTheirs { .. } => "see yours with `palyra agents list`".to_owned(),
            Self::AlreadyAnAgent(_) => {
                "open another connection as the person, without `--as`".to_owned()
            }
        }
    }
}

/// Turns a person's connection into that of one of their registered agents.
///
/// # Errors
/// The name is not registered or is another person's agent, or the connection is an agent's.
pub fn lower(
    principal: &Principal,
    to: &AgentName,
    registry: &Agents,
) -> Result<Principal, LowerRefused> {
    let person = match principal {
        Principal::User { name } => name,
        Principal::Agent { name, .. } => return Err(LowerRefused::AlreadyAnAgent(name.clone())),
    };
    let agent = registry
        .get(to)
        .ok_or_else(|| LowerRefused::Unknown(to.clone()))?;
    if agent.user != *person {
        return Err(LowerRefused::NotTheirs {
            agent: to.clone(),
            user: person.clone(),
        });
    }
    Ok(Principal::Agent {
        name: agent.name.clone(),
        user: agent.user.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agent;
    use palyra_core::Timestamp;

    fn agent(name: &str, user: &str) -> Agent {
        Agent {
            name: name.parse().unwrap(),
            user: user.parse().unwrap(),
            workspace: "/src".into(),
            registered_at: Timestamp::from_millis(0),
            secret_hits: 0,
            paused: false,
            paused_for: None,
            resumed_at: None,
            unattended: false,
        }
    }

    fn registry() -> Agents {
        [agent("claude", "owner"), agent("stranger", "guest")]
            .into_iter()
            .collect()
    }

    fn owner() -> Principal {
        Principal::User {
            name: UserName::owner(),
        }
    }

    #[test]
    fn only_the_daemons_own_uid_is_the_owner() {
        assert_eq!(peer_principal(1000, 1000), Ok(owner()));
        assert_eq!(peer_principal(0, 0), Ok(owner()));
        for (peer, daemon) in [(0, 1000), (1000, 0), (1001, 1000), (u32::MAX, 1000)] {
            assert_eq!(
                peer_principal(peer, daemon),
                Err(UnknownPeer { peer, daemon })
            );
        }
    }

    #[test]
    fn an_owner_lowers_to_their_own_agent() {
        let lowered = lower(&owner(), &"claude".parse().unwrap(), &registry()).unwrap();
        assert_eq!(lowered.to_string(), "agent:claude");
        assert_eq!(lowered.user(), &UserName::owner());
    }

    #[test]
    fn unknown_names_and_other_peoples_agents_are_refused() {
        let nobody: AgentName = "nobody".parse().unwrap();
        let refused = lower(&owner(), &nobody, &registry()).unwrap_err();
        assert_eq!(refused, LowerRefused::Unknown(nobody));
        assert!(refused.hint().contains("palyra agents add nobody"));

        let refused = lower(&owner(), &"stranger".parse().unwrap(), &registry()).unwrap_err();
        assert!(matches!(refused, LowerRefused::NotTheirs { .. }));

        // A name that is also a person's is still only an agent's name.
        let refused = lower(&owner(), &"owner".parse().unwrap(), &registry()).unwrap_err();
        assert!(matches!(refused, LowerRefused::Unknown(_)));
    }

    #[test]
    fn an_agent_is_never_switched_or_raised() {
        let registry = registry();
        let claude = lower(&owner(), &"claude".parse().unwrap(), &registry).unwrap();
        for other in ["claude", "stranger", "owner", "nobody"] {
            let refused = lower(&claude, &other.parse().unwrap(), &registry).unwrap_err();
            assert!(matches!(refused, LowerRefused::AlreadyAnAgent(_)));
        }
    }
}
