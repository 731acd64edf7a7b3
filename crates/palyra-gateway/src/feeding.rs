//! What a caller sends to a call of theirs while it waits or runs.
//!
//! Nothing here is decided: that such a call may be talked to at all was, when it was proposed.

use palyra_core::{CallId, Window};
use palyra_sandbox::{Fed, LiveInput};
use tokio::sync::mpsc;

use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService, Live};

/// How many pieces wait to be read by a call before whoever sends has to.
const MOST_FED: usize = 8;

/// The end that is fed, and the one that goes to the call.
pub(crate) fn open(window: Option<Window>) -> (mpsc::Sender<Fed>, LiveInput) {
    let (feed, fed) = mpsc::channel(MOST_FED);
    let window = window.unwrap_or_default();
    (feed, LiveInput { window, fed })
}

impl GatewayService {
    /// Sends something to a call of the caller's own. Waits while the call has enough to read.
    ///
    /// # Errors
    /// There is no such call, it takes nothing, or it is over.
    pub async fn feed(&self, caller: &Caller, call: &str, fed: Fed) -> Result<(), Refusal> {
        // Another process of the same person did not make this call, nor prove what it rests on.
        let own =
            |live: &&Live| live.principal == caller.principal && live.session == caller.session;
        let input = {
            let live = self.0.lock_live();
            let id = call.parse::<CallId>().ok();
            let found = id.and_then(|id| live.get(&id)).filter(own);
            found.map(|live| live.input.clone())
        };
        let input = input.ok_or_else(|| {
            Refusal::new(
                RefusalKind::NotFound,
                "no_such_call",
                format!("no call `{call}` of yours is running or waiting"),
                "see `palyra calls list`",
            )
        })?;
        let takes_none = || {
            Refusal::new(
                RefusalKind::Conflict,
                "takes_no_input",
                format!("the call `{call}` takes no input, or no more of it"),
                "propose it with `interactive`, and send while it runs",
            )
        };
        let sent = input.ok_or_else(takes_none)?.send(fed).await;
        sent.map_err(|_| takes_none())
    }
}
