//! `palyra mcp`: what an agent's MCP client starts.

use crate::args::McpAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::mcp;
use crate::session::Session;

pub(super) async fn run(action: &McpAction, session: &Session) -> Result<Exit, Failure> {
    match action {
        McpAction::Serve { patience } => mcp::serve(session, patience.0).await,
    }
}
