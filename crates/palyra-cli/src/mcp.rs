//! `palyra mcp serve`: an agent's MCP client on one side, the daemon on the other.
//!
//! This room knows how the daemon's words are said in MCP: [`tools`] and [`results`], and how a call
//! that waits for a person is carried between the two ([`calls`]). It decides nothing: the daemon
//! does, and to it every connection from here is the agent that this process was started as
//! ([`reach`]). What a client says of itself counts for nothing.

pub mod calls;
pub mod framing;
pub mod reach;
pub mod results;
pub mod server;
pub mod tools;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::QuitReason;
use rmcp::transport::async_rw::AsyncRwTransport;

use self::reach::Reach;
use self::server::Server;
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::session::Session;

/// The longest message that is taken, in bytes. The largest arguments of a tool are a quarter of it.
pub const LONGEST_MESSAGE: usize = 16 << 20;

/// Serves one client on standard input and output, until it goes away.
///
/// # Errors
/// Nobody is named to serve as, the daemon cannot be reached, or the client does not speak MCP.
pub async fn serve(session: &Session, patience: Duration) -> Result<Exit, Failure> {
    if session.agent.is_none() {
        return Err(Failure::usage(
            "`palyra mcp serve` serves one of your agents, and none is named",
            "say which one with `--as agent:NAME`; `palyra agents list` names them",
        ));
    }
    let reach = Arc::new(Reach::new(session.clone()));
    // Before the client hears anything: an agent that is not registered gets no tools.
    reach.check().await?;
    let server = Server::new(Arc::clone(&reach), patience);
    let watching = tokio::spawn(server.watch());
    let (input, output) = rmcp::transport::stdio_pipes();
    let input = framing::Capped::new(input, LONGEST_MESSAGE);
    let transport = AsyncRwTransport::new_server(input, output);
    let running = server
        .serve(transport)
        .await
        .map_err(|error| not_mcp(&error));
    let ended = match running {
        Ok(running) => running.waiting().await.map_err(|error| not_mcp(&error)),
        Err(failure) => Err(failure),
    };
    watching.abort();
    if let QuitReason::JoinError(error) = ended? {
        return Err(not_mcp(&error));
    }
    // Whatever still runs for this client ends with our connections.
    Ok(Exit::OK)
}

fn not_mcp(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Meaning::Error,
        "not_mcp",
        format!("the client did not speak MCP: {error}"),
        "it is meant to be started by an MCP client; see docs/guide/agents.md",
    )
}
