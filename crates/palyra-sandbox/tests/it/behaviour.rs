//! What a call sees, and what comes back from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use palyra_core::plan::RunAs;
use palyra_core::{Ending, Limits, Stdin, SystemClock, Tier};
use palyra_sandbox::{OutputStream, RootsFolder, Sandbox, SandboxSettings};
use tokio_util::sync::CancellationToken;

use super::fixture::{House, eventually, is_root, jail};

#[tokio::test]
async fn codes_signals_and_output_come_back() {
    for house in House::every().await {
        let ran = house.sh("echo out; echo err >&2; exit 7").await;
        assert_eq!(ran.report.ending, Ending::Exited { code: 7 });
        assert_eq!((ran.stdout(), ran.stderr()), ("out\n", "err\n"));
        assert_eq!(ran.output["stdout_bytes"], 4);
        let (executor, enforcement) = match house.tier {
            Tier::B | Tier::Builtin => ("sandbox_tier_b", "tier_b"),
            Tier::C => ("sandbox_tier_c_linux_namespaces", "tier_c"),
        };
        assert_eq!(ran.report.executor, executor);
        assert_eq!(ran.report.sandbox_enforcement, enforcement);
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR1] {
            let ran = house.attack(&["die", &signal.to_string()]).await;
            assert_eq!(ran.report.ending, Ending::Signalled { signal });
        }
        assert!(ran.report.ended_at >= ran.report.started_at);
    }
}

#[tokio::test]
async fn only_the_plan_s_environment_and_three_descriptors_are_there() {
    for house in House::every().await {
        let secret = std::fs::File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
        let ran = house.attack(&["descriptors"]).await;
        assert_eq!(ran.ok(), "0 1 2\n");

        let mut plan = house.plan(&["/usr/bin/env"]);
        plan.env = vec![
            ("ONE".into(), "1=1".into()),
            ("TMPDIR".into(), "/elsewhere".into()),
        ];
        let ran = house.run_plan(plan).await;
        let lines: Vec<&str> = ran.ok().lines().collect();
        assert_eq!(lines[0], "ONE=1=1");
        assert!(lines[1].starts_with("TMPDIR=") && !lines[1].contains("elsewhere"));
        assert_eq!(lines.len(), 2);
    }
}

#[tokio::test]
async fn the_temporary_folder_is_private_and_goes_away() {
    for house in House::all().await {
        let ran = house
            .sh("stat -c '%a %u' $TMPDIR; echo x >$TMPDIR/file; cat $TMPDIR/file; echo $TMPDIR")
            .await;
        let lines: Vec<&str> = ran.ok().lines().collect();
        let uid = match house.run_as {
            RunAs::Owner { uid, .. } => uid,
            RunAs::Daemon | RunAs::Lent { .. } => rustix::process::geteuid().as_raw(),
        };
        assert_eq!(lines[0], format!("700 {uid}"));
        assert_eq!(lines[1], "x");
        let path = std::path::PathBuf::from(lines[2]);
        eventually("it is removed", || !path.exists());

        let ran = house
            .sh(&format!(
                "echo $TMPDIR; {} litter $TMPDIR",
                house.text("attacker")
            ))
            .await;
        let path = std::path::PathBuf::from(ran.ok().lines().next().unwrap());
        eventually("the litter is removed", || !path.exists());
    }
}

#[tokio::test]
async fn standard_input_is_what_the_plan_says() {
    for house in House::every().await {
        assert_eq!(house.run(&["/bin/cat"]).await.ok(), "");
        let mut plan = house.plan(&["/bin/cat"]);
        let long = "line\n".repeat(100_000);
        plan.stdin = Stdin::Text(long.clone());
        assert_eq!(house.run_plan(plan).await.ok(), long);
    }
}

#[tokio::test]
async fn limits_are_seen_from_inside_and_hold() {
    for house in House::every().await {
        let mut plan = house.plan(&[&house.text("attacker"), "limits"]);
        plan.limits = Limits {
            cpu: Duration::from_millis(1_500),
            file_size: 4_096,
            open_files: 64,
            address_space: Some(1 << 30),
            ..plan.limits
        };
        let expected = "cpu=2/2 fsize=4096/4096 nofile=64/64 core=0/0 as=1073741824/1073741824\n";
        let ran = house.run_plan(plan.clone()).await;
        assert_eq!(ran.ok(), expected);
        assert!(
            ran.layer("rlimits")
                .unwrap()
                .contains("cpu 2, fsize 4096, nofile 64, core 0")
        );

        plan.argv = vec!["attacker".into(), "burn".into()];
        plan.limits.cpu = Duration::from_secs(1);
        let ran = house.run_plan(plan.clone()).await;
        // At the limit the kernel first asks (SIGXCPU), then insists; both limits are the same.
        assert!(matches!(
            ran.report.ending,
            Ending::Signalled {
                signal: libc::SIGXCPU | libc::SIGKILL
            }
        ));

        let mut plan = house.plan(&["/bin/sh", "-c", "ulimit -c; head -c 8192 /dev/zero >file"]);
        plan.limits.file_size = 4_096;
        let ran = house.run_plan(plan).await;
        assert!(ran.stdout().starts_with("0\n"));
        assert_eq!(
            std::fs::metadata(house.path("work/file")).unwrap().len(),
            4_096
        );
    }
}

#[tokio::test]
async fn the_wall_clock_is_kept() {
    let house = House::new().await;
    let mut plan = house.plan(&["/bin/sleep", "60"]);
    plan.limits.wall = Duration::from_millis(300);
    let begun = Instant::now();
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.report.ending, Ending::TimedOut);
    assert!(
        begun.elapsed() >= Duration::from_millis(300),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(ran.layer("landlock").is_some());
}

#[tokio::test]
async fn endless_output_is_capped_and_does_not_grow() {
    let house = House::new().await;
    let mut plan = house.plan(&[&house.text("attacker"), "spam"]);
    plan.limits.wall = Duration::from_millis(800);
    plan.limits.output_bytes = 10_000;
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.report.ending, Ending::TimedOut);
    assert!(ran.report.truncated);
    for (stream, total) in [("stdout", "stdout_bytes"), ("stderr", "stderr_bytes")] {
        let text = ran.output[stream]["text"].as_str().unwrap();
        let total = ran.output[total].as_u64().unwrap();
        assert!(total > 1 << 20, "{total}");
        let marker = format!("\n[palyra: {} bytes dropped]\n", total - 10_000);
        assert!(text.ends_with(&marker), "{marker}");
        assert_eq!(text.len(), 10_000 + marker.len());
    }
}

#[tokio::test]
async fn output_is_streamed_while_it_runs() {
    let house = House::new().await;
    let (sink, mut stream) = tokio::sync::mpsc::channel(4);
    let plan = house.plan(&[
        "/bin/sh",
        "-c",
        "echo one; sleep 0.4; echo two >&2; sleep 0.4; echo three",
    ]);
    let run = house.run_with(plan, Some(sink), CancellationToken::new());
    let read = async {
        let mut seen = Vec::new();
        let begun = Instant::now();
        while let Some(chunk) = stream.recv().await {
            let text = String::from_utf8(chunk.bytes).unwrap();
            seen.push((chunk.stream, text, begun.elapsed()));
        }
        seen
    };
    let (ran, seen) = tokio::join!(run, read);
    ran.ok();
    let texts: Vec<_> = seen
        .iter()
        .map(|(stream, text, _)| (*stream, text.as_str()))
        .collect();
    assert_eq!(
        texts,
        [
            (OutputStream::Stdout, "one\n"),
            (OutputStream::Stderr, "two\n"),
            (OutputStream::Stdout, "three\n")
        ]
    );
    assert!(
        seen[2].2 - seen[0].2 > Duration::from_millis(500),
        "not live: {seen:?}"
    );
}

#[tokio::test]
async fn what_is_streamed_is_what_is_kept() {
    let house = House::new().await;
    let (sink, mut stream) = tokio::sync::mpsc::channel(2);
    let mut plan = house.plan(&["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]);
    plan.limits.output_bytes = 200_000;
    let run = house.run_with(plan, Some(sink), CancellationToken::new());
    let read = async {
        let mut all = Vec::new();
        while let Some(chunk) = stream.recv().await {
            all.extend(chunk.bytes);
        }
        all
    };
    let (ran, all) = tokio::join!(run, read);
    assert_eq!(ran.ok().as_bytes(), all);
    assert!(ran.stdout().ends_with("[palyra: 100000 bytes dropped]\n"));
}

#[tokio::test]
async fn a_receiver_that_takes_nothing_loses_the_stream_and_not_the_result() {
    let house = House::new().await;
    let (sink, stream) = tokio::sync::mpsc::channel(1);
    let plan = house.plan(&["/bin/sh", "-c", "head -c 1000000 /dev/zero; echo done >&2"]);
    let begun = Instant::now();
    let ran = house
        .run_with(plan, Some(sink), CancellationToken::new())
        .await;
    assert_eq!(ran.output["stdout_bytes"], 1_000_000);
    ran.ok();
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    drop(stream);

    // One who is gone costs nothing.
    let (sink, stream) = tokio::sync::mpsc::channel(1);
    drop(stream);
    let plan = house.plan(&["/bin/sh", "-c", "head -c 1000000 /dev/zero"]);
    let begun = Instant::now();
    house
        .run_with(plan, Some(sink), CancellationToken::new())
        .await
        .ok();
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn output_that_is_no_text_comes_as_base64() {
    let house = House::new().await;
    let ran = house.sh("printf '\\377\\000'").await;
    assert_eq!(ran.output["stdout"]["base64"], "/wA=");
    assert_eq!(ran.output["stderr"]["text"], "");
}

#[tokio::test]
async fn programs_that_cannot_start_say_why() {
    for house in House::every().await {
        let missing = house.run(&["/nowhere/program"]).await;
        assert_eq!(missing.failed().0, "program_not_found");
        let plain = house.put("plain", b"#!/bin/sh\n");
        let ran = house.run(&[plain.to_str().unwrap()]).await;
        assert_eq!(ran.failed().0, "program_not_executable");
        let script = house.put("script", b"#!/nowhere/interpreter\n");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let ran = house.run(&[script.to_str().unwrap()]).await;
        assert_eq!(ran.failed().0, "program_not_found");
        let ran = house.run(&[house.text("work").as_str()]).await;
        assert_eq!(ran.failed().0, "program_not_executable");
        assert!(
            ran.layer("landlock").is_some(),
            "the walls stood before it was tried"
        );
    }
}

#[tokio::test]
async fn plans_that_make_no_sense_are_refused() {
    let house = House::new().await;
    let good = house.plan(&["/bin/true"]);
    let mut argv = good.clone();
    argv.argv.push("a\0b".into());
    let mut none = good.clone();
    none.argv.clear();
    let mut env = good.clone();
    env.env.push(("A=B".into(), "x".into()));
    let mut value = good.clone();
    value.env.push(("A".into(), "x\0".into()));
    let mut relative = good.clone();
    relative.program = "true".into();
    let mut cwd = good.clone();
    cwd.cwd = house.path("work/missing");
    let mut long = good.clone();
    long.argv.push("x".repeat(3 << 20));
    for plan in [argv, none, env, value, relative, cwd, long] {
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.failed().0, "invalid_input", "{}", ran.failed().1);
    }
    house.run_plan(good).await.ok();
}

#[tokio::test]
async fn long_arguments_arrive_whole() {
    let house = House::new().await;
    let long = "y".repeat(100_000);
    let ran = house
        .run(&["/bin/sh", "-c", "echo ${#1} ${#2}", "sh", &long, &long])
        .await;
    assert_eq!(ran.ok(), "100000 100000\n");
}

/// What does not fit the daemon is refused, not bent.
#[tokio::test]
async fn a_uid_that_is_not_as_planned_is_refused() {
    let house = House::new().await;
    let wrong = if is_root() {
        let lent = RunAs::Lent { uid: 1, gid: 1 };
        vec![RunAs::Daemon, RunAs::Owner { uid: 0, gid: 0 }, lent]
    } else {
        let lent = RunAs::Lent { uid: 1, gid: 1 };
        vec![lent, RunAs::Owner { uid: 1, gid: 1 }]
    };
    for run_as in wrong {
        let mut plan = house.plan(&["/bin/true"]);
        plan.run_as = run_as;
        assert_eq!(house.run_plan(plan).await.failed().0, "invalid_input");
    }
}

#[tokio::test]
async fn without_a_helper_every_run_is_refused() {
    let sandbox = Sandbox::start(SandboxSettings {
        helper: "/nowhere/palyra-jail".into(),
        masked: vec!["/nowhere".into()],
        quarantine: "/nowhere/quarantine".into(),
        clock: Arc::new(SystemClock),
        tier_c: None,
    })
    .await
    .unwrap();
    let status = sandbox.status();
    assert!(!status.available);
    assert!(status.why.unwrap().contains("/nowhere/palyra-jail"));
    let house = House::new().await;
    let runner = sandbox.processes(None, None, CancellationToken::new());
    let plan = house.plan(&["/bin/true"]);
    let (report, _) = super::fixture::execute(&runner, super::fixture::identified(plan)).await;
    assert!(matches!(
        report.ending,
        Ending::Failed {
            kind: palyra_core::RunErrorKind::SandboxUnavailable,
            ..
        }
    ));
}

/// A helper that is none: nothing is taken on trust.
#[tokio::test]
async fn a_helper_that_does_not_build_walls_is_not_used() {
    for helper in ["/bin/true", "/bin/cat"] {
        let sandbox = Sandbox::start(SandboxSettings {
            helper: helper.into(),
            masked: vec!["/nowhere".into()],
            quarantine: "/nowhere/quarantine".into(),
            clock: Arc::new(SystemClock),
            tier_c: None,
        })
        .await
        .unwrap();
        let status = sandbox.status();
        assert!(!status.available && !status.seccomp, "{status:?}");
        assert!(status.why.unwrap().contains(helper));
    }
}

/// Walls that cannot be built within the limits are not skipped.
#[tokio::test]
async fn limits_too_low_for_the_walls_are_a_refusal() {
    let house = House::new().await;
    let mut plan = house.plan(&["/bin/true"]);
    plan.limits.open_files = 3;
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.failed().0, "sandbox_degraded", "{:?}", ran.report);
    house.run(&["/bin/true"]).await.ok();
}

#[tokio::test]
async fn settings_without_a_mask_are_refused() {
    for masked in [vec![], vec!["relative".into()]] {
        let settings = SandboxSettings {
            helper: jail(),
            masked,
            quarantine: "/nowhere/quarantine".into(),
            clock: Arc::new(SystemClock),
            tier_c: None,
        };
        assert!(Sandbox::start(settings).await.is_err());
    }
}

#[test]
fn whom_a_workspace_is_run_as() {
    let run_as = palyra_sandbox::run_as;
    if !is_root() {
        for tier in [Tier::B, Tier::C] {
            assert_eq!(run_as(0, Some(0), tier), Ok(RunAs::Daemon));
        }
        return;
    }
    // Never as root: refused without namespaces, a uid that nobody has with them.
    assert_eq!(run_as(0, Some(0), Tier::B), Err(RootsFolder));
    let lent = |uid, gid| Ok(RunAs::Lent { uid, gid });
    assert_eq!(run_as(0, Some(0), Tier::C), lent(0, 0));
    let owner = |uid, gid| Ok(RunAs::Owner { uid, gid });
    assert_eq!(run_as(7, Some(8), Tier::B), owner(7, 8));
    assert_eq!(run_as(7, Some(8), Tier::C), lent(7, 8));
    // Without a group of their own, or with root's, nobody's.
    for group in [None, Some(0)] {
        assert_eq!(run_as(7, group, Tier::B), owner(7, 65_534));
        assert_eq!(run_as(7, group, Tier::C), lent(7, 65_534));
    }
}

/// What was decided about is what runs: another program or another folder under the same name is
/// noticed at the last moment.
#[tokio::test]
async fn what_was_changed_since_the_decision_is_not_run() {
    for fixture in super::fixture::House::every().await {
        let script = fixture.put("build.sh", b"#!/bin/sh\necho one\n");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let plan = super::fixture::identified(fixture.plan(&[script.to_str().unwrap()]));
        let control = fixture.run_plan(plan.clone()).await;
        assert_eq!(control.stdout(), "one\n", "{:?}", control.report);
        std::fs::write(&script, b"#!/bin/sh\necho two\n").unwrap();
        let changed = |ran: &super::fixture::Ran| {
            let kind = palyra_core::RunErrorKind::Changed;
            matches!(&ran.report.ending, Ending::Failed { kind: found, .. } if *found == kind)
        };
        let ran = fixture.run_plan(plan).await;
        assert_eq!(ran.failed().0, "program_changed", "{:?}", ran.report);

        let sub = fixture.path("work/sub");
        std::fs::create_dir(&sub).unwrap();
        let mut plan = fixture.plan(&["/bin/pwd"]);
        plan.cwd = sub.clone();
        let plan = super::fixture::identified(plan);
        std::fs::rename(&sub, fixture.path("work/was")).unwrap();
        std::os::unix::fs::symlink("/etc", &sub).unwrap();
        let ran = fixture.run_plan(plan).await;
        assert!(
            matches!(ran.report.ending, Ending::Failed { .. }),
            "{:?}",
            ran.report
        );
        assert_eq!(ran.report.sandbox_enforcement, "none");

        let work = fixture.path("work");
        let mut plan = fixture.file_plan(palyra_core::FileOperation::List {
            path: "".into(),
            max_entries: 9,
        });
        plan.workspace_id = palyra_sandbox::look_at_folder(&work).unwrap().id;
        std::fs::rename(&work, fixture.path("gone")).unwrap();
        std::fs::create_dir(&work).unwrap();
        let ran = fixture.run_file_plan(plan).await;
        assert!(changed(&ran), "{:?}", ran.report);
    }
}

/// Limits on the call as a whole, where this machine has a controller for them.
#[tokio::test]
async fn a_whole_call_is_limited_where_there_is_a_controller() {
    for house in House::every().await {
        let hungry = "head -c 200M /dev/zero | tail -c 200M | wc -c";
        let mut plan = house.plan(&["/bin/sh", "-c", hungry]);
        // The control: with enough of it, it ends well.
        let ran = house.run_plan(plan.clone()).await;
        assert_eq!(ran.ok().trim(), "209715200");
        let seen = ran.layer("whole_call").unwrap().to_owned();
        if seen.contains("memory not limited") {
            assert!(!is_root(), "root can make a cgroup: {seen}");
            println!("absent: {seen}");
            continue;
        }
        assert!(seen.contains("memory 8589934592"), "{seen}");
        plan.limits.memory = 64 << 20;
        let ran = house.run_plan(plan).await;
        assert_ne!(ran.stdout().trim(), "209715200", "{:?}", ran.report);
        assert!(ran.layer("whole_call").unwrap().contains("memory 67108864"));

        let many = "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done 2>/dev/null; echo all";
        let mut plan = house.plan(&["/bin/sh", "-c", many]);
        let ran = house.run_plan(plan.clone()).await;
        assert_eq!(ran.stdout(), "all\n");
        plan.limits.processes = 32;
        plan.limits.wall = Duration::from_secs(10);
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.stdout(), "", "{:?}", ran.report);
        assert!(ran.layer("whole_call").unwrap().contains("pids 32"));
    }
}
