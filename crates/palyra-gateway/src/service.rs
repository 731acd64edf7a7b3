//! [`GatewayService`]: what every front door calls, whoever came in by it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use palyra_approval::{Inbox, LiveGrants, Postures};
use palyra_core::entry::{Entry, Stream};
use palyra_core::facts::Origin;
use palyra_core::{
    AgentName, CallDigest, CallId, CanonicalJson, Channel, Clock, Denial, DenialCode, DeviceId,
    DigestKey, Facts, FsRule, PresenceMode, Principal, RunId, SessionId, ToolProposal, Window,
};
use palyra_effects::Identity;
use palyra_egress::Egress;
use palyra_identity::Agents;
use palyra_journal::{CallRecorder, Expected, JournalStore};
use palyra_policy::PolicyEngine;
use palyra_sandbox::{Fed, Sandbox};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::advising::{Advice, Tokens};
use crate::budget::{Budget, Usage};
use crate::changes::{Change, Changes};
use crate::detaching::Detached;
use crate::drive::{CallReport, Drive, Event};
use crate::error::{Refusal, RefusalKind};
use crate::floods::{FloodLimits, Flooded, Floods};
use crate::granting::Granting;
use crate::handle::CallHandle;
use crate::network::{EgressSettings, Known};
use crate::people::People;
use crate::policies::{Keeper, PolicyPlace};
use crate::presence::{GivenPassphrase, Presence};
use crate::seen::Seen;
use crate::sessions::{Latest, Sessions};
use crate::tools::{Place, Registry, unknown};
use crate::vault::{VaultKeeper, VaultPlace};
use crate::waiting::Waiting;
use crate::waking::Waking;
use crate::{advising, detaching, feeding, granting, postures, recovery, workspace};

/// How the gateway behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What one run may use up.
    pub budget: Budget,
    /// How much one agent may propose and ask.
    pub floods: FloodLimits,
    /// How long a call waits for a person.
    pub approval_wait: Duration,
    /// The daemon's own folders, real: hidden from every tool.
    pub masked: Vec<PathBuf>,
    /// What calls may do with files, besides what is usual.
    pub rules: Vec<FsRule>,
    /// Home folders of people: no agent works on one of them as a whole.
    pub user_homes: Vec<PathBuf>,
    /// Who lives where.
    pub people: People,
    /// Where secrets are kept.
    pub vault: VaultPlace,
    /// How calls reach hosts.
    pub egress: EgressSettings,
    /// What person actions demand.
    pub presence: PresenceMode,
    /// Whether a passphrase that was set is given up at this start.
    pub give_up_presence: bool,
}

/// Who calls, on which connection.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who, by the credential that was authenticated.
    pub principal: Principal,
    /// What their connection does.
    pub run: RunId,
    /// What it has used up.
    pub usage: Arc<Usage>,
    /// What the connection belongs to, as the daemon found it.
    pub session: Option<SessionId>,
    /// The way they came by.
    pub channel: Channel,
    /// The passphrase that came with the request.
    pub presence: Option<GivenPassphrase>,
}

impl Caller {
    /// A caller on a fresh connection to the local socket.
    #[must_use]
    pub fn on_new_run(principal: Principal, clock: &dyn Clock) -> Self {
        Self {
            principal,
            run: RunId::mint(clock.now()),
            usage: Arc::default(),
            session: None,
            channel: Channel::Cli,
            presence: None,
        }
    }

    /// The same caller, by another way than a person's own.
    #[must_use]
    pub const fn by_channel(mut self, channel: Channel) -> Self {
        self.channel = channel;
        self
    }

    /// The same caller, in the session that the daemon found it in.
    #[must_use]
    pub fn in_session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin {
            principal: self.principal.clone(),
            run: self.run.clone(),
            device: DeviceId::local(),
            channel: self.channel,
            session: self.session.clone(),
        }
    }
}

/// A call that somebody wants.
#[derive(Debug, Clone)]
pub struct ProposedCall {
    /// The tool's name, as given.
    pub tool: String,
    /// The arguments, through the strict door.
    pub arguments: CanonicalJson,
    /// The folder to work on, as given.
    pub workspace: Option<PathBuf>,
    /// How large the caller's terminal is, for a call that gets one.
    pub window: Option<Window>,
    /// What the caller says about it.
    pub said: Option<String>,
    /// Whether the caller does not wait for a person.
    pub detached: bool,
    /// How long it waits all the same, before it leaves its question.
    pub patience: Duration,
    /// Nothing is to be run: a client only asks whether it may.
    pub advice: Option<Advice>,
    /// Only if it is exactly this call.
    pub bound_to: Option<CallDigest>,
}

/// How long what a caller says may be.
pub const MOST_SAID: usize = 2_000;

/// The corridor, wired.
#[derive(Clone)]
pub struct GatewayService(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) policy: Arc<PolicyEngine>,
    pub(crate) policies: Keeper,
    pub(crate) journal: JournalStore,
    pub(crate) sandbox: Sandbox,
    pub(crate) registry: Registry,
    pub(crate) vault: VaultKeeper,
    pub(crate) egress: Arc<Egress>,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) agents: RwLock<Agents>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) floods: Mutex<Floods>,
    pub(crate) grants: Granting,
    pub(crate) sessions: Sessions,
    pub(crate) presence: Presence,
    pub(crate) seen: Seen,
    pub(crate) latest: Latest,
    pub(crate) detached: Detached,
    pub(crate) tokens: Tokens,
    pub(crate) changes: Changes,
    inbox: Mutex<Inbox>,
    postures: RwLock<Postures>,
    pub(crate) stopping: CancellationToken,
    pub(crate) waking: Waking,
    live: Mutex<HashMap<CallId, Live>>,
    stopped: Mutex<Stopped>,
    pub(crate) tasks: TaskTracker,
    /// Changes of the registry happen one after another.
    pub(crate) registry_change: tokio::sync::Mutex<()>,
}

/// A call that runs or waits.
pub(crate) struct Live {
    pub(crate) principal: Principal,
    pub(crate) session: Option<SessionId>,
    cancel: CancellationToken,
    /// Where what it is sent goes, if it takes anything.
    pub(crate) input: Option<mpsc::Sender<Fed>>,
}

/// What the end of the daemon did to calls that were under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Ended by themselves in time.
    pub finished: Vec<CallId>,
    /// Were cancelled.
    pub cancelled: Vec<CallId>,
}

impl GatewayService {
    /// Wires the rooms, finds out which policies decide, and closes what an earlier daemon left
    /// open. With a vault that stays locked, what is to be recorded of that waits until it is open.
    /// `key` is for a journal that was opened with its keys; else it comes from the vault.
    ///
    /// # Errors
    /// There are no policies that can be used, or the journal cannot be read or written.
    pub async fn open(
        policies: PolicyPlace,
        journal: JournalStore,
        sandbox: Sandbox,
        registry: Registry,
        key: Option<DigestKey>,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Refusal> {
        // Before anything is written at this start: the clock may have been set back since.
        let latest = Latest::new(recovery::last_time(&journal)?);
        let now = latest.see(clock.now());
        let vault = settings.vault.clone();
        // It has the journal's keys. Locked, it leaves a journal that is only read.
        let vault = VaultKeeper::open(vault, journal.clone(), Arc::clone(&clock), key).await;
        let presence = Presence::open(settings.presence, &settings.vault.folder, &journal)?;
        if settings.give_up_presence {
            presence.give_up(&journal, now).await;
        }
        // A file that somebody changed is not a person's word.
        let staging = policies.staging || presence.key().is_some();
        let policies = PolicyPlace {
            staging,
            ..policies
        };
        let policies = Keeper::open(journal.clone(), policies).await?;
        let policy = Arc::clone(policies.engine());
        let waking = Waking::default();
        let agents = recovery::agents(&journal)?;
        // Nothing is in force while nothing can be recorded.
        let mut grants = LiveGrants::default();
        if !journal.is_locked() {
            waking.found(recovery::close_what_was_left(&journal).await?);
            grants = granting::take_up(&journal, &agents, now).await?;
        }
        let detached = detaching::take_up(&journal)?;
        let inbox = recovery::inbox(&journal)?;
        let postures = postures::read(&journal);
        let egress = egress(&settings.egress, &clock)?;
        let metadata: Vec<_> = registry.iter().map(|tool| tool.metadata.clone()).collect();
        policy.set_tools(&metadata)?;
        policy.set_agents(
            agents
                .iter()
                .map(|agent| (agent.name.clone(), agent.user.clone())),
        )?;
        Ok(Self(Arc::new(Inner {
            policy,
            policies,
            journal,
            sandbox,
            registry,
            vault,
            egress: Arc::new(egress),
            settings,
            clock,
            agents: RwLock::new(agents),
            waiting: Arc::default(),
            floods: Mutex::default(),
            grants: Granting::of(grants),
            sessions: Sessions::default(),
            presence,
            seen: Seen::default(),
            latest,
            detached,
            tokens: Tokens::default(),
            changes: Changes::default(),
            inbox: Mutex::new(inbox),
            postures: RwLock::new(postures),
            stopping: CancellationToken::new(),
            waking,
            live: Mutex::default(),
            stopped: Mutex::default(),
            tasks: TaskTracker::new(),
            registry_change: tokio::sync::Mutex::new(()),
        })))
    }

    /// Lowers an owner's connection to one of their agents. Nothing raises.
    ///
    /// # Errors
    /// The caller is no person, or the agent is not theirs.
    pub fn lower(&self, caller: &Caller, to: &AgentName) -> Result<Caller, Refusal> {
        let lowered = palyra_identity::lower(&caller.principal, to, &self.0.agents());
        let principal = lowered.map_err(|error| {
            let next_step = "see who is registered with `palyra agents list`";
            Refusal::new(
                RefusalKind::Forbidden,
                "cannot_lower",
                error.to_string(),
                next_step,
            )
        })?;
        if let Some(session) = &caller.session {
            self.agent_seen(session);
        }
        Ok(Caller {
            principal,
            // What a person proves is never for their agents.
            presence: None,
            ..caller.clone()
        })
    }

    /// Starts a call, or joins the identical one that waits for a person.
    ///
    /// # Errors
    /// There is no call to speak of: the request is malformed, too large or too much.
    pub async fn call(&self, caller: &Caller, wanted: ProposedCall) -> Result<CallHandle, Refusal> {
        // Counted before the question whether the daemon stops is asked, so that the stop waits.
        let _token = self.0.tasks.token();
        if self.0.stopping.is_cancelled() {
            return Err(stopping());
        }
        let calls_last_minute = self.admit_proposal(caller, &wanted).await?;
        self.screen(caller, &wanted).await?;
        let tool = self.0.registry.find(&wanted.tool);
        let tool = tool.ok_or_else(|| unknown(&wanted.tool, self.listed(caller)))?;
        let agent = self.0.agent_of(&caller.principal)?;
        let folder = wanted.workspace.as_deref();
        let workspace = workspace::resolve(folder, agent.as_ref(), &self.0.settings.masked)?;
        let sandbox = self.0.sandbox.status();
        let place = Place {
            workspace: workspace.as_deref(),
            masked: &self.0.settings.masked,
            rules: &self.0.settings.rules,
            people: &self.0.settings.people,
            egress: &self.0.settings.egress,
            // Without any sandbox there is nothing to fall back to either.
            has_tier_c: sandbox.tier_c.is_some() || !sandbox.available,
        };
        let prepared = tool.prepare(&wanted.arguments, &place)?;
        let prepared = prepared.pinned(&self.0.sandbox).await?;
        let key = self.0.vault.digest_key()?;
        let now = self.0.clock.now();
        let proposal = ToolProposal {
            tool: tool.metadata.name.clone(),
            arguments: wanted.arguments,
        };
        let facts = Facts::new(
            CallId::mint(now),
            caller.origin(),
            &tool.metadata,
            &proposal,
            prepared.analysis.effects.clone(),
            workspace,
            prepared.plan.tier(),
            &prepared.plan,
            &key,
            now,
            calls_last_minute,
        );
        let identity = Identity {
            origin: &facts.origin,
            tool: &facts.tool,
            workspace: facts.workspace.as_deref(),
            tier: facts.tier,
            exact: facts.digest(),
        };
        let understood = prepared.analysis.understanding(&identity, &key);
        let facts = facts.with_understanding(understood);
        let facts = facts.with_code(prepared.code_facts());
        let mut facts = self.with_what_is_new(facts, prepared.plan.uses_secrets())?;
        facts.self_confirmed = self.confirmed(caller).await?;
        facts.said = wanted.said.map(|said| {
            let cut = said.floor_char_boundary(MOST_SAID);
            said.get(..cut).unwrap_or_default().to_owned()
        });
        advising::is_bound_to(wanted.bound_to.as_ref(), &facts)?;
        tracing::debug!(
            call = %facts.call,
            tool = %facts.tool,
            effects = facts.effects.len(),
            opaque = facts.opaque,
            risk = facts.risk.level.as_str(),
            "taken apart"
        );
        // What one caller types is not for another's program.
        let takes_input = prepared.plan.takes_input();
        let detached = wanted.detached && !takes_input;
        // Who does not wait at all has nothing to join.
        let waits = !detached || !wanted.patience.is_zero();
        if !takes_input
            && waits
            && let Some(handle) = self.join(&facts)
        {
            return Ok(handle);
        }
        let (feed, input) = match takes_input {
            true => Some(feeding::open(wanted.window)).unzip(),
            false => (None, None),
        };
        let (handle, shared, report, events) = CallHandle::new(facts.call.clone());
        let recorder = CallRecorder::new(
            self.0.journal.clone(),
            facts.call.clone(),
            Arc::clone(&self.0.clock),
        );
        let drive = Drive {
            gateway: Arc::clone(&self.0),
            caller: caller.clone(),
            proposal,
            facts,
            plan: prepared.plan,
            recorder,
            shared,
            events,
            input,
            detached,
            patience: wanted.patience,
            advice: wanted.advice,
        };
        self.0
            .changes
            .tell(Change::Call(handle.call().clone(), "proposed"));
        let live = Live {
            session: caller.session.clone(),
            principal: caller.principal.clone(),
            cancel: handle.shared.cancel.clone(),
            input: feed,
        };
        let place = LivePlace::take(&self.0, handle.call(), live);
        self.0.tasks.spawn(async move {
            let gateway = Arc::clone(&drive.gateway);
            let finished = Box::pin(drive.run()).await;
            place.ended(&finished);
            drop(place);
            gateway
                .changes
                .tell(Change::Call(finished.call.clone(), "over"));
            report.send_replace(Some(Arc::new(finished)));
        });
        Ok(handle)
    }

    /// Ends what this agent runs and asks: it is no longer registered.
    pub(crate) fn cancel_calls_of(&self, agent: &AgentName) {
        let live = self.0.lock_live();
        let own = live
            .values()
            .filter(|call| call.principal.agent() == Some(agent));
        own.for_each(|call| call.cancel.cancel());
    }

    /// Records what was turned away and not counted yet; to be called now and then.
    pub async fn count_floods(&self) {
        self.0.count_floods(false).await;
    }

    /// Whether nothing runs and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.lock_live().is_empty()
    }

    /// Stops: no new calls; waiting ones are cancelled, running ones get `grace` to end.
    pub async fn stop(&self, grace: Duration) -> Stopped {
        self.0.stopping.cancel();
        self.0.tasks.close();
        let _ = tokio::time::timeout(grace, self.0.tasks.wait()).await;
        self.0
            .lock_live()
            .values()
            .for_each(|call| call.cancel.cancel());
        // A cancelled call ends at once; one that does not is left to recovery.
        let _ = tokio::time::timeout(CANCEL_PATIENCE, self.0.tasks.wait()).await;
        self.0.count_floods(true).await;
        self.0.changes.close();
        self.0.sandbox.shutdown().await;
        let mut stopped = std::mem::take(&mut *lock(&self.0.stopped));
        stopped.cancelled.extend(self.0.lock_live().keys().cloned());
        stopped
    }

    /// Budgets and floods, before anything is journaled.
    async fn admit_proposal(&self, caller: &Caller, wanted: &ProposedCall) -> Result<u64, Refusal> {
        let limits = &self.0.settings.floods;
        let counted = self
            .0
            .lock_floods()
            .proposal(&caller.principal, limits, Instant::now());
        let calls_last_minute = match counted {
            Ok(count) => count,
            Err(flooded) => return Err(Refusal::denied(self.0.turned_away(flooded).await)),
        };
        let size = wanted.arguments.bytes().len() as u64;
        caller
            .usage
            .charge(&self.0.settings.budget, size)
            .map_err(Refusal::denied)?;
        Ok(calls_last_minute)
    }

    fn join(&self, facts: &Facts) -> Option<CallHandle> {
        let waiting = self.0.waiting.identical(facts.digest())?;
        let first = Event::ApprovalPending {
            approval: waiting.approval.clone(),
            expires_at: waiting.expires_at,
            joined: true,
        };
        CallHandle::joined(&waiting.call()?, first)
    }
}

/// How long a cancelled call may take to be recorded when the daemon stops.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// A call's place among the live ones, given back whatever happens.
struct LivePlace {
    gateway: Arc<Inner>,
    call: CallId,
}

impl LivePlace {
    fn take(gateway: &Arc<Inner>, call: &CallId, live: Live) -> Self {
        gateway.lock_live().insert(call.clone(), live);
        Self {
            gateway: Arc::clone(gateway),
            call: call.clone(),
        }
    }

    /// Notes how a call ended, for the stop's report.
    fn ended(&self, report: &CallReport) {
        if !self.gateway.stopping.is_cancelled() {
            return;
        }
        let mut stopped = lock(&self.gateway.stopped);
        match report.was_cut_short() {
            true => stopped.cancelled.push(self.call.clone()),
            false => stopped.finished.push(self.call.clone()),
        }
    }
}

impl Drop for LivePlace {
    fn drop(&mut self) {
        self.gateway.lock_live().remove(&self.call);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    async fn count_floods(&self, at_once: bool) {
        let entries = self.lock_floods().uncounted(Instant::now(), at_once);
        if entries.is_empty() {
            return;
        }
        if let Err(error) = self
            .journal
            .append_if(Stream::Daemon, Expected::Any, entries)
            .await
        {
            tracing::error!(%error, "a flood could not be recorded");
        }
    }

    pub(crate) fn agents(&self) -> std::sync::RwLockReadGuard<'_, Agents> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn postures(&self) -> std::sync::RwLockReadGuard<'_, Postures> {
        self.postures.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_postures(&self, postures: Postures) {
        *self
            .postures
            .write()
            .unwrap_or_else(PoisonError::into_inner) = postures;
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    pub(crate) fn lock_floods(&self) -> MutexGuard<'_, Floods> {
        lock(&self.floods)
    }

    /// Cancels what runs and waits; how much that is.
    pub(crate) fn cancel_live(&self) -> usize {
        let live = self.lock_live();
        live.values().for_each(|call| call.cancel.cancel());
        live.len()
    }

    pub(crate) fn lock_live(&self) -> MutexGuard<'_, HashMap<CallId, Live>> {
        lock(&self.live)
    }

    /// Writes the counted entry of a flood when one is due; gives the denial to answer with.
    pub(crate) async fn turned_away(&self, flooded: Flooded) -> Denial {
        if let Some(entry) = flooded.entry {
            let written = self
                .journal
                .append_if(Stream::Daemon, Expected::Any, vec![*entry])
                .await;
            if let Err(error) = written {
                tracing::error!(%error, "a flood could not be recorded");
            }
        }
        flooded.denial
    }

    fn agent_of(&self, principal: &Principal) -> Result<Option<palyra_identity::Agent>, Refusal> {
        let Some(name) = principal.agent() else {
            return Ok(None);
        };
        let found = self.agents().get(name).cloned();
        found.map(Some).ok_or_else(|| {
            Refusal::new(
                RefusalKind::Forbidden,
                "unknown_agent",
                format!("no agent `{name}` is registered"),
                format!("register it with `palyra agents add {name}`"),
            )
        })
    }

    pub(crate) async fn note(&self, entry: Entry) -> Result<(), Refusal> {
        self.journal
            .append_if(Stream::Daemon, Expected::Any, vec![entry])
            .await?;
        Ok(())
    }
}

/// Who serves the networks of calls.
fn egress(settings: &EgressSettings, clock: &Arc<dyn Clock>) -> Result<Egress, Refusal> {
    let known = Arc::new(Known(settings.addresses.clone()));
    let egress = Egress::new(known, Arc::clone(clock));
    let Some(pem) = &settings.trust else {
        return Ok(egress);
    };
    egress.also_trusting(pem).map_err(|error| {
        Refusal::new(
            RefusalKind::Invalid,
            "bad_config",
            format!("`trust` under `[egress]`: {error}"),
            "name a file with certificates in PEM, or leave it out",
        )
    })
}

pub(crate) fn stopping() -> Refusal {
    Refusal::denied(Denial::new(
        DenialCode::ShuttingDown,
        "the daemon is on its way down",
        "start it again with `./run`, or let `palyra exec` start one",
    ))
}
