//! A machine of names: no file is touched.

use std::path::{Component, Path, PathBuf};

use palyra_effects::{Analysis, ProcessCall, Read, Resolver, of_process};

pub(crate) const WORKSPACE: &str = "/workspace";

/// Every program named here is in `/usr/bin`; a few are links to others.
pub(crate) struct Machine;

const PROGRAMS: &str = "sh dash bash zsh fish python3 python3.11 node perl ruby php lua awk jq sed \
    env xargs sudo doas nice nohup timeout setsid stdbuf time strace watch parallel find ssh docker \
    busybox flock npx git hg make cargo npm gcc curl wget scp rsync nc ping dig openssl rm dd chmod \
    chown kill mv shred ls cat head tail grep sort tee tar wc cp touch mkdir base64 echo printf true \
    test id date mytool fancywrap systemctl pip gh ksh split openssl fd less more uv getent sftp telnet ftp cpio gcc rustc cmake jj strip ldd perl5.36-x86_64-linux-gnu ip ssh-keygen sneaky pyscript oddscript";

impl Resolver for Machine {
    fn program(&self, name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
        if name.contains('/') {
            let found = plain(&cwd.join(name));
            return self.is_file(&found).then_some(found);
        }
        let known = PROGRAMS.split_whitespace().any(|program| program == name);
        (known && path.contains("/usr/bin")).then(|| Path::new("/usr/bin").join(name))
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        let path = plain(path);
        if path.to_string_lossy().contains('\0') {
            return None;
        }
        let link = |from: &str, to: &str| Some(Path::new(to).join(path.strip_prefix(from).ok()?));
        Some(
            link("/workspace/out", "/outside")
                .or_else(|| link("/usr/bin/sh", "/usr/bin/dash"))
                .or_else(|| link("/usr/bin/python3", "/usr/bin/python3.11"))
                .or_else(|| link("/usr/bin/sneaky", "/usr/bin/bash"))
                .or_else(|| link("/workspace/bin/ls", "/usr/bin/bash"))
                .unwrap_or(path),
        )
    }

    fn interpreter(&self, program: &Path) -> Option<String> {
        let line = match program.to_str()? {
            "/workspace/build.sh" => "/usr/bin/bash -e",
            "/usr/bin/pyscript" => "/usr/bin/python3",
            "/usr/bin/oddscript" => "python3",
            _ => return None,
        };
        Some(line.to_owned())
    }
}

impl Machine {
    fn is_file(&self, path: &Path) -> bool {
        let local = [
            "/workspace/build.sh",
            "/workspace/tool",
            "/workspace/bin/ls",
        ];
        let system = path.strip_prefix("/usr/bin").ok().and_then(Path::to_str);
        local.iter().any(|known| path == Path::new(known))
            || system.is_some_and(|name| PROGRAMS.split_whitespace().any(|known| known == name))
    }
}

fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

pub(crate) fn call(argv: &[String]) -> ProcessCall<'_> {
    ProcessCall {
        argv,
        cwd: Path::new(WORKSPACE),
        path: "/usr/bin",
        environment: &[],
        secrets: &[],
        stdin: Read::Nothing,
        home: Some("/home/ada"),
        workspace: Path::new(WORKSPACE),
        egress: palyra_core::EgressEnforcementMode::Strict,
        hosts: &[],
    }
}

pub(crate) fn analyse(argv: &[&str]) -> Analysis {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    of_process(&call(&argv), &Machine)
}
