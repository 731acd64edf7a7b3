//! Names that appeared while a call ran: which of them must not stay.
//!
//! What was there before the call was held in its cage, so the call cannot have replaced it: a new
//! file in its place is somebody else's, such as a person's editor. Unless the old one is still
//! there, elsewhere: then the call moved it with its folder and put another one in its place.

use std::collections::{HashMap, HashSet};

use palyra_core::{FileId, FsAccess};

use super::policy::SandboxProcessRunnerPolicy;
use super::root::Root;
use super::spot::Spot;
use super::survey::{Found, Survey, What};
use super::{git, names};

/// Something that must not stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Spot,
    pub(crate) why: &'static str,
}

/// What appeared since `before` and must not stay; what is above first, and nothing beneath it.
pub(crate) fn since(
    before: &[Found],
    survey: &Survey,
    root: &Root,
    policy: SandboxProcessRunnerPolicy<'_>,
) -> Vec<Arrival> {
    let now: Vec<Found> = survey.found().collect();
    let then: HashMap<&Spot, FileId> = before.iter().map(|it| (&it.at, it.id)).collect();
    let known: HashSet<FileId> = before.iter().map(|it| it.id).collect();
    let present: HashSet<FileId> = now.iter().map(|it| it.id).collect();
    let is_new = |found: &&Found| {
        let replaced = then
            .get(&found.at)
            .is_some_and(|old| !present.contains(old));
        !known.contains(&found.id) && !replaced
    };
    let new: Vec<&Found> = now.iter().filter(is_new).collect();
    let fresh: HashSet<&Spot> = new
        .iter()
        .filter(|found| found.what == What::GitFolder)
        .map(|found| &found.at)
        .collect();
    let mut arrivals: Vec<Arrival> = new
        .iter()
        // What the operator made writable may be made.
        .filter(|it| policy.access(&it.at, FsAccess::Masked) != FsAccess::Writable)
        .filter_map(|found| {
            let why = judge(found, root)?;
            // A repository that is new goes as a whole.
            let parent = found.at.parent().unwrap_or_default();
            let at = match fresh.contains(&parent) {
                true => parent,
                false => found.at.clone(),
            };
            Some(Arrival { at, why })
        })
        .collect();
    arrivals.sort_by(|one, other| one.at.cmp(&other.at));
    arrivals.dedup_by(|next, kept| next.at.is_within(&kept.at));
    arrivals
}

/// Why something that is new must not stay, if so.
fn judge(found: &Found, root: &Root) -> Option<&'static str> {
    let folder = found.at.parent().unwrap_or_default();
    let leads_inside = |path: &str| leads_inside(root, &folder, path);
    let text = || {
        root.read(&found.at)
            .and_then(|text| String::from_utf8(text).ok())
    };
    let not = |harmless: bool, why| (!harmless).then_some(why);
    match found.what {
        What::Secret | What::RunsLater if names::is_dependency(found.at.bytes()) => None,
        What::Secret => Some("programs that start here would take their settings from it"),
        What::RunsLater => Some("shells, editors or agents that start here would run it"),
        What::Closed => Some("nobody can look into it"),
        // A key runs nothing, and tests make many; a folder of git's is judged by what is in it.
        What::Key | What::GitFolder => None,
        What::GitConfig => {
            let config = root.read(&found.at);
            let harmless = config.is_some_and(|config| git::is_harmless(&config, leads_inside));
            not(harmless, "its configuration could make git run something")
        }
        What::GitHooks => {
            let samples = root
                .names(&found.at)
                .is_some_and(|names| git::are_samples(&names));
            not(samples, "git would run its hooks")
        }
        What::GitPointer => match found.at.name() {
            // Only says where the worktree is, to clear up after it.
            b"gitdir" => None,
            b"commondir" => {
                let usual = text().is_some_and(|text| text.trim_end() == "../..");
                not(usual, "it leads git to another repository")
            }
            _ => {
                let text = text();
                let inside = text
                    .as_deref()
                    .and_then(|text| text.strip_prefix("gitdir:"))
                    .is_some_and(|path| leads_inside(path.trim()));
                not(inside, "it leads git out of the workspace")
            }
        },
    }
}

/// Whether a path that is written in a folder of the workspace leads to something in the workspace.
fn leads_inside(root: &Root, folder: &Spot, path: &str) -> bool {
    let real = root.path().join(folder.path()).join(path).canonicalize();
    real.is_ok_and(|real| real.starts_with(root.path()))
}
