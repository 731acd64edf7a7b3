//! Who is calling.
//!
//! This room knows how a principal comes out of a credential: the peer of the Unix socket is the
//! owner or nobody ([`peer_principal`]), an owner's connection can be *lowered* to one of their
//! registered agents ([`lower`]), and nothing is ever raised. It knows the registry of agents
//! ([`Agents`], folded from the journal by [`AgentsFold`]) and which folders may be given to one
//! ([`check_agent_workspace`]).
//!
//! It does not know what anybody may do (that is policy), and it does no I/O: uids, canonical
//! paths and rows are handed in.

#![forbid(unsafe_code)]

mod agents;
mod peer;
mod workspace;

pub use agents::{Agent, Agents, AgentsFold, RegistryRefused, register, remove};
pub use peer::{LowerRefused, UnknownPeer, lower, peer_principal};
pub use workspace::{WorkspaceRefused, check_agent_workspace};
