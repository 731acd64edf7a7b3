//! Nothing is left of a call: no mounts, no cgroups, no processes.

use std::path::{Path, PathBuf};

use palyra_testkit::{Daemon, eventually};

/// Looks while the daemon is there and again after it has ended.
pub(crate) fn none_after(mut daemon: Daemon) {
    let status = daemon.palyra(&["status", "--json"]).expect_code(0).json();
    let base = status["sandbox"]["cgroup"].as_str().map(PathBuf::from);
    let name = base.as_deref().and_then(Path::file_name);
    let name = name.map(|name| name.to_str().unwrap().to_owned());
    let folder = daemon.folder().to_str().unwrap().to_owned();
    if let Some(name) = &name {
        eventually("the cgroups of calls are gone", || {
            let calls = groups_named(name).into_iter().flat_map(below);
            // Slots that wait for the next call may have one ready, with nobody of a call in it.
            let busy: Vec<PathBuf> = calls.filter(|group| is_busy(group, &folder)).collect();
            busy.is_empty().then_some(())
        });
    }
    daemon.stop();
    eventually("no process is left", || {
        let left = processes_that_name(&folder);
        left.is_empty().then_some(())
    });
    if let Some(name) = &name {
        assert!(groups_named(name).is_empty(), "{name}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(&folder))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Where this daemon's cgroups are, in every hierarchy.
fn groups_named(name: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let hierarchies = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4));
    hierarchies
        .flat_map(|root| find(Path::new(root), name, 3))
        .collect()
}

fn find(folder: &Path, name: &str, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for child in below(folder.to_owned()) {
        if child.file_name().is_some_and(|its| its == name) {
            found.push(child);
        } else if depth > 0 {
            found.extend(find(&child, name, depth - 1));
        }
    }
    found
}

fn below(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn is_busy(group: &Path, folder: &str) -> bool {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let named = processes_that_name(folder);
    members
        .lines()
        .any(|pid| named.iter().any(|its| its == pid))
}

/// Processes that have this text in their command line, or work in a folder of that name.
pub(crate) fn processes_that_name(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) || name == own {
            continue;
        }
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let folder = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let program = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(text)
            || folder.to_string_lossy().contains(text)
            || program.to_string_lossy().contains(text)
        {
            found.push(name);
        }
    }
    found
}

/// The look itself is no use if it overlooks what is there.
#[test]
fn what_is_left_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    assert!(processes_that_name(name).is_empty());
    let mut by_folder = std::process::Command::new("sleep")
        .arg("60")
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    let mut by_words = std::process::Command::new("tail")
        .args(["-f", "/dev/null", &format!("{name}/nothing")])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for child in [&mut by_folder, &mut by_words] {
        let pid = child.id().to_string();
        eventually("it is seen", || {
            processes_that_name(name).contains(&pid).then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!processes_that_name(name).contains(&pid));
    }
}
