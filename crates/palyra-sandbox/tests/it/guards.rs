//! What in a workspace is masked, read-only or cannot be moved, and that ordinary work goes on.

use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use palyra_core::plan::RunAs;
use palyra_core::{Ending, FileOperation, FsAccess, FsRule, SystemClock};
use palyra_sandbox::{Sandbox, SandboxSettings};
use tokio_util::sync::CancellationToken;

use super::fixture::{House, Ran, broken_jail, execute, identified, is_root};

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIB\n";

async fn houses() -> Vec<House> {
    let mut all = vec![House::caged().await];
    if is_root() {
        all.push(House::caged_by_root().await);
    }
    all
}

/// Puts a file into the workspace, as its owner's.
fn put(house: &House, name: &str, content: &str) {
    let path = house.path("work").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    give(house, &path);
}

/// Gives a path, and every folder on the way to it, to the workspace's owner.
fn give(house: &House, path: &Path) {
    if let RunAs::Owner { uid, gid } | RunAs::Lent { uid, gid } = house.run_as {
        let work = house.path("work");
        for path in path.ancestors().take_while(|at| *at != work) {
            lchown(path, Some(uid), Some(gid)).unwrap();
        }
    }
}

fn link(house: &House, to: &str, name: &str) {
    let path = house.path("work").join(name);
    symlink(to, &path).unwrap();
    give(house, &path);
}

fn read(house: &House, name: &str) -> String {
    std::fs::read_to_string(house.path("work").join(name)).unwrap()
}

/// What a call in a shell says to a script: its output and its errors together.
async fn said(house: &House, script: &str) -> String {
    let ran = house.sh(&format!("{{ {script}\n}} 2>&1")).await;
    ran.stdout().to_owned()
}

#[tokio::test]
async fn secrets_are_listed_and_never_read() {
    for house in houses().await {
        let secrets = [
            ".env",
            "deep/er/.env.production",
            "keys/deploy.pem",
            "keys/id_ed25519",
            ".aws/credentials",
            "node_modules/x/.npmrc",
        ];
        for name in secrets {
            put(&house, name, &format!("{KEY}hidden"));
        }
        let open = [
            ".env.example",
            "keys/ca.pem",
            "keys/id_ed25519.pub",
            "aws/credentials",
        ];
        for name in open {
            put(&house, name, "plain");
        }
        for name in secrets {
            let text = said(
                &house,
                &format!("ls {name}; cat {name}; cat <{name}; dd if={name}"),
            )
            .await;
            assert!(text.starts_with(&format!("{name}\n")), "{text}");
            assert!(text.contains("Permission denied"), "{text}");
            assert!(!text.contains("hidden"), "{text}");
            // Nor can it be uncovered, copied aside, moved, linked, removed or written.
            let attack = format!(
                "chmod 777 {name}; cp {name} x; mv {name} x; ln {name} x; rm -f {name}; echo >{name}; \
                 umount {name}; cat x {name}"
            );
            let text = said(&house, &attack).await;
            assert!(!text.contains("hidden"), "{text}");
            assert_eq!(read(&house, name), format!("{KEY}hidden"));
        }
        for name in open {
            assert_eq!(
                said(&house, &format!("cat {name}")).await,
                "plain",
                "{name}"
            );
        }
        let ran = house.sh("true").await;
        let seen = ran.layer("guards").unwrap();
        assert!(
            seen.starts_with("6 masked, 0 read-only, 1 pinned"),
            "{seen}"
        );
        // No stub is left anywhere, and nothing else either.
        assert!(!house.path("work/x").exists());
    }
}

/// What made a name count cannot be taken away from it in one call, to read it in the next.
#[tokio::test]
async fn a_secret_stays_one_from_call_to_call() {
    for house in houses().await {
        put(&house, "a/b/.env", "hidden");
        put(&house, ".aws/credentials", "hidden");
        put(&house, "real/settings.txt", "hidden");
        link(&house, "real/settings.txt", ".env");
        let text = said(&house, "cat .env real/settings.txt").await;
        assert!(!text.contains("hidden"), "{text}");
        // Moved with its folder: it is found where it went.
        said(&house, "mv a c; mv .aws aws; rm .env; mv real unreal").await;
        let text = said(&house, "find . -type f -exec cat {} +; echo done").await;
        assert!(text.contains("done") && !text.contains("hidden"), "{text}");
        assert!(house.path("work/c/b/.env").exists() && house.path("work/.aws").exists());
        assert!(house.path("work/real").exists());
        assert_eq!(read(&house, "c/b/.env"), "hidden");
    }
}

#[tokio::test]
async fn links_and_missing_names_break_nothing_and_hide_nothing() {
    for house in houses().await {
        link(&house, "nowhere", ".env");
        link(&house, ".env.round", ".env.round");
        link(&house, "/etc/hostname", ".env.out");
        link(&house, "nowhere", ".vscode");
        link(&house, "nowhere", ".git");
        put(&house, "file", "plain");
        assert_eq!(house.sh("cat file").await.ok(), "plain");
        assert!(house.path("work/.env").is_symlink() && !house.path("work/nowhere").exists());
    }
}

#[tokio::test]
async fn what_runs_later_can_be_read_and_not_changed() {
    for house in houses().await {
        let kept = [
            ".bashrc",
            ".vscode/tasks.json",
            "sub/.idea/x.xml",
            ".claude/settings.json",
            ".mcp.json",
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/worktrees/w/commondir",
            ".git/worktrees/w/gitdir",
            ".git/modules/m/config",
            "linked/.git",
            "bare/config",
        ];
        for name in kept {
            put(&house, name, "as it was");
        }
        for name in [
            ".git/HEAD",
            ".git/worktrees/w/HEAD",
            ".git/modules/m/HEAD",
            "bare/HEAD",
        ] {
            put(&house, name, "ref: refs/heads/main\n");
        }
        for name in [".git/modules/m", "bare"] {
            for folder in ["objects", "refs"] {
                put(&house, &format!("{name}/{folder}/x"), "");
            }
        }
        for name in kept {
            let attack = format!(
                "echo evil >{name}; echo evil >>{name}; rm -f {name}; chmod 777 {name}; echo evil >new; \
                 mv -f new {name}; ln -sf /evil {name}; mv {name} away"
            );
            let text = said(&house, &attack).await;
            assert_eq!(read(&house, name), "as it was", "{name}: {text}");
            assert_eq!(said(&house, &format!("cat {name}")).await, "as it was");
        }
        let text = said(
            &house,
            "mv .git elsewhere; mv .git/hooks h; echo evil >.git/hooks/new",
        )
        .await;
        assert!(
            text.contains("busy") && text.contains("Read-only"),
            "{text}"
        );
        assert!(house.path("work/.git/hooks/pre-commit").exists());
        assert!(!house.path("work/.git/hooks/new").exists());
        // The rest is as writable as ever.
        let ran = house
            .sh("echo x >.git/index && echo x >.git/refs-x && echo x >sub/file")
            .await;
        ran.ok();
    }
}

#[tokio::test]
async fn the_operators_most_specific_rule_wins() {
    let house = House::caged().await;
    for name in [
        "data/in",
        "data/out/x",
        "notes/secret.txt",
        "fixtures/test.pem",
        ".env",
    ] {
        put(&house, name, KEY);
    }
    let rule = |path: &str, access| FsRule {
        path: path.into(),
        access,
    };
    let rules = vec![
        rule("data", FsAccess::ReadOnly),
        rule("data/out", FsAccess::Writable),
        rule("notes", FsAccess::Masked),
        rule("fixtures", FsAccess::Writable),
        rule("gone", FsAccess::Masked),
    ];
    let run = async |script: &str| {
        let mut plan = house.plan(&["/bin/sh", "-c", script]);
        plan.rules.clone_from(&rules);
        house.run_plan(plan).await
    };
    run("cat data/in fixtures/test.pem && echo x >data/out/x && echo x >free")
        .await
        .ok();
    for refused in [
        "echo x >data/in",
        "ls notes",
        "cat notes/secret.txt",
        "cat .env",
    ] {
        let ran = run(refused).await;
        assert_ne!(ran.report.ending, Ending::Exited { code: 0 }, "{refused}");
    }
    let text = read(&house, "data/in");
    assert_eq!(text, KEY);
}

async fn tool(house: &House, operation: FileOperation) -> Ran {
    house.run_file_plan(house.file_plan(operation)).await
}

fn reading(path: &str) -> FileOperation {
    FileOperation::Read {
        path: path.into(),
        max_bytes: 10,
    }
}

fn writing(path: &str) -> FileOperation {
    FileOperation::Write {
        path: path.into(),
        content: "evil".to_owned(),
        create_parents: true,
    }
}

/// The same through the file tools, in both tiers: where there are no mounts, names hold.
#[tokio::test]
async fn file_tools_obey_the_same_rules() {
    for house in House::every().await {
        for name in [".env", "keys/deploy.pem", "real.txt", "cert.pem"] {
            put(&house, name, if name == "cert.pem" { "plain" } else { KEY });
        }
        put(&house, ".git/config", "as it was");
        put(&house, "linked/.git", "as it was");
        link(&house, ".env", "innocent");
        link(&house, ".git", "git");
        for path in [".env", "innocent", "keys/deploy.pem", "./keys/../.env"] {
            let ran = tool(&house, reading(path)).await;
            let (code, message) = ran.failed();
            assert_eq!(code, "path_masked", "{path}: {message}");
            assert!(message.contains("palyra.toml"), "{message}");
        }
        tool(&house, reading("cert.pem")).await.ok();
        for path in [".env", ".env.local", "sub/.npmrc", "innocent"] {
            let ran = tool(&house, writing(path)).await;
            let (code, message) = ran.failed();
            assert_eq!(code, "path_masked", "{path}: {message}");
        }
        for path in [
            ".git/config",
            "git/config",
            ".git/hooks/post-checkout",
            "linked/.git",
            ".bashrc",
            ".claude/settings.json",
            "sub/.vscode/tasks.json",
        ] {
            let ran = tool(&house, writing(path)).await;
            let (code, message) = ran.failed();
            assert_eq!(code, "path_read_only", "{path}: {message}");
        }
        // Not even a folder on the way was made.
        assert!(!house.path("work/.claude").exists() && !house.path("work/sub").exists());
        assert_eq!(read(&house, ".git/config"), "as it was");
        assert_eq!(read(&house, ".env"), KEY);
        tool(&house, writing(".env.example")).await.ok();
        tool(&house, writing("notes/x")).await.ok();
    }
}

/// Somebody moves the folder of a secret about while calls start: none of them reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_moves_while_a_call_starts_is_noticed() {
    let house = House::caged().await;
    put(&house, "a/.env", "hidden");
    let work = house.path("work");
    let stop = CancellationToken::new();
    let moving = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.is_cancelled() {
                std::fs::rename(work.join("a"), work.join("b")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(7));
                std::fs::rename(work.join("b"), work.join("a")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(7));
            }
        }
    });
    let mut ran_at_all = 0;
    for _ in 0..40 {
        let ran = house.sh("cat a/.env b/.env a/.env b/.env").await;
        ran_at_all += i32::from(ran.report.sandbox_enforcement == "tier_c");
        assert!(!ran.stdout().contains("hidden"), "{}", ran.stdout());
    }
    stop.cancel();
    moving.join().unwrap();
    assert!(ran_at_all > 0);
}

#[tokio::test]
async fn a_helper_that_holds_nothing_is_refused() {
    let house = House::caged().await;
    put(&house, ".env", "hidden");
    let mut program = std::fs::read(broken_jail()).unwrap();
    program.extend(b"\nleave out: guards");
    let helper = house.path("broken");
    std::fs::write(&helper, program).unwrap();
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = SandboxSettings {
        helper,
        masked: vec![house.path("deep/home")],
        quarantine: house.path("deep/home/quarantine"),
        clock: std::sync::Arc::new(SystemClock),
        tier_c: None,
    };
    let sandbox = Sandbox::start(settings).await.unwrap();
    let runner = sandbox.processes(None, None, CancellationToken::new());
    let (report, output) = execute(&runner, identified(house.plan(&["/bin/cat", ".env"]))).await;
    let ran = Ran { report, output };
    let (code, message) = ran.failed();
    assert_eq!(code, "sandbox_degraded");
    assert!(message.contains("a guard"), "{message}");
    sandbox.shutdown().await;
}

/// Real git: what people do all day works, and what would run code later does not.
#[tokio::test]
async fn git_works_and_its_configuration_stays() {
    for house in houses().await {
        let git = "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                   GIT_COMMITTER_EMAIL=a@b; set -e; ";
        let ran = house
            .sh(&format!(
                "{git} git init -q . && echo one >f && git add f && git commit -qm one"
            ))
            .await;
        ran.ok();
        let before = read(&house, ".git/config");
        let work = "git status --short; git checkout -q -b side; echo two >>f; git commit -qam two; \
                    git checkout -q -; echo three >g; git add g; git commit -qm three; \
                    git merge -q --no-edit side; git branch -q -d side; git tag v1; git stash list; \
                    git gc -q; git log --oneline | wc -l; git worktree add -q wt; \
                    cd wt; echo x >h; git add h; git commit -qm four; git status --short";
        assert_eq!(house.sh(&format!("{git}{work}")).await.ok().trim(), "4");
        let evil = "git config core.hooksPath /tmp/evil; git config --unset core.bare; \
                    echo evil >.git/hooks/post-commit; mv .git .git2; git remote add x y";
        let text = said(&house, &format!("export HOME=/tmp; {evil}")).await;
        assert!(text.contains("could not write config file"), "{text}");
        assert_eq!(read(&house, ".git/config"), before);
        assert!(!house.path("work/.git/hooks/post-commit").exists());
        assert!(!house.path("work/.git/config.lock").exists());
        house.sh("export HOME=/tmp; git status").await.ok();
    }
}

/// What was taken away after a call, by path.
fn taken(ran: &Ran) -> Vec<String> {
    let listed = ran.output["quarantined"].as_array().cloned();
    let paths = listed.unwrap_or_default().into_iter();
    paths
        .map(|one| one["path"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_appears_and_would_run_later_is_taken_away() {
    for house in houses().await {
        put(&house, ".git/HEAD", "ref: refs/heads/main\n");
        put(&house, "src/main.rs", "");
        let script = "echo x >.env.local; mkdir -p .claude a/b; echo x >.claude/settings.json; \
                      echo x >a/b/.bashrc; mkdir .git/hooks; echo x >.git/hooks/post-commit; \
                      echo '[alias] x = !y' >.git/config; echo x >src/ok; \
                      mkdir closed; echo x >closed/.env; chmod 111 closed; \
                      mkdir -p shut; echo x >shut/.npmrc; chmod 555 shut; \
                      mkdir -p node_modules/p/.vscode; echo x >node_modules/p/.vscode/x; \
                      mkdir bare; cd bare; mkdir objects refs; echo x >HEAD; echo evil >config";
        let ran = house.sh(script).await;
        ran.ok();
        let mut expected = vec![
            ".claude",
            ".env.local",
            ".git/config",
            ".git/hooks",
            "a/b/.bashrc",
            "bare/config",
            "closed/.env",
            "shut/.npmrc",
        ];
        if !is_root() {
            // Without root's eyes nobody sees what is in it, so all of it goes.
            expected[6] = "closed";
        }
        assert_eq!(taken(&ran), expected, "{:?}", ran.output);
        for path in &expected {
            assert!(!house.path("work").join(path).exists(), "{path}");
        }
        for path in ["src/ok", "node_modules/p/.vscode/x", "bare/HEAD", "shut"] {
            assert!(house.path("work").join(path).exists(), "{path}");
        }
        assert!(
            ran.layer("quarantine")
                .unwrap()
                .starts_with("after the fact: 8 taken")
        );
        // It is kept, and a person gets it back; over nothing.
        let quarantine = house.sandbox.quarantine();
        let kept = quarantine.list().unwrap();
        assert_eq!(kept.len(), 8);
        let rc = kept
            .iter()
            .find(|one| one.path() == Path::new("a/b/.bashrc"))
            .unwrap();
        put(&house, "a/b/.bashrc", "newer");
        let refused = quarantine.restore(rc.id.as_str()).unwrap_err();
        assert!(refused.to_string().contains("is there again"), "{refused}");
        std::fs::remove_file(house.path("work/a/b/.bashrc")).unwrap();
        quarantine.restore(rc.id.as_str()).unwrap();
        assert_eq!(read(&house, "a/b/.bashrc"), "x\n");
        assert!(quarantine.restore(rc.id.as_str()).is_err());
        // What a person put back is there, and stays.
        let ran = house.sh("cat a/b/.bashrc").await;
        assert_eq!((ran.ok(), taken(&ran)), ("x\n", Vec::new()));
    }
}

/// Repositories that do nothing by themselves stay.
#[tokio::test]
async fn fresh_repositories_stay_unless_they_would_run_something() {
    for house in houses().await {
        let script = "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
                      GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e; \
                      git init -q one; cd one; echo x >f; git add f; git commit -qm x; cd ..; \
                      git clone -q one two; git clone -q --bare one three; \
                      cd two; git worktree add -q ../four; cd ..; git -C four status";
        let ran = house.sh(script).await;
        ran.ok();
        assert_eq!(taken(&ran), Vec::<String>::new(), "{:?}", ran.output);
        for script in [
            "git init -q evil; git -C evil config core.fsmonitor ./x",
            "git init -q evil; echo x >evil/.git/hooks/pre-commit",
            "git init -q evil; git -C evil config core.worktree /home",
        ] {
            let ran = house.sh(&format!("export HOME=/tmp; {script}")).await;
            ran.ok();
            assert_eq!(taken(&ran), ["evil/.git"], "{script}");
            said(&house, "rm -rf evil").await;
        }
        let ran = house.sh("mkdir x; echo 'gitdir: /tmp/evil' >x/.git").await;
        assert_eq!(taken(&ran), ["x/.git"]);
    }
}

/// A person's own save while a call runs is no arrival.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_editors_save_ends_the_call_and_is_not_taken_away() {
    for house in houses().await {
        put(&house, "conf/.env", "before");
        let save = {
            let work = house.path("work");
            std::thread::spawn(move || {
                while !work.join("ready").exists() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                // As editors do: a new file, and a rename over the old one.
                std::fs::write(work.join("conf/.env.new"), "after").unwrap();
                std::fs::rename(work.join("conf/.env.new"), work.join("conf/.env")).unwrap();
            })
        };
        let ran = house
            .sh("echo >ready; sleep 20; cat conf/.env; echo survived")
            .await;
        save.join().unwrap();
        let (code, message) = ran.failed();
        assert_eq!(code, "mask_lost");
        assert!(message.contains("`conf/.env`"), "{message}");
        assert!(!ran.stdout().contains("survived") && !ran.stdout().contains("after"));
        assert_eq!(read(&house, "conf/.env"), "after");
        assert!(
            !taken(&ran).contains(&"conf/.env".to_owned()),
            "{:?}",
            ran.output
        );
        // The next one covers the new file.
        let text = said(&house, "cat conf/.env").await;
        assert!(text.contains("Permission denied"), "{text}");
    }
}

#[tokio::test]
async fn a_call_that_fails_on_a_guard_is_told_what_is_likely() {
    let house = House::caged().await;
    put(&house, ".env", "hidden");
    put(&house, ".git/config", "");
    put(&house, ".git/HEAD", "ref: refs/heads/main\n");
    for (script, path) in [
        ("cat .env", "`.env` is masked"),
        ("echo >.git/config", "`.git/config` can only be read"),
    ] {
        let ran = house.sh(script).await;
        let hint = ran.output["hints"][0].as_str().unwrap_or_default();
        assert!(
            hint.starts_with("likely") && hint.contains(path),
            "{:?}",
            ran.output
        );
    }
    let ran = house.sh("echo .env; false").await;
    assert!(ran.output["hints"].is_array());
    let ran = house.sh("echo process.env; false").await;
    assert!(ran.output["hints"].is_null());
    let ran = house.sh("cat .env; true").await;
    assert!(ran.output["hints"].is_null(), "it ended well");
}
