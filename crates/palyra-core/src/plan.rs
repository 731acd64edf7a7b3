//! Execution plans: pure values that say exactly what will run, and behind which walls.
//!
//! A plan is made before the decision, its digest is part of what is decided, and the corridor
//! compares the digest again at the moment of execution.

use std::path::PathBuf;
use std::time::Duration;

use crate::digest::{Digest, PlanDigest};
use crate::egress::EgressRule;
use crate::fs_rule::FsRule;
use crate::program::Pinned;
use crate::secret::SecretRef;

/// Anything an executor can carry out.
pub trait Plan: Send {
    /// The digest of all of it.
    fn digest(&self) -> PlanDigest;
}

/// How strongly a call is confined. The number is what policy compares: more is stronger.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Inside the daemon: the tool is a pure function of ours.
    Builtin,
    /// A process with limits, Landlock and a system-call filter, no namespaces.
    B,
    /// The same in namespaces of its own: its view of files, processes and the network.
    C,
}

impl Tier {
    /// The number that policy compares (A = 4 arrives with its room).
    #[must_use]
    pub const fn rank(self) -> i64 {
        match self {
            Self::Builtin => 4,
            Self::C => 3,
            Self::B => 2,
        }
    }

    /// The word in flags and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::B => "b",
            Self::C => "c",
        }
    }
}

/// What a process may use up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Wall-clock time; every descendant is killed when it is over.
    #[serde(with = "millis")]
    pub wall: Duration,
    /// CPU time of each process.
    #[serde(with = "millis")]
    pub cpu: Duration,
    /// The largest file it may write, in bytes.
    pub file_size: u64,
    /// Open descriptors of each process.
    pub open_files: u64,
    /// Address space of each process; none by default, since it breaks Node and the JVM.
    pub address_space: Option<u64>,
    /// How much of each output stream is kept; what follows is dropped and marked.
    pub output_bytes: u64,
    /// Processes and threads at once. Tier-C, and wherever there is a cgroup.
    pub processes: u64,
    /// Memory of the whole call, what it keeps in its temporary folders included. Held where there
    /// is a cgroup with that controller, and reported as not held elsewhere.
    pub memory: u64,
    /// What may lie in the temporary folders that Tier-C keeps in memory.
    pub scratch: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(600),
            cpu: Duration::from_secs(3_600),
            file_size: 8 << 30,
            open_files: 4_096,
            address_space: None,
            output_bytes: 8 << 20,
            processes: 512,
            memory: 8 << 30,
            scratch: 1 << 30,
        }
    }
}

/// Durations travel as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Under which uid a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum RunAs {
    /// The daemon's own, which is not root.
    Daemon,
    /// A root daemon steps down to the workspace's owner.
    Owner {
        /// The owner's uid, never 0.
        uid: u32,
        /// The owner's gid.
        gid: u32,
    },
    /// Tier-C of a root daemon: a uid that nobody has, lent for this call alone. What it writes in
    /// the workspace belongs to the workspace's owner all the same.
    Lent {
        /// The owner's uid, which may be 0: it is never the call's own outside.
        uid: u32,
        /// The owner's gid.
        gid: u32,
    },
}

/// What a process may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressEnforcementMode {
    /// The allowed hosts, held while it runs; without any, nothing but its own loopback.
    Strict,
    /// The requested hosts are checked before it starts, and nothing is held while it runs: it has
    /// the machine's own network.
    Preflight,
    /// The machine's own network, unrestricted.
    None,
}

impl EgressEnforcementMode {
    /// The word in flags and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Preflight => "preflight",
            Self::None => "none",
        }
    }

    /// Whether the call has a network of its own, which leads nowhere but through our doors.
    #[must_use]
    pub const fn is_enforced(self) -> bool {
        match self {
            Self::Strict => true,
            Self::Preflight | Self::None => false,
        }
    }
}

/// A secret that a process may have sent for it. What stands for it inside is made when it starts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SecretUse {
    /// Which.
    pub secret: SecretRef,
    /// Where it finds what stands for it.
    pub at: SecretPlace,
}

/// Where a process finds what stands for a secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretPlace {
    /// In this variable.
    Env(String),
    /// In this file, which goes with the call.
    File(PathBuf),
}

/// How much of `/proc` a process in Tier-C sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcView {
    /// Its own processes and nothing of the machine.
    #[default]
    Pids,
    /// All of it, with what changes or shows the kernel covered.
    Full,
}

/// Which file or folder exactly, whatever its path leads to later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// The device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Which program exactly, as far as can be told without reading it: another content shows in the
/// times, which its owner cannot set back (`changed`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ProgramId {
    /// The file.
    pub file: FileId,
    /// Its size.
    pub size: u64,
    /// When its content was changed, in seconds and nanoseconds.
    pub modified: (i64, i64),
    /// When anything about it was changed.
    pub changed: (i64, i64),
}

/// What a process reads on standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: it ends at once.
    #[default]
    Nothing,
    /// This text, which was decided about.
    Text(String),
    /// What its caller sends while it runs, through a pipe.
    Live,
    /// What its caller types, in a terminal of its own. It writes there too.
    Terminal,
}

impl Stdin {
    /// Whether what it reads comes while it runs, and nobody knows it when deciding.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        match self {
            Self::Live | Self::Terminal => true,
            Self::Nothing | Self::Text(_) => false,
        }
    }
}

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Window {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Default for Window {
    /// What terminals had before they could be asked.
    fn default() -> Self {
        Self {
            rows: 24,
            columns: 80,
        }
    }
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessPlan {
    /// The program, resolved once to an absolute path.
    pub program: PathBuf,
    /// Its arguments, `argv[0]` first.
    pub argv: Vec<String>,
    /// Its whole environment; nothing is inherited. `TMPDIR` is added when the call starts.
    pub env: Vec<(String, String)>,
    /// What runs, file by file, as it was when it was decided: the program first, then what a
    /// script names as its interpreter. Anything else is not started.
    pub code: Vec<Pinned>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The folder that `cwd` was then.
    pub cwd_id: FileId,
    /// The folder it works on.
    pub workspace: PathBuf,
    /// The folder that `workspace` was then.
    pub workspace_id: FileId,
    /// What it reads on standard input.
    pub stdin: Stdin,
    /// How strongly it is confined.
    pub tier: Tier,
    /// What it may use up.
    pub limits: Limits,
    /// Folders it never sees: the daemon's home. No policy can lift this.
    pub masked: Vec<PathBuf>,
    /// What it may do with files, besides what is usual.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FsRule>,
    /// Under which uid.
    pub run_as: RunAs,
    /// The home directory of whom it runs as. In Tier-C it is an empty one that goes with the call.
    pub home: Option<PathBuf>,
    /// What Tier-C mounts for reading besides the system's own folders: toolchains, mostly.
    pub read_only: Vec<PathBuf>,
    /// What it may reach over the network.
    pub egress: EgressEnforcementMode,
    /// Which hosts: what was asked for and decided about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_egress_hosts: Vec<EgressRule>,
    /// The secrets that are put into its requests on the way out, and where it finds what stands for
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
    /// How much of `/proc` it sees.
    pub proc: ProcView,
}

/// What a file tool does, on a path relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum FileOperation {
    /// Gives the content.
    Read {
        /// Which file.
        path: PathBuf,
        /// How many bytes at most.
        max_bytes: u64,
    },
    /// Gives the names in a folder.
    List {
        /// Which folder.
        path: PathBuf,
        /// How many names at most.
        max_entries: u64,
    },
    /// Replaces or creates a file, in one step.
    Write {
        /// Which file.
        path: PathBuf,
        /// Its new content.
        content: String,
        /// Makes missing folders on the way.
        create_parents: bool,
    },
    /// Applies a unified diff to one file, in one step; a hunk that does not fit changes nothing.
    ApplyPatch {
        /// Which file.
        path: PathBuf,
        /// The unified diff.
        patch: String,
    },
}

/// One file operation beneath a workspace.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FilePlan {
    /// The folder that paths are relative to and never leave.
    pub workspace: PathBuf,
    /// The folder that `workspace` was when it was decided.
    pub workspace_id: FileId,
    /// What to do.
    pub operation: FileOperation,
    /// What it may use up.
    pub limits: Limits,
    /// Folders it never sees.
    pub masked: Vec<PathBuf>,
    /// What it may do with files, besides what is usual.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FsRule>,
    /// How strongly it is confined.
    pub tier: Tier,
    /// Under which uid.
    pub run_as: RunAs,
}

/// A reply that needs nothing from the machine.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ReplyPlan {
    /// What to answer.
    pub reply: serde_json::Value,
}

macro_rules! plan_digest {
    ($($plan:ty => $domain:literal),* $(,)?) => {$(
        impl Plan for $plan {
            fn digest(&self) -> PlanDigest {
                // A plan that cannot be written (a path that is not UTF-8) gets a digest that
                // matches nothing, not even itself: it can never be executed.
                let bytes = serde_json::to_vec(self).unwrap_or_else(|_| unrepeatable());
                PlanDigest(Digest::of_parts($domain, &[&bytes]))
            }
        }
    )*};
}

plan_digest! {
    ProcessPlan => "palyra plan process v2",
    FilePlan => "palyra plan file v1",
    ReplyPlan => "palyra plan reply v1",
}

fn unrepeatable() -> Vec<u8> {
    let mut bytes = vec![0; 32];
    #[expect(
        clippy::expect_used,
        reason = "without randomness two such plans would be equal"
    )]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::program::{CodePart, Content};

    fn in_folder(name: &[u8]) -> FilePlan {
        FilePlan {
            workspace: PathBuf::from(std::ffi::OsStr::from_bytes(name)),
            workspace_id: FileId {
                device: 1,
                inode: 1,
            },
            operation: FileOperation::List {
                path: PathBuf::new(),
                max_entries: 1,
            },
            limits: Limits::default(),
            masked: Vec::new(),
            rules: Vec::new(),
            tier: Tier::C,
            run_as: RunAs::Daemon,
        }
    }

    fn pinned(path: &str, part: CodePart, content: &[u8]) -> Pinned {
        Pinned {
            path: path.into(),
            real: path.into(),
            part,
            content: Content::Sha256(Digest::of(content)),
            seen: None,
            fixed: false,
        }
    }

    fn process() -> ProcessPlan {
        let id = FileId {
            device: 1,
            inode: 1,
        };
        ProcessPlan {
            program: "/bin/sh".into(),
            argv: vec!["sh".into(), "x.sh".into()],
            env: vec![("A".into(), "1".into())],
            code: vec![
                pinned("/bin/sh", CodePart::Program, b"sh"),
                pinned("/w/x.sh", CodePart::Operand, b"x"),
            ],
            cwd: "/w".into(),
            cwd_id: id,
            workspace: "/w".into(),
            workspace_id: id,
            stdin: Stdin::Nothing,
            tier: Tier::C,
            limits: Limits::default(),
            masked: Vec::new(),
            rules: Vec::new(),
            run_as: RunAs::Daemon,
            home: None,
            read_only: Vec::new(),
            egress: EgressEnforcementMode::Strict,
            allowed_egress_hosts: EgressRule::named("example.com:443").unwrap(),
            secrets: vec![SecretUse {
                secret: "token".parse().unwrap(),
                at: SecretPlace::Env("TOKEN".into()),
            }],
            proc: ProcView::Pids,
        }
    }

    #[test]
    fn everything_that_decides_what_runs_is_in_the_digest() {
        let changes: Vec<fn(&mut ProcessPlan)> = vec![
            |plan| plan.program = "/bin/ash".into(),
            |plan| plan.argv[1] = "y.sh".into(),
            |plan| plan.argv.push(String::new()),
            |plan| plan.env[0].0 = "B".into(),
            |plan| plan.env[0].1 = "2".into(),
            |plan| plan.code[0].content = Content::Sha256(Digest::of(b"evil")),
            |plan| plan.code[1].content = Content::Sha256(Digest::of(b"evil")),
            |plan| plan.code[1].content = Content::Nothing,
            |plan| plan.code[1].path = "/w/y.sh".into(),
            |plan| plan.code[1].real = "/w/z/x.sh".into(),
            |plan| plan.code[1].part = CodePart::Later,
            |plan| drop(plan.code.pop()),
            |plan| plan.cwd = "/w/sub".into(),
            |plan| plan.cwd_id.inode = 2,
            |plan| plan.workspace = "/v".into(),
            |plan| plan.workspace_id.inode = 2,
            |plan| plan.stdin = Stdin::Text(String::new()),
            |plan| plan.tier = Tier::B,
            |plan| plan.limits.processes = 1,
            |plan| plan.masked.push("/m".into()),
            |plan| plan.run_as = RunAs::Lent { uid: 1, gid: 1 },
            |plan| plan.home = Some("/h".into()),
            |plan| plan.read_only.push("/r".into()),
            |plan| plan.egress = EgressEnforcementMode::None,
            |plan| plan.egress = EgressEnforcementMode::Preflight,
            |plan| plan.allowed_egress_hosts.clear(),
            |plan| plan.allowed_egress_hosts[0].port = 80,
            |plan| plan.allowed_egress_hosts[0].inward = false,
            |plan| plan.allowed_egress_hosts[0].host = "example.org".parse().unwrap(),
            |plan| plan.proc = ProcView::Full,
            |plan| plan.secrets.clear(),
            |plan| plan.secrets[0].secret = "other".parse().unwrap(),
            |plan| plan.secrets[0].at = SecretPlace::File("TOKEN".into()),
        ];
        let digest = process().digest();
        for (at, change) in changes.into_iter().enumerate() {
            let mut plan = process();
            change(&mut plan);
            assert_ne!(plan.digest(), digest, "change {at}");
        }
        // The same content, written anew: a retry is the same call.
        let mut again = process();
        again.code[1].seen = Some(ProgramId {
            file: FileId {
                device: 1,
                inode: 7,
            },
            size: 1,
            modified: (1, 1),
            changed: (1, 1),
        });
        assert_eq!(again.digest(), digest);
    }

    #[test]
    fn a_plan_that_cannot_be_written_matches_nothing() {
        let readable = in_folder(b"/w");
        assert_eq!(readable.digest(), readable.digest());
        let unreadable = in_folder(b"/\xff");
        assert_ne!(unreadable.digest(), unreadable.digest());
    }
}
