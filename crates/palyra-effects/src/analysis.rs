//! A call, taken apart: the doors of this room.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use palyra_core::{Effect, EgressEnforcementMode, EgressRule, ProgramFacts, ProgramGroup, Risk};

use crate::opaque::Opaque;
use crate::resolver::Resolver;
use crate::risk;
use crate::unfold::{Input, Unfolder};
use crate::words::Word;
use crate::{builtins, scopes};

/// Shell text in one call, in bytes, all nested texts together.
const MOST_TEXT: usize = 64 << 10;

/// One command of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its words, the name first.
    pub words: Vec<Word>,
    /// The program, when it was found.
    pub program: Option<PathBuf>,
}

/// A file that a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Where it is looked for, absolute; links are as they are.
    pub path: PathBuf,
    /// Whether it runs as it is found when the call starts. What a shell's text names may be made or
    /// changed by the same text first.
    pub at_once: bool,
}

/// What a process reads on standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read<'a> {
    /// Nothing that the call says.
    Nothing,
    /// This text.
    Text(&'a str),
    /// What comes while it runs. Nobody knows what that will be, so nothing that the words say is
    /// all of it: a pager, an editor and a debugger start what is typed into them.
    Live,
}

/// A process that somebody wants to run.
#[derive(Debug, Clone, Copy)]
pub struct ProcessCall<'a> {
    /// The words, the program's name first.
    pub argv: &'a [String],
    /// Where it starts, real.
    pub cwd: &'a Path,
    /// Its `PATH`.
    pub path: &'a str,
    /// The variables that the call itself sets, without `PATH`.
    pub environment: &'a [(&'a str, &'a str)],
    /// The secrets that it uses, each with where it finds what stands for it. A place that is a
    /// variable is among the variables too.
    pub secrets: &'a [(String, String)],
    /// What it reads on standard input.
    pub stdin: Read<'a>,
    /// Its `HOME`.
    pub home: Option<&'a str>,
    /// The folder it works on, real.
    pub workspace: &'a Path,
    /// What it may reach over the network.
    pub egress: EgressEnforcementMode,
    /// The hosts that it asks for.
    pub hosts: &'a [EgressRule],
}

/// What a file tool does to its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Reads or lists.
    Read,
    /// Writes or patches.
    Write,
}

/// What was found in a call.
#[derive(Debug, Clone)]
pub struct Analysis {
    /// Its commands, in the order in which they were found.
    pub segments: Vec<Segment>,
    /// What it does, without repetition.
    pub effects: Vec<Effect>,
    /// Why it could not be understood completely; empty when it was.
    pub opaque: BTreeSet<Opaque>,
    /// The programs it runs.
    pub programs: Vec<ProgramFacts>,
    /// The files that it runs, as far as its words name them: programs, and what interpreters and
    /// wrappers are given.
    pub code: Vec<Code>,
    /// Whether a program among these runs files that it opens by itself, so that `code` is not all
    /// of what runs.
    pub reads_more_code: bool,
    /// How bad it can be.
    pub risk: Risk,
    pub(crate) breadth: scopes::Breadth,
}

impl Analysis {
    /// Whether there may be more to this call than was found.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        !self.opaque.is_empty()
    }
}

/// What a process call does.
#[must_use]
pub fn of_process(call: &ProcessCall<'_>, resolver: &dyn Resolver) -> Analysis {
    let mut unfolder = Unfolder {
        resolver,
        path: call.path,
        workspace: call.workspace,
        home: call.home,
        folders: vec![call.cwd.to_owned()],
        functions: BTreeSet::new(),
        repeated: 0,
        segments: Vec::new(),
        effects: Vec::new(),
        programs: Vec::new(),
        opaque: BTreeSet::new(),
        notes: BTreeSet::new(),
        code: Vec::new(),
        in_text: 0,
        text_left: MOST_TEXT,
    };
    if call
        .environment
        .iter()
        .any(|(name, _)| builtins::is_decisive(name))
        || has_own_programs(call)
    {
        unfolder.opaque(Opaque::Environment);
    }
    let words = call.argv.iter().cloned().map(Word::Known).collect();
    let input = match call.stdin {
        Read::Text(text) => Input::Text(text.to_owned()),
        Read::Nothing => Input::Unknown,
        Read::Live => {
            unfolder.opaque(Opaque::LiveInput);
            Input::Unknown
        }
    };
    unfolder.argv(words, input, 0);
    // What it asks for it may do, whatever its words say.
    for rule in call.hosts {
        let (host, port) = (rule.host.exact().cloned(), Some(rule.port));
        unfolder.effects_of_request(host, port);
    }
    if !call.egress.is_enforced() {
        unfolder.notes.insert(risk::Note::Unrestricted);
    }
    let breadth = scopes::Breadth::of_process(call, &unfolder);
    let risk = risk::of(
        &unfolder.effects,
        &unfolder.programs,
        &unfolder.opaque,
        &unfolder.notes,
        Some(call.workspace),
    );
    Analysis {
        segments: unfolder.segments,
        effects: unfolder.effects,
        opaque: unfolder.opaque,
        reads_more_code: reads_more_code(&unfolder.programs),
        programs: unfolder.programs,
        code: unfolder.code,
        risk,
        breadth,
    }
}

/// Interpreters import and build tools read their recipes; what those are, the words do not say.
fn reads_more_code(programs: &[ProgramFacts]) -> bool {
    let groups = programs.iter().flat_map(|program| &program.groups);
    groups.into_iter().any(|group| match group {
        ProgramGroup::Interpreters | ProgramGroup::Build => true,
        ProgramGroup::Wrappers
        | ProgramGroup::Vcs
        | ProgramGroup::Network
        | ProgramGroup::Destructive
        | ProgramGroup::System
        | ProgramGroup::Local => false,
    })
}

/// Whether programs are looked up where the agent can put them: those that a call names are found
/// and seen, but they look for others themselves (`tar` for `gzip`, `git` for `ssh`).
fn has_own_programs(call: &ProcessCall<'_>) -> bool {
    let mut folders = call.path.split(':').map(Path::new);
    folders.any(|folder| !folder.is_absolute() || folder.starts_with(call.workspace))
}

/// What a file tool's call does to `path`, absolute.
///
/// The path is the real one: a link that leaves the workspace shows where it leads.
#[must_use]
pub fn of_file(
    access: FileAccess,
    path: &Path,
    workspace: &Path,
    resolver: &dyn Resolver,
) -> Analysis {
    let mut opaque = BTreeSet::new();
    let path = resolver.real(path).unwrap_or_else(|| {
        opaque.insert(Opaque::UnknownPath);
        path.to_owned()
    });
    let breadth = scopes::Breadth::of_file(access, &path, opaque.is_empty());
    let effects = vec![match access {
        FileAccess::Read => Effect::FsRead { path },
        FileAccess::Write => Effect::FsWrite { path },
    }];
    let risk = risk::of(&effects, &[], &opaque, &BTreeSet::new(), Some(workspace));
    Analysis {
        segments: Vec::new(),
        effects,
        opaque,
        programs: Vec::new(),
        code: Vec::new(),
        reads_more_code: false,
        risk,
        breadth,
    }
}

/// A call that does nothing to the machine.
#[must_use]
pub fn of_nothing() -> Analysis {
    let nothing = BTreeSet::new();
    Analysis {
        segments: Vec::new(),
        effects: Vec::new(),
        opaque: BTreeSet::new(),
        programs: Vec::new(),
        code: Vec::new(),
        reads_more_code: false,
        risk: risk::of(&[], &[], &nothing, &BTreeSet::new(), None),
        breadth: scopes::Breadth::of_nothing(),
    }
}
