//! One command's way to the daemon: which home, as whom, and how long to wait for an answer.

use std::future::Future;
use std::time::Duration;

use palyra_api::{Client, ClientError, Home};

use crate::autostart;
use crate::exit::Meaning;
use crate::failure::Failure;
use crate::output::Output;
use crate::values::AsAgent;

/// Past this the daemon is stuck; a call has no such limit, since it may wait for a person.
const PATIENCE: Duration = Duration::from_secs(30);

/// One command's way to the daemon.
#[derive(Debug, Clone)]
pub struct Session {
    /// Whose folders.
    pub home: Home,
    /// As whom, if not as oneself.
    pub agent: Option<AsAgent>,
    /// How to answer.
    pub output: Output,
}

impl Session {
    /// For the home that the environment names.
    ///
    /// # Errors
    /// It names none.
    pub fn new(agent: Option<AsAgent>, output: Output) -> Result<Self, Failure> {
        let home = Home::from_env()?;
        Ok(Self {
            home,
            agent,
            output,
        })
    }

    /// Connects to a daemon that is there.
    ///
    /// # Errors
    /// There is none, it may not be reached, or it does not answer.
    pub async fn connect(&self) -> Result<Client, Failure> {
        let client = in_time(Client::connect(&self.home)).await;
        client.map(|client| self.lowered(client))
    }

    /// Connects, if there is a daemon.
    ///
    /// # Errors
    /// It may not be reached, or does not answer.
    pub async fn connect_if_there(&self) -> Result<Option<Client>, Failure> {
        let client = async {
            match Client::connect(&self.home).await {
                Err(ClientError::NoDaemon { .. }) => Ok(None),
                other => other.map(Some),
            }
        };
        let client = in_time(client).await?;
        Ok(client.map(|client| self.lowered(client)))
    }

    /// Connects, and starts a daemon first if there is none and a person asks.
    ///
    /// # Errors
    /// It cannot be reached, or none may be started, or it did not start.
    pub async fn connect_or_start(&self) -> Result<Client, Failure> {
        let client = match Client::connect(&self.home).await {
            Ok(client) => client,
            Err(ClientError::NoDaemon { socket }) => match &self.agent {
                None => autostart::start(&self.home, &self.output).await?,
                Some(agent) => return Err(not_for_agents(agent, &socket)),
            },
            Err(
                other @ (ClientError::Forbidden { .. }
                | ClientError::Refused { .. }
                | ClientError::Broken(_)),
            ) => return Err(other.into()),
        };
        Ok(self.lowered(client))
    }

    /// Connects for an agent's own client, and starts a daemon first if there is none: a person
    /// started that client, outside of any call. Inside one, nothing can be reached or started.
    ///
    /// # Errors
    /// It cannot be reached, or did not start.
    pub async fn connect_or_start_for_client(&self) -> Result<Client, Failure> {
        let own = Self {
            agent: None,
            ..self.clone()
        };
        let client = own.connect_or_start().await?;
        Ok(self.lowered(client))
    }

    fn lowered(&self, client: Client) -> Client {
        client.lowered_to(self.agent.as_ref().map(AsAgent::to_string))
    }
}

/// Waits for an answer that needs no person.
///
/// # Errors
/// The daemon refused, the conversation broke, or nothing came in time.
pub async fn in_time<T>(
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::new(
            Meaning::Error,
            "daemon_silent",
            format!("the daemon did not answer within {} s", PATIENCE.as_secs()),
            "look at its log, or stop it and let `palyra exec -- true` start another",
        )),
    }
}

fn not_for_agents(agent: &AsAgent, socket: &str) -> Failure {
    Failure::new(
        Meaning::Unreachable,
        "no_daemon",
        format!("no daemon listens on `{socket}`, and none is started for `{agent}`"),
        "only a person starts one: run `palyra exec -- true`, then try again",
    )
}
