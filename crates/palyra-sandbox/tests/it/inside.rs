//! Who is inside a call and who is not.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::fixture::{House, noted};

#[tokio::test]
async fn processes_of_a_call_are_inside_and_others_are_not() {
    for house in House::all().await {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!house.sandbox.is_inside_a_call(own).unwrap());
        assert!(!house.sandbox.is_inside_a_call(1).unwrap());
        assert!(house.sandbox.is_inside_a_call(-1).is_err());

        let cancel = CancellationToken::new();
        let path = house.path("work/inside");
        let plan = house.plan(&[
            "/bin/sh",
            "-c",
            &format!(
                "{0} daemon {1} >&2; {0} sibling {1} >&2; exec {0} hold-output {1}",
                house.text("attacker"),
                path.display()
            ),
        ]);
        let look = async {
            while noted(&path).len() < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let all = noted(&path)
                .into_iter()
                .map(|pid| house.sandbox.is_inside_a_call(pid));
            let all: Vec<_> = all.collect();
            cancel.cancel();
            all
        };
        let (_, answers) = tokio::join!(house.run_with(plan, None, cancel.clone()), look);
        assert_eq!(answers.len(), 4);
        for answer in answers {
            assert!(answer.unwrap());
        }
    }
}

/// While a chain of processes replaces itself, the answer is never "no".
#[tokio::test]
async fn a_process_that_keeps_changing_is_never_outside() {
    let house = House::new().await;
    let path = house.path("work/comet");
    let mut plan = house.plan(&[
        "/bin/sh",
        "-c",
        &format!(
            "{} comet {}; sleep 1",
            house.text("attacker"),
            path.display()
        ),
    ]);
    plan.limits.wall = Duration::from_secs(3);
    let look = async {
        let (mut asked, mut yes) = (0, 0);
        while asked < 2_000 {
            tokio::time::sleep(Duration::from_micros(300)).await;
            let Some(pid) = noted(&path).last().copied() else {
                asked += 1;
                continue;
            };
            asked += 1;
            match house.sandbox.is_inside_a_call(pid) {
                Ok(true) => yes += 1,
                Ok(false) => panic!("{pid} was said to be outside"),
                Err(_) => {}
            }
            if house.sandbox.status().why.is_some() || noted(&path).len() > 5_000 {
                break;
            }
        }
        yes
    };
    let (_, yes) = tokio::join!(house.run_plan(plan), look);
    println!("{yes} times inside");
}
