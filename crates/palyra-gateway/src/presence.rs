//! Presence: that a person is there, and not merely a process with their uid.
//!
//! With a passphrase set, deciding and the other person actions ask for it. It opens the key that
//! signs decisions, which is held for a while for the terminal session it was typed in. A session in
//! which an agent's connection was seen holds nothing: there every action asks again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use palyra_core::entry::{Entry, Stream};
use palyra_core::{ApproverKey, PresenceChange, PresenceMode, SessionId, Timestamp};
use palyra_journal::{Expected, JournalError, JournalStore};
use palyra_policy::{Action, Resource};
use palyra_vault::keystore::Passphrase;
use palyra_vault::{ApproverSigner, ApproverStore, KeyStoreError};

use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// How long a passphrase counts for the session that it was typed in.
pub const HELD: Duration = Duration::from_secs(15 * 60);

/// After so many wrong ones nobody may try for a while.
const MOST_WRONG: u32 = 5;
const PENALTY: Duration = Duration::from_secs(60);

/// A passphrase that came with a request. It cannot be printed.
#[derive(Clone)]
pub struct GivenPassphrase(Arc<Passphrase>);

impl GivenPassphrase {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Arc::new(Passphrase::new(text)))
    }
}

impl std::fmt::Debug for GivenPassphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GivenPassphrase")
    }
}

/// How presence stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceOverview {
    /// What is demanded: what the configuration says, or more when a passphrase is set.
    pub mode: PresenceMode,
    /// The key that signs decisions, when a passphrase is set.
    pub key: Option<ApproverKey>,
    /// Whether the caller's session holds it now.
    pub held: bool,
    /// Whether the caller's session never will, because an agent was seen in it.
    pub with_agents: bool,
    /// When it was given up without the passphrase, if nobody set one since.
    pub given_up_at: Option<Timestamp>,
}

/// What is known of persons being there.
pub(crate) struct Presence {
    /// What the configuration says.
    mode: PresenceMode,
    store: ApproverStore,
    state: Mutex<State>,
    /// Changes, and guesses, come one after another.
    one_at_a_time: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    key: Option<ApproverKey>,
    given_up_at: Option<Timestamp>,
    held: HashMap<SessionId, Held>,
    with_agents: HashSet<SessionId>,
    wrong: u32,
    closed_until: Option<Instant>,
}

struct Held {
    signer: Arc<ApproverSigner>,
    until: Instant,
}

impl Presence {
    /// As the journal has it.
    pub(crate) fn open(
        mode: PresenceMode,
        folder: &std::path::Path,
        journal: &JournalStore,
    ) -> Result<Self, JournalError> {
        let mut state = State::default();
        for recorded in journal.read_stream(&Stream::Presence)? {
            if let Entry::PresenceChanged { change, .. } = &recorded.entry {
                state.take(change, recorded.at);
            }
        }
        Ok(Self {
            mode,
            store: ApproverStore::new(folder),
            state: Mutex::new(state),
            one_at_a_time: tokio::sync::Mutex::default(),
        })
    }

    /// The key that answers must be signed with.
    pub(crate) fn key(&self) -> Option<ApproverKey> {
        self.lock().key
    }

    /// Gives it up without the passphrase: somebody who may start the daemon wants it, and the
    /// journal keeps that for good.
    pub(crate) async fn give_up(&self, journal: &JournalStore, now: Timestamp) {
        if self.key().is_none() {
            return;
        }
        match note(journal, PresenceChange::GivenUp, None).await {
            Ok(()) => self.lock().take(&PresenceChange::GivenUp, now),
            Err(error) => tracing::error!(%error, "presence cannot be given up now"),
        }
    }

    /// Nothing is held any more.
    pub(crate) fn forget_all(&self) {
        self.lock().held.clear();
    }

    /// The session is over.
    pub(crate) fn forget(&self, session: &SessionId) {
        let mut state = self.lock();
        state.held.remove(session);
        state.with_agents.remove(session);
    }

    /// An agent's connection came from this session: from here on it holds nothing.
    pub(crate) fn agent_seen(&self, session: &SessionId) {
        let mut state = self.lock();
        state.held.remove(session);
        state.with_agents.insert(session.clone());
    }

    fn demanded(&self) -> (PresenceMode, Option<ApproverKey>) {
        let key = self.key();
        let set = match key {
            Some(_) => PresenceMode::Passphrase,
            None => PresenceMode::Off,
        };
        (self.mode.max(set), key)
    }

    fn held(&self, session: Option<&SessionId>) -> Option<Arc<ApproverSigner>> {
        let mut state = self.lock();
        let now = Instant::now();
        state.held.retain(|_, held| now < held.until);
        let held = state.held.get(session?)?;
        Some(Arc::clone(&held.signer))
    }

    fn hold(&self, session: Option<&SessionId>, signer: &Arc<ApproverSigner>) {
        let Some(session) = session else { return };
        let mut state = self.lock();
        if state.with_agents.contains(session) {
            return;
        }
        let held = Held {
            signer: Arc::clone(signer),
            until: Instant::now() + HELD,
        };
        state.held.insert(session.clone(), held);
    }

    /// Whether guesses are taken now.
    fn takes_guesses(&self) -> Result<(), Refusal> {
        let mut state = self.lock();
        match state.closed_until {
            Some(until) if Instant::now() < until => Err(Refusal::new(
                RefusalKind::TooMany,
                "too_many_passphrases",
                format!("{MOST_WRONG} wrong passphrases came in a row"),
                "wait a minute; who it was is in `palyra journal tail`",
            )),
            Some(_) => {
                state.closed_until = None;
                state.wrong = 0;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn was_wrong(&self) {
        let mut state = self.lock();
        state.wrong += 1;
        if state.wrong >= MOST_WRONG {
            state.closed_until = Some(Instant::now() + PENALTY);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, change: &PresenceChange, at: Timestamp) {
        match change {
            PresenceChange::Set { key } => {
                self.key = Some(*key);
                self.given_up_at = None;
            }
            PresenceChange::Ended | PresenceChange::GivenUp => {
                self.key = None;
                self.held.clear();
                let given_up = matches!(change, PresenceChange::GivenUp);
                self.given_up_at = given_up.then_some(at);
            }
            // What was held under the passphrase before is not held under this one.
            PresenceChange::Changed => self.held.clear(),
            PresenceChange::Refused => {}
        }
    }
}

impl GatewayService {
    /// How presence stands for this caller.
    ///
    /// # Errors
    /// Policy forbids it.
    pub fn presence(&self, caller: &Caller) -> Result<PresenceOverview, Refusal> {
        self.allowed(caller, Action::DaemonStatus, Resource::Daemon)?;
        let (mode, key) = self.0.presence.demanded();
        let held = self.0.presence.held(caller.session.as_ref()).is_some();
        let state = self.0.presence.lock();
        let known = |session: &SessionId| state.with_agents.contains(session);
        Ok(PresenceOverview {
            mode,
            key,
            held,
            with_agents: caller.session.as_ref().is_some_and(known),
            given_up_at: state.given_up_at,
        })
    }

    /// An agent's connection came from this session: nothing that a person proves counts there for
    /// longer than one action.
    pub fn agent_seen(&self, session: &SessionId) {
        self.0.presence.agent_seen(session);
    }

    /// Sets a passphrase, or changes it: then the one before must have come with the request.
    ///
    /// # Errors
    /// Policy forbids it, the one before is missing or wrong, or the new one is too short.
    pub async fn set_presence(
        &self,
        caller: &Caller,
        new: GivenPassphrase,
    ) -> Result<PresenceOverview, Refusal> {
        self.only_a_person(caller, "set the passphrase of persons")?;
        self.allowed(caller, Action::PolicyActivate, Resource::Daemon)?;
        let known = match self.0.presence.key() {
            // Held is not enough here: whoever found the terminal open must not keep the key.
            Some(_) if caller.presence.is_none() => return Err(required("change the passphrase")),
            Some(_) => self.present(caller, "change the passphrase").await?,
            None => None,
        };
        let _one_at_a_time = self.0.presence.one_at_a_time.lock().await;
        let store = self.0.presence.store.clone();
        let had = known.is_some();
        // Somebody may have set one while this one waited: theirs counts.
        if !had && self.0.presence.key().is_some() {
            return Err(required("change the passphrase"));
        }
        let signer = crate::vault::blocking(move || {
            Ok(match known {
                Some(signer) => store.keep(&signer, &new.0).map(|()| signer)?,
                None => Arc::new(store.make(&new.0)?),
            })
        })
        .await?;
        let change = match had {
            true => PresenceChange::Changed,
            false => PresenceChange::Set {
                key: signer.key().map_err(kept)?,
            },
        };
        note(&self.0.journal, change.clone(), caller.session.clone()).await?;
        self.0.presence.lock().take(&change, self.0.clock.now());
        self.0.policies.be_careful(true);
        self.presence(caller)
    }

    /// Ends it: persons need no passphrase from here on, unless the configuration says so.
    ///
    /// # Errors
    /// Policy forbids it, or the passphrase is missing or wrong.
    pub async fn end_presence(&self, caller: &Caller) -> Result<PresenceOverview, Refusal> {
        self.only_a_person(caller, "end the passphrase of persons")?;
        self.allowed(caller, Action::PolicyActivate, Resource::Daemon)?;
        if self.0.presence.key().is_none() {
            return self.presence(caller);
        }
        if caller.presence.is_none() {
            return Err(required("end the passphrase"));
        }
        self.present(caller, "end the passphrase").await?;
        let change = PresenceChange::Ended;
        note(&self.0.journal, change.clone(), caller.session.clone()).await?;
        self.0.presence.lock().take(&change, self.0.clock.now());
        self.0.policies.be_careful(false);
        self.presence(caller)
    }

    /// Forgets what this session holds.
    ///
    /// # Errors
    /// The caller is an agent.
    pub fn forget_presence(&self, caller: &Caller) -> Result<PresenceOverview, Refusal> {
        self.only_a_person(caller, "forget what a person proved")?;
        self.0.presence.forget_all();
        self.presence(caller)
    }

    /// Whether a person confirms their own call by making it: nothing about an agent's. Where a
    /// passphrase is demanded, only one who gave it does.
    ///
    /// # Errors
    /// The passphrase that came with it is wrong.
    pub(crate) async fn confirmed(&self, caller: &Caller) -> Result<Option<bool>, Refusal> {
        if caller.principal.agent().is_some() {
            return Ok(None);
        }
        match (self.present(caller, "make a call").await, &caller.presence) {
            (Ok(_), _) => Ok(Some(true)),
            (Err(refusal), Some(_)) => Err(refusal),
            (Err(_), None) => Ok(Some(false)),
        }
    }

    /// Lets a person go on who is there: with the key that signs, when there is one.
    ///
    /// # Errors
    /// They do not prove it, or cannot.
    pub(crate) async fn present(
        &self,
        caller: &Caller,
        doing: &str,
    ) -> Result<Option<Arc<ApproverSigner>>, Refusal> {
        self.only_a_person(caller, doing)?;
        let presence = &self.0.presence;
        let key = match presence.demanded() {
            (PresenceMode::Off, _) => return Ok(None),
            (PresenceMode::Device, _) => return Err(no_devices()),
            (PresenceMode::Passphrase, None) => return Err(not_set(doing)),
            (PresenceMode::Passphrase, Some(key)) => key,
        };
        let Some(given) = caller.presence.clone() else {
            let held = presence.held(caller.session.as_ref());
            return held.map(Some).ok_or_else(|| required(doing));
        };
        // One guess at a time: stretching takes memory, and guesses are counted.
        let _one_at_a_time = presence.one_at_a_time.lock().await;
        presence.takes_guesses()?;
        let store = presence.store.clone();
        let opened = crate::policies::blocking(move || store.open(&given.0)).await?;
        let signer = match opened {
            Ok(signer) => signer,
            Err(KeyStoreError::WrongPassphrase) => {
                presence.was_wrong();
                let session = caller.session.clone();
                note(&self.0.journal, PresenceChange::Refused, session).await?;
                return Err(Refusal::new(
                    RefusalKind::Forbidden,
                    "wrong_passphrase",
                    "the passphrase is wrong",
                    "try again; a lost one is given up with `palyrad --give-up-presence`",
                ));
            }
            Err(error) => return Err(kept(error)),
        };
        if signer.key().ok() != Some(key) {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                "presence_key_replaced",
                "`presence.key` is another key than the one that the journal knows",
                "put the file back from a backup, or start with `palyrad --give-up-presence`",
            ));
        }
        presence.lock().wrong = 0;
        let signer = Arc::new(signer);
        presence.hold(caller.session.as_ref(), &signer);
        Ok(Some(signer))
    }
}

async fn note(
    journal: &JournalStore,
    change: PresenceChange,
    session: Option<SessionId>,
) -> Result<(), JournalError> {
    let entry = Entry::PresenceChanged { change, session };
    let appended = journal.append_if(Stream::Presence, Expected::Any, vec![entry]);
    appended.await.map(drop)
}

fn required(doing: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Forbidden,
        "presence_required",
        format!("to {doing}, a person has to give their passphrase"),
        "run the command at a terminal, which asks for it",
    )
}

fn not_set(doing: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Forbidden,
        "presence_not_set",
        format!("to {doing}, the configuration demands a passphrase, and none is set"),
        "set one with `palyra presence set`",
    )
}

fn no_devices() -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "presence_no_device",
        "the configuration demands a paired device, and this version pairs none",
        "say `presence = \"passphrase\"` in `palyra.toml`, then restart the daemon",
    )
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn kept(error: KeyStoreError) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        error.code(),
        format!("the key that signs decisions: {error}"),
        "put `presence.key` back from a backup, or start with `palyrad --give-up-presence`",
    )
}
