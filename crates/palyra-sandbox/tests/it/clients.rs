//! Programs that people actually run, under the default limits.

use std::path::PathBuf;
use std::time::Duration;

use palyra_core::{Limits, ProcessPlan};

use super::fixture::House;

/// A plan for a program found on this machine's path, or none when it is missing: then the test
/// says how to add it, and fails where everything has to be there.
fn plan(house: &House, program: &str, install: &str, arguments: &[&str]) -> Option<ProcessPlan> {
    let path = std::env::var("PATH").unwrap();
    let Ok(found) = palyra_sandbox::resolve_program(program, &path, &house.path("work")) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "{program} is missing: {install}"
        );
        println!("not run: {program} is missing; to add it: {install}");
        return None;
    };
    let mut plan = house.plan(&[found.to_str().unwrap()]);
    plan.argv = std::iter::once(program)
        .chain(arguments.iter().copied())
        .map(Into::into)
        .collect();
    plan.limits = Limits {
        wall: Duration::from_secs(120),
        ..Limits::default()
    };
    plan.env = [
        "PATH",
        "HOME",
        "RUSTUP_HOME",
        "CARGO_HOME",
        "RUSTUP_TOOLCHAIN",
        "PYENV_ROOT",
    ]
    .into_iter()
    .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
    .collect();
    // As the gateway does it: toolchains in the home directory can be read.
    let home = std::env::var("HOME").ok().map(PathBuf::from);
    let toolchains = home.as_deref().map(palyra_sandbox::usual_read_only);
    plan.read_only.extend(toolchains.unwrap_or_default());
    plan.home = home;
    Some(plan)
}

#[tokio::test]
async fn python_runs() {
    let house = House::caged().await;
    let script = "import json, sqlite3, subprocess, tempfile, multiprocessing as m\n\
                  assert subprocess.run(['true']).returncode == 0\n\
                  tempfile.NamedTemporaryFile().write(b'x')\n\
                  print(json.dumps(sorted(m.get_context('fork').Pool(2).map(abs, [-1, 2]))))";
    let Some(plan) = plan(&house, "python3", "apt install python3", &["-c", script]) else {
        return;
    };
    assert_eq!(house.run_plan(plan).await.ok(), "[1, 2]\n");
}

#[tokio::test]
async fn node_runs() {
    let house = House::caged().await;
    let script = "const { execFileSync } = require('child_process');\
                  const fs = require('fs'), os = require('os');\
                  fs.writeFileSync('made', execFileSync('echo', ['hello']));\
                  new (require('worker_threads').Worker)('', { eval: true });\
                  setTimeout(() => console.log(fs.readFileSync('made', 'utf8') + os.tmpdir().length), 10)";
    let Some(plan) = plan(&house, "node", "apt install nodejs", &["-e", script]) else {
        return;
    };
    assert!(house.run_plan(plan).await.ok().starts_with("hello\n"));
}

#[tokio::test]
async fn git_runs() {
    let house = House::caged().await;
    let script = "git init -q . && git config user.email a@b.c && git config user.name n \
                  && echo x >file && git add . && git commit -qm first && git log --oneline | wc -l \
                  && git clone -q . ../work/copy && git -C copy status --short";
    let Some(_) = plan(&house, "git", "apt install git", &[]) else {
        return;
    };
    let mut plan = plan(&house, "sh", "", &["-c", script]).unwrap();
    // A home without settings of whoever runs this test.
    plan.env.retain(|(name, _)| name != "HOME");
    plan.env.push(("HOME".to_owned(), house.text("work")));
    assert_eq!(house.run_plan(plan).await.ok().trim(), "1");
}

#[tokio::test]
async fn cargo_builds() {
    let house = House::caged().await;
    let krate = house.path("work/tiny");
    std::fs::create_dir_all(krate.join("src")).unwrap();
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    std::fs::write(krate.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(
        krate.join("src/main.rs"),
        "fn main() { println!(\"built\") }",
    )
    .unwrap();
    for path in ["work/tiny", "work/tiny/src", "work/tiny/Cargo.toml"] {
        house.give(&house.path(path));
    }
    let arguments = ["run", "-q", "--offline", "--jobs", "2"];
    let install = "curl https://sh.rustup.rs -sSf | sh";
    let Some(mut plan) = plan(&house, "cargo", install, &arguments) else {
        return;
    };
    plan.cwd = krate;
    assert_eq!(house.run_plan(plan).await.ok(), "built\n");
}

#[tokio::test]
async fn gcc_compiles() {
    let house = House::caged().await;
    house.put(
        "main.c",
        b"#include <stdio.h>\nint main(void) { puts(\"made\"); }\n",
    );
    let arguments = ["-O2", "-o", "made", "main.c"];
    let Some(plan) = plan(&house, "gcc", "apt install gcc", &arguments) else {
        return;
    };
    house.run_plan(plan).await.ok();
    assert_eq!(house.sh("./made").await.ok(), "made\n");
}

/// A shell with a pipeline and a here-document, which needs the temporary folder.
#[tokio::test]
async fn shells_run() {
    let house = House::caged().await;
    let bash = PathBuf::from("/bin/bash");
    if !bash.exists() {
        println!("not run: bash is missing; to add it: apt install bash");
        return;
    }
    let script = "cat <<X | tr a-z A-Z\nhello\nX\necho $(( $(ls /usr | wc -l) > 0 ))";
    assert_eq!(
        house.run(&["/bin/bash", "-c", script]).await.ok(),
        "HELLO\n1\n"
    );
}
