//! A workspace with everything worth attacking, and a folder beside it that is nobody's business.

use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use palyra_testkit::probes::{Evidence, Privilege, Probe};
use palyra_testkit::{Ran, bin, is_root};

use super::verdict::Verdict;

/// Sixteen bytes, as many as a probe of memory looks at.
pub(crate) const SECRET: &str = "s3cr3t-of-a-host";

/// The same as a private key.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\ns3cr3t-of-a-host\n";

/// What an attacker writes.
pub(crate) const MARK: &str = "written by an attacker\n";

/// What stays in a workspace when it is laid out again.
const STAYS: [&str; 4] = ["attack", "set-uid", "stream", "datagram"];

/// Folders that everybody shares.
const EVERYBODYS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) owner: Option<u32>,
    pub(crate) mark: String,
    key: u32,
    bystander: Child,
    /// Its process id, an address in its memory, and a descriptor.
    holds: [String; 3],
    handle: String,
    _sockets: (Vec<UnixListener>, Vec<UnixDatagram>),
}

impl Place {
    /// In a folder that holds an empty `w` already, for this owner.
    pub(crate) fn new(folder: &Path, owner: Option<u32>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let key = (std::process::id() << 8 | count & 0xff) & 0x7fff_ffff;
        let mark = format!("palyra-mark-{key}");
        let work = folder.join("w");
        std::fs::create_dir_all(folder.join("outside/.ssh")).unwrap();
        std::fs::create_dir(folder.join("outside/target")).unwrap();
        std::fs::write(folder.join("outside/.ssh/id_ed25519"), SECRET).unwrap();
        copy(&work.join("attack"), 0o755);
        if is_root() {
            copy(&work.join("set-uid"), 0o4755);
        }
        let sockets = listen(folder, &mark);
        for path in [
            "w",
            "outside",
            "outside/.ssh",
            "outside/target",
            "outside/.ssh/id_ed25519",
        ] {
            chown(folder.join(path), owner, owner).unwrap();
        }
        let (bystander, holds) = bystander(&work.join("attack"), &mark, key, owner);
        let mut place = Self {
            folder: folder.to_owned(),
            owner,
            mark,
            key,
            bystander,
            holds,
            handle: String::new(),
            _sockets: sockets,
        };
        if is_root() {
            let ran = place.outside("handle-of {outside}/.ssh/id_ed25519", Privilege::Root);
            let Verdict::Open(handle) = Verdict::of(&ran) else {
                panic!("{ran:?}");
            };
            place.handle = handle;
        }
        place
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join("w")
    }

    /// Everything as it was before the first attack.
    pub(crate) fn lay_out(&self) {
        let (work, outside) = (self.work(), self.folder.join("outside"));
        for entry in std::fs::read_dir(&work).unwrap().flatten() {
            let name = entry.file_name();
            if !STAYS.iter().any(|stays| name == *stays) {
                remove(&entry.path());
            }
        }
        for name in [
            ".ssh/new",
            "new",
            "hard-link",
            "target/swapped",
            "target/raced",
        ] {
            remove(&outside.join(name));
        }
        for folder in EVERYBODYS {
            remove(&Path::new(folder).join(&self.mark));
            let theirs = Path::new(folder).join(format!("{}-host", self.mark));
            std::fs::write(&theirs, SECRET).unwrap();
            std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o644)).unwrap();
        }
        let files = [
            (".env", SECRET),
            ("sub/.env.production", SECRET),
            ("deploy.pem", KEY),
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n\tbare = false\n"),
            (".git/hooks/pre-commit", "#!/bin/sh\n"),
            (".git/objects/info/.keep", ""),
            (".git/refs/heads/.keep", ""),
            (".git/worktrees/linked/HEAD", "ref: refs/heads/other\n"),
            (".git/worktrees/linked/commondir", "../..\n"),
            (".vscode/settings.json", "{}\n"),
            (
                "old-set-id",
                "#!/bin/sh\n# long enough to be written over\n",
            ),
            ("source.c", "int main(void) { return 0; }\n"),
        ];
        for (name, content) in files {
            let path = work.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        std::fs::create_dir_all(work.join("linked")).unwrap();
        std::fs::create_dir(work.join("mnt")).unwrap();
        let gitdir = work.join(".git/worktrees/linked");
        std::fs::write(
            work.join("linked/.git"),
            format!("gitdir: {}\n", gitdir.display()),
        )
        .unwrap();
        std::fs::write(
            gitdir.join("gitdir"),
            format!("{}\n", work.join("linked/.git").display()),
        )
        .unwrap();
        symlink(outside.join(".ssh/id_ed25519"), work.join("link-to-key")).unwrap();
        symlink(outside.join(".ssh"), work.join("link-to-ssh")).unwrap();
        let through = format!("/proc/self/root{}", outside.display());
        symlink(
            format!("{through}/.ssh/id_ed25519"),
            work.join("link-through-proc"),
        )
        .unwrap();
        let key = outside.join(".ssh/id_ed25519");
        std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(outside.join("hard-link"), "not yours\n").unwrap();
        std::fs::hard_link(outside.join("hard-link"), work.join("hard-link")).unwrap();
        self.give(&work);
        self.give(&outside);
        // After its owner was set, which clears the bits.
        let old = work.join("old-set-id");
        std::fs::set_permissions(old, PermissionsExt::from_mode(0o6755)).unwrap();
    }

    /// Gives a tree to the owner, but what is root's by design.
    fn give(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if STAYS.iter().any(|stays| entry.file_name() == *stays) {
                continue;
            }
            lchown(entry.path(), self.owner, self.owner).unwrap();
            if entry.file_type().unwrap().is_dir() {
                self.give(&entry.path());
            }
        }
    }

    /// The places in braces filled in.
    pub(crate) fn fill(&self, text: &str) -> String {
        let halves = |text: &str| {
            let (half, rest) = text.split_at(text.len() / 2);
            (half.to_owned(), rest.to_owned())
        };
        let (half, rest) = halves(SECRET);
        let (mark_half, mark_rest) = halves(&self.mark);
        let [pid, address, fd] = &self.holds;
        [
            ("{work}", self.work().display().to_string()),
            (
                "{outside}",
                self.folder.join("outside").display().to_string(),
            ),
            ("{mark-half}", mark_half),
            ("{mark-rest}", mark_rest),
            ("{mark}", self.mark.clone()),
            ("{half}", half),
            ("{rest}", rest),
            ("{key}", self.key.to_string()),
            ("{pid}", pid.clone()),
            ("{address}", address.clone()),
            ("{fd}", fd.clone()),
            ("{handle}", self.handle.clone()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    }

    pub(crate) fn words(&self, attack: &str) -> Vec<String> {
        let filled = self.fill(attack);
        filled.split(' ').map(str::to_owned).collect()
    }

    /// The attack outside of every sandbox, with the secret in its environment and as descriptor 9.
    pub(crate) fn outside_command(&self, attack: &str, privilege: Privilege) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"exec "$@" 9<"$0""#]);
        command.arg(self.folder.join("outside/.ssh/id_ed25519"));
        command.arg(self.work().join("attack"));
        command
            .args(self.words(attack))
            .current_dir(self.work())
            .env("PALYRA_PROBE_SECRET", SECRET);
        if let (Privilege::Owner | Privilege::OwnerAfterRoot, Some(uid)) = (privilege, self.owner) {
            command.uid(uid).gid(uid);
        }
        command
    }

    pub(crate) fn outside(&self, attack: &str, privilege: Privilege) -> Ran {
        let mut command = self.outside_command(attack, privilege);
        command.output().unwrap().into()
    }

    /// What the attacker says, against what is seen from here.
    pub(crate) fn weigh(&self, probe: &Probe, said: Verdict) -> Verdict {
        let done = |path: &str, seen: fn(&Path) -> bool| {
            let path = self.fill(path);
            match (seen(Path::new(&path)), said.clone()) {
                (true, Verdict::Open(how)) => Verdict::Open(how),
                (true, _) => Verdict::Open(format!("{path} is there")),
                // It was done somewhere that is not here, or undone before the call was over.
                (false, Verdict::Open(_)) => Verdict::Held("NOT_SEEN_OUTSIDE".to_owned()),
                (false, other) => other,
            }
        };
        match probe.evidence {
            Evidence::Word => said,
            Evidence::Secret => {
                let shown = matches!(&said, Verdict::Open(got) if got.contains(SECRET));
                match said.is_open() && !shown {
                    true => Verdict::Held("SOMETHING_ELSE".to_owned()),
                    false => said,
                }
            }
            Evidence::Written(path) => done(path, |path| {
                std::fs::read_to_string(path).is_ok_and(|text| text.contains(MARK))
            }),
            Evidence::Special(path) => done(path, is_special),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It lets go of what it holds when its standard input closes.
        drop(self.bystander.stdin.take());
        let _ = self.bystander.wait();
        for folder in EVERYBODYS {
            for ending in ["", "-host"] {
                remove(&Path::new(folder).join(format!("{}{ending}", self.mark)));
            }
        }
    }
}

fn remove(path: &Path) {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return;
    };
    if found.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else {
        std::fs::remove_file(path).unwrap();
    }
}

/// By a program of its own: a handle that this process has open for writing may be in the hands of
/// somebody who is just being started, and what is written to cannot be run.
fn copy(to: &Path, mode: u32) {
    let mut install = Command::new("install");
    install.arg(format!("--mode={mode:o}"));
    let done = install.arg(bin("palyra-attack")).arg(to).status();
    assert!(done.unwrap().success());
}

/// Whoever runs it becomes somebody else, or waits for ever. One that was special before the attack
/// counts only with what an attacker wrote.
fn is_special(path: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let old = path.ends_with("old-set-id");
    let changed = || std::fs::read_to_string(path).is_ok_and(|text| text.contains(MARK));
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        let special =
            found.mode() & 0o6000 != 0 || found.file_type().is_fifo() || has_capabilities(path);
        special && (!old || changed())
    })
}

fn has_capabilities(path: &Path) -> bool {
    let mut command = Command::new(bin("palyra-attack"));
    let ran = command.arg("capabilities-of").arg(path).output();
    Verdict::of(&ran.unwrap().into()).is_open()
}

fn listen(folder: &Path, mark: &str) -> (Vec<UnixListener>, Vec<UnixDatagram>) {
    let name = SocketAddr::from_abstract_name(mark).unwrap();
    let mut streams = vec![UnixListener::bind_addr(&name).unwrap()];
    let mut datagrams = Vec::new();
    for place in ["w", "outside"] {
        let paths = ["stream", "datagram"].map(|name| folder.join(place).join(name));
        streams.push(UnixListener::bind(&paths[0]).unwrap());
        datagrams.push(UnixDatagram::bind(&paths[1]).unwrap());
        for path in &paths {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
    }
    (streams, datagrams)
}

fn bystander(attack: &Path, mark: &str, key: u32, owner: Option<u32>) -> (Child, [String; 3]) {
    let mut command = Command::new(attack);
    command
        .args(["bystander", mark, &key.to_string()])
        .env("PALYRA_PROBE_SECRET", SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(uid) = owner {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let mut numbers = line.split_whitespace().map(str::to_owned);
    let holds = [(); 3].map(|()| numbers.next().unwrap_or_else(|| panic!("{line}")));
    (child, holds)
}
