//! Temporary folders: the call's own is cleared away, and nothing else is, whatever was put in its
//! place. Those who clear away stand outside of every wall.

use std::path::{Path, PathBuf};

use palyra_core::plan::RunAs;

use super::fixture::{House, eventually};

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

#[tokio::test]
async fn what_is_put_in_its_place_is_not_removed() {
    for by in ["parent", "folder"] {
        for house in House::all().await {
            let home = house.text("deep/home");
            let precious = precious(&house);
            let target = match by {
                "folder" => house.text("deep/home/1"),
                _ => home,
            };
            let ran = house.attack(&["swap-tmp", by, &target]).await;
            if matches!(house.run_as, RunAs::Owner { .. }) {
                // The outer folders are root's.
                assert_eq!(ran.stdout(), "refused: EACCES\n");
                continue;
            }
            let lines: Vec<&str> = ran.ok().lines().collect();
            let (swapped, folder) = (Path::new(lines[0]), Path::new(lines[1]));
            let away = swapped.with_extension("away");
            assert!(swapped.is_symlink(), "the attack did not even begin");
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
            std::fs::remove_file(swapped).unwrap();
            if by == "parent" {
                std::fs::rename(&away, swapped).unwrap();
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
        let noted = house.path("work/noted");
        let script = format!(
            "{attacker} swap-tmp parent {home} >{told}; exec {attacker} hang {noted}",
            attacker = house.text("attacker"),
            home = house.text("deep/home"),
            told = house.text("work/told"),
            noted = noted.display(),
        );
        let strike = async {
            while super::fixture::noted(&noted).is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            let target = super::fixture::noted(&noted)[0];
            super::death::kill(super::death::parent(target));
        };
        let (ran, ()) = tokio::join!(house.sh(&script), strike);
        assert_eq!(ran.failed().0, "runtime_failure");
        let told = std::fs::read_to_string(house.path("work/told")).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        let (swapped, folder) = (Path::new(lines[0]), Path::new(lines[1]));
        let away = swapped.with_extension("away");
        let real = away.join(folder.file_name().unwrap());
        eventually("the real folder is removed", || !real.exists());
        assert!(intact(&precious), "the daemon's home was cleared away");
        std::fs::remove_file(swapped).unwrap();
        std::fs::rename(&away, swapped).unwrap();
    }
}
