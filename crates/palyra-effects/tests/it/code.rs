//! Which files a call runs, as far as its words name them.

use crate::machine::analyse;

/// Paths, each with whether it runs as it is found when the call starts.
fn code(argv: &[&str]) -> Vec<(String, bool)> {
    let analysis = analyse(argv);
    let code = analysis.code.iter();
    code.map(|one| (one.path.display().to_string(), one.at_once))
        .collect()
}

fn of(all: &[(&str, bool)]) -> Vec<(String, bool)> {
    let all = all.iter();
    all.map(|(path, at_once)| ((*path).to_owned(), *at_once))
        .collect()
}

#[test]
fn scripts_of_interpreters_are_named() {
    let sh = ("/usr/bin/sh", true);
    let node = ("/usr/bin/node", true);
    for (argv, script) in [
        (["sh", "x.sh"].as_slice(), "/workspace/x.sh"),
        (&["sh", "-e", "./x.sh", "y"], "/workspace/./x.sh"),
        (&["node", "app.js", "data.js"], "/workspace/app.js"),
        (&["python3", "-u", "b.py", "-c"], "/workspace/b.py"),
        (&["perl", "-w", "x.pl"], "/workspace/x.pl"),
        (&["ruby", "x.rb"], "/workspace/x.rb"),
    ] {
        let found = code(argv);
        assert_eq!(found.len(), 2, "{argv:?}: {found:?}");
        assert_eq!(found[1], (script.to_owned(), true), "{argv:?}");
    }
    // A text is no file.
    assert_eq!(code(&["node", "-e", "x"]), of(&[node]));
    assert_eq!(code(&["sh", "-c", ":"]), of(&[sh]));
    assert_eq!(code(&["python3", "-m", "x"]).len(), 1);
}

#[test]
fn behind_wrappers_it_runs_at_once_and_in_a_text_it_may_be_made_first() {
    let found = code(&["env", "A=1", "timeout", "5", "sh", "x.sh"]);
    let expected = [
        ("/usr/bin/env", true),
        ("/usr/bin/timeout", true),
        ("/usr/bin/sh", true),
        ("/workspace/x.sh", true),
    ];
    assert_eq!(found, of(&expected));
    let found = code(&["sh", "-c", "make && node app.js"]);
    let expected = [
        ("/usr/bin/sh", true),
        ("/usr/bin/make", false),
        ("/usr/bin/node", false),
        ("/workspace/app.js", false),
    ];
    assert_eq!(found, of(&expected));
    // Wherever it may stand by then.
    let found = code(&["sh", "-c", "cd sub; sh x.sh"]);
    for path in ["/workspace/x.sh", "/workspace/sub/x.sh"] {
        assert!(found.contains(&(path.to_owned(), false)), "{found:?}");
    }
}

#[test]
fn interpreters_and_build_tools_read_more_than_is_named() {
    for argv in [
        ["sh", "x.sh"],
        ["node", "x.js"],
        ["make", "all"],
        ["cargo", "build"],
    ] {
        assert!(analyse(&argv).reads_more_code, "{argv:?}");
    }
    for argv in [["ls", "x"], ["git", "status"], ["cat", "x.sh"]] {
        assert!(!analyse(&argv).reads_more_code, "{argv:?}");
    }
}
