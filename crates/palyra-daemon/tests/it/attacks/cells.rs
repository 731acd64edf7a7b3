//! The columns of the matrix: a tier under a daemon of root or of an ordinary user.

use std::os::unix::fs::chown;
use std::path::Path;

use palyra_testkit::probes::{Door, Probe, Promise};
use palyra_testkit::{Daemon, Ran, is_root, not_run};

use super::leftovers;
use super::place::{MARK, Place, SECRET};
use super::verdict::Verdict;

/// Who owns the workspaces, when these tests may start daemons for others.
pub(crate) const OWNER: u32 = 64_020;

pub(crate) struct Cell {
    /// The head of its column.
    pub(crate) head: &'static str,
    pub(crate) promise: Promise,
    pub(crate) daemon: Daemon,
    /// Gone before the daemon's folder, in which it is.
    pub(crate) place: Place,
    tier: &'static str,
}

/// Which daemon.
#[derive(Clone, Copy)]
enum Of {
    /// Root's, on a workspace of somebody else.
    Root,
    /// Root's, on a workspace of root's.
    RootAlone,
    /// The workspace's owner's.
    User,
}

/// What makes the walls.
#[derive(Clone, Copy)]
enum By {
    /// Our own helper.
    Helper,
    /// `bwrap`, with our helper inside.
    Bubblewrap,
}

impl Cell {
    /// Every column that can be had here.
    pub(crate) fn all() -> Vec<Self> {
        let (b, c) = (Promise::B, Promise::C);
        let mut all = vec![
            Self::new("B user", b, Of::User, By::Helper),
            Self::new("C user", c, Of::User, By::Helper),
        ];
        if is_root() {
            all.push(Self::new("B root", b, Of::Root, By::Helper));
            all.push(Self::new("C root", c, Of::Root, By::Helper));
            // Tier-B refuses to work there.
            all.push(Self::new("C root, its own", c, Of::RootAlone, By::Helper));
        }
        if Path::new("/usr/bin/bwrap").exists() {
            all.push(Self::new("C bwrap user", c, Of::User, By::Bubblewrap));
            if is_root() {
                all.push(Self::new("C bwrap root", c, Of::Root, By::Bubblewrap));
            }
        } else {
            not_run("attacks through bwrap", "install `bubblewrap`");
        }
        all
    }

    fn new(head: &'static str, promise: Promise, of: Of, by: By) -> Self {
        let tier = match promise {
            Promise::B => "b",
            Promise::C => "c",
        };
        let owner = match of {
            Of::User | Of::Root => is_root().then_some(OWNER),
            Of::RootAlone => None,
        };
        let builder = match (of, owner) {
            (Of::User, Some(uid)) => Daemon::builder().uid(uid),
            (Of::User | Of::Root | Of::RootAlone, _) => Daemon::builder(),
        };
        let builder = match by {
            By::Helper => builder,
            By::Bubblewrap => builder.config("[sandbox]\ntier_c_backend = \"linux_bubblewrap\"\n"),
        };
        let mut daemon = builder.prepare();
        chown(daemon.workspace(), owner, owner).unwrap();
        let place = Place::new(daemon.folder(), owner);
        // What must not be found inside: a variable, and an open file.
        daemon.set_variable("PALYRA_PROBE_SECRET", SECRET);
        daemon.set_inherited(daemon.folder().join("outside/.ssh/id_ed25519"));
        daemon.start_again(None);
        Self {
            head,
            promise,
            daemon,
            place,
            tier,
        }
    }

    /// Ends it; nothing may be left of it.
    pub(crate) fn end(self) {
        // Whoever was attacked ends first: they are no part of a call.
        drop(self.place);
        leftovers::none_after(self.daemon);
    }

    /// The attack, through its door.
    pub(crate) fn attack(&self, probe: &Probe) -> Verdict {
        let said = match probe.door {
            Door::Process => Verdict::of(&self.run(probe.attack, &[])),
            Door::ReadTool(path) => {
                let arguments = serde_json::json!({"path": self.place.fill(path)});
                self.tool("palyra.fs.read", &arguments.to_string())
            }
            Door::WriteTool(path) => {
                let path = self.place.fill(path);
                let arguments =
                    serde_json::json!({"path": path, "content": MARK, "create_parents": true});
                self.tool("palyra.fs.write", &arguments.to_string())
            }
        };
        self.place.weigh(probe, said)
    }

    /// An attack as a process of a call, with more to say to `palyra exec`.
    pub(crate) fn run(&self, attack: &str, more: &[&str]) -> Ran {
        self.daemon.palyra(&self.arguments(attack, more).each())
    }

    /// What `palyra` has to be told for that.
    pub(crate) fn arguments(&self, attack: &str, more: &[&str]) -> Words {
        let program = self.place.work().join("attack").display().to_string();
        let mut words: Vec<String> = ["exec", "--quiet", "--tier", self.tier]
            .iter()
            .chain(more)
            .map(|&word| word.to_owned())
            .collect();
        words.extend(["--".to_owned(), program]);
        words.extend(self.place.words(attack));
        Words(words)
    }

    fn tool(&self, tool: &str, arguments: &str) -> Verdict {
        let ran = self
            .daemon
            .palyra(&["call", tool, "--args", arguments, "--json"]);
        match ran.code {
            Some(0) => Verdict::Open(ran.stdout),
            _ => {
                let answer = ran.json();
                let code = ["error", "problem"].map(|part| answer[part]["code"].as_str());
                match code.into_iter().flatten().next() {
                    // A sandbox that refuses everything holds nothing.
                    Some(code) if !code.starts_with("sandbox_") => Verdict::Held(code.to_owned()),
                    Some(_) | None => Verdict::Broken(format!("{ran:?}")),
                }
            }
        }
    }
}

/// Words that belong to nobody.
pub(crate) struct Words(Vec<String>);

impl Words {
    pub(crate) fn each(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}
