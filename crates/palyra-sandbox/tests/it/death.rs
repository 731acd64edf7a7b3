//! Those who watch over a call die: the call dies with them.

use std::path::PathBuf;
use std::time::Duration;

use palyra_core::Ending;
use rustix::process::{Pid, Signal};

use super::fixture::{House, Ran, eventually, is_alive, noted};

pub(crate) fn kill(pid: i32) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

pub(crate) fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs something with a descendant in another session, and strikes meanwhile.
async fn struck(house: &House, name: &str, strike: impl Fn(i32)) -> Ran {
    let path = house.path(name);
    let plan = house.plan(&[
        &house.text("attacker"),
        "hold-output",
        path.to_str().unwrap(),
    ]);
    let strike = async {
        while noted(&path).len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The second to note itself is the target.
        strike(noted(&path)[1]);
    };
    let (ran, ()) = tokio::join!(house.run_plan(plan), strike);
    eventually("everything of it is gone", || {
        noted(&path).iter().all(|pid| !is_alive(*pid))
    });
    ran
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_call_along() {
    for house in House::all().await {
        let ran = struck(&house, "work/supervisor", |target| kill(parent(target))).await;
        let (kind, message) = ran.failed();
        assert_eq!(kind, "runtime_failure");
        // Said only when it was seen, and only a cgroup shows it.
        let seen = house.sandbox.status().cgroup.is_some();
        assert_eq!(message.ends_with("was killed"), seen, "{message}");
        assert_eq!(message.ends_with("still be running"), !seen, "{message}");
        house.run(&["/bin/true"]).await.ok();
    }
}

#[tokio::test]
async fn a_killed_server_takes_its_calls_along_and_is_replaced() {
    for house in House::all().await {
        let ran = struck(&house, "work/server", |target| {
            kill(parent(parent(target)));
        })
        .await;
        assert_eq!(ran.failed().0, "runtime_failure", "{:?}", ran.report);
        house.run(&["/bin/true"]).await.ok();
        house.run(&["/bin/true"]).await.ok();
    }
}

/// The processor time that a process has used, in the kernel's ticks.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    let used = rest.split_whitespace().skip(11).take(2);
    used.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn who_watches_over_a_call_only_waits() {
    for house in House::all().await {
        struck(&house, "work/waiting", |target| {
            let supervisor = parent(target);
            let before = ticks(supervisor);
            std::thread::sleep(Duration::from_millis(400));
            let used = ticks(supervisor) - before;
            assert!(used <= 2, "it used {used} ticks to wait");
            kill(target);
        })
        .await;
    }
}

#[tokio::test]
async fn a_killed_target_is_a_signal_like_any_other() {
    let house = House::new().await;
    let ran = struck(&house, "work/target", kill).await;
    assert_eq!(ran.report.ending, Ending::Signalled { signal: 9 });
}

/// No descriptors any more: it can neither open nor poll.
fn cripple(pid: i32) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let pid = Pid::from_raw(pid).unwrap();
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, none).unwrap();
}

/// Nothing has ended, and it has to wait again. It may be gone already.
fn wake(pid: i32) {
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::CHILD);
}

#[tokio::test]
async fn a_supervisor_that_cannot_watch_any_longer_ends_its_call() {
    for house in House::all().await {
        let ran = struck(&house, "work/crippled", |target| {
            let supervisor = parent(target);
            cripple(supervisor);
            wake(supervisor);
        })
        .await;
        let (kind, message) = ran.failed();
        assert_eq!(kind, "runtime_failure");
        assert!(message.contains("could not be watched"), "{message}");
        house.run(&["/bin/true"]).await.ok();
    }
}

#[tokio::test]
async fn a_server_that_cannot_watch_any_longer_ends_its_calls_and_is_replaced() {
    for house in House::all().await {
        let server = std::cell::Cell::new(0);
        let ran = struck(&house, "work/crippled", |target| {
            let supervisor = parent(target);
            server.set(parent(supervisor));
            cripple(supervisor);
            cripple(server.get());
            wake(server.get());
        })
        .await;
        assert_eq!(ran.failed().0, "runtime_failure", "{:?}", ran.report);
        eventually("the server ends", || !is_alive(server.get()));
        house.run(&["/bin/true"]).await.ok();
    }
}

/// A supervisor that dies crippled leaves its call to a server that is crippled too.
#[tokio::test]
async fn a_crippled_server_still_kills_what_a_lost_supervisor_leaves() {
    for house in House::all().await {
        let server = std::cell::Cell::new(0);
        let ran = struck(&house, "work/both", |target| {
            let supervisor = parent(target);
            server.set(parent(supervisor));
            cripple(server.get());
            kill(supervisor);
        })
        .await;
        assert_eq!(ran.failed().0, "runtime_failure", "{:?}", ran.report);
        eventually("the server ends", || !is_alive(server.get()));
        house.run(&["/bin/true"]).await.ok();
    }
}

/// The same test binary, as the daemon: started by the next test and killed by it.
#[tokio::test]
async fn daemon_that_will_be_killed() {
    let Ok(path) = std::env::var("PALYRA_IT_VICTIM_DAEMON") else {
        return;
    };
    let house = House::new().await;
    // Where calls note themselves: nobody of them reaches further than the workspace.
    let notes = house.text("work/noted");
    std::fs::write(path, &notes).unwrap();
    let attack = ["hold-output", notes.as_str()];
    let runs = (0..4).map(|_| house.attack(&attack));
    futures::future::join_all(runs).await;
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a second daemon, to be killed")]
fn a_killed_daemon_takes_everything_along() {
    let here = tempfile::tempdir().unwrap();
    let told = here.path().join("told");
    let theirs = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(theirs.path(), open).unwrap();
    let mut daemon = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "death::daemon_that_will_be_killed",
            "--nocapture",
        ])
        .env("PALYRA_IT_VICTIM_DAEMON", &told)
        // It does not live to clear up after itself.
        .env("TMPDIR", theirs.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let notes = || PathBuf::from(std::fs::read_to_string(&told).unwrap_or_default());
    eventually("calls run", || noted(&notes()).len() >= 8);
    let path = notes();
    let target = *noted(&path).last().unwrap();
    let (supervisor, server) = (parent(target), parent(parent(target)));
    assert!(is_alive(supervisor) && is_alive(server));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("nothing is left", || {
        noted(&path)
            .iter()
            .chain([&supervisor, &server])
            .all(|pid| !is_alive(*pid))
    });
}
