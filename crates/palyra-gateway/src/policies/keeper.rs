//! The one place that changes which policies decide.
//!
//! A change is recorded before it decides anything, and all changes happen one after another. If
//! it cannot be recorded, what was in force stays in force. Decisions never wait for any of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use palyra_core::entry::{Entry, WhyActivated};
use palyra_core::{Commitment, Digest, UserName};
use palyra_journal::JournalStore;
use palyra_policy::PolicyEngine;
use palyra_policy::operator::{Bundle, Problem};

use super::folder::{Checked, Looked, PolicyPlace};
use super::recording::{Kept, New, append, record, recorded};
use super::refusals::{
    MOST_PROBLEMS, already_active, no_earlier_version, nothing_staged, shown, unknown_version,
    unusable,
};
use super::starting::{first, while_locked};
use super::versions::{self, PolicyVersion, Sources, StagedPolicies};
use crate::error::{Refusal, RefusalKind};

/// How long the folder must hold the same, and how often that is tried.
const REST: Duration = Duration::from_millis(150);
const MOST_LOOKS: usize = 40;

/// Which policies decide, and what else there is to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The version in force.
    pub active: PolicyVersion,
    /// What waits for a person to activate it.
    pub staged: Option<StagedPolicies>,
    /// Why what the folder holds is not used.
    pub refused: Option<RefusedPolicies>,
    /// What the folder held when a person went back to an earlier version.
    pub set_aside: Option<Digest>,
}

/// Policies that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPolicies {
    /// Of what was refused.
    pub digest: Digest,
    /// What is wrong, the first of them, each with file, line and column.
    pub problems: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// What came of looking at the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Considered {
    /// It holds what is in force.
    Unchanged,
    /// What it holds is in force now.
    Activated,
    /// What it holds waits for a person.
    Staged,
    /// What it holds was set aside by a rollback and did not change since.
    SetAside,
    /// What it holds cannot be used.
    Refused,
}

pub(crate) struct Keeper {
    pub(crate) place: PolicyPlace,
    engine: Arc<PolicyEngine>,
    journal: JournalStore,
    /// Locked only to copy or replace the reference.
    standing: RwLock<Arc<Standing>>,
    /// Changes happen one after another. What the folder held when it was last dealt with.
    seen: tokio::sync::Mutex<Option<Digest>>,
    /// Whether what decides is what was in force last, or came into force since.
    certain: AtomicBool,
    /// Whether persons prove that they are there: then a changed file alone puts nothing in force.
    careful: AtomicBool,
}

impl Keeper {
    /// Finds out what decides from now on: what the folder holds, or what was in force last.
    ///
    /// # Errors
    /// Neither can be used, or the journal cannot be read or written.
    pub(crate) async fn open(journal: JournalStore, place: PolicyPlace) -> Result<Self, Refusal> {
        let last = versions::latest(&journal)?;
        let looked = place.find().check().after(last.as_ref(), &place);
        let locked = journal.is_locked();
        let (bundle, active, certain) = match locked {
            true => while_locked(&journal, &place, &looked)?,
            false => {
                let (bundle, active) = first(&journal, &place, &looked).await?;
                (bundle, active, true)
            }
        };
        let engine = bundle.engine()?;
        let beside = versions::beside(&journal)?;
        let standing = Standing {
            active,
            staged: beside.staged,
            refused: None,
            set_aside: beside.set_aside,
        };
        let keeper = Self {
            place,
            engine: Arc::new(engine),
            journal,
            standing: RwLock::new(Arc::new(standing)),
            seen: tokio::sync::Mutex::default(),
            certain: AtomicBool::new(certain),
            careful: AtomicBool::new(false),
        };
        if locked {
            keeper.announce();
            return Ok(keeper);
        }
        let mut seen = keeper.seen.lock().await;
        keeper
            .deal_with(looked, WhyActivated::Started, None, &mut seen)
            .await?;
        drop(seen);
        keeper.announce();
        Ok(keeper)
    }

    /// What [`open`](Self::open) could not do for want of the journal's keys.
    ///
    /// # Errors
    /// As there; what decided goes on deciding.
    pub(crate) async fn settle(&self) -> Result<(), Refusal> {
        let mut seen = self.seen.lock().await;
        let last = versions::latest(&self.journal)?;
        let place = self.place.clone();
        let found = blocking(move || place.find().check()).await?;
        let looked = found.after(last.as_ref(), &self.place);
        let (bundle, active) = first(&self.journal, &self.place, &looked).await?;
        self.engine.replace(&bundle)?;
        let beside = versions::beside(&self.journal)?;
        self.stands(|standing| {
            *standing = Standing {
                active,
                staged: beside.staged,
                refused: None,
                set_aside: beside.set_aside,
            };
        });
        self.certain.store(true, Ordering::Release);
        self.deal_with(looked, WhyActivated::Started, None, &mut seen)
            .await?;
        self.announce();
        Ok(())
    }

    /// Whether what decides is known to be what is in force.
    pub(crate) fn is_certain(&self) -> bool {
        self.certain.load(Ordering::Acquire)
    }

    pub(crate) fn engine(&self) -> &Arc<PolicyEngine> {
        &self.engine
    }

    /// How things stand.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        let standing = self.standing.read();
        Arc::clone(&standing.unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the folder, and takes up what it holds if that is due.
    ///
    /// # Errors
    /// It could not be recorded; nothing changed.
    pub(crate) async fn consider(
        &self,
        why: WhyActivated,
        by: Option<UserName>,
    ) -> Result<Considered, Refusal> {
        if why == WhyActivated::Changed {
            // Before anything is locked: a person who wants something meanwhile does not wait.
            let seen = *self.seen.lock().await;
            self.come_to_rest(seen).await?;
        }
        let mut seen = self.seen.lock().await;
        // Somebody who asks is answered; an event about nothing new is not looked into.
        let unless = match why {
            WhyActivated::Changed => *seen,
            WhyActivated::Started
            | WhyActivated::Reloaded
            | WhyActivated::Activated
            | WhyActivated::RolledBack { .. } => None,
        };
        let place = self.place.clone();
        let Some(looked) = blocking(move || place.look(unless)).await? else {
            return Ok(Considered::Unchanged);
        };
        let looked = looked.after(Some(&self.standing().active), &self.place);
        self.deal_with(looked, why, by, &mut seen).await
    }

    /// Activates what is staged, if it is this.
    ///
    /// # Errors
    /// Nothing is staged, or something else; or it could not be recorded.
    pub(crate) async fn activate_staged(
        &self,
        digest: Digest,
        by: UserName,
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.seen.lock().await;
        let staged = self.standing().staged.clone().ok_or_else(nothing_staged)?;
        if staged.digest != digest {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "staged_changed",
                format!("`{digest}` is not staged; `{}` is", staged.digest),
                "look at it again with `palyra policy list`, then activate that",
            ));
        }
        // What was looked at is what is activated, whatever the folder holds by now.
        let (sources, bundle) = self.kept(staged.sources).await?;
        let why = WhyActivated::Activated;
        self.activate(
            bundle,
            &sources,
            Kept::Already(staged.sources),
            why,
            Some(by),
            None,
        )
        .await
    }

    /// Goes back to an earlier version, under a new number, and sets aside what the folder holds.
    ///
    /// # Errors
    /// There is no such version, it is in force, or it cannot be used; or it could not be
    /// recorded.
    pub(crate) async fn roll_back(&self, to: Option<u64>, by: UserName) -> Result<(), Refusal> {
        let _one_at_a_time = self.seen.lock().await;
        let active = self.standing().active.clone();
        let target = match to {
            Some(number) => {
                versions::find(&self.journal, number)?.ok_or_else(|| unknown_version(number))?
            }
            None => versions::list(&self.journal, Some(active.number), 1)?
                .pop()
                .ok_or_else(no_earlier_version)?,
        };
        if target.digest == active.digest {
            return Err(already_active(target.number, active.number));
        }
        let (sources, bundle) = self.kept(target.sources).await?;
        let place = self.place.clone();
        let found = blocking(move || place.find()).await?;
        let why = WhyActivated::RolledBack { to: target.number };
        let (kept, aside) = (Kept::Already(target.sources), found.of_files());
        self.activate(bundle, &sources, kept, why, Some(by), aside)
            .await
    }

    async fn kept(&self, sources: Commitment) -> Result<(Sources, Bundle), Refusal> {
        let journal = self.journal.clone();
        blocking(move || {
            let sources = Sources::kept(&journal, &sources)?;
            let bundle = sources.bundle().map_err(|problems| unusable(&problems))?;
            Ok((sources, bundle))
        })
        .await?
    }

    /// Waits until the folder holds the same twice: in the middle of a deployment it may hold the
    /// new permits and not yet the new forbids.
    async fn come_to_rest(&self, seen: Option<Digest>) -> Result<(), Refusal> {
        let find = || {
            let place = self.place.clone();
            blocking(move || place.find().digest)
        };
        let mut last = find().await?;
        if Some(last) == seen {
            return Ok(());
        }
        for _ in 0..MOST_LOOKS {
            tokio::time::sleep(REST).await;
            let now = find().await?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(())
    }

    async fn deal_with(
        &self,
        looked: Looked,
        why: WhyActivated,
        by: Option<UserName>,
        seen: &mut Option<Digest>,
    ) -> Result<Considered, Refusal> {
        let digest = looked.digest;
        let considered = match looked.set {
            Err(problems) => self.refuse(digest, &problems).await?,
            Ok(checked) => self.take_up(digest, checked, why, by).await?,
        };
        *seen = Some(digest);
        Ok(considered)
    }

    /// Whether a change waits for a person.
    pub(crate) fn stages(&self) -> bool {
        self.place.staging || self.careful.load(Ordering::Acquire)
    }

    /// From now on every change waits for a person, or not.
    pub(crate) fn be_careful(&self, careful: bool) {
        self.careful.store(careful, Ordering::Release);
    }

    async fn take_up(
        &self,
        digest: Digest,
        checked: Checked,
        why: WhyActivated,
        by: Option<UserName>,
    ) -> Result<Considered, Refusal> {
        let standing = self.standing();
        let Checked { sources, bundle } = checked;
        let considered = if bundle.digest() == standing.active.digest {
            self.withdraw().await?;
            Considered::Unchanged
        } else if standing.set_aside == Some(digest) && why != WhyActivated::Reloaded {
            Considered::SetAside
        } else if self.stages() {
            self.stage(&bundle, &sources).await?;
            Considered::Staged
        } else {
            let kept = Kept::Now(sources.blob());
            self.activate(bundle, &sources, kept, why, by, None).await?;
            Considered::Activated
        };
        self.stands(|standing| {
            if standing.refused.take().is_some() {
                tracing::info!("the policies in the folder can be used again");
            }
        });
        Ok(considered)
    }

    /// Records a version and lets it decide.
    async fn activate(
        &self,
        bundle: Bundle,
        sources: &Sources,
        kept: Kept,
        why: WhyActivated,
        by: Option<UserName>,
        set_aside: Option<Digest>,
    ) -> Result<(), Refusal> {
        let engine = Arc::clone(&self.engine);
        // What can fail comes first: once it is recorded, it decides.
        let (ready, bundle) = blocking(move || (engine.ready(&bundle), bundle)).await?;
        let ready = ready?;
        let new = New {
            bundle: &bundle,
            baseline: sources.baseline_name().to_owned(),
            sources: kept,
            why,
            by,
            set_aside,
        };
        let last = versions::latest(&self.journal)?;
        let number = last.map_or(1, |last| last.number.saturating_add(1));
        record(&self.journal, number, new).await?;
        self.engine.put_in_force(ready);
        let active = recorded(&self.journal, number)?;
        self.stands(|standing| {
            standing.staged = None;
            standing.set_aside = set_aside;
            standing.active = active;
        });
        self.announce();
        Ok(())
    }

    async fn stage(&self, bundle: &Bundle, sources: &Sources) -> Result<(), Refusal> {
        let digest = bundle.digest();
        if self.standing().staged.as_ref().map(|it| it.digest) == Some(digest) {
            return Ok(());
        }
        let blob = sources.blob();
        let entry = Entry::PolicyStaged {
            digest,
            baseline: sources.baseline_name().to_owned(),
            files: bundle.version(0).files,
            sources: blob.commitment(),
        };
        append(&self.journal, entry, vec![blob]).await?;
        let beside = versions::beside(&self.journal)?;
        self.stands(|standing| {
            standing.staged = beside.staged;
            standing.set_aside = None;
        });
        tracing::warn!(%digest, "changed policies wait to be activated: palyra policy activate {digest}");
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), Refusal> {
        let Some(staged) = self.standing().staged.clone() else {
            return Ok(());
        };
        let digest = staged.digest;
        append(&self.journal, Entry::PolicyWithdrawn { digest }, Vec::new()).await?;
        self.stands(|standing| standing.staged = None);
        tracing::info!(%digest, "what was staged is no longer in the folder");
        Ok(())
    }

    async fn refuse(&self, digest: Digest, problems: &[Problem]) -> Result<Considered, Refusal> {
        let refused = RefusedPolicies {
            digest,
            problems: shown(problems),
            more: problems.len().saturating_sub(MOST_PROBLEMS),
        };
        let folder = self.place.folder.display();
        let version = self.standing().active.number;
        for problem in &refused.problems {
            tracing::error!(%folder, problem, version, "a policy cannot be used; this version stays in force");
        }
        // First what people see: it must not depend on whether the journal takes entries.
        self.stands(|standing| standing.refused = Some(refused.clone()));
        if versions::beside(&self.journal)?.refused != Some(digest) {
            let problems = refused.problems;
            let entry = Entry::PolicyRefused { digest, problems };
            append(&self.journal, entry, Vec::new()).await?;
        }
        Ok(Considered::Refused)
    }

    fn stands(&self, edit: impl FnOnce(&mut Standing)) {
        let mut standing = self
            .standing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        edit(Arc::make_mut(&mut standing));
    }

    fn announce(&self) {
        let active = &self.standing().active;
        tracing::info!(
            version = active.number,
            policy_version = %active.policy_version,
            baseline = %active.baseline,
            files = active.files.len(),
            why = active.why.as_str(),
            "policies in force"
        );
    }
}

/// Reading and checking thousands of policies takes a while, and the disk its time.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "work of the daemon broke");
        Refusal::new(
            RefusalKind::Unavailable,
            "internal_error",
            "work broke inside the daemon",
            "see the daemon's log; policies that were in force stay in force",
        )
    })
}
