//! Sessions: what several connections of one client belong to.
//!
//! The daemon mints them. A caller never names one: it is known by the process that the kernel says
//! it comes from, the leader of its terminal session or the client itself, by pid and start time. It
//! ends when that process does, and with the daemon.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use palyra_core::{SessionId, Timestamp, WhyEnded};

use crate::service::GatewayService;

/// The process that a session ends with. A pid alone can come to mean another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Anchor {
    /// Its pid.
    pub pid: i32,
    /// When it started, as the kernel counts.
    pub started: u64,
}

/// Those that last.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Anchor, SessionId>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Anchor, SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatewayService {
    /// The session of whoever comes from this process, and whether it has just begun: then somebody
    /// must say when the process ends.
    #[must_use]
    pub fn session_of(&self, anchor: Anchor) -> (SessionId, bool) {
        let mut sessions = self.0.sessions.lock();
        let mut new = false;
        let id = sessions.entry(anchor).or_insert_with(|| {
            new = true;
            SessionId::mint(self.0.clock.now())
        });
        (id.clone(), new)
    }

    /// The process is gone: so is the session, and what was granted for it.
    pub async fn session_ended(&self, anchor: Anchor) {
        let ended = self.0.sessions.lock().remove(&anchor);
        if let Some(session) = ended {
            self.0.presence.forget(&session);
            let own = self.0.grants.lock().of_session(&session);
            self.end_grants(own, WhyEnded::SessionEnded, None).await;
        }
    }

    /// How many last.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.0.sessions.lock().len()
    }

    /// Whether this session lasts.
    pub(crate) fn session_lasts(&self, session: &SessionId) -> bool {
        self.0.sessions.lock().values().any(|it| it == session)
    }
}

/// The later of what the clock says and what it said before: set back, it revives nothing.
#[derive(Debug)]
pub(crate) struct Latest(Mutex<Timestamp>);

impl Latest {
    pub(crate) const fn new(at: Timestamp) -> Self {
        Self(Mutex::new(at))
    }

    pub(crate) fn see(&self, now: Timestamp) -> Timestamp {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (*latest).max(now);
        *latest
    }
}
