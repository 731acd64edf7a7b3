//! `palyra mcp` as it is typed.

use clap::{Args, Subcommand};
use palyra_core::Span;

use super::Whom;

/// `palyra mcp`.
#[derive(Debug, Args)]
pub struct Mcp {
    /// As whom.
    #[command(flatten)]
    pub whom: Whom,
    /// What.
    #[command(subcommand)]
    pub action: McpAction,
}

/// What to do for MCP clients.
#[derive(Debug, Subcommand)]
pub enum McpAction {
    /// Serve one of your agents on standard input and output, until its client goes away
    Serve {
        /// How long a call waits for a person before it says that it waits; below the client's own time limit
        #[arg(long, value_name = "SPAN", default_value = "50s")]
        patience: Span,
    },
}
