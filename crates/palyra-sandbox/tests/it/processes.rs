//! Other processes, attacked from inside.

use super::fixture::{House, is_root};

/// A process outside under the same uid, with a secret in its environment.
fn victim(house: &House) -> Victim {
    let path = house.path("work/victim");
    let child = house
        .outside_command(&["hang", path.to_str().unwrap()])
        .env("TOKEN", "sesame")
        .spawn()
        .unwrap();
    super::fixture::eventually("the victim runs", || path.exists());
    Victim(child)
}

struct Victim(std::process::Child);

impl Victim {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn their_memory_and_files_are_out_of_reach() {
    for house in House::every().await {
        let victim = victim(&house);
        let pid = victim.pid();
        for path in ["environ", "fd/0", "maps"] {
            house.holds(&["read", &format!("/proc/{pid}/{path}")]).await;
        }
        house.holds(&["write", &format!("/proc/{pid}/mem")]).await;
        // Which numbers are open can be listed by the same uid; not what they are.
        house
            .holds(&["read-link", &format!("/proc/{pid}/fd/1")])
            .await;
        house
            .holds(&["list", &format!("/proc/{pid}/root/etc")])
            .await;
        house.holds(&["list", &format!("/proc/{pid}/cwd")]).await;
        house.holds(&["trace", &pid]).await;
        house.holds(&["steal", &pid, "1"]).await;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let start = maps.split('-').next().unwrap();
        let address = usize::from_str_radix(start, 16).unwrap().to_string();
        house.holds(&["peek", &pid, &address]).await;
    }
}

#[tokio::test]
async fn the_daemon_itself_is_out_of_reach() {
    for house in House::every().await {
        let pid = std::process::id().to_string();
        for path in ["environ", "maps", "fd/0"] {
            house
                .refuses(&["read", &format!("/proc/{pid}/{path}")])
                .await;
        }
        house
            .refuses(&["read-link", &format!("/proc/{pid}/fd/1")])
            .await;
        house.refuses(&["list", &format!("/proc/{pid}/cwd")]).await;
        house.refuses(&["trace", &pid]).await;
        if is_root() {
            // The control needs the right to trace this process: root has it.
            let root = House::caged_by_root().await;
            root.works_outside(&["read-link", &format!("/proc/{pid}/fd/1")]);
        }
    }
}

#[tokio::test]
async fn signals_stay_inside() {
    for house in House::all().await {
        if house.sandbox.status().landlock_abi < 6 {
            println!("absent: this kernel does not scope signals");
            continue;
        }
        let victim = victim(&house);
        house.holds(&["signal", &victim.pid()]).await;
        // Its own supervisor, which under the daemon's uid it could otherwise kill.
        let ran = house.attack(&["kill-parent"]).await;
        assert_eq!(ran.stdout(), "refused: EPERM\n");
        // Inside, signals work.
        let ran = house.sh("sleep 60 & kill -TERM $!; wait $!; echo $?").await;
        assert_eq!(ran.ok(), "143\n");
    }
}

#[tokio::test]
async fn limits_of_others_cannot_be_set() {
    for house in House::all().await {
        for what in ["files", "file-size"] {
            let victim = victim(&house);
            let pid = victim.pid();
            // Inside first: outside it cannot be taken back.
            house.refuses(&["limit", &pid, what]).await;
            house.works_outside(&["limit", &pid, what]);
            // Its supervisor, the spawn server and the daemon.
            house.refuses(&["limit-parents", what]).await;
        }
        // Reading them and setting one's own stay.
        let victim = victim(&house);
        let ran = house.attack(&["limits-of", &victim.pid()]).await;
        assert!(ran.ok().starts_with("files="), "{}", ran.stdout());
        assert_eq!(house.attack(&["limit-itself"]).await.ok(), "files=32\n");
        assert_eq!(house.sh("ulimit -n 99; ulimit -n").await.ok(), "99\n");
    }
}

#[tokio::test]
async fn the_walls_are_what_the_report_says() {
    for house in House::all().await {
        let ran = house.attack(&["about"]).await;
        let about = ran.ok();
        for line in ["NoNewPrivs: 1", "Seccomp: 2", "session true group true"] {
            assert!(about.contains(line), "{about}");
        }
        // Nothing is ignored or blocked, though the runtimes of daemon and helper do both.
        let signals = house.sh("grep -E 'Sig(Blk|Ign)' /proc/self/status").await;
        let numbers = signals
            .ok()
            .split_whitespace()
            .filter(|word| !word.ends_with(':'));
        assert!(numbers.eq(["0000000000000000"; 2]), "{}", signals.stdout());
        for layer in [
            "landlock",
            "seccomp",
            "no_new_privs",
            "uid",
            "rlimits",
            "session",
        ] {
            assert!(
                ran.layer(layer).is_some(),
                "{layer}: {:?}",
                ran.report.layers
            );
        }
        assert_eq!(
            ran.layer("cgroup").is_some(),
            house.sandbox.status().cgroup.is_some()
        );
        match house.run_as {
            palyra_core::plan::RunAs::Owner { uid, gid } => {
                assert!(!ran.report.running_as_root);
                assert!(
                    about.contains(&format!("Uid: {uid} {uid} {uid} {uid}")),
                    "{about}"
                );
                assert!(
                    about.contains(&format!("Gid: {gid} {gid} {gid} {gid}")),
                    "{about}"
                );
                assert!(about.contains("CapEff: 0000000000000000"), "{about}");
                assert!(about.lines().any(|line| line == "Groups:"), "{about}");
            }
            palyra_core::plan::RunAs::Daemon | palyra_core::plan::RunAs::Lent { .. } => {
                assert!(!ran.report.running_as_root);
            }
        }
    }
}

#[tokio::test]
async fn a_call_cannot_leave_its_cgroup() {
    for house in House::all().await {
        let Some(base) = house.sandbox.status().cgroup else {
            println!("absent: no writable cgroup here");
            continue;
        };
        let procs = base.parent().unwrap().join("cgroup.procs");
        house.refuses(&["write", procs.to_str().unwrap()]).await;
        if is_root() {
            let root = House::caged_by_root().await;
            root.works_outside(&["write", procs.to_str().unwrap()]);
        }
        let ran = house.sh("cat /proc/self/cgroup").await;
        let name = base.file_name().unwrap().to_str().unwrap();
        assert!(ran.ok().contains(name), "{}", ran.stdout());
    }
}
