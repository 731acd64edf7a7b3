//! What this machine gives to a sandbox, found out by really making each thing once.
//!
//! The helper does the making (`palyra-jail doctor`), in short-lived processes of its own: the
//! daemon has threads and must neither fork nor change its namespaces. Here its observations become
//! a report, each missing piece with the command that brings it ([`remedies`]).

pub(crate) mod host;
pub(crate) mod remedies;
pub(crate) mod trial;

use std::io;
use std::path::Path;
use std::process::Stdio;

use crate::helper::Image;
use crate::sandbox::{Sandbox, SandboxUnavailable};
use host::Host;
use trial::{Ended, Trial, What};

/// Whether one thing that a tier needs can be made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which, such as `landlock`.
    pub name: &'static str,
    /// How it is.
    pub state: CheckState,
    /// Tier-C cannot run without it, or what is lost.
    pub needed: Needed,
    /// What was seen.
    pub found: String,
    /// What to do about it, when it does not work.
    pub remedy: Option<String>,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// It was made and did what it is for.
    Works,
    /// It could not be made, or did nothing.
    Missing,
    /// This daemon has no use for it.
    NotNeeded,
}

impl CheckState {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Missing => "missing",
            Self::NotNeeded => "not_needed",
        }
    }
}

/// What a thing is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// For every tier.
    Always,
    /// For Tier-C made by our own helper.
    Namespaces,
    /// For this alone.
    For(&'static str),
}

impl Needed {
    /// For a person.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "every tier",
            Self::Namespaces => "Tier-C",
            Self::For(what) => what,
        }
    }
}

/// What this machine gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorReport {
    /// Whether Tier-C can run.
    pub tier_c: bool,
    /// Whether Tier-B can run.
    pub tier_b: bool,
    /// One by one.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    pub(crate) fn new(trials: Vec<Trial>, host: &Host) -> Self {
        let checks: Vec<Check> = trials.into_iter().map(|trial| check(trial, host)).collect();
        let all = |needed: Needed| {
            let wanted = checks.iter().filter(|check| check.needed == needed);
            wanted.clone().count() > 0
                && wanted
                    .into_iter()
                    .all(|check| check.state == CheckState::Works)
        };
        let bubblewrap = checks
            .iter()
            .any(|check| check.name == What::Bubblewrap.name() && check.state == CheckState::Works);
        let tier_b = all(Needed::Always);
        Self {
            tier_c: tier_b && (all(Needed::Namespaces) || bubblewrap),
            tier_b,
            checks,
        }
    }
}

fn check(trial: Trial, host: &Host) -> Check {
    let (state, found, remedy) = match trial.ended {
        Ended::Works { found } => (CheckState::Works, found, None),
        Ended::NotNeeded { why } => (CheckState::NotNeeded, why, None),
        Ended::Failed { step, errno, error } => {
            let remedy = remedies::remedy(trial.what, &step, errno, host);
            (
                CheckState::Missing,
                format!("{step}: {error}"),
                Some(remedy),
            )
        }
    };
    Check {
        name: trial.what.name(),
        state,
        needed: trial.what.needed(),
        found,
        remedy,
    }
}

/// Examines the machine with this helper, as this process is: its uid, its cgroup, its confinement.
///
/// # Errors
/// The helper cannot be started or does not answer.
pub async fn examine(helper: &Path) -> Result<DoctorReport, SandboxUnavailable> {
    let image = Image::read(helper).map_err(|error| unavailable(helper, &error))?;
    examine_with(&image)
        .await
        .map_err(|error| unavailable(helper, &error))
}

impl Sandbox {
    /// The same in the daemon's context.
    ///
    /// # Errors
    /// The helper cannot be started or does not answer.
    pub async fn examine(&self) -> Result<DoctorReport, SandboxUnavailable> {
        // One after another: what is made is the same each time.
        static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _one = ONE.lock().await;
        let helper = &self.inner.settings.helper;
        let image = self.inner.image();
        let image = image.map_err(|error| unavailable(helper, &error))?;
        examine_with(image)
            .await
            .map_err(|error| unavailable(helper, &error))
    }
}

fn unavailable(helper: &Path, error: &io::Error) -> SandboxUnavailable {
    SandboxUnavailable {
        why: format!("`{}`: {error}", helper.display()),
    }
}

async fn examine_with(image: &Image) -> io::Result<DoctorReport> {
    let host = Host::look();
    let mut command = image.command();
    command
        .arg("doctor")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // Each trial has a time limit in the helper, so this ends.
    let child = command.spawn()?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = output.await.map_err(io::Error::other)??;
    let trials: Vec<Trial> = serde_json::from_slice(&output.stdout)
        .map_err(|_| io::Error::other("it gave no answer that could be read"))?;
    Ok(DoctorReport::new(trials, &host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(broken: &[What]) -> DoctorReport {
        let trials = What::ALL.map(|what| Trial {
            what,
            ended: match broken.contains(&what) {
                true => Ended::Failed {
                    step: "it".to_owned(),
                    errno: libc::EPERM,
                    error: "no".to_owned(),
                },
                false => Ended::Works {
                    found: "yes".to_owned(),
                },
            },
        });
        DoctorReport::new(trials.to_vec(), &Host::default())
    }

    #[test]
    fn what_is_needed_decides_and_what_is_not_does_not() {
        let whole = machine(&[]);
        assert!(whole.tier_b && whole.tier_c);
        assert!(whole.checks.iter().all(|check| check.remedy.is_none()));
        let small = machine(&[What::Memory, What::Overlay, What::IdmappedMount]);
        assert!(small.tier_c);
        assert_eq!(
            small.checks.iter().filter(|it| it.remedy.is_some()).count(),
            3
        );
        // Bubblewrap can stand in for namespaces of our own, but for nothing else.
        assert!(machine(&[What::Namespaces]).tier_c);
        assert!(!machine(&[What::Namespaces, What::Bubblewrap]).tier_c);
        let bare = machine(&[What::Landlock]);
        assert!(!bare.tier_b && !bare.tier_c);
    }

    #[test]
    fn a_helper_that_tried_nothing_is_no_good_machine() {
        let nothing = DoctorReport::new(Vec::new(), &Host::default());
        assert!(!nothing.tier_b && !nothing.tier_c);
    }
}
