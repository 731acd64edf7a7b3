//! Many calls: at once, and one after the other.

use super::fixture::{House, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once() {
    for house in House::every().await {
        at_once(house).await;
    }
}

async fn at_once(house: House) {
    let runs = (0..100).map(|number| {
        let script = format!("echo {number}; sleep 0.05; exit {}", number % 50);
        let house = &house;
        async move { (number, house.sh(&script).await) }
    });
    for (number, ran) in futures::future::join_all(runs).await {
        assert_eq!(ran.stdout(), format!("{number}\n"), "{:?}", ran.report);
        let code = number % 50;
        assert_eq!(ran.report.ending, palyra_core::Ending::Exited { code });
    }
}

/// Pipes, sockets, rulesets: what belongs to calls. (Handles of folders come and go with what
/// others do in the shared temporary folder.)
fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.is_relative())
        .count()
}

/// Our own children that are zombies.
fn zombies() -> usize {
    let children =
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()))
            .unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter(|stat| stat.contains(") Z "))
        .count()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "alone in its process, so that it can count"
)]
fn nothing_grows() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "endurance::three_hundred_calls",
            "--ignored",
            "--nocapture",
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Run by `nothing_grows` in a process of its own.
#[tokio::test]
#[ignore = "run by `nothing_grows`"]
async fn three_hundred_calls() {
    let house = House::new().await;
    let ran = house.sh("echo $TMPDIR").await;
    let temporary = std::path::PathBuf::from(ran.ok().trim())
        .parent()
        .unwrap()
        .to_owned();
    let cgroups = house.sandbox.status().cgroup;
    let caged = House::caged().await;
    for _ in 0..20 {
        house.run(&["/bin/true"]).await.ok();
        caged.run(&["/bin/true"]).await.ok();
    }
    let mounts = || {
        std::fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .lines()
            .count()
    };
    let mounts_before = mounts();
    // A kit is laid by for the next call.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before = descriptors();
    for round in 0..300 {
        match round % 3 {
            0 => drop(house.run(&["/bin/true"]).await.ok()),
            1 => drop(house.sh("echo x; (setsid sleep 9 &)").await.ok()),
            _ => drop(house.run(&["/nowhere"]).await.failed()),
        }
        if round % 3 == 0 {
            let ran = caged.sh("echo x; (setsid sleep 9 &)").await;
            ran.ok();
        }
    }
    eventually("descriptors are closed", || descriptors() <= before);
    assert_eq!(zombies(), 0);
    // Other tests mount things meanwhile.
    eventually("mounts are gone", || mounts() <= mounts_before);
    // The one that is laid by for the next call remains.
    eventually("temporary folders are gone", || {
        std::fs::read_dir(&temporary).unwrap().count() <= 1
    });
    if let Some(cgroups) = cgroups {
        // Those of the slots that wait for the next call remain.
        eventually("cgroups are gone", || {
            let all = std::fs::read_dir(&cgroups).unwrap().flatten();
            all.filter(|entry| entry.path().is_dir()).count() <= 8
        });
        house.sandbox.shutdown().await;
        assert!(!cgroups.exists(), "the helper removes the last ones");
    } else {
        house.sandbox.shutdown().await;
    }
    drop(house);
    eventually("the temporary folder is gone", || !temporary.exists());
}
