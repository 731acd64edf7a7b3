//! Who waits for which approval, and identical calls that join one another.
//!
//! The journal is the truth about an approval; this is only how a waiting call hears of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use palyra_core::{ApprovalId, CallDigest, Timestamp};
use tokio::sync::Notify;

use crate::handle::CallShared;

/// Calls that wait, by approval and by what they would do.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    by_approval: HashMap<ApprovalId, Arc<Notify>>,
    by_digest: HashMap<CallDigest, Joinable>,
}

/// A waiting call that identical ones may join.
#[derive(Clone)]
pub(crate) struct Joinable {
    pub(crate) approval: ApprovalId,
    pub(crate) expires_at: Timestamp,
    call: Weak<CallShared>,
}

impl Joinable {
    /// The call, while it is still driven.
    pub(crate) fn call(&self) -> Option<Arc<CallShared>> {
        self.call.upgrade()
    }
}

impl Waiting {
    /// The waiting call that does exactly this, if there is one. The digest covers the principal.
    pub(crate) fn identical(&self, digest: &CallDigest) -> Option<Joinable> {
        self.lock().by_digest.get(digest).cloned()
    }

    /// Starts waiting; ends when the returned place is dropped.
    pub(crate) fn wait(
        self: &Arc<Self>,
        approval: &ApprovalId,
        expires_at: Timestamp,
        digest: CallDigest,
        call: &Arc<CallShared>,
    ) -> Place {
        let heard = Arc::new(Notify::new());
        let mut inner = self.lock();
        inner
            .by_approval
            .insert(approval.clone(), Arc::clone(&heard));
        let call = Arc::downgrade(call);
        let joinable = Joinable {
            approval: approval.clone(),
            expires_at,
            call,
        };
        inner.by_digest.insert(digest, joinable);
        Place {
            waiting: Arc::clone(self),
            approval: approval.clone(),
            digest,
            heard,
        }
    }

    /// Tells the call that waits for this approval to look at it.
    pub(crate) fn tell(&self, approval: &ApprovalId) {
        if let Some(heard) = self.lock().by_approval.get(approval) {
            heard.notify_one();
        }
    }

    /// Tells every call that waits to look whether it may go on.
    pub(crate) fn tell_all(&self) {
        for heard in self.lock().by_approval.values() {
            heard.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's place among those that wait.
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    approval: ApprovalId,
    digest: CallDigest,
    heard: Arc<Notify>,
}

impl Place {
    /// Returns when somebody changed the approval; a telling before the wait is not lost.
    pub(crate) async fn heard(&self) {
        self.heard.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.waiting.lock();
        inner.by_approval.remove(&self.approval);
        // Two identical calls can ask at the same instant: the later one's place is not ours.
        if inner
            .by_digest
            .get(&self.digest)
            .is_some_and(|own| own.approval == self.approval)
        {
            inner.by_digest.remove(&self.digest);
        }
    }
}
