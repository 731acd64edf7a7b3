//! git: which of its commands run programs or connect, and where to.
//!
//! What a repository's own configuration and hooks run is not in the words of a call; the group
//! `vcs` says what kind of program this is.

use crate::arguments::Options;
use crate::network::remote;
use crate::opaque::Opaque;
use crate::unfold::Unfolder;
use crate::words::Word;

/// `git clone`, `fetch`, `pull`, `push`, `ls-remote`.
const GIT: Options = Options {
    plain: "4679afhklnpqstvr",
    valued: "bj",
    long: &[
        "all",
        "atomic",
        "autostash",
        "bare",
        "delete",
        "dry-run",
        "ff-only",
        "follow-tags",
        "force",
        "force-with-lease",
        "heads",
        "mirror",
        "no-checkout",
        "no-edit",
        "no-ff",
        "no-rebase",
        "no-single-branch",
        "no-tags",
        "no-verify",
        "porcelain",
        "progress",
        "prune",
        "quiet",
        "rebase",
        "set-upstream",
        "single-branch",
        "symref",
        "tags",
        "unshallow",
        "verbose",
    ],
    long_valued: &["branch", "depth", "filter", "jobs", "shallow-since"],
    anywhere: true,
};

/// git talks to hosts only in some commands; a remote's name says nothing about its host.
pub(crate) fn unfold(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let mut rest = arguments.iter();
    let command = loop {
        match rest.next().map(Word::known) {
            Some(Some("-c" | "--git-dir" | "--work-tree" | "--namespace")) => {
                return to.opaque(Opaque::RunsProgram);
            }
            // Another folder has another configuration, and with it other programs to run.
            Some(Some("-C")) => match rest.next().map(Word::known) {
                Some(Some(folder)) => to.change_folder(folder),
                Some(None) | None => return to.opaque(Opaque::DynamicArguments),
            },
            Some(Some(option)) if option.starts_with("-c") || option.contains('=') => {
                return to.opaque(Opaque::RunsProgram);
            }
            Some(Some(option)) if option.starts_with('-') => {}
            Some(Some(command)) => break command,
            Some(None) => return to.opaque(Opaque::DynamicArguments),
            None => return,
        }
    };
    git_command(to, command, rest.as_slice());
}

fn git_command(to: &mut Unfolder<'_>, command: &str, arguments: &[Word]) {
    let options = || {
        arguments
            .iter()
            .take_while(|word| word.known() != Some("--"))
    };
    let says = |wanted: &str| options().any(|word| word.known() == Some(wanted));
    let short = |letter: char| {
        let bundle = |text: &str| text.starts_with('-') && !text.starts_with("--");
        let known = options().filter_map(Word::known);
        known
            .filter(|text| bundle(text))
            .any(|text| text.contains(letter))
    };
    if hides_an_option(command, arguments) {
        to.opaque(Opaque::DynamicArguments);
    }
    match command {
        "status" | "log" | "diff" | "show" | "add" | "branch" | "checkout" | "switch"
        | "restore" | "reset" | "rev-parse" | "rev-list" | "ls-files" | "ls-tree" | "blame"
        | "stash" | "mv" | "rm" | "init" | "cat-file" | "describe" | "shortlog" | "reflog"
        | "clean" | "worktree" | "apply" | "format-patch" | "merge-base" | "name-rev"
        | "for-each-ref" | "hash-object" | "symbolic-ref" | "update-index" | "check-ignore"
        | "version" | "gc" | "fsck" | "whatchanged" | "count-objects" | "range-diff"
        | "show-ref" | "diff-tree" | "diff-index" | "diff-files" | "merge-tree" | "cherry"
        | "patch-id" | "update-ref" | "write-tree" | "read-tree" | "commit-tree" | "check-attr"
        | "var" | "pack-refs" | "prune" | "repack" | "sparse-checkout" | "rerere" => {
            // An editor.
            let edits = says("--edit-description") || says("--edit");
            if edits || (command == "add" && short('e')) {
                to.opaque(Opaque::RunsProgram);
            }
        }
        "commit" => {
            let message = |text: &str| {
                [
                    "--message",
                    "--file",
                    "--reuse-message",
                    "--no-edit",
                    "--fixup",
                    "--dry-run",
                ]
                .iter()
                .any(|option| text.starts_with(option))
            };
            let given = options().filter_map(Word::known).any(message)
                || ['m', 'F', 'C'].into_iter().any(short);
            // Without a message it starts an editor, with `-S` a signer.
            if !given || short('S') || says("--edit") || says("-e") || says("-c") {
                to.opaque(Opaque::RunsProgram);
            }
        }
        "tag" if !['s', 'u', 'v', 'e'].into_iter().any(short) && !says("--sign") => {}
        "notes" if !says("edit") => {}
        "grep" if !short('O') => {}
        "merge" | "rebase" | "cherry-pick" | "revert" | "am" => {
            // `-x` and `-i` of rebase, signing, editing, and strategies that are programs.
            let rebase = command == "rebase" && (short('x') || short('i') || says("--interactive"));
            if rebase || short('s') || short('S') || short('e') || says("--edit") {
                to.opaque(Opaque::RunsProgram);
            }
            let strategy =
                |text: &str| text.starts_with("--strategy") || text.starts_with("--stra");
            if options().filter_map(Word::known).any(strategy) {
                to.opaque(Opaque::RunsProgram);
            }
        }
        "archive" if !options().any(|word| word.shown().starts_with("--r")) => {}
        "bisect" => match arguments.first().and_then(Word::known) {
            Some("start" | "good" | "bad" | "old" | "new" | "reset" | "log" | "skip" | "terms") => {
            }
            Some(_) | None => to.opaque(Opaque::UnknownWrapper),
        },
        "config" if says("--get") || says("--list") || says("-l") => {}
        "config" if matches!(arguments, [Word::Known(only)] if only.contains('.')) => {}
        "remote" => match arguments.first().and_then(Word::known) {
            // `add -f` fetches.
            Some("add")
                if !short('f') && !options().any(|word| word.shown().starts_with("--f")) => {}
            Some("-v" | "remove" | "rm" | "rename" | "get-url" | "set-url" | "set-branches") => {
                if says("show") || says("update") || says("prune") {
                    to.opaque(Opaque::UnknownHost);
                }
            }
            None if arguments.is_empty() => {}
            Some(_) | None => to.opaque(Opaque::UnknownHost),
        },
        "clone" | "fetch" | "pull" | "push" | "ls-remote" => git_remote(to, arguments),
        // An alias, a helper, or one that runs commands: `bisect run`, `submodule foreach`.
        _ => to.opaque(Opaque::UnknownWrapper),
    }
}

/// A word that may turn out to be an option; the value of `-m` is none.
fn hides_an_option(command: &str, arguments: &[Word]) -> bool {
    let mut before = "";
    for word in arguments {
        let valued = matches!(before, "-m" | "--message" | "-F" | "-am" | "-b" | "-C")
            && matches!(
                command,
                "commit" | "tag" | "merge" | "stash" | "notes" | "checkout"
            );
        if before == "--" {
            return false;
        }
        if word.may_be_option() && !(valued && word.is_one_value()) {
            return true;
        }
        before = word.known().unwrap_or_default();
    }
    false
}

/// Only the first operand names a repository; the others are branches, colons and all.
fn git_remote(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let Some(taken) = GIT.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    match taken.operands.first().and_then(|word| word.known()) {
        // `ext::sh -c x` and other helpers are programs.
        Some(place) if place.contains("::") && !place.contains("://") && !place.contains('[') => {
            to.opaque(Opaque::RunsProgram);
        }
        Some(place) if remote(to, place, Some(22)) => {}
        Some(_) | None => to.opaque(Opaque::UnknownHost),
    }
}
