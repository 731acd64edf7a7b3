//! What a person is told when policies cannot be used or changed.

use palyra_policy::operator::Problem;

use super::folder::PolicyPlace;
use crate::error::{Refusal, RefusalKind};

/// How many problems are kept and shown.
pub(super) const MOST_PROBLEMS: usize = 20;

pub(super) fn shown(problems: &[Problem]) -> Vec<String> {
    let first = problems.iter().take(MOST_PROBLEMS);
    first.map(ToString::to_string).collect()
}

pub(super) fn cannot_start(place: &PolicyPlace, problems: &[Problem]) -> Refusal {
    let folder = place.folder.display();
    let message = format!(
        "the policies in `{folder}` cannot be used; try `palyra policy check`\n{}",
        shown(problems).join("\n")
    );
    let next_step = "put them right; `palyra policy check` shows everything";
    Refusal::new(RefusalKind::Invalid, "policies_invalid", message, next_step)
}

pub(super) fn kept_unusable(number: u64, problems: &[Problem]) -> Refusal {
    let message = format!(
        "what the folder holds waits to be activated, and policy version {number} cannot be used \
         by this palyrad; start it once with `staging = false` to take up the folder, or use the \
         palyrad before\n{}",
        shown(problems).join("\n")
    );
    Refusal::new(
        RefusalKind::Invalid,
        "policy_version_unusable",
        message,
        "start it once with `staging = false` in palyra.toml",
    )
}

pub(super) fn unusable(problems: &[Problem]) -> Refusal {
    let message = format!(
        "this policy version cannot be used by this palyrad: {}",
        shown(problems).join("; ")
    );
    Refusal::new(
        RefusalKind::Conflict,
        "policy_version_unusable",
        message,
        "choose another one of `palyra policy versions`",
    )
}

pub(super) fn nothing_staged() -> Refusal {
    Refusal::new(
        RefusalKind::Conflict,
        "nothing_staged",
        "no policies wait to be activated",
        "change a file and see `palyra policy list`; without `staging` a change counts at once",
    )
}

pub(super) fn unknown_version(number: u64) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        "unknown_policy_version",
        format!("there is no policy version {number}"),
        "see `palyra policy versions`",
    )
}

pub(super) fn no_earlier_version() -> Refusal {
    Refusal::new(
        RefusalKind::Conflict,
        "no_earlier_version",
        "there is no policy version before the one in force",
        "see `palyra policy versions`",
    )
}

pub(super) fn already_active(target: u64, active: u64) -> Refusal {
    let message = match target == active {
        true => format!("policy version {target} is in force"),
        false => format!("policy version {target} is what is in force as version {active}"),
    };
    Refusal::new(
        RefusalKind::Conflict,
        "already_active",
        message,
        "choose another one of `palyra policy versions`",
    )
}
