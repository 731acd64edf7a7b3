//! Which key sealed which blob, as entries say.
//!
//! A blob that does not open was changed, or another key sealed it: the seal itself cannot tell.
//! But each start of a daemon records which key it seals with, and that is signed. So whoever lost
//! `blobs.key` is told apart from whoever changed a blob.

use std::collections::BTreeSet;

use crate::blobs::BlobKey;

pub(super) struct Eras {
    /// The key at hand.
    given: Option<String>,
    /// The key that seals from the last start on; `None` before any start said so.
    now: Option<String>,
    /// Blobs that another key sealed.
    otherwise: BTreeSet<i64>,
    /// Blobs from before any start said which key: it is the first that is said.
    unsaid: Vec<i64>,
    /// Policies since the last start. A daemon records those it starts with just before it says that
    /// it started, so the key may be that of the start before or of the one after.
    policies: Vec<i64>,
    /// The last blob that the key at hand sealed; what refers to an older one is no news.
    last_own: i64,
}

/// What a start says.
#[derive(serde::Deserialize)]
struct Started {
    blob_key: Option<String>,
}

impl Eras {
    pub(super) fn of(given: Option<&BlobKey>) -> Self {
        Self {
            given: given.map(|key| key.fingerprint().to_owned()),
            now: None,
            otherwise: BTreeSet::new(),
            unsaid: Vec::new(),
            policies: Vec::new(),
            last_own: 0,
        }
    }

    /// Listens for a start. Whether the body was changed is for its leaf to say.
    pub(super) fn entry(&mut self, kind: &str, body: &[u8]) {
        if kind != "daemon_started" || self.given.is_none() {
            return;
        }
        let started: Option<Started> = serde_json::from_slice(body).ok();
        let Some(key) = started.and_then(|started| started.blob_key) else {
            return;
        };
        let before = std::mem::take(&mut self.policies);
        let unsaid = std::mem::take(&mut self.unsaid);
        if Some(&key) != self.given.as_ref() {
            self.otherwise.extend(before.into_iter().chain(unsaid));
        }
        self.now = Some(key);
    }

    /// An entry commits to this blob.
    pub(super) fn refers(&mut self, kind: &str, blob: i64) {
        if self.given.is_none() {
            return;
        }
        if matches!(kind, "policy_activated" | "policy_staged") {
            self.policies.push(blob);
        }
        match &self.now {
            None => self.unsaid.push(blob),
            now if *now == self.given => self.last_own = self.last_own.max(blob),
            Some(_) if blob > self.last_own => drop(self.otherwise.insert(blob)),
            Some(_) => {}
        }
    }

    /// Whether another key than the one at hand sealed this blob.
    pub(super) fn sealed_otherwise(&self, blob: i64) -> bool {
        self.otherwise.contains(&blob)
    }
}
