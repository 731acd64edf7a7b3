//! Temporary folders: the call's own is cleared away, and nothing else is, whatever was put in its
//! place. Those who clear away stand outside of every wall.

use std::path::PathBuf;

use palyra_core::plan::RunAs;

use super::fixture::{House, Ran, eventually};

/// Folders in the daemon's home whose names are those that calls' folders have.
fn precious(house: &House) -> Vec<PathBuf> {
    let all = (1..40).map(|number| house.path(&format!("deep/home/{number}")));
    all.map(|folder| {
        std::fs::create_dir_all(&folder).unwrap();
        house.give(&folder);
        let file = folder.join("keep");
        std::fs::write(&file, "x").unwrap();
        house.give(&file);
        file
    })
    .collect()
}

fn intact(files: &[PathBuf]) -> bool {
    files.iter().all(|file| file.exists())
}

/// Somebody of the same uid outside puts a link in the place of a running call's folder (or of the
/// one above), and the call is struck. What came of it, where the link is, and where the folder was.
/// The call itself cannot: none of it is its own.
async fn swapped(
    house: &House,
    by: &str,
    target: &str,
    strike: impl Fn(i32),
) -> (Ran, PathBuf, PathBuf) {
    let inside = house.attack(&["swap-tmp", by, target]).await;
    assert_eq!(inside.stdout(), "refused: EACCES\n");

    let (told, noted) = (house.path("work/told"), house.path("work/noted"));
    let script = format!(
        "echo $TMPDIR >{told}; exec {attacker} hang {noted}",
        attacker = house.text("attacker"),
        told = told.display(),
        noted = noted.display(),
    );
    let swap = async {
        while super::fixture::noted(&noted).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let folder = std::fs::read_to_string(&told).unwrap();
        let mut outside = house.outside_command(&["swap-tmp", by, target]);
        let output = outside.env("TMPDIR", folder.trim()).output().unwrap();
        strike(super::fixture::noted(&noted)[0]);
        std::fs::remove_file(&noted).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (ran, lines) = tokio::join!(house.sh(&script), swap);
    let mut lines = lines.lines().map(PathBuf::from);
    let (swapped, folder) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(swapped.is_symlink(), "the attack did not even begin");
    (ran, swapped, folder)
}

#[tokio::test]
async fn what_is_put_in_its_place_is_not_removed() {
    for by in ["parent", "folder"] {
        for house in House::all().await {
            if matches!(house.run_as, RunAs::Owner { .. }) {
                // The outer folders are root's.
                house.refuses(&["swap-tmp", by, "/"]).await;
                continue;
            }
            let precious = precious(&house);
            let target = match by {
                "folder" => house.text("deep/home/1"),
                _ => house.text("deep/home"),
            };
            let (_, swapped, folder) = swapped(&house, by, &target, super::death::kill).await;
            let away = swapped.with_extension("away");
            if by == "parent" {
                let real = away.join(folder.file_name().unwrap());
                eventually("the real folder is removed", || !real.exists());
            }
            // The next one clears away as well, and the supervisor of the first had its time.
            house.run(&["/bin/true"]).await.ok();
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert!(
                intact(&precious),
                "{by}: the daemon's home was cleared away"
            );

            // Somebody outside who removes it by its path does the damage.
            if by == "parent" {
                std::fs::remove_dir_all(folder).unwrap();
                assert!(!intact(&precious));
            }
            std::fs::remove_file(&swapped).unwrap();
            if by == "parent" {
                std::fs::rename(&away, &swapped).unwrap();
            } else {
                std::fs::remove_dir_all(&away).unwrap();
            }
        }
    }
}

/// Its supervisor is killed, so the daemon itself clears away.
#[tokio::test]
async fn nor_by_the_daemon_when_the_supervisor_is_lost() {
    for house in House::all().await {
        if matches!(house.run_as, RunAs::Owner { .. }) {
            continue;
        }
        let precious = precious(&house);
        let home = house.text("deep/home");
        let strike = |target| super::death::kill(super::death::parent(target));
        let (ran, swapped, folder) = swapped(&house, "parent", &home, strike).await;
        assert_eq!(ran.failed().0, "runtime_failure");
        let away = swapped.with_extension("away");
        let real = away.join(folder.file_name().unwrap());
        eventually("the real folder is removed", || !real.exists());
        assert!(intact(&precious), "the daemon's home was cleared away");
        std::fs::remove_file(&swapped).unwrap();
        std::fs::rename(&away, &swapped).unwrap();
    }
}
