//! `vectors/*.toml`: a call and what must be found in it.

use palyra_core::{Effect, ProgramGroup};
use palyra_effects::Analysis;

use crate::machine::analyse;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// Either `sh` or `bash` (text for `-c`) or `argv`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    sh: Option<String>,
    bash: Option<String>,
    argv: Option<Vec<String>>,
    /// Every program that runs, in order and beyond the shell itself; all of them.
    execs: Option<Vec<String>>,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    #[serde(default)]
    hosts: Vec<String>,
    /// Reasons, all of them; none means that it was understood.
    #[serde(default)]
    opaque: Vec<String>,
    /// Groups, all of them, when given; the shell's own do not count.
    groups: Option<Vec<String>>,
    risk: Option<String>,
}

#[test]
fn every_vector_holds() {
    let mut count = 0;
    let mut failures = Vec::new();
    for file in std::fs::read_dir("vectors").unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for case in file.case {
            count += 1;
            failures.extend(case.check());
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {count} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{count} vectors hold");
    assert!(count >= 150, "only {count}");
}

impl Case {
    fn argv(&self) -> (Vec<String>, bool) {
        let shell =
            |name: &str, text: &String| vec![name.to_owned(), "-c".to_owned(), text.clone()];
        match (&self.sh, &self.bash, &self.argv) {
            (Some(text), None, None) => (shell("sh", text), true),
            (None, Some(text), None) => (shell("bash", text), true),
            (None, None, Some(argv)) => (argv.clone(), false),
            _ => panic!("one of sh, bash, argv"),
        }
    }

    fn check(&self) -> Option<String> {
        let (argv, in_shell) = self.argv();
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let found = analyse(&words);
        let mut wrong = Vec::new();
        let mut compare = |what: &str, mut is: Vec<String>, mut should: Vec<String>| {
            is.sort();
            should.sort();
            if is != should {
                wrong.push(format!("    {what}: {is:?}, not {should:?}"));
            }
        };
        compare(
            "opaque",
            found.opaque.iter().map(|why| why.code()).collect(),
            self.opaque.clone(),
        );
        compare("reads", paths(&found, "read"), self.reads.clone());
        compare("writes", paths(&found, "write"), self.writes.clone());
        compare("hosts", hosts(&found), self.hosts.clone());
        let own = format!("/usr/bin/{}", words.first().unwrap_or(&""));
        if let Some(execs) = &self.execs {
            let mut is = paths(&found, "exec");
            is.retain(|path| !in_shell || *path != own);
            let is = is
                .iter()
                .map(|path| path.replace("/usr/bin/", ""))
                .collect();
            compare("execs", is, execs.clone());
        }
        if let Some(groups) = &self.groups {
            let mut is: Vec<String> = found
                .programs
                .iter()
                .filter(|program| !in_shell || program.program.to_string_lossy() != own)
                .flat_map(|program| program.groups.iter().copied().map(ProgramGroup::as_str))
                .map(str::to_owned)
                .collect();
            is.sort();
            is.dedup();
            compare("groups", is, groups.clone());
        }
        if let Some(risk) = &self.risk {
            compare(
                "risk",
                vec![found.risk.level.as_str().to_owned()],
                vec![risk.clone()],
            );
        }
        (!wrong.is_empty()).then(|| format!("  {argv:?}\n{}", wrong.join("\n")))
    }
}

fn paths(found: &Analysis, kind: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for effect in &found.effects {
        match effect {
            Effect::Exec { program: path } if kind == "exec" => paths.push(path),
            Effect::FsRead { path } if kind == "read" => paths.push(path),
            Effect::FsWrite { path } if kind == "write" => paths.push(path),
            Effect::Exec { .. }
            | Effect::FsRead { .. }
            | Effect::FsWrite { .. }
            | Effect::NetConnect { .. } => {}
        }
    }
    paths
        .into_iter()
        .map(|path| path.display().to_string())
        .collect()
}

fn hosts(found: &Analysis) -> Vec<String> {
    let mut hosts = Vec::new();
    for effect in &found.effects {
        if let Effect::NetConnect { host, port } = effect {
            hosts.push(port.map_or(host.to_string(), |port| format!("{host} {port}")));
        }
    }
    hosts
}
