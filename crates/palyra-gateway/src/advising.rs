//! Advice for what an agent's client does by itself, outside of here.
//!
//! A client asks before it uses a tool of its own. The question walks the corridor as a call would,
//! to the same policy and the same people, and ends where a call would be admitted: with an entry
//! that says so. Nothing runs and nothing is attested.
//!
//! Where the client lets itself be told to run something else, it is given a token, and runs that
//! here: once, soon, as the agent it was given to, and only if it is still exactly that call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palyra_core::{
    AgentName, ApprovalId, CallDigest, CallId, Channel, Denial, Digest, Facts, Timestamp,
};

use crate::drive::Conclusion;
use crate::error::{Refusal, RefusalKind};
use crate::handle::CallHandle;
use crate::service::{Caller, GatewayService, ProposedCall};

/// What a client that may do something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// To do it by itself. A yes for once is spent by that.
    Native,
    /// To have it run here, as a call that is still to come.
    Rewritten,
}

/// The answer to a client.
#[derive(Debug)]
pub enum Advised {
    /// It may, by itself.
    Native(CallId),
    /// It may have it run here, by this token.
    Rewritten(CallId, String),
    /// It may not; or not yet, when there is an approval that waits.
    Denied(CallId, Denial, Option<ApprovalId>),
}

/// How long a token can be used. It is for what the client runs next.
const LIFETIME: Duration = Duration::from_secs(120);
/// How many tokens there are at most; the oldest go first.
const MOST: usize = 1_000;
/// What a token begins with.
const PREFIX: &str = "plyrcall_";

/// The tokens that were given out, by their digest: whoever reads memory finds none.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<Digest, Held>>);

struct Held {
    agent: AgentName,
    call: ProposedCall,
    until: Timestamp,
}

impl Tokens {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mint(&self, held: Held, now: Timestamp) -> String {
        // Two ids of this moment: 160 random bits.
        let (one, other) = (CallId::mint(now), CallId::mint(now));
        let token = format!("{PREFIX}{}{}", own(&one), own(&other));
        let mut all = self.lock();
        all.retain(|_, held| held.until > now);
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, held)| held.until);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                all.remove(&oldest);
            }
        }
        all.insert(Digest::of(token.as_bytes()), held);
        token
    }

    fn take(&self, token: &str, now: Timestamp) -> Option<Held> {
        let held = self.lock().remove(&Digest::of(token.as_bytes()))?;
        (held.until > now).then_some(held)
    }
}

/// The part of an id after its prefix.
fn own(id: &CallId) -> &str {
    let text = id.as_str();
    text.split_once('_').map_or(text, |(_, own)| own)
}

impl GatewayService {
    /// Whether an agent's client may do this.
    ///
    /// # Errors
    /// There is nothing to speak of: the request is malformed, too large or too much.
    pub async fn advise(
        &self,
        caller: &Caller,
        mut wanted: ProposedCall,
        advice: Advice,
    ) -> Result<Advised, Refusal> {
        let Some(agent) = caller.principal.agent().cloned() else {
            return Err(Refusal::new(
                RefusalKind::Forbidden,
                "agent_required",
                "only an agent's client is advised",
                "say which agent with `--as agent:NAME`",
            ));
        };
        wanted.advice = Some(advice);
        wanted.bound_to = None;
        // A client that waited for a person would seem to hang.
        wanted.detached = true;
        wanted.patience = Duration::ZERO;
        let handle = self.call(caller, wanted.clone()).await?;
        let report = handle.finish().await?;
        let call = report.call.clone();
        Ok(match (&report.conclusion, advice) {
            (Conclusion::Advised { .. }, Advice::Native) => Advised::Native(call),
            (Conclusion::Advised { digest }, Advice::Rewritten) => {
                let now = self.0.clock.now();
                let held = Held {
                    agent,
                    call: ProposedCall {
                        advice: None,
                        bound_to: Some(*digest),
                        detached: false,
                        ..wanted
                    },
                    until: now.plus(LIFETIME),
                };
                Advised::Rewritten(call, self.0.tokens.mint(held, now))
            }
            (Conclusion::Denied(denial), _) => {
                Advised::Denied(call, denial.clone(), report.approval.clone())
            }
            // Nothing that is advised is executed: the corridor ends before.
            (Conclusion::Executed { .. }, _) => {
                return Err(Refusal::new(
                    RefusalKind::Unavailable,
                    "internal_error",
                    format!("the call `{call}` was to be advised, and ran"),
                    format!("see `palyra calls show {call}` and the daemon's log"),
                ));
            }
        })
    }

    /// Makes the call that a token was given for, as the agent it was given to. The token is gone
    /// then, whatever comes of the call.
    ///
    /// # Errors
    /// There is no such token any more, the caller is not that agent or its person, or it has become
    /// another call since.
    pub async fn redeem(&self, caller: &Caller, token: &str) -> Result<CallHandle, Refusal> {
        let held = self.0.tokens.take(token, self.0.clock.now());
        let held = held.ok_or_else(bad_token)?;
        let caller = match caller.principal.agent() {
            None => self.lower(caller, &held.agent)?,
            Some(agent) if *agent == held.agent => caller.clone(),
            Some(_) => return Err(bad_token()),
        };
        let caller = caller.by_channel(Channel::Hook);
        self.call(&caller, held.call).await
    }
}

/// A call that was bound to what it was before must still be that.
pub(crate) fn is_bound_to(bound: Option<&CallDigest>, facts: &Facts) -> Result<(), Refusal> {
    if bound.is_none_or(|digest| digest == facts.digest()) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::Conflict,
        "call_changed",
        "what would run is not what was decided about any more",
        "ask again",
    ))
}

fn bad_token() -> Refusal {
    Refusal::new(
        RefusalKind::Forbidden,
        "bad_call_token",
        "this token was used, is too old, or was given to another agent",
        "ask again: the hook gives a new one",
    )
}
