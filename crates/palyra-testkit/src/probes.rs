//! The attack matrix: every probe, the attack that carries it out, and which tiers do not hold it.
//!
//! This is the one place that says what is promised. What a tier does not hold is listed for people
//! in `docs/guarantees.md`, and a test compares that list with this one. The numbers are those of
//! the attack list that the sandbox was built against: 1 to 17 files, 18 to 37 the kernel, 38 to 44
//! other processes and what they hold, 55 to 61 the machine's resources.

/// A tier, as far as promises go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Tier-B.
    B,
    /// Tier-C, by either back end.
    C,
}

/// Which privilege the attack needs to work outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// That of whoever owns the workspace.
    Owner,
    /// The same, once root has put something there.
    OwnerAfterRoot,
    /// Root's.
    Root,
}

/// How it is seen that an attack worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The attacker says so.
    Word,
    /// The attacker shows the secret.
    Secret,
    /// A file is there afterwards, with what the attacker writes.
    Written(&'static str),
    /// Something that is set-id, has capabilities or is a FIFO is there afterwards.
    Special(&'static str),
}

/// Through which door an attack comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `palyra.process.run`.
    Process,
    /// `palyra.fs.read` on this path.
    ReadTool(&'static str),
    /// `palyra.fs.write` on this path.
    WriteTool(&'static str),
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// The number in the list, a dash, and a word of its own.
    pub name: &'static str,
    /// The arguments of `palyra-attack`, with places in braces. For a file tool, of the control.
    pub attack: &'static str,
    /// Through which door.
    pub door: Door,
    /// What the control needs.
    pub control: Privilege,
    /// How success is seen.
    pub evidence: Evidence,
    /// The tiers that do not hold it.
    pub open_in: &'static [Promise],
    /// The filter has to answer itself, also where the kernel lacks the target: with this.
    pub filter: Option<&'static str>,
}

impl Probe {
    /// The number in the list.
    #[must_use]
    pub fn number(&self) -> u32 {
        let number = self.name.split('-').next();
        number.and_then(|text| text.parse().ok()).expect("a number")
    }

    /// Whether a tier holds it.
    #[must_use]
    pub fn is_held_by(&self, promise: Promise) -> bool {
        !self.open_in.contains(&promise)
    }
}

const fn probe(name: &'static str, attack: &'static str, open_in: &'static [Promise]) -> Probe {
    Probe {
        name,
        attack,
        door: Door::Process,
        control: Privilege::Owner,
        evidence: Evidence::Word,
        open_in,
        filter: None,
    }
}

impl Probe {
    const fn as_root(mut self) -> Self {
        self.control = Privilege::Root;
        self
    }

    const fn after_root(mut self) -> Self {
        self.control = Privilege::OwnerAfterRoot;
        self
    }

    const fn shows_the_secret(mut self) -> Self {
        self.evidence = Evidence::Secret;
        self
    }

    const fn writes(mut self, path: &'static str) -> Self {
        self.evidence = Evidence::Written(path);
        self
    }

    const fn leaves(mut self, path: &'static str) -> Self {
        self.evidence = Evidence::Special(path);
        self
    }

    const fn by_reading(mut self, path: &'static str) -> Self {
        self.door = Door::ReadTool(path);
        self
    }

    const fn by_writing(mut self, path: &'static str) -> Self {
        self.door = Door::WriteTool(path);
        self
    }

    const fn filtered(mut self, answer: &'static str) -> Self {
        self.filter = Some(answer);
        self
    }
}

/// Both hold it.
const HELD: &[Promise] = &[];
/// Only Tier-C holds it.
const B: &[Promise] = &[Promise::B];
/// Neither holds it.
const BOTH: &[Promise] = &[Promise::B, Promise::C];

/// Probes 1 to 16. `{outside}` is a folder of the same owner beside the workspace `{work}`.
pub const FILES: &[Probe] = &[
    probe("01-home-key", "read {outside}/.ssh/id_ed25519", HELD).shows_the_secret(),
    probe(
        "01-home-key-by-tool",
        "read {outside}/.ssh/id_ed25519",
        HELD,
    )
    .shows_the_secret()
    .by_reading("{outside}/.ssh/id_ed25519"),
    probe(
        "01-parent-by-tool",
        "read {work}/../outside/.ssh/id_ed25519",
        HELD,
    )
    .shows_the_secret()
    .by_reading("../outside/.ssh/id_ed25519"),
    probe("02-link", "read {work}/link-to-key", HELD).shows_the_secret(),
    probe("02-link-by-tool", "read {work}/link-to-key", HELD)
        .shows_the_secret()
        .by_reading("link-to-key"),
    probe("02-folder-link", "read {work}/link-to-ssh/id_ed25519", HELD).shows_the_secret(),
    probe(
        "02-folder-link-by-tool",
        "read {work}/link-to-ssh/id_ed25519",
        HELD,
    )
    .shows_the_secret()
    .by_reading("link-to-ssh/id_ed25519"),
    probe("03-swap", "swap {work}/swapping {outside}/target", HELD)
        .writes("{outside}/target/swapped"),
    probe(
        "03-write-through-link-by-tool",
        "create {work}/link-to-ssh/new",
        HELD,
    )
    .writes("{outside}/.ssh/new")
    .by_writing("link-to-ssh/new"),
    probe(
        "04-hard-link",
        "hard-link {outside}/.ssh/id_ed25519 {work}/linked-key",
        HELD,
    )
    .shows_the_secret(),
    probe(
        "04-write-hard-link-by-tool",
        "write-in-place {work}/hard-link",
        HELD,
    )
    .writes("{outside}/hard-link")
    .by_writing("hard-link"),
    probe("05-env-file", "read {work}/.env", B).shows_the_secret(),
    probe("05-env-file-by-tool", "read {work}/.env", HELD)
        .shows_the_secret()
        .by_reading(".env"),
    probe(
        "05-env-file-in-folder",
        "read {work}/sub/.env.production",
        B,
    )
    .shows_the_secret(),
    probe("05-key-file", "read {work}/deploy.pem", B).shows_the_secret(),
    probe("06-new-env-file", "create {work}/.env.local", B).writes("{work}/.env.local"),
    probe("06-new-env-file-by-tool", "create {work}/.env.local", HELD)
        .writes("{work}/.env.local")
        .by_writing(".env.local"),
    probe("06-new-rc-file", "create {work}/.bashrc", B).writes("{work}/.bashrc"),
    probe("06-new-rc-file-by-tool", "create {work}/.bashrc", HELD)
        .writes("{work}/.bashrc")
        .by_writing(".bashrc"),
    probe("07-new-hook", "create {work}/.git/hooks/post-checkout", B)
        .writes("{work}/.git/hooks/post-checkout"),
    probe(
        "07-new-hook-by-tool",
        "create {work}/.git/hooks/post-checkout",
        HELD,
    )
    .writes("{work}/.git/hooks/post-checkout")
    .by_writing(".git/hooks/post-checkout"),
    probe("07-old-hook", "append {work}/.git/hooks/pre-commit", B)
        .writes("{work}/.git/hooks/pre-commit"),
    probe("08-git-config", "append {work}/.git/config", B).writes("{work}/.git/config"),
    probe("08-git-config-by-tool", "append {work}/.git/config", HELD)
        .writes("{work}/.git/config")
        .by_writing(".git/config"),
    probe("09-rename-git", "move-away {work}/.git", B).writes("{work}/.git/config"),
    probe("10-worktree-pointer", "append {work}/linked/.git", B).writes("{work}/linked/.git"),
    probe(
        "10-worktree-pointer-by-tool",
        "append {work}/linked/.git",
        HELD,
    )
    .writes("{work}/linked/.git")
    .by_writing("linked/.git"),
    probe(
        "10-common-dir",
        "append {work}/.git/worktrees/linked/commondir",
        B,
    )
    .writes("{work}/.git/worktrees/linked/commondir"),
    probe(
        "10-worktree-config",
        "create {work}/.git/worktrees/linked/config.worktree",
        B,
    )
    .writes("{work}/.git/worktrees/linked/config.worktree"),
    probe(
        "11-editor-settings",
        "append {work}/.vscode/settings.json",
        B,
    )
    .writes("{work}/.vscode/settings.json"),
    probe(
        "11-editor-settings-by-tool",
        "append {work}/.vscode/settings.json",
        HELD,
    )
    .writes("{work}/.vscode/settings.json")
    .by_writing(".vscode/settings.json"),
    probe(
        "11-new-agent-settings",
        "create {work}/.claude/settings.json",
        B,
    )
    .writes("{work}/.claude/settings.json"),
    probe(
        "12-system",
        "system /etc/{mark} /usr/bin/{mark} /usr/lib/{mark} /boot/{mark}",
        HELD,
    )
    .as_root(),
    probe("12-outside", "create {outside}/new", HELD).writes("{outside}/new"),
    probe("12-outside-by-tool", "create {outside}/new", HELD)
        .writes("{outside}/new")
        .by_writing("{outside}/new"),
    probe("13-tmp-seen-by-host", "create /tmp/{mark}", HELD).writes("/tmp/{mark}"),
    probe("13-var-tmp-seen-by-host", "create /var/tmp/{mark}", HELD).writes("/var/tmp/{mark}"),
    probe("13-tmp-of-host", "read /tmp/{mark}-host", HELD).shows_the_secret(),
    probe("13-shm-seen-by-host", "create /dev/shm/{mark}", HELD).writes("/dev/shm/{mark}"),
    probe("13-shm-of-host", "read /dev/shm/{mark}-host", HELD).shows_the_secret(),
    probe(
        "14-root-of-others",
        "others-root {outside}/.ssh/id_ed25519",
        HELD,
    )
    .shows_the_secret(),
    probe("14-own-root", "own-root {outside}/.ssh/id_ed25519", HELD).shows_the_secret(),
    probe(
        "14-link-through-proc-by-tool",
        "read {work}/link-through-proc",
        HELD,
    )
    .shows_the_secret()
    .by_reading("link-through-proc"),
    probe(
        "14-look-beyond-the-root",
        "look-beyond {outside}/.ssh/id_ed25519",
        B,
    ),
    probe("14-change-mode", "change-mode {outside}/.ssh/id_ed25519", B),
    probe("15-by-handle", "by-handle {handle}", HELD)
        .as_root()
        .shows_the_secret(),
    probe("16-disk-node", "device-node block 7 0", HELD).as_root(),
    probe("16-memory-node", "device-node char 1 1", HELD).as_root(),
    probe("16-zero-node", "device-node char 1 5", HELD).as_root(),
    probe("16-disk", "disk", HELD).as_root(),
];

/// Probe 17, by each call that can make something special.
pub const SPECIAL: &[Probe] = &[
    probe("17-chmod", "leave-chmod {work}/left", HELD).leaves("{work}/left"),
    probe("17-fchmod", "leave-fchmod {work}/left", HELD).leaves("{work}/left"),
    probe("17-fchmodat", "leave-fchmodat {work}/left", HELD).leaves("{work}/left"),
    probe("17-fchmodat2", "leave-fchmodat2 {work}/left", HELD).leaves("{work}/left"),
    probe(
        "17-fchmodat2-empty",
        "leave-fchmodat2-empty {work}/left",
        HELD,
    )
    .leaves("{work}/left"),
    probe("17-proc-fd", "leave-proc-fd {work}/left", HELD).leaves("{work}/left"),
    probe("17-open", "leave-open {work}/left", HELD).leaves("{work}/left"),
    probe("17-creat", "leave-creat {work}/left", HELD).leaves("{work}/left"),
    probe("17-openat", "leave-openat {work}/left", HELD).leaves("{work}/left"),
    probe("17-openat2", "leave-openat2 {work}/left", HELD).leaves("{work}/left"),
    probe("17-tmpfile", "leave-tmpfile {work}/left", HELD).leaves("{work}/left"),
    probe("17-mknod", "leave-mknod {work}/left", HELD).leaves("{work}/left"),
    probe("17-mknodat", "leave-mknodat {work}/left", HELD).leaves("{work}/left"),
    probe("17-folder", "leave-folder {work}/left", HELD).leaves("{work}/left"),
    probe("17-fifo", "leave-fifo {work}/left", HELD).leaves("{work}/left"),
    probe("17-map-old", "map-old {work}/old-set-id", BOTH).leaves("{work}/old-set-id"),
    probe("17-capabilities", "leave-capabilities {work}/left", HELD)
        .as_root()
        .leaves("{work}/left"),
    probe(
        "17-capabilities-at",
        "leave-capabilities-at {work}/left",
        HELD,
    )
    .as_root()
    .leaves("{work}/left"),
    probe(
        "17-rewrite-by-tool",
        "write-in-place {work}/old-set-id",
        HELD,
    )
    .as_root()
    .leaves("{work}/old-set-id")
    .by_writing("old-set-id"),
];

/// Probes 18 to 37.
pub const KERNEL: &[Probe] = &[
    probe(
        "18-core-pattern",
        "setting /proc/sys/kernel/core_pattern",
        HELD,
    )
    .as_root(),
    probe("19-sysrq", "setting /proc/sysrq-trigger", HELD).as_root(),
    probe(
        "19-sys",
        "setting /sys/kernel/mm/transparent_hugepage/enabled",
        HELD,
    )
    .as_root(),
    probe("19-kcore", "peer-into /proc/kcore", HELD).as_root(),
    probe(
        "20-running-program",
        "running-program /usr/bin/base32",
        HELD,
    )
    .as_root(),
    probe("21-user-namespace", "unshare-user", HELD),
    probe("21-user-namespace-by-clone", "clone-user", HELD),
    probe("22-mount-inside", "mount-in-userns {work}/mnt", HELD),
    probe("23-mount", "mount {work}/mnt", HELD).as_root(),
    probe("23-umount", "umount {work}/mnt", HELD).as_root(),
    probe("24-fsopen", "fsopen", HELD).as_root(),
    probe("24-fspick", "fspick", HELD).as_root(),
    probe("24-open-tree", "open-tree", HELD).as_root(),
    probe("24-move-mount", "move-mount {work}/mnt", HELD).as_root(),
    probe("24-mount-setattr", "mount-setattr", HELD).as_root(),
    probe("25-chroot", "chroot", HELD).as_root(),
    probe("25-pivot-root", "pivot-root {work}/mnt", HELD).as_root(),
    probe("25-setns", "setns", HELD).as_root(),
    probe("26-trace", "trace {pid}", HELD).as_root(),
    probe("26-trace-own", "trace-own", HELD),
    probe("27-peek", "peek {pid} {address}", HELD)
        .as_root()
        .shows_the_secret(),
    probe("27-memory-file", "memory-file {pid} {address}", HELD)
        .as_root()
        .shows_the_secret(),
    probe("27-peek-own", "peek-own", HELD),
    probe("28-add-key", "add-key", HELD),
    probe("28-request-key", "request-key", HELD),
    probe("28-keyring", "keyring", HELD),
    probe("28-key-of-host", "find-key palyra-{key}", HELD).shows_the_secret(),
    probe("29-io-uring", "io-uring", HELD).filtered("EPERM"),
    probe("30-bpf-map", "bpf-map", HELD).as_root(),
    probe("30-bpf-program", "bpf-program", HELD).as_root(),
    probe("31-perf", "perf", HELD),
    probe("32-userfaultfd", "userfaultfd", HELD),
    probe("32-userfaultfd-device", "userfaultfd-device", HELD).as_root(),
    probe("33-memfd-exec", "memfd-exec", BOTH),
    probe("34-i386", "i386", HELD).filtered("SIGSYS"),
    probe("34-x32", "x32", HELD).filtered("EPERM"),
    probe("35-clone3", "clone3-user", HELD),
    probe("36-push-key", "push-key low", B),
    probe("36-push-key-high-bits", "push-key high", B),
    probe("36-console", "console low", HELD).as_root(),
    probe("36-console-high-bits", "console high", HELD).as_root(),
    probe("37-set-uid", "set-uid {work}/set-uid", HELD).after_root(),
];

/// Probes 38 to 44. `{pid}`, `{address}` and `{fd}` are of a process of the same owner, outside.
pub const IPC: &[Probe] = &[
    probe("38-inherited", "inherited", HELD),
    probe("38-descriptors-of-parent", "descriptors-of-parent", HELD).as_root(),
    probe("39-environment", "own-environment {half} {rest}", HELD),
    probe(
        "39-environment-of-others",
        "others-environment {half} {rest}",
        HELD,
    ),
    probe(
        "39-arguments-of-others",
        "others-arguments {mark-half} {mark-rest}",
        B,
    ),
    probe("40-list", "list {mark-half} {mark-rest}", B),
    probe("40-kill", "signal kill {pid}", HELD),
    probe("40-tgkill", "signal tgkill {pid}", HELD),
    probe("40-queue", "signal queue {pid}", HELD),
    probe("40-pidfd", "signal pidfd {pid}", HELD),
    probe("40-priority", "priority {pid}", B),
    probe("41-shared-memory", "shared-memory {key}", B).shows_the_secret(),
    probe("41-message-queue", "message-queue {key}", B),
    probe("41-posix-queue", "posix-queue palyra-{key}", HELD),
    probe("42-abstract", "abstract {mark}", HELD),
    probe(
        "43-pathname",
        "pathname {outside}/stream {outside}/datagram",
        HELD,
    ),
    probe(
        "43-pathname-in-workspace",
        "pathname {work}/stream {work}/datagram",
        HELD,
    ),
    probe("44-steal", "steal {pid} {fd}", HELD)
        .as_root()
        .shows_the_secret(),
    probe("44-steal-own", "steal-own", HELD),
];

/// Probes 55 to 61. The tests say how much is tried.
pub const RESOURCES: &[Probe] = &[
    probe("55-forks", "forks {forks}", B),
    probe("56-memory", "memory {mib}", BOTH),
    probe("56-memory-by-files", "fill {memory} {mib}", HELD),
    probe("57-disk", "fill {work} {disk}", BOTH),
    probe("58-output", "spam {output}", HELD),
    probe("59-outlive", "outlive {mark}", HELD),
    probe("60-kill-the-daemon", "hold-output {mark}", HELD),
    probe("61-hold-output", "hold-output {mark}", HELD),
];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Probe> {
    [FILES, SPECIAL, KERNEL, IPC, RESOURCES]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_list_has_a_probe_and_every_name_is_its_own() {
        let numbers: std::collections::BTreeSet<u32> = all().map(Probe::number).collect();
        let wanted = (1..=44).chain(55..=61).collect();
        assert_eq!(numbers, wanted);
        let mut names: Vec<&str> = all().map(|probe| probe.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
