//! Tier-C: what a call in a cage sees, and what of it is left when it is over.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palyra_core::plan::RunAs;
use palyra_core::{EgressEnforcementMode, Ending, ProcView, SystemClock};
use palyra_sandbox::{Sandbox, SandboxSettings, TierCBackend};
use tokio_util::sync::CancellationToken;

use super::fixture::{House, Ran, broken_jail, eventually, execute, identified, is_root};

async fn houses() -> Vec<House> {
    let mut all = vec![House::caged().await];
    if is_root() {
        all.push(House::caged_by_root().await);
    }
    all
}

/// Every process of this machine with this word among its arguments.
fn with_argument(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line
            .split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

#[tokio::test]
async fn every_layer_is_observed_and_attested() {
    for house in houses().await {
        let ran = house.attack(&["about"]).await;
        let about = ran.ok();
        for line in ["NoNewPrivs: 1", "Seccomp: 2", "CapEff: 0000000000000000"] {
            assert!(about.contains(line), "{about}");
        }
        for layer in [
            "namespaces",
            "network",
            "root",
            "workspace",
            "uid",
            "capabilities",
            "no_new_privs",
            "landlock",
            "seccomp",
            "rlimits",
            "session",
        ] {
            assert!(ran.layer(layer).is_some(), "{layer}: {:?}", ran.report);
        }
        assert!(ran.layer("landlock").unwrap().contains("self_tested"));
        assert_eq!(
            ran.layer("cgroup").is_some(),
            house.sandbox.status().cgroup.is_some()
        );
        // The kernel's own names, and none of this machine's.
        let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
        let seen = ran.layer("namespaces").unwrap();
        assert!(seen.contains("mnt:[") && seen.contains("user:["), "{seen}");
        assert!(!seen.contains(own.to_str().unwrap()), "{seen}");
    }
}

/// Whoever leaves out a wall is found out by what the target sees of itself, not by what it did.
/// (`no_new_privs` cannot be left out: putting a filter on sets it.)
#[tokio::test]
async fn a_helper_without_one_of_the_walls_is_refused() {
    let walls = [
        ("user", "user namespace"),
        ("processes", "process namespace"),
        ("mounts", "the root"),
        ("network", "net namespace"),
        ("ipc", "ipc namespace"),
        ("host-name", "uts namespace"),
        ("cgroups", "cgroup namespace"),
        ("identity", "the uid"),
        ("limits", "a limit"),
        ("session", "a session"),
        ("landlock", "landlock"),
        ("capabilities", "capabilities"),
        ("seccomp", "seccomp"),
    ];
    let house = House::caged().await;
    for (wall, said) in walls {
        // Without root there is no other uid to become, and the user namespace is what gives the
        // right to all the others.
        if !is_root() && ["identity", "user"].contains(&wall) {
            continue;
        }
        let mut program = std::fs::read(broken_jail()).unwrap();
        program.extend(format!("\nleave out: {wall}").as_bytes());
        let helper = house.path("broken");
        std::fs::write(&helper, program).unwrap();
        let settings = SandboxSettings {
            helper,
            masked: vec![house.path("deep/home")],
            quarantine: house.path("deep/home/quarantine"),
            clock: Arc::new(SystemClock),
            tier_c: Some(TierCBackend::LinuxNamespaces),
        };
        let sandbox = Sandbox::start(settings).await.unwrap();
        let why = sandbox.status().why.or(sandbox.status().tier_c_why);
        let why = why.unwrap_or_else(|| panic!("nobody missed {wall}"));
        assert!(why.contains(said), "{wall}: {why}");
        // And no call runs.
        let noted = house.path("work/ran");
        let script = format!("echo ran >{}", noted.display());
        let plan = house.plan(&["/bin/sh", "-c", &script]);
        let runner = sandbox.processes(None, None, CancellationToken::new());
        let (report, output) = execute(&runner, identified(plan)).await;
        let ran = Ran { report, output };
        assert_eq!(ran.failed().0, "sandbox_unavailable", "{wall}");
        assert_eq!(ran.report.sandbox_enforcement, "none");
        assert!(!noted.exists(), "{wall}");
        sandbox.shutdown().await;
    }
}

#[tokio::test]
async fn it_is_the_second_process_and_sees_no_others() {
    for house in houses().await {
        let ran = house
            .sh("echo $$; ls /proc | grep -c '^[0-9]'; ls /proc | grep -v '^[0-9]' | sort | tr '\\n' ' '")
            .await;
        let lines: Vec<&str> = ran.ok().lines().collect();
        assert_eq!(lines[0], "2");
        // init, the shell, ls and grep; a subshell of the pipeline more or less.
        assert!(lines[1].parse::<u32>().unwrap() <= 5, "{}", ran.stdout());
        assert_eq!(lines[2].trim(), "self thread-self");

        let mut plan = house.plan(&[
            "/bin/sh",
            "-c",
            "cat /proc/sys/kernel/osrelease; wc -c </proc/kcore; ls /proc/sys; cat /proc/uptime",
        ]);
        plan.proc = ProcView::Full;
        let ran = house.run_plan(plan).await;
        // There is more of it, and what counts is covered.
        assert_eq!(
            ran.stdout().split_whitespace().count(),
            2,
            "{}",
            ran.stdout()
        );
        assert!(
            ran.stderr().contains("Permission denied"),
            "{}",
            ran.stderr()
        );
    }
}

#[tokio::test]
async fn what_is_not_mounted_is_not_there() {
    for house in houses().await {
        let names = house.sh("ls -A / | tr '\\n' ' '").await;
        for absent in ["root", "run", "srv", "mnt", "sys", "boot", "home"] {
            let there = names.ok().split_whitespace().any(|name| name == absent);
            assert!(!there, "{absent}: {}", names.stdout());
        }
        // Beside the workspace, and the daemon's home: not forbidden but absent.
        for path in ["deep/beside", "deep/home/secret", "deep"] {
            let ran = house.attack(&["read", &house.text(path)]).await;
            assert_eq!(ran.stdout(), "refused: ENOENT\n", "{path}");
        }
        for path in ["/usr/new", "/etc/new", "/new", "/dev/new"] {
            let ran = house.attack(&["create", path]).await;
            assert!(ran.stdout().starts_with("refused: "), "{path}");
        }
        house.attack(&["create", "/tmp/new"]).await.ok();
        house.attack(&["create", "/dev/shm/new"]).await.ok();
        house.sh("echo x >new").await.ok();
        house.attack(&["write", "/dev/null"]).await.ok();
        assert!(!Path::new("/tmp/new").exists() && !Path::new("/dev/shm/new").exists());
        assert!(house.path("work/new").exists());
    }
}

/// In a workspace that holds the daemon's home, the home is covered.
#[tokio::test]
async fn a_mask_inside_the_workspace_is_covered() {
    for house in houses().await {
        let mut plan = house.plan(&[
            "/bin/sh",
            "-c",
            "cat beside; ls home; cat home/secret; echo x >home/new; mv home away; chmod 777 home; \
             mkdir -p new/sub && mv new moved && echo made",
        ]);
        plan.workspace = house.path("deep");
        plan.cwd = house.path("deep");
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.stdout(), "not secretmade\n", "{}", ran.stderr());
        assert_eq!(ran.stderr().lines().count(), 5, "{}", ran.stderr());
        assert!(house.path("deep/home/inner/secret").exists());
    }
}

#[tokio::test]
async fn the_network_is_its_own() {
    for house in houses().await {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dial = format!("echo >/dev/tcp/127.0.0.1/{port}");
        let mut plan = house.plan(&["/bin/bash", "-c", &dial]);
        let ran = house.run_plan(plan.clone()).await;
        assert_ne!(ran.report.ending, Ending::Exited { code: 0 });
        assert!(ran.layer("network").unwrap().starts_with("isolated, net:["));
        // The control: the machine's own network, for those who ask for it.
        plan.egress = EgressEnforcementMode::None;
        let ran = house.run_plan(plan).await;
        ran.ok();
        assert_eq!(
            ran.layer("network").unwrap(),
            "the machine's own, unrestricted"
        );
        // A loopback of its own works.
        house.attack(&["tcp"]).await.ok();
    }
}

#[tokio::test]
async fn files_belong_to_the_workspaces_owner_and_nobody_is_root() {
    for house in houses().await {
        let ran = house
            .sh("echo x >made; mkdir sub; id -u; cat /proc/self/uid_map; echo y >>made")
            .await;
        let lines: Vec<&str> = ran.ok().lines().collect();
        let owner = match house.run_as {
            RunAs::Lent { uid, .. } | RunAs::Owner { uid, .. } => uid,
            RunAs::Daemon => rustix::process::geteuid().as_raw(),
        };
        assert_eq!(lines[0], owner.to_string());
        let map: Vec<u32> = lines[1]
            .split_whitespace()
            .map(|it| it.parse().unwrap())
            .collect();
        // None of the numbers outside is anybody's, or the daemon's own is the only one.
        let expected = match is_root() {
            true => [0, map[1], 65_536],
            false => [owner, owner, 1],
        };
        assert_eq!(map, expected);
        assert!(!is_root() || map[1] >= 0x7100_0000, "{map:?}");
        for name in ["work/made", "work/sub"] {
            let found = std::fs::metadata(house.path(name)).unwrap();
            assert_eq!(found.uid(), owner, "{name}");
        }
        // One block for each live call.
        let two = (0..2).map(|_| house.sh("cat /proc/self/uid_map; sleep 0.5"));
        let two = futures::future::join_all(two).await;
        assert_eq!(two[0].ok() != two[1].ok(), is_root());
    }
}

/// Whoever else has files in the workspace still has them, and their rights hold.
#[tokio::test]
async fn files_of_others_stay_theirs() {
    if !is_root() {
        println!("not run: needs root");
        return;
    }
    for house in houses().await {
        let open = house.path("work/open");
        let shut = house.path("work/shut");
        for (path, mode) in [(&open, 0o666), (&shut, 0o600)] {
            std::fs::write(path, "theirs").unwrap();
            std::os::unix::fs::chown(path, Some(4_711), Some(4_712)).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let ran = house
            .sh("stat -c '%u %g' open; echo more >>open; cat shut; echo x >>shut; chown 0 open")
            .await;
        assert_eq!(ran.stdout(), "4711 4712\n", "{}", ran.stderr());
        assert_eq!(ran.stderr().lines().count(), 3, "{}", ran.stderr());
        assert_eq!(std::fs::read_to_string(&open).unwrap(), "theirsmore\n");
        let found = std::fs::metadata(&open).unwrap();
        assert_eq!((found.uid(), found.gid()), (4_711, 4_712));
    }
}

#[tokio::test]
async fn no_set_id_file_stays_behind() {
    for house in houses().await {
        let script = "cp /bin/true tool; for mode in 4755 2755 6755 u+s g+s; do chmod $mode tool && echo did; done; \
                      install -m 4755 /bin/true installed && echo did; mkdir -m 2755 folder && echo did; \
                      mkfifo pipe && echo did; stat -c %a tool";
        let ran = house.sh(script).await;
        assert_eq!(ran.stdout(), "755\n", "{}", ran.stderr());
        for entry in std::fs::read_dir(house.path("work")).unwrap().flatten() {
            let mode = entry.metadata().unwrap().mode();
            assert_eq!(mode & 0o6000, 0, "{:?}", entry.path());
        }
    }
}

#[tokio::test]
async fn nothing_is_left_when_it_is_over() {
    for house in houses().await {
        let word = house.text("work/marker-end");
        let attacker = house.text("attacker");
        let script = format!("{attacker} daemon {word} >&2; {attacker} sibling {word} >&2; exit 3");
        let ran = house.sh(&script).await;
        assert_eq!(ran.report.ending, Ending::Exited { code: 3 });
        // The result is there when its processes are gone, not before.
        assert_eq!(with_argument(&word), [0_i32; 0]);

        let word = house.text("work/marker-time");
        let mut plan = house.plan(&[&attacker, "hold-output", &word]);
        plan.limits.wall = Duration::from_millis(500);
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.report.ending, Ending::TimedOut);
        assert_eq!(with_argument(&word), [0_i32; 0]);
    }
}

#[tokio::test]
async fn whoever_watches_over_it_takes_it_along() {
    for house in houses().await {
        for above in 1..=3 {
            let word = house.text(&format!("work/marker-{above}"));
            let plan = house.plan(&[&house.text("attacker"), "hang", &word]);
            let strike = async {
                while with_argument(&word).is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let mut victim = with_argument(&word)[0];
                for _ in 0..above {
                    victim = super::death::parent(victim);
                }
                super::death::kill(victim);
            };
            let (ran, ()) = tokio::join!(house.run_plan(plan), strike);
            assert_ne!(ran.report.ending, Ending::Exited { code: 0 }, "{above}");
            eventually("everything of it is gone", || {
                with_argument(&word).is_empty()
            });
            house.run(&["/bin/true"]).await.ok();
        }
    }
}

#[tokio::test]
async fn processes_and_memory_folders_are_limited() {
    for house in houses().await {
        let script =
            "i=0; while [ $i -lt 600 ]; do sleep 30 & i=$((i+1)); done 2>/dev/null; echo all";
        let mut plan = house.plan(&["/bin/sh", "-c", script]);
        plan.limits.wall = Duration::from_secs(20);
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.stdout(), "", "600 processes at once: {:?}", ran.report);
        assert!(ran.layer("rlimits").unwrap().contains("nproc 512"));

        let fill = "head -c 64M /dev/zero >$TMPDIR/a; head -c 64M /dev/zero >/dev/shm/b; \
                    cat $TMPDIR/a /dev/shm/b | wc -c";
        let mut plan = house.plan(&["/bin/sh", "-c", fill]);
        plan.limits.scratch = 16 << 20;
        let ran = house.run_plan(plan).await;
        let bytes: u64 = ran.stdout().trim().parse().unwrap();
        assert!(bytes <= 16 << 20, "{bytes}");
    }
}

#[tokio::test]
async fn workspaces_that_make_no_cage_are_refused() {
    let house = House::caged().await;
    for (workspace, kind) in [
        ("/", "invalid_input"),
        ("/proc", "invalid_input"),
        ("/sys/kernel", "invalid_input"),
        ("/dev", "invalid_input"),
        (&house.text("deep/home/inner"), "workspace_scope_denied"),
        (&house.text("work/missing"), "invalid_input"),
        (&house.text("work/link"), "invalid_input"),
    ] {
        let _ = std::os::unix::fs::symlink("/etc", house.path("work/link"));
        let mut plan = house.plan(&["/bin/true"]);
        plan.workspace = workspace.into();
        plan.cwd = workspace.into();
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.failed().0, kind, "{workspace}: {}", ran.failed().1);
    }
    // The folder that was decided about and no other.
    let mut plan = house.plan(&["/bin/true"]);
    plan = identified(plan);
    std::fs::rename(house.path("work"), house.path("was")).unwrap();
    std::fs::create_dir(house.path("work")).unwrap();
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.failed().0, "changed_since_decided", "{:?}", ran.report);
}

#[tokio::test]
async fn a_program_that_is_not_shown_is_said_to_be() {
    let house = House::caged().await;
    std::fs::copy("/bin/true", house.path("deep/true")).unwrap();
    let ran = house.run(&[&house.text("deep/true")]).await;
    let (kind, message) = ran.failed();
    assert_eq!(kind, "program_not_found");
    assert!(
        message.contains("outside of what Tier-C shows"),
        "{message}"
    );
    let mut plan = house.plan(&[&house.text("deep/true")]);
    plan.read_only.push(house.path("deep/true"));
    house.run_plan(plan).await.ok();
}
