//! The masked folder, attacked by every road that leads to a file.

use super::fixture::{House, SECRET, is_root};

#[tokio::test]
async fn it_cannot_be_read_listed_or_written() {
    for house in House::every().await {
        let home = house.text("deep/home");
        for attack in [
            ["read", &format!("{home}/secret")],
            ["read", &format!("{home}/inner/secret")],
            ["list", &home],
            ["list", &format!("{home}/inner")],
            ["create", &format!("{home}/new")],
            ["create", &format!("{home}/inner/new")],
            ["write", &format!("{home}/secret")],
        ] {
            house.holds(&attack).await;
        }
        assert!(
            house
                .outside(&["read", &format!("{home}/secret")])
                .stdout
                .ends_with(format!("{SECRET}\n").as_bytes())
        );
    }
}

#[tokio::test]
async fn it_cannot_be_emptied_or_removed() {
    for house in House::every().await {
        let secret = house.text("deep/home/secret");
        house.refuses(&["truncate", &secret]).await;
        house.refuses(&["remove", &secret]).await;
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), SECRET);
        house.works_outside(&["truncate", &secret]);
        house.works_outside(&["remove", &secret]);
    }
}

#[tokio::test]
async fn links_and_the_roads_of_proc_lead_nowhere() {
    for house in House::every().await {
        let secret = house.text("deep/home/secret");
        std::os::unix::fs::symlink(house.path("deep/home"), house.path("work/link")).unwrap();
        std::os::unix::fs::symlink(&secret, house.path("work/file-link")).unwrap();
        let work = house.text("work");
        for path in [
            format!("{work}/link/secret"),
            format!("{work}/file-link"),
            format!("{work}/../deep/home/secret"),
            format!("/proc/self/root{secret}"),
            "/proc/self/cwd/../deep/home/secret".to_owned(),
            format!("/proc/thread-self/root{secret}"),
        ] {
            house.holds(&["read", &path]).await;
        }
    }
}

#[tokio::test]
async fn it_cannot_be_linked_or_moved_out() {
    for house in House::every().await {
        let (secret, home) = (house.text("deep/home/secret"), house.text("deep/home"));
        let to = house.text("work/taken");
        house.holds(&["hard-link", &secret, &to]).await;
        house.holds(&["rename", &secret, &to]).await;
        house.holds(&["rename", &home, &to]).await;
        // An ancestor: whoever moves it could put another one in its place.
        house.holds(&["rename", &house.text("deep"), &to]).await;
    }
}

#[tokio::test]
async fn names_cannot_be_made_in_folders_on_the_way() {
    for house in House::all().await {
        house.holds(&["create", &house.text("deep/new")]).await;
        house.holds(&["list", &house.text("deep")]).await;
        house.holds(&["list", "/"]).await;
    }
}

#[tokio::test]
async fn what_is_beside_it_in_a_workspace_is_as_usual() {
    for house in House::all().await {
        let mut plan = house.plan(&[&house.text("attacker"), "read", &house.text("deep/beside")]);
        plan.workspace = house.path("deep");
        let ran = house.run_plan(plan).await;
        assert_eq!(ran.ok(), "read: not secret\n");
        house
            .attack(&["create", &house.text("work/new")])
            .await
            .ok();
        house.attack(&["list", "/etc"]).await.ok();
    }
}

/// A new neighbour is seen by the next call, and a workspace made just now can be used.
#[tokio::test]
async fn new_neighbours_are_noticed() {
    let house = House::new().await;
    for round in 0..5 {
        let name = format!("deep/new-{round}");
        std::fs::create_dir(house.path(&name)).unwrap();
        house.give(&house.path(&name));
        let mut plan = house.plan(&[
            &house.text("attacker"),
            "create",
            &house.text(&format!("{name}/file")),
        ]);
        plan.workspace = house.path("deep");
        house.run_plan(plan).await.ok();
    }
}

#[tokio::test]
async fn a_mask_reached_by_a_link_is_hidden_and_the_link_cannot_be_replaced() {
    let house = House::new().await;
    std::fs::create_dir(house.path("place")).unwrap();
    house.give(&house.path("place"));
    std::os::unix::fs::symlink(house.path("deep/home"), house.path("place/home")).unwrap();
    let mut plan = house.plan(&[
        &house.text("attacker"),
        "read",
        &house.text("place/home/secret"),
    ]);
    plan.masked = vec![house.path("place/home")];
    assert!(
        house
            .run_plan(plan)
            .await
            .stdout()
            .starts_with("refused: EACCES")
    );
    let link = house.text("place/home");
    let mut plan = house.plan(&[
        &house.text("attacker"),
        "rename",
        &link,
        &house.text("work/l"),
    ]);
    plan.masked = vec![house.path("place/home")];
    assert!(house.run_plan(plan).await.stdout().starts_with("refused: "));
    house.works_outside(&["rename", &link, &house.text("work/l")]);
}

/// The settings' masks hold whatever a plan says, and a plan may mask more.
#[tokio::test]
async fn a_plan_cannot_lift_a_mask_and_may_add_one() {
    let house = House::new().await;
    let secret = house.text("deep/home/secret");
    let mut plan = house.plan(&[&house.text("attacker"), "read", &secret]);
    plan.masked = Vec::new();
    assert_eq!(house.run_plan(plan).await.stdout(), "refused: EACCES\n");

    house.put("private", b"x");
    let mut plan = house.plan(&[&house.text("attacker"), "read", &house.text("work/private")]);
    assert_eq!(house.run_plan(plan.clone()).await.ok(), "read: x\n");
    plan.masked.push(house.path("work/private"));
    assert_eq!(house.run_plan(plan).await.stdout(), "refused: EACCES\n");
}

#[tokio::test]
async fn nothing_starts_in_a_masked_folder_and_nothing_in_it_starts() {
    let house = House::new().await;
    let mut plan = house.plan(&["/bin/true"]);
    plan.cwd = house.path("deep/home/inner");
    assert_eq!(
        house.run_plan(plan).await.failed().0,
        "workspace_scope_denied"
    );
    std::fs::copy("/bin/true", house.path("deep/home/true")).unwrap();
    let ran = house.run(&[&house.text("deep/home/true")]).await;
    assert_eq!(ran.failed().0, "program_not_found");
}

/// What file permissions do not stop: only as root.
#[tokio::test]
async fn root_finds_no_other_way_in() {
    if !is_root() {
        println!("not run: needs root");
        return;
    }
    let house = House::caged_by_root().await;
    let (secret, home) = (house.text("deep/home/secret"), house.text("deep/home"));
    house.holds(&["open-by-handle", &secret]).await;
    house.holds(&["clone-tree", &home]).await;
    std::fs::create_dir(house.path("work/mount")).unwrap();
    house
        .holds(&["bind", &home, &house.text("work/mount")])
        .await;
    house.holds(&["mknod", &house.text("work/disk")]).await;
    house
        .holds(&["write", "/proc/sys/kernel/core_pattern"])
        .await;
    if std::path::Path::new("/proc/sysrq-trigger").exists() {
        house.holds(&["write", "/proc/sysrq-trigger"]).await;
    }
    for device in [
        "/dev/vda",
        "/dev/sda",
        "/dev/nvme0n1",
        "/dev/mem",
        "/dev/kmsg",
    ] {
        if std::path::Path::new(device).exists() {
            house.refuses(&["write", device]).await;
        }
    }
    house.attack(&["write", "/dev/null"]).await.ok();
}

/// The same folder, mounted a second time, is hidden there too. Needs the right to mount.
#[tokio::test]
async fn a_second_mount_of_it_is_hidden_as_well() {
    if !is_root() {
        println!("not run: needs root");
        return;
    }
    let house = House::new().await;
    for (from, at, secret) in [
        ("deep/home", "bound", "bound/secret"),
        ("deep", "bound-above", "bound-above/home/secret"),
        ("deep/home/inner", "bound-inner", "bound-inner/secret"),
    ] {
        std::fs::create_dir(house.path(at)).unwrap();
        let (from, at) = (house.path(from), house.path(at));
        rustix::mount::mount_bind(&from, &at).unwrap();
        let held = {
            house.works_outside(&["read", &house.text(secret)]);
            house
                .attack(&["read", &house.text(secret)])
                .await
                .stdout()
                .to_owned()
        };
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).unwrap();
        assert_eq!(held, "refused: EACCES\n", "{secret}");
    }
}

/// Other people's files, the machine's state, sockets of its services: nothing but the system, the
/// toolchains and the workspace can be reached, and nothing but the workspace written.
#[tokio::test]
async fn tier_b_reaches_the_system_and_its_workspace_only() {
    let house = House::new().await;
    for folder in ["other", "other/project"] {
        std::fs::create_dir(house.path(folder)).unwrap();
        house.give(&house.path(folder));
    }
    let file = house.path("other/project/file");
    std::fs::write(&file, "x").unwrap();
    house.give(&file);
    house.holds(&["read", file.to_str().unwrap()]).await;
    house.holds(&["write", file.to_str().unwrap()]).await;
    house.holds(&["list", &house.text("other")]).await;
    house.holds(&["create", &house.text("other/new")]).await;
    house.holds(&["list", "/var"]).await;
    house.holds(&["list", "/dev"]).await;
    house.attack(&["list", "/usr/lib"]).await.ok();
    house.attack(&["list", "/proc"]).await.ok();
    house
        .attack(&["create", &house.text("work/mine")])
        .await
        .ok();
}
