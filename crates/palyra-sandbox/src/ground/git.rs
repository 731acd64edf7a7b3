//! What a repository that appears during a call may say.
//!
//! `git init`, `git clone` and `cargo new` write a configuration and hooks that do nothing. Anything
//! else in there may make git run a program, and not only in the hands of who runs a call.

/// Keys that say nothing about what is run: a section and a key, `*` for any name in between.
const HARMLESS: [(&str, &str); 37] = [
    ("core", "repositoryformatversion"),
    ("core", "filemode"),
    ("core", "bare"),
    ("core", "logallrefupdates"),
    ("core", "ignorecase"),
    ("core", "precomposeunicode"),
    ("core", "symlinks"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("core", "worktree"),
    ("core", "sharedrepository"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("extensions", "objectformat"),
    ("extensions", "refstorage"),
    ("extensions", "worktreeconfig"),
    ("extensions", "partialclone"),
    ("remote", "url"),
    ("remote", "fetch"),
    ("remote", "tagopt"),
    ("remote", "promisor"),
    ("remote", "partialclonefilter"),
    ("branch", "remote"),
    ("branch", "merge"),
    ("branch", "rebase"),
    ("submodule", "url"),
    ("submodule", "active"),
    ("submodule", "path"),
    ("submodule", "branch"),
    ("user", "name"),
    ("user", "email"),
    ("init", "defaultbranch"),
    ("pull", "rebase"),
    ("push", "default"),
    ("gc", "auto"),
    ("maintenance", "auto"),
    ("receive", "denycurrentbranch"),
];

/// Whether a configuration holds harmless keys only. `leads_inside` says where a path of it leads.
/// What is not understood is not harmless.
pub(crate) fn is_harmless(config: &[u8], leads_inside: impl Fn(&str) -> bool) -> bool {
    let Ok(config) = std::str::from_utf8(config) else {
        return false;
    };
    let mut section = "";
    for line in config.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            let Some(head) = head.strip_suffix(']') else {
                return false;
            };
            section = head.split([' ', '\t', '.', '"']).next().unwrap_or_default();
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (key.trim_end(), value.trim_start());
        let known = HARMLESS.iter().any(|(in_section, name)| {
            section.eq_ignore_ascii_case(in_section) && key.eq_ignore_ascii_case(name)
        });
        // A line that goes on, and addresses that name a program (`ext::sh -c …`).
        if !known || value.ends_with('\\') || (key.ends_with("url") && value.contains("::")) {
            return false;
        }
        if key.eq_ignore_ascii_case("worktree") && !leads_inside(value) {
            return false;
        }
    }
    true
}

/// Whether hooks are what `git init` leaves.
pub(crate) fn are_samples(names: &[Vec<u8>]) -> bool {
    names.iter().all(|name| name.ends_with(b".sample"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_and_clone_write_is_harmless() {
        let init = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                    \tlogallrefupdates = true\n";
        let clone = format!(
            "{init}[remote \"origin\"]\n\turl = https://example.org/x.git\n\
             \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\
             \tremote = origin\n\tmerge = refs/heads/main\n# said\n"
        );
        for config in ["", init, &clone, "[user]\n\tname = A B\n"] {
            assert!(is_harmless(config.as_bytes(), |_| false), "{config}");
        }
        assert!(is_harmless(b"[core]\nworktree = ../../m\n", |path| path == "../../m"));
        assert!(are_samples(&[b"pre-commit.sample".to_vec()]) && are_samples(&[]));
    }

    #[test]
    fn what_could_run_something_is_not() {
        for config in [
            "[core]\n\thooksPath = /tmp/x\n",
            "[core]\n\tfsmonitor = ./x\n",
            "[core] hooksPath = x\n",
            "[core]\n\tsshCommand = x\n",
            "[alias]\n\tst = !x\n",
            "[include]\n\tpath = ../x\n",
            "[filter \"lfs\"]\n\tclean = x\n",
            "[remote \"o\"]\n\turl = ext::sh -c x\n",
            "[remote \"o\"]\n\tuploadpack = x\n",
            "[core]\n\tworktree = /home/u\n",
            "[core]\n\tbare = false \\\n",
            "written by an attacker\n",
            "[core\n",
            "\u{feff}[core]\n",
        ] {
            assert!(!is_harmless(config.as_bytes(), |_| false), "{config}");
        }
        assert!(!is_harmless(b"\xff", |_| true));
        assert!(!are_samples(&[b"pre-commit".to_vec()]));
    }
}
