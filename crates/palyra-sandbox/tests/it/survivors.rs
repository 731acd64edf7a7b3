//! Nothing outlives its call, whatever it does to get away.

use std::time::{Duration, Instant};

use palyra_core::{Ending, Limits};
use tokio_util::sync::CancellationToken;

use super::fixture::{House, Ran, all_gone, eventually, is_alive, noted};

async fn timed(house: &House, wall: u64, attack: &str, noted: &str) -> Ran {
    let path = house.text(noted);
    let mut plan = house.plan(&[&house.text("attacker"), attack, &path]);
    plan.limits = Limits {
        wall: Duration::from_millis(wall),
        ..Limits::default()
    };
    house.run_plan(plan).await
}

#[tokio::test]
async fn daemons_in_sessions_of_their_own_end_with_the_call() {
    for house in House::all().await {
        for attack in ["daemon", "sibling"] {
            let path = house.path(&format!("work/{attack}"));
            let ran = timed(&house, 30_000, attack, &format!("work/{attack}")).await;
            assert_eq!(ran.ok(), "away\n");
            all_gone(&path);

            // Outside, it survives.
            let path = house.path(&format!("work/{attack}-outside"));
            let mut outside = house.outside_command(&[attack, path.to_str().unwrap()]);
            // The survivor keeps its output open: nobody may wait for that.
            outside.stdout(std::process::Stdio::null());
            assert!(outside.status().unwrap().success());
            let survivor = noted(&path)[0];
            assert!(is_alive(survivor));
            let survivor = rustix::process::Pid::from_raw(survivor).unwrap();
            rustix::process::kill_process(survivor, rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// Those who watch are robbed of what they need to watch.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the control runs outside")]
async fn watchers_cannot_be_crippled() {
    use std::os::unix::process::CommandExt;
    for house in House::all().await {
        let path = house.path("work/crippled");
        let ran = timed(&house, 30_000, "cripple", "work/crippled").await;
        assert_eq!(ran.stdout(), "refused: EPERM\n");
        all_gone(&path);
        house.run(&["/bin/true"]).await.ok();

        // Outside, a shell stands for the supervisor: it is crippled, and somebody survives.
        let path = house.path("work/crippled-outside");
        let script = format!(
            "{} cripple {}; exit $?",
            house.text("attacker"),
            path.display()
        );
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &script]);
        shell.stdout(std::process::Stdio::null());
        if let palyra_core::plan::RunAs::Owner { uid, gid } = house.run_as {
            shell.uid(uid).gid(gid);
        }
        assert!(shell.status().unwrap().success());
        let survivor = noted(&path)[0];
        assert!(is_alive(survivor));
        let survivor = rustix::process::Pid::from_raw(survivor).unwrap();
        rustix::process::kill_process(survivor, rustix::process::Signal::KILL).unwrap();
    }
}

#[tokio::test]
async fn a_holder_of_the_output_does_not_delay_the_result() {
    for house in House::all().await {
        let begun = Instant::now();
        let ran = timed(&house, 2_000, "hold-output", "work/held").await;
        assert_eq!(ran.report.ending, Ending::TimedOut);
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(noted(&house.path("work/held")).len(), 2);
        all_gone(&house.path("work/held"));
    }
}

#[tokio::test]
async fn forks_in_flight_are_gone_after_the_timeout() {
    for house in House::all().await {
        let ran = timed(&house, 2_000, "fork-loop", "work/forks").await;
        assert_eq!(ran.report.ending, Ending::TimedOut);
        let count = noted(&house.path("work/forks")).len();
        assert!(count > 40, "{count}");
        all_gone(&house.path("work/forks"));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(
            noted(&house.path("work/forks")).len(),
            count,
            "somebody still forks"
        );
    }
}

#[tokio::test]
async fn a_process_that_keeps_changing_is_caught() {
    for house in House::all().await {
        let ran = timed(&house, 30_000, "comet", "work/comet").await;
        assert_eq!(ran.ok(), "away\n");
        all_gone(&house.path("work/comet"));
    }
}

#[tokio::test]
async fn orphans_do_not_pile_up_while_the_call_runs() {
    let house = House::new().await;
    assert_eq!(house.attack(&["orphans", "200"]).await.ok(), "zombies 0\n");
}

#[tokio::test]
async fn cancelling_ends_everything() {
    for house in House::all().await {
        let cancel = CancellationToken::new();
        let path = house.path("work/cancelled");
        let plan = house.plan(&[
            &house.text("attacker"),
            "hold-output",
            path.to_str().unwrap(),
        ]);
        let run = house.run_with(plan, None, cancel.clone());
        let stop = async {
            while noted(&path).len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            cancel.cancel();
        };
        let (ran, ()) = tokio::join!(run, stop);
        let Ending::Cancelled { reason } = &ran.report.ending else {
            panic!("{:?}", ran.report);
        };
        assert_eq!(reason, "the call was cancelled");
        all_gone(&path);
    }
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_is_ended() {
    let house = House::new().await;
    let path = house.path("work/dropped");
    let plan = house.plan(&[
        &house.text("attacker"),
        "hold-output",
        path.to_str().unwrap(),
    ]);
    let run = house.run_plan(plan);
    tokio::select! {
        _ = run => panic!("it ended by itself"),
        () = async {
            while noted(&path).len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => {}
    }
    eventually("everything of it is gone", || {
        noted(&path).iter().all(|pid| !is_alive(*pid))
    });
}

#[tokio::test]
async fn shutting_down_ends_everything_and_refuses_what_follows() {
    let house = House::new().await;
    let path = house.path("work/shutdown");
    let plan = house.plan(&[
        &house.text("attacker"),
        "hold-output",
        path.to_str().unwrap(),
    ]);
    let run = house.run_plan(plan);
    let stop = async {
        while noted(&path).len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        house.sandbox.shutdown().await;
    };
    let (ran, ()) = tokio::join!(run, stop);
    assert!(
        matches!(&ran.report.ending, Ending::Cancelled { reason } if reason == "the daemon is stopping"),
        "{:?}",
        ran.report
    );
    all_gone(&path);
    assert_eq!(
        house.run(&["/bin/true"]).await.failed().0,
        "runtime_failure"
    );
}
