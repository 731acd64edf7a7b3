//! Those who watch over a call die: the call dies with them.

use std::time::Duration;

use palyra_core::Ending;
use rustix::process::{Pid, Signal};

use super::fixture::{House, Ran, eventually, is_alive, noted};

fn kill(pid: i32) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs something with a descendant in another session, and kills `whom` meanwhile.
async fn struck(house: &House, name: &str, whom: impl Fn(i32) -> i32) -> Ran {
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
        kill(whom(noted(&path)[1]));
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
        let ran = struck(&house, "work/supervisor", parent).await;
        assert_eq!(ran.failed().0, "runtime_failure");
        house.run(&["/bin/true"]).await.ok();
    }
}

#[tokio::test]
async fn a_killed_server_takes_its_calls_along_and_is_replaced() {
    for house in House::all().await {
        let ran = struck(&house, "work/server", |target| parent(parent(target))).await;
        assert_eq!(ran.failed().0, "runtime_failure", "{:?}", ran.report);
        house.run(&["/bin/true"]).await.ok();
        house.run(&["/bin/true"]).await.ok();
    }
}

#[tokio::test]
async fn a_killed_target_is_a_signal_like_any_other() {
    let house = House::new().await;
    let ran = struck(&house, "work/target", |target| target).await;
    assert_eq!(ran.report.ending, Ending::Signalled { signal: 9 });
}

/// The same test binary, as the daemon: started by the next test and killed by it.
#[tokio::test]
async fn daemon_that_will_be_killed() {
    let Ok(path) = std::env::var("PALYRA_IT_VICTIM_DAEMON") else {
        return;
    };
    let house = House::new().await;
    let attack = ["hold-output", path.as_str()];
    let runs = (0..4).map(|_| house.attack(&attack));
    futures::future::join_all(runs).await;
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a second daemon, to be killed")]
fn a_killed_daemon_takes_everything_along() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("noted");
    let theirs = tempfile::tempdir().unwrap();
    let mut daemon = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "death::daemon_that_will_be_killed",
            "--nocapture",
        ])
        .env("PALYRA_IT_VICTIM_DAEMON", &path)
        // It does not live to clear up after itself. Not the folder of the notes: that would be on
        // the way to its home, where no call makes files.
        .env("TMPDIR", theirs.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("calls run", || noted(&path).len() >= 8);
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
