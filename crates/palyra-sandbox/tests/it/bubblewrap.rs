//! Tier-C through `bwrap`: the same cage, with our helper inside.
//!
//! The attack matrix of `palyra-daemon` has it as columns of its own; here is what it looks like from
//! inside, and what happens when something is missing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use palyra_core::plan::RunAs;
use palyra_core::{EgressEnforcementMode, Ending, FileOperation, SystemClock};
use palyra_sandbox::{Sandbox, SandboxSettings, TierCBackend};
use tokio_util::sync::CancellationToken;

use super::fixture::{House, Ran, broken_jail, execute, identified, is_root, jail};

/// A house, where there is a `bwrap`.
async fn house() -> Option<House> {
    if !Path::new("/usr/bin/bwrap").exists() {
        assert!(std::env::var_os("CI").is_none(), "install `bubblewrap`");
        return None;
    }
    let house = House::wrapped().await;
    assert_eq!(house.sandbox.status().tier_c_why, None);
    Some(house)
}

#[tokio::test]
async fn bubblewrap_builds_the_same_cage() {
    let Some(house) = house().await else { return };
    let ran = house.attack(&["about"]).await;
    let about = ran.ok();
    for line in ["NoNewPrivs: 1", "Seccomp: 2", "CapEff: 0000000000000000"] {
        assert!(about.contains(line), "{about}");
    }
    assert_eq!(ran.report.executor, "sandbox_tier_c_linux_bubblewrap");
    for layer in [
        "namespaces",
        "network",
        "root",
        "workspace",
        "uid",
        "capabilities",
        "landlock",
        "seccomp",
        "rlimits",
        "session",
    ] {
        assert!(ran.layer(layer).is_some(), "{layer}: {:?}", ran.report);
    }
    // The second process, which sees no others, and nothing that is not mounted.
    let ran = house.sh("echo $$; ls /proc | grep -c '^[0-9]'").await;
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(lines[0], "2");
    assert!(lines[1].parse::<u32>().unwrap() <= 5, "{}", ran.stdout());
    for path in ["deep/beside", "deep/home/secret", "deep"] {
        let ran = house.attack(&["read", &house.text(path)]).await;
        assert_eq!(ran.stdout(), "refused: ENOENT\n", "{path}");
    }
    for path in [
        "/usr/new",
        "/new",
        "/dev/new",
        "/proc/sys/kernel/core_pattern",
    ] {
        let ran = house.attack(&["create", path]).await;
        assert!(ran.stdout().starts_with("refused: "), "{path}");
    }
    house.attack(&["create", "/tmp/new"]).await.ok();
    house.sh("echo x >made").await.ok();
    let owner = match house.run_as {
        RunAs::Lent { uid, .. } | RunAs::Owner { uid, .. } => uid,
        RunAs::Daemon => rustix::process::geteuid().as_raw(),
    };
    let made = std::fs::metadata(house.path("work/made")).unwrap();
    assert_eq!(made.uid(), owner);
    // The network, and the end as the program had it.
    house.attack(&["tcp"]).await.ok();
    let mut plan = house.plan(&["/bin/true"]);
    plan.egress = EgressEnforcementMode::None;
    let ran = house.run_plan(plan).await;
    assert_eq!(
        ran.layer("network").unwrap(),
        "the machine's own, unrestricted"
    );
    for (script, ending) in [
        ("exit 9", Ending::Exited { code: 9 }),
        ("exit 137", Ending::Exited { code: 137 }),
        ("kill -9 $$", Ending::Signalled { signal: 9 }),
        ("kill -15 $$", Ending::Signalled { signal: 15 }),
    ] {
        assert_eq!(house.sh(script).await.report.ending, ending, "{script}");
    }
}

#[tokio::test]
async fn file_tools_work_through_bubblewrap_and_reach_their_workspace_only() {
    let Some(house) = house().await else { return };
    let write = FileOperation::Write {
        path: "made".into(),
        content: "by a tool".to_owned(),
        create_parents: false,
    };
    let ran = house.file(write).await;
    assert_eq!(
        ran.report.ending,
        Ending::Exited { code: 0 },
        "{:?}",
        ran.report
    );
    let read = |path: &str| FileOperation::Read {
        path: path.into(),
        max_bytes: 100,
    };
    let ran = house.file(read("made")).await;
    assert!(
        ran.output.to_string().contains("by a tool"),
        "{:?}",
        ran.output
    );
    std::os::unix::fs::symlink("/etc/passwd", house.path("work/link")).unwrap();
    for path in ["link", "../deep/beside"] {
        assert!(matches!(
            house.file(read(path)).await.report.ending,
            Ending::Failed { .. }
        ));
    }
}

/// In a workspace that holds the daemon's home, the home is covered.
#[tokio::test]
async fn bubblewrap_covers_a_mask_inside_the_workspace() {
    let Some(house) = house().await else { return };
    let mut plan = house.plan(&[
        "/bin/sh",
        "-c",
        "cat beside; ls home; cat home/secret; echo x >home/new; mv home away; \
         mkdir -p new/sub && mv new moved && echo made",
    ]);
    plan.workspace = house.path("deep");
    plan.cwd = house.path("deep");
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.stdout(), "not secretmade\n", "{}", ran.stderr());
    assert!(house.path("deep/home/inner/secret").exists());
}

fn settings(helper: std::path::PathBuf, house: &House) -> SandboxSettings {
    SandboxSettings {
        helper,
        masked: vec![house.path("deep/home")],
        quarantine: house.path("deep/home/quarantine"),
        clock: Arc::new(SystemClock),
        tier_c: Some(TierCBackend::LinuxBubblewrap),
    }
}

/// A helper that leaves out a wall.
fn broken(house: &House, wall: &str) -> std::path::PathBuf {
    let mut program = std::fs::read(broken_jail()).unwrap();
    program.extend(format!("\nleave out: {wall}").as_bytes());
    let helper = house.path("broken");
    std::fs::write(&helper, program).unwrap();
    helper
}

/// A helper that makes no IPC namespace stands for a host that grants it none; `bwrap` makes one.
#[tokio::test]
async fn where_our_own_namespaces_fail_bubblewrap_stands_in() {
    let Some(house) = house().await else { return };
    for (asked, found) in [
        (None, Some(TierCBackend::LinuxBubblewrap)),
        (Some(TierCBackend::LinuxNamespaces), None),
    ] {
        let settings = SandboxSettings {
            tier_c: asked,
            ..settings(broken(&house, "ipc"), &house)
        };
        let sandbox = Sandbox::start(settings).await.unwrap();
        let status = sandbox.status();
        assert_eq!(status.tier_c, found, "{:?}", status.tier_c_why);
        sandbox.shutdown().await;
    }
}

/// What `bwrap` does not make is made and looked at inside, by a helper that may be broken.
#[tokio::test]
async fn a_helper_inside_without_one_of_the_walls_is_refused() {
    let Some(house) = house().await else { return };
    for (wall, said) in [
        ("limits", "a limit"),
        ("session", "a session"),
        ("landlock", "landlock"),
        ("seccomp", "seccomp"),
    ] {
        let sandbox = Sandbox::start(settings(broken(&house, wall), &house)).await;
        let sandbox = sandbox.unwrap();
        let why = sandbox.status().why.or(sandbox.status().tier_c_why);
        let why = why.unwrap_or_else(|| panic!("nobody missed {wall}"));
        assert!(why.contains(said), "{wall}: {why}");
        sandbox.shutdown().await;
    }
}

/// A back end that does not run here is not replaced by one that would, when it was asked for.
#[tokio::test]
async fn a_cage_that_bubblewrap_cannot_build_is_refused() {
    let Some(house) = house().await else { return };
    // A folder that is swapped before `bwrap` follows its path.
    let plan = identified(house.plan(&["/bin/true"]));
    let moved = house.path("elsewhere");
    std::fs::rename(house.path("work"), &moved).unwrap();
    std::fs::create_dir(house.path("work")).unwrap();
    let runner = house
        .sandbox
        .processes(None, None, CancellationToken::new());
    let (report, output) = execute(&runner, plan).await;
    let ran = Ran { report, output };
    assert_eq!(ran.failed().0, "changed_since_decided", "{:?}", ran.report);
    // Nor is a folder of root's shown as somebody else's.
    if is_root() {
        let mut plan = house.plan(&["/bin/true"]);
        plan.run_as = RunAs::Lent { uid: 0, gid: 0 };
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.failed().0, "sandbox_unavailable");
    }
    let planned = SandboxSettings {
        tier_c: Some(TierCBackend::MacosSandboxExec),
        ..settings(jail(), &house)
    };
    let sandbox = Sandbox::start(planned).await.unwrap();
    let status = sandbox.status();
    assert!(status.available && status.tier_c.is_none(), "{status:?}");
    assert!(status.tier_c_why.unwrap().contains("does not run on Linux"));
    sandbox.shutdown().await;
}
