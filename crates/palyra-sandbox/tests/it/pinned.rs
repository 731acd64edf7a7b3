//! What was decided is what runs: programs and scripts that are swapped, rewritten or covered
//! between the decision and the start are not started. Each with a control that runs unchanged, and
//! one that shows what the swap would have run.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use palyra_core::{CodePart, Content, Digest, Ending, ProcessPlan, Tier};

use super::fixture::{House, Ran, code_of, identified, is_root};

/// Every way in which a call is confined.
async fn everywhere() -> Vec<House> {
    let mut all = House::every().await;
    all.push(House::wrapped().await);
    all
}

fn executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program of the workspace that is no script, and says `word`: a copy of a shell.
fn program(house: &House, name: &str, from: &str) -> PathBuf {
    let path = house.put(name, &std::fs::read(from).unwrap());
    executable(&path);
    path
}

fn script(house: &House, name: &str, text: &str) -> PathBuf {
    let path = house.put(name, text.as_bytes());
    executable(&path);
    path
}

fn decided(house: &House, argv: &[&str], operands: &[&Path]) -> ProcessPlan {
    let mut plan = house.plan(argv);
    plan.code = code_of(&plan, operands);
    identified(plan)
}

#[track_caller]
fn refused(ran: &Ran) {
    let (kind, message) = ran.failed();
    assert_eq!(kind, "program_changed", "{message} {:?}", ran.report);
    assert!(message.contains("propose the call again"), "{message}");
    assert_eq!(ran.output["ran"], serde_json::Value::Null);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_program_is_not_swapped_by_rename() {
    for house in everywhere().await {
        let good = program(&house, "tool", "/bin/true");
        let evil = program(&house, "evil", "/bin/false");
        let plan = decided(&house, &[text(&good)], &[]);
        house.run_plan(plan.clone()).await.ok();
        std::fs::rename(&evil, &good).unwrap();
        refused(&house.run_plan(plan).await);
        // What would have run.
        let control = house.run(&[text(&good)]).await;
        assert_eq!(control.report.ending, Ending::Exited { code: 1 });
    }
}

#[tokio::test]
async fn a_folder_on_the_way_is_not_swapped_for_a_link() {
    for house in everywhere().await {
        for name in ["bin", "evil"] {
            std::fs::create_dir(house.path("work").join(name)).unwrap();
            house.give(&house.path("work").join(name));
        }
        let good = program(&house, "bin/tool", "/bin/true");
        program(&house, "evil/tool", "/bin/false");
        let plan = decided(&house, &[text(&good)], &[]);
        house.run_plan(plan.clone()).await.ok();
        std::fs::rename(house.path("work/bin"), house.path("work/was")).unwrap();
        symlink("evil", house.path("work/bin")).unwrap();
        refused(&house.run_plan(plan.clone()).await);
        let control = house.run(&[text(&good)]).await;
        assert_eq!(control.report.ending, Ending::Exited { code: 1 });
        // The same content, but another file: what lies beside it may differ.
        std::fs::copy(house.path("work/was/tool"), house.path("work/evil/tool")).unwrap();
        refused(&house.run_plan(plan).await);
    }
}

#[tokio::test]
async fn a_link_to_the_program_is_not_led_elsewhere() {
    for house in everywhere().await {
        let link = house.path("work/tool");
        symlink("/bin/true", &link).unwrap();
        let plan = decided(&house, &[text(&link)], &[]);
        house.run_plan(plan.clone()).await.ok();
        std::fs::remove_file(&link).unwrap();
        symlink("/bin/false", &link).unwrap();
        refused(&house.run_plan(plan).await);
        let control = house.run(&[text(&link)]).await;
        assert_eq!(control.report.ending, Ending::Exited { code: 1 });
    }
}

#[tokio::test]
async fn a_program_is_not_rewritten_in_place() {
    for house in everywhere().await {
        let good = script(&house, "tool", "#!/bin/sh\necho good\n");
        let plan = decided(&house, &[text(&good)], &[]);
        let before = std::fs::metadata(&good).unwrap().modified().unwrap();
        assert_eq!(house.run_plan(plan.clone()).await.ok(), "good\n");
        // As long as before, and as old as far as its owner can say.
        std::fs::write(&good, "#!/bin/sh\necho evil\n").unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&good).unwrap();
        file.set_modified(before).unwrap();
        drop(file);
        refused(&house.run_plan(plan).await);
        assert_eq!(house.run(&[text(&good)]).await.ok(), "evil\n");
    }
}

/// Nobody can say what is in a file while somebody writes to it.
#[tokio::test]
async fn a_program_that_is_open_for_writing_is_not_started() {
    for house in everywhere().await {
        let good = program(&house, "tool", "/bin/true");
        let plan = decided(&house, &[text(&good)], &[]);
        let open = std::fs::OpenOptions::new().write(true).open(&good).unwrap();
        let ran = house.run_plan(plan.clone()).await;
        // Whoever writes does not write to the copy.
        match ran
            .layer("code")
            .is_some_and(|layer| layer.contains("1 copied"))
        {
            true => assert_eq!(ran.ok(), ""),
            false => refused(&ran),
        }
        drop(open);
        house.run_plan(plan).await.ok();
    }
}

#[tokio::test]
async fn another_file_is_not_bound_over_a_program() {
    if !is_root() {
        println!("absent: only root can mount");
        return;
    }
    for house in everywhere().await {
        let good = program(&house, "tool", "/bin/true");
        let evil = program(&house, "evil", "/bin/false");
        let plan = decided(&house, &[text(&good)], &[]);
        house.run_plan(plan.clone()).await.ok();
        rustix::mount::mount_bind(&evil, &good).unwrap();
        let ran = house.run_plan(plan).await;
        let control = house.run(&[text(&good)]).await;
        rustix::mount::unmount(&good, rustix::mount::UnmountFlags::DETACH).unwrap();
        refused(&ran);
        assert_eq!(control.report.ending, Ending::Exited { code: 1 });
    }
}

/// The path is swapped all the time while calls start: some are refused, and none runs the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_not_swapped_while_it_starts() {
    for house in everywhere().await {
        let good = program(&house, "tool", "/bin/true");
        let evil = program(&house, "evil", "/bin/false");
        let plan = decided(&house, &[text(&good)], &[]);
        // The control: who goes by the path meets the other one.
        let both = rustix::fs::RenameFlags::EXCHANGE;
        let swap =
            || rustix::fs::renameat_with(rustix::fs::CWD, &good, rustix::fs::CWD, &evil, both);
        swap().unwrap();
        let control = house.run(&[text(&good)]).await;
        assert_eq!(control.report.ending, Ending::Exited { code: 1 });
        swap().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swaps = {
            let (over, good, evil) = (Arc::clone(&over), good.clone(), evil.clone());
            std::thread::spawn(move || {
                let mut swaps = 0_u32;
                // An even number of them, so that all is as before.
                while !over.load(Ordering::Relaxed) || swaps % 2 == 1 {
                    let both = rustix::fs::RenameFlags::EXCHANGE;
                    let cwd = rustix::fs::CWD;
                    rustix::fs::renameat_with(cwd, &good, cwd, &evil, both).unwrap();
                    swaps += 1;
                    std::thread::yield_now();
                }
                swaps
            })
        };
        for _ in 0..25 {
            let ran = house.run_plan(plan.clone()).await;
            match &ran.report.ending {
                Ending::Exited { code: 0 } => {}
                Ending::Failed { .. } => refused(&ran),
                other @ (Ending::Exited { .. }
                | Ending::Signalled { .. }
                | Ending::TimedOut
                | Ending::Cancelled { .. }) => panic!("{other:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(swaps.join().unwrap() > 0);
        house.run_plan(plan).await.ok();
    }
}

#[tokio::test]
async fn a_script_that_was_rewritten_meanwhile_is_not_read() {
    for house in everywhere().await {
        let operand = house.put("build.sh", b"echo good\n");
        let argv = ["/bin/sh", text(&operand)];
        let plan = decided(&house, &argv, &[&operand]);
        assert_eq!(house.run_plan(plan.clone()).await.ok(), "good\n");
        std::fs::write(&operand, "echo evil\n").unwrap();
        refused(&house.run_plan(plan).await);
        assert_eq!(house.run(&argv).await.ok(), "evil\n");

        // Nor one that was not there when it was decided.
        let later = house.path("work/later.sh");
        let argv = ["/bin/sh", text(&later)];
        let plan = decided(&house, &argv, &[&later]);
        assert_eq!(plan.code[1].content, Content::Nothing);
        // As the shell says it.
        let ran = house.run_plan(plan.clone()).await;
        assert!(matches!(ran.report.ending, Ending::Exited { code: 1.. }));
        house.put("later.sh", b"echo evil\n");
        refused(&house.run_plan(plan).await);
        assert_eq!(house.run(&argv).await.ok(), "evil\n");

        // Nor another one that a link leads to.
        let link = house.path("work/link.sh");
        symlink("build.sh", &link).unwrap();
        let argv = ["/bin/sh", text(&link)];
        let plan = decided(&house, &argv, &[&link]);
        assert_eq!(house.run_plan(plan.clone()).await.ok(), "evil\n");
        std::fs::remove_file(&link).unwrap();
        symlink("later.sh", &link).unwrap();
        refused(&house.run_plan(plan).await);
    }
}

/// A shell reads its script piece by piece. In Tier-C what it reads is a copy; in Tier-B it is the
/// file, and that is said in the guarantees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_rewritten_while_it_runs_is_a_copy_in_tier_c() {
    for house in everywhere().await {
        let text_of = "touch ready\nwhile [ ! -e go ]; do sleep 0.02; done\ncat \"$0\"\n";
        let operand = house.put("wait.sh", text_of.as_bytes());
        let plan = decided(&house, &["/bin/sh", text(&operand)], &[&operand]);
        let (ready, go) = (house.path("work/ready"), house.path("work/go"));
        let evil = text_of.replace("touch ready", "echo evil;;;");
        let meanwhile = std::thread::spawn({
            let operand = operand.clone();
            move || {
                super::fixture::eventually("it runs", || ready.exists());
                std::fs::write(&operand, &evil).unwrap();
                std::fs::write(&go, "").unwrap();
                evil
            }
        });
        let ran = house.run_plan(plan).await;
        let evil = meanwhile.join().unwrap();
        match house.tier {
            Tier::C => assert_eq!(ran.ok(), text_of),
            Tier::B | Tier::Builtin => assert_eq!(ran.ok(), evil),
        }
        // Outside it was rewritten.
        assert_eq!(std::fs::read_to_string(&operand).unwrap(), evil);
    }
}

/// Renaming another file over a script takes its copy away. That is seen, and said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_replaced_while_it_runs_is_told() {
    for house in [House::caged().await, House::wrapped().await] {
        let waits = "touch ready\nwhile [ ! -e go ]; do sleep 0.02; done\necho done\n";
        let operand = house.put("wait.sh", waits.as_bytes());
        let plan = decided(&house, &["/bin/sh", text(&operand)], &[&operand]);
        for replace in [false, true] {
            let (ready, go) = (house.path("work/ready"), house.path("work/go"));
            let _ = (std::fs::remove_file(&ready), std::fs::remove_file(&go));
            let (other, at) = (house.put("other.sh", b"echo evil\n"), operand.clone());
            let meanwhile = std::thread::spawn(move || {
                super::fixture::eventually("it runs", || ready.exists());
                if replace {
                    std::fs::rename(other, at).unwrap();
                }
                std::fs::write(&go, "").unwrap();
            });
            let ran = house.run_plan(plan.clone()).await;
            meanwhile.join().unwrap();
            // What was opened is what is read on.
            assert_eq!(ran.ok(), "done\n");
            assert_eq!(ran.layer("code_replaced").is_some(), replace);
            assert_eq!(ran.output["replaced"] == text(&operand), replace);
        }
    }
}

#[tokio::test]
async fn a_copy_cannot_be_written_to_and_looks_like_the_file() {
    for house in [House::caged().await, House::wrapped().await] {
        let operand = house.put(
            "own.sh",
            b"echo more >> \"$0\" || echo held; stat -c %s \"$0\"\n",
        );
        let plan = decided(&house, &["/bin/sh", text(&operand)], &[&operand]);
        let ran = house.run_plan(plan).await;
        assert!(ran.ok().starts_with("held\n"), "{}", ran.stdout());
        let size = std::fs::metadata(&operand).unwrap().len().to_string();
        assert!(ran.stdout().ends_with(&format!("{size}\n")));
        let layer = ran.layer("code").unwrap();
        assert!(layer.contains("of these 1 copied"), "{layer}");
        // The control: without a copy it writes to itself.
        let control = house.run(&["/bin/sh", text(&operand)]).await;
        assert!(!control.ok().contains("held"), "{}", control.stdout());
    }
}

/// A copy would show what is masked.
#[tokio::test]
async fn what_is_masked_stays_masked_when_it_is_named_as_a_script() {
    for house in [House::caged().await, House::wrapped().await] {
        let secret = house.put(".env", b"echo TOKEN=1\n");
        let plan = decided(&house, &["/bin/sh", text(&secret)], &[&secret]);
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.failed().0, "program_not_executable", "{:?}", ran.report);
        assert!(!ran.stdout().contains("TOKEN"));
        // The control: under another name it is read.
        let open = house.put("env", b"echo TOKEN=1\n");
        let plan = decided(&house, &["/bin/sh", text(&open)], &[&open]);
        assert_eq!(house.run_plan(plan).await.ok(), "TOKEN=1\n");
    }
}

#[tokio::test]
async fn a_script_runs_as_linux_would_run_it() {
    for house in everywhere().await {
        let plain = script(
            &house,
            "plain",
            "#! /bin/sh -e\necho \"$0 $# $-\"; echo \"$2\"\n",
        );
        let ran = house.run(&[text(&plain), "one two", "three"]).await;
        let said = ran.ok();
        assert!(said.starts_with(&format!("{} 2 e", text(&plain))), "{said}");
        assert!(said.ends_with("three\n"), "{said}");

        // An interpreter of the workspace, which is a script itself.
        let shell = program(&house, "mysh", "/bin/sh");
        let inner = script(
            &house,
            "inner",
            &format!("#!{}\ncat \"$1\"\n", text(&shell)),
        );
        let outer = script(&house, "outer", &format!("#!{}\nhello\n", text(&inner)));
        let plan = decided(&house, &[text(&outer)], &[]);
        let parts: Vec<CodePart> = plan.code.iter().map(|it| it.part).collect();
        let chain = [
            CodePart::Program,
            CodePart::Interpreter,
            CodePart::Interpreter,
        ];
        assert_eq!(parts, chain);
        assert!(house.run_plan(plan.clone()).await.ok().ends_with("hello\n"));
        let evil = program(&house, "evil", "/bin/true");
        std::fs::rename(evil, &shell).unwrap();
        refused(&house.run_plan(plan).await);

        // A name that is looked up when it starts.
        let env = script(&house, "env", "#!/usr/bin/env sh\necho by env\n");
        assert_eq!(house.run(&[text(&env)]).await.ok(), "by env\n");
    }
}

/// What is executed by its descriptor still knows its name and where it is.
#[tokio::test]
async fn a_program_of_the_workspace_knows_its_name_and_place() {
    for house in everywhere().await {
        let shell = program(&house, "mysh", "/bin/sh");
        let look = "echo \"$0\"; readlink \"/proc/$$/exe\"; ls -l /proc/$$/fd | grep -c mysh";
        let mut plan = house.plan(&[text(&shell), "-c", look]);
        plan.argv[0] = "called".to_owned();
        let ran = house.run_plan(plan).await;
        let exe = text(&shell);
        // The last line: no descriptor of it is left open.
        assert_eq!(
            ran.stdout(),
            format!("called\n{exe}\n0\n"),
            "{}",
            ran.stderr()
        );
    }
}

/// The record says what ran: part, path, and the digest of the content.
#[tokio::test]
async fn what_ran_is_recorded_with_its_digest() {
    for house in everywhere().await {
        let operand = house.put("x.sh", b"exit 3\n");
        let plan = decided(&house, &["/bin/sh", text(&operand)], &[&operand]);
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.report.ending, Ending::Exited { code: 3 });
        let digest = |path: &str| Digest::of(&std::fs::read(path).unwrap()).to_string();
        let recorded = &ran.output["ran"];
        assert_eq!(recorded[0]["part"], "program");
        assert_eq!(recorded[0]["content"]["sha256"], digest("/bin/sh"));
        assert_eq!(recorded[1]["part"], "operand");
        assert_eq!(recorded[1]["path"], text(&operand));
        assert_eq!(recorded[1]["content"]["sha256"], digest(text(&operand)));
        let layer = ran.layer("code").unwrap();
        assert!(
            layer.starts_with("2 as decided: 1 of root's by identity"),
            "{layer}"
        );
    }
}

/// Who must not be started without saying what is in it.
#[tokio::test]
async fn a_plan_that_does_not_say_what_is_in_its_program_is_refused() {
    let house = House::new().await;
    let mut plan = decided(&house, &["/bin/true"], &[]);
    plan.program = "/bin/false".into();
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.failed().0, "invalid_input");
}
