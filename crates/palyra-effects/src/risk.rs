//! How bad a call can be, from what was found in it.

use std::collections::BTreeSet;
use std::path::Path;

use palyra_core::{Effect, ProgramFacts, ProgramGroup, Risk, RiskLevel};

use crate::opaque::Opaque;
use crate::paths;
use crate::words::Word;

/// Something in the arguments that raises the risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Note {
    /// Removes or overwrites much, or what cannot be had back; in words.
    Destructive(&'static str),
    /// A path outside the workspace.
    Outside,
    /// A program of the workspace.
    Local,
    /// Nothing holds it to any host.
    Unrestricted,
}

/// Options that make a program destructive.
pub(crate) fn note_flags(name: &str, arguments: &[Word], notes: &mut BTreeSet<Note>) {
    let known: Vec<&str> = arguments.iter().filter_map(Word::known).collect();
    let has = |wanted: &str| known.contains(&wanted);
    let starts = |wanted: &str| known.iter().any(|word| word.starts_with(wanted));
    let short = |letter: char| {
        let bundle = |word: &&str| word.starts_with('-') && !word.starts_with("--");
        known
            .iter()
            .filter(|word| bundle(word))
            .any(|word| word.contains(letter))
    };
    let recursive = short('r') || short('R') || starts("--rec");
    let found = match name {
        "rm" if recursive => "rm -r",
        "rm" if short('f') || starts("--forc") => "rm -f",
        "chmod" | "chown" | "chgrp" if recursive => "a recursive change of permissions",
        "dd" if starts("of=") => "dd of=",
        "shred" | "wipefs" | "mkfs" | "mkswap" | "truncate" => "a program that erases",
        "kill" | "pkill" | "killall" => "a program that ends others",
        "git"
            if has("push")
                && (short('f') || starts("--force") || starts("--mirror") || starts("--del")) =>
        {
            "git push --force"
        }
        "git"
            if has("push")
                && known
                    .iter()
                    .any(|word| word.starts_with('+') || word.starts_with(':')) =>
        {
            "git push of a forced or removed branch"
        }
        "git" if has("reset") && has("--hard") => "git reset --hard",
        "git" if has("clean") && (short('f') || starts("--force")) => "git clean -f",
        "git" if has("branch") && short('D') => "git branch -D",
        "git" if has("filter-branch") || has("gc") || has("reflog") && has("expire") => {
            "a change of git's history"
        }
        "rsync" if starts("--del") => "rsync --delete",
        "sed" | "perl" if short('i') => "a change of files in place",
        _ => return,
    };
    notes.insert(Note::Destructive(found));
}

/// The level and the reasons, the worst first.
pub(crate) fn of(
    effects: &[Effect],
    programs: &[ProgramFacts],
    opaque: &BTreeSet<Opaque>,
    notes: &BTreeSet<Note>,
    workspace: Option<&Path>,
) -> Risk {
    let mut reasons: Vec<(RiskLevel, String)> = Vec::new();
    let mut add = |level, reason: String| reasons.push((level, reason));
    for why in opaque {
        add(
            RiskLevel::Critical,
            format!("it could not be understood: {}", why.as_str()),
        );
    }
    let outside_write = effects.iter().any(|effect| match effect {
        Effect::FsWrite { path } => workspace.is_none_or(|workspace| !path.starts_with(workspace)),
        Effect::Exec { .. } | Effect::FsRead { .. } | Effect::NetConnect { .. } => false,
    });
    let outside_read = effects.iter().any(|effect| match effect {
        Effect::FsRead { path } => workspace.is_none_or(|workspace| !path.starts_with(workspace)),
        Effect::Exec { .. } | Effect::FsWrite { .. } | Effect::NetConnect { .. } => false,
    });
    let outside = outside_write || outside_read || notes.contains(&Note::Outside);
    if outside_write {
        add(
            RiskLevel::Critical,
            "it writes outside the workspace".to_owned(),
        );
    } else if outside {
        add(
            RiskLevel::High,
            "it names a path outside the workspace".to_owned(),
        );
    }
    let of_git =
        |effect: &Effect| matches!(effect, Effect::FsWrite { path } if paths::is_of_git(path));
    if effects.iter().any(of_git) {
        add(RiskLevel::Critical, "it changes what git runs".to_owned());
    }
    for note in notes {
        if let Note::Destructive(what) = note {
            let level = if outside {
                RiskLevel::Critical
            } else {
                RiskLevel::High
            };
            add(level, format!("it cannot be undone: {what}"));
        }
    }
    if notes.contains(&Note::Unrestricted) {
        let why = "it has the machine's own network, and nothing holds it to any host";
        add(RiskLevel::High, why.to_owned());
    }
    for effect in effects {
        match effect {
            Effect::NetConnect { host, .. } => {
                add(RiskLevel::High, format!("it connects to `{host}`"));
            }
            Effect::FsWrite { .. } => add(RiskLevel::Medium, "it writes files".to_owned()),
            Effect::Exec { .. } => add(RiskLevel::Medium, "it runs a program".to_owned()),
            Effect::FsRead { .. } => {}
        }
    }
    for group in programs.iter().flat_map(|program| &program.groups) {
        match group {
            ProgramGroup::System => {
                add(
                    RiskLevel::Critical,
                    "it changes the machine or who it acts as".to_owned(),
                );
            }
            ProgramGroup::Interpreters => {
                add(RiskLevel::High, "it runs code that it is given".to_owned());
            }
            ProgramGroup::Wrappers => {
                add(
                    RiskLevel::High,
                    "it runs a program through another one".to_owned(),
                );
            }
            ProgramGroup::Local => {
                add(
                    RiskLevel::High,
                    "it runs a program of the workspace".to_owned(),
                );
            }
            ProgramGroup::Build => {
                add(
                    RiskLevel::Medium,
                    "it runs what the workspace tells it to".to_owned(),
                );
            }
            ProgramGroup::Destructive => {
                add(RiskLevel::Medium, "it removes or overwrites".to_owned());
            }
            ProgramGroup::Vcs | ProgramGroup::Network => {}
        }
    }
    reasons.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
    let level = reasons.first().map_or(RiskLevel::Low, |(level, _)| *level);
    let mut texts: Vec<String> = Vec::new();
    for (_, reason) in reasons {
        if !texts.contains(&reason) {
            texts.push(reason);
        }
    }
    Risk {
        level,
        reasons: texts,
    }
}
