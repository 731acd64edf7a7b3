//! The way to the daemon for one client: connections that are kept, all of them the same agent's.

use std::sync::{Mutex, PoisonError};

use palyra_api::wire::{Page, Tool};
use palyra_api::{Client, ClientError};
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::session::{Session, in_time};

/// Connections that wait for the next call. More than this many at once are closed when done.
const MOST_KEPT: usize = 8;

/// The way to the daemon.
pub struct Reach {
    session: Session,
    idle: Mutex<Vec<Client>>,
}

impl Reach {
    /// For the agent of this session.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self {
            session,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Whether the daemon knows the agent.
    ///
    /// # Errors
    /// It does not, or it cannot be reached.
    pub async fn check(&self) -> Result<(), Failure> {
        self.tools().await.map(drop)
    }

    /// A connection, one that was kept or a new one. A daemon that is not there is started, as for a
    /// person: whoever started this is one.
    ///
    /// # Errors
    /// It cannot be reached or started.
    pub async fn client(&self) -> Result<Client, Failure> {
        while let Some(client) = self.take() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        let client = self.session.connect_or_start_for_client().await?;
        Ok(client.by_channel("mcp"))
    }

    /// A connection of one's own, if a daemon is there: none is started.
    ///
    /// # Errors
    /// None is there, or it does not answer.
    pub async fn own_client(&self) -> Result<Client, Failure> {
        let client = self.session.connect().await?;
        Ok(client.by_channel("mcp"))
    }

    /// Keeps a connection whose answer was read to its end.
    pub fn keep(&self, client: Client) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_KEPT {
            idle.push(client);
        }
    }

    /// The tools that the agent may hear of.
    ///
    /// # Errors
    /// The daemon refused, or cannot be reached.
    pub async fn tools(&self) -> Result<Vec<Tool>, Failure> {
        let page: Page<Tool> = self.get("/api/v1/tools").await?;
        Ok(page.items)
    }

    /// Gets one thing.
    ///
    /// # Errors
    /// The daemon refused, or cannot be reached.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let mut client = self.client().await?;
        let answer = in_time(async {
            let answer: Result<T, ClientError> = client.get(path).await;
            answer
        });
        let answer = answer.await?;
        self.keep(client);
        Ok(answer)
    }

    fn take(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }
}
