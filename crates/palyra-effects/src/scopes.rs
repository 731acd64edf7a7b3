//! Scope keys: what one yes may stand for, and never more.
//!
//! Every key is a keyed digest of typed facts. An opaque call, an interpreter, a wrapper and a
//! program of the workspace have `exact` only: what they do is not in their name. A call
//! that is destructive or names a path outside the workspace keeps `exact` and `shape`. Since such calls lack the wider keys, a grant for a wider scope
//! never covers them either.

use std::path::{Path, PathBuf};

use palyra_core::facts::Origin;
use palyra_core::{
    CallDigest, DigestKey, Effect, ProgramGroup, Scope, ScopeKind, Tier, ToolName, Understanding,
};

use crate::analysis::{Analysis, FileAccess, ProcessCall, Read};
use crate::paths;
use crate::risk::Note;
use crate::unfold::Unfolder;
use crate::words::Word;

/// Whose call it is: part of every key.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Agent, user, session, device and channel.
    pub origin: &'a Origin,
    /// The tool.
    pub tool: &'a ToolName,
    /// The folder it works on.
    pub workspace: Option<&'a Path>,
    /// How strongly it is confined.
    pub tier: Tier,
    /// Exactly this call.
    pub exact: &'a CallDigest,
}

/// How far beyond itself a call may stand, before it is known whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Breadth(Vec<(ScopeKind, Vec<String>, String)>);

impl Breadth {
    pub(crate) fn of_nothing() -> Self {
        Self(vec![tool()])
    }

    pub(crate) fn of_file(access: FileAccess, path: &Path, known: bool) -> Self {
        let Some(folder) = path.parent().filter(|_| known) else {
            return Self(Vec::new());
        };
        let verb = match access {
            FileAccess::Read => "read",
            FileAccess::Write => "write",
        };
        let shown = folder.display().to_string();
        let sentence = format!("{verb} files directly in `{shown}`");
        // What git runs is written there.
        if verb == "write" && paths::is_of_git(path) {
            return Self(Vec::new());
        }
        Self(vec![
            (ScopeKind::Directory, vec![verb.to_owned(), shown], sentence),
            tool(),
        ])
    }

    pub(crate) fn of_process(call: &ProcessCall<'_>, unfolder: &Unfolder<'_>) -> Self {
        let narrow = |group: &ProgramGroup| {
            matches!(
                group,
                ProgramGroup::Interpreters
                    | ProgramGroup::Wrappers
                    | ProgramGroup::Local
                    | ProgramGroup::System
            )
        };
        let programs = &unfolder.programs;
        let exact_only = !unfolder.opaque.is_empty()
            || programs
                .iter()
                .flat_map(|program| &program.groups)
                .any(narrow);
        let (Some(program), false) = (programs.first(), exact_only) else {
            return Self(Vec::new());
        };
        let path = program.program.display().to_string();
        // Another input or another variable is another call.
        let mut hosts = hosts(&unfolder.effects);
        let shown = hosts.join(", ");
        let connects = !hosts.is_empty();
        hosts.extend(given(call));
        let shape = shape(call, unfolder);
        let spelled = shape.join(" ");
        let mut scopes = vec![(
            ScopeKind::Shape,
            with(&path, shape.iter().chain(&hosts)),
            format!("run `{spelled}`, where each `*` is anything inside the workspace"),
        )];
        let bounded = |note: &Note| matches!(note, Note::Destructive(_) | Note::Outside);
        let of_git =
            |effect: &Effect| matches!(effect, Effect::FsWrite { path } if paths::is_of_git(path));
        if unfolder.effects.iter().any(of_git) {
            return Self(Vec::new());
        }
        if unfolder.notes.iter().any(bounded) {
            return Self(scopes);
        }
        if connects {
            let sentence = format!("let `{path}` connect to {shown}");
            scopes.push((ScopeKind::Host, with(&path, &hosts), sentence));
        }
        let folder = call.cwd.display().to_string();
        scopes.extend([
            (
                ScopeKind::Directory,
                with(&path, std::iter::once(&folder).chain(&hosts)),
                format!("run `{path}` in `{folder}` with any arguments"),
            ),
            (
                ScopeKind::Program,
                with(&path, &hosts),
                format!("run `{path}` with any arguments"),
            ),
        ]);
        // A yes to the whole tool is none to the machine's own network, nor to hosts and the secrets
        // that go there: those are said by nothing in it.
        if call.egress.is_enforced() && call.hosts.is_empty() {
            scopes.push(tool());
        }
        Self(scopes)
    }
}

/// What a call hands to its program beside its words.
fn given(call: &ProcessCall<'_>) -> Vec<String> {
    let mut given: Vec<String> = call
        .environment
        .iter()
        .map(|(name, value)| format!("with {name}={value}"))
        .collect();
    given.sort_unstable();
    given.push(format!("path {}", call.path));
    given.extend(
        call.secrets
            .iter()
            .map(|(name, at)| format!("secret {name} at {at}")),
    );
    // A yes to what is held to its hosts is none to what is not.
    if !call.egress.is_enforced() {
        given.push(format!("egress {}", call.egress.as_str()));
    }
    // A host that its words name and one that it may really reach are not the same.
    given.extend(
        call.hosts
            .iter()
            .map(|rule| format!("allowed {rule} {}", rule.inward)),
    );
    given.extend(match call.stdin {
        Read::Nothing => None,
        Read::Text(text) => Some(format!("input {text}")),
        Read::Live => Some("live input".to_owned()),
    });
    given
}

fn tool() -> (ScopeKind, Vec<String>, String) {
    (
        ScopeKind::Tool,
        Vec::new(),
        "anything that this tool does".to_owned(),
    )
}

fn with<'a>(first: &str, rest: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let rest = rest.into_iter().cloned();
    std::iter::once(first.to_owned()).chain(rest).collect()
}

fn hosts(effects: &[Effect]) -> Vec<String> {
    let mut hosts: Vec<String> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::NetConnect {
                host,
                port: Some(port),
            } => Some(format!("{host} port {port}")),
            Effect::NetConnect { host, port: None } => Some(host.to_string()),
            Effect::Exec { .. } | Effect::FsRead { .. } | Effect::FsWrite { .. } => None,
        })
        .collect();
    hosts.sort_unstable();
    hosts
}

/// Argv with a `*` for each operand that stays inside the workspace: `git commit -m *`.
///
/// Options stay as they are. So does every word that may mean more than a file or a text: a path
/// that leads out, `name=value`, an address. The first operand of version control is its command
/// and stays, too. Words of a build tool say what code runs (`npm run x`), so they all stay; and
/// after an option before the command nobody here knows which word the command is.
fn shape(call: &ProcessCall<'_>, unfolder: &Unfolder<'_>) -> Vec<String> {
    let first = unfolder.programs.first();
    let is = |group| first.is_some_and(|program| program.groups.contains(&group));
    let vcs = is(ProgramGroup::Vcs);
    let early = call.argv.get(1).is_some_and(|word| word.starts_with('-'));
    if is(ProgramGroup::Build) || (vcs && early) {
        return call.argv.to_vec();
    }
    let mut command = vcs;
    let mut options = true;
    let mut shape = Vec::with_capacity(call.argv.len());
    for (at, word) in call.argv.iter().enumerate() {
        if at == 0 {
            shape.push(word.clone());
        } else if options && word == "--" {
            options = false;
            shape.push(word.clone());
        } else if options && word.starts_with(['-', '+']) {
            shape.push(word.clone());
        } else if command {
            command = false;
            shape.push(word.clone());
        } else if stays_inside(word, call, unfolder) {
            shape.push("*".to_owned());
        } else {
            shape.push(word.clone());
        }
    }
    shape
}

fn stays_inside(word: &str, call: &ProcessCall<'_>, unfolder: &Unfolder<'_>) -> bool {
    if word.starts_with(['~', '@', '*']) || word.contains([':', '=', '@']) {
        return false;
    }
    let real: Option<PathBuf> = unfolder.resolver.real(&call.cwd.join(word));
    real.is_some_and(|real| real.starts_with(call.workspace))
}

impl Analysis {
    /// What policy and a person see of this call, with the scope keys of `identity`.
    #[must_use]
    pub fn understanding(&self, identity: &Identity<'_>, key: &DigestKey) -> Understanding {
        let exact = (
            ScopeKind::Exact,
            vec![identity.exact.to_text()],
            match self.is_opaque() {
                true => "only this call, word for word; it could not be understood".to_owned(),
                false => "only this call, word for word".to_owned(),
            },
        );
        let scopes = std::iter::once(&exact).chain(&self.breadth.0);
        Understanding {
            reads_more_code: self.reads_more_code,
            opaque: self.is_opaque(),
            programs: self.programs.clone(),
            risk: self.risk.clone(),
            scopes: scopes.map(|scope| identity.scope(scope, key)).collect(),
        }
    }

    /// The shell's and wrappers' commands, for a person: one line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |words: &[Word]| -> String {
            let shown: Vec<&str> = words.iter().map(Word::shown).collect();
            shown.join(" ")
        };
        self.segments
            .iter()
            .map(|segment| line(&segment.words))
            .collect()
    }
}

impl Identity<'_> {
    fn scope(&self, scope: &(ScopeKind, Vec<String>, String), key: &DigestKey) -> Scope {
        let (kind, facts, sentence) = scope;
        let agent = self
            .origin
            .principal
            .agent()
            .map_or("", |agent| agent.as_str());
        let workspace = self.workspace.map(|folder| folder.display().to_string());
        // What belongs to no session is one of its own.
        let session = self.origin.session.as_ref();
        let session = session.map_or(self.origin.run.as_str(), |session| session.as_str());
        let keyed = |reach: &str, session: &str| {
            let mut parts: Vec<&[u8]> = [
                kind.as_str(),
                reach,
                session,
                agent,
                self.origin.principal.user().as_str(),
                self.origin.device.as_str(),
                self.origin.channel.as_str(),
                self.tool.as_str(),
                self.tier.as_str(),
                workspace.as_deref().unwrap_or_default(),
            ]
            .map(str::as_bytes)
            .to_vec();
            parts.extend(facts.iter().map(String::as_bytes));
            key.scope_key(&parts)
        };
        Scope {
            kind: *kind,
            session: keyed("session", session),
            window: keyed("window", ""),
            sentence: sentence.clone(),
        }
    }
}
