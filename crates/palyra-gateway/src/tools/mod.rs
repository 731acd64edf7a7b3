//! The tools. Adding one is adding a file here and its line in [`Registry::standard`].
//!
//! A tool describes itself ([`ToolMetadata`]) and turns checked arguments into a plan. It runs
//! nothing: the plan names the executor, and only the corridor reaches executors.

mod echo;
mod files;
mod process_run;

use std::path::{Path, PathBuf};

use palyra_core::{
    CanonicalJson, CodeFact, FileId, FilePlan, FsRule, Plan, PlanDigest, ProcessPlan, ReplyPlan,
    Tier, ToolMetadata, ToolName,
};

use palyra_core::plan::RunAs;
use palyra_effects::Analysis;
use palyra_sandbox::{CodeWanted, PinProblem, Sandbox};

use crate::error::{Refusal, RefusalKind};
use crate::network::EgressSettings;
use crate::people::People;

/// What a call comes down to.
#[derive(Debug, Clone)]
pub enum AnyPlan {
    /// A reply of ours.
    Reply(ReplyPlan),
    /// A process.
    Process(Box<ProcessPlan>),
    /// A file operation.
    File(Box<FilePlan>),
}

impl AnyPlan {
    /// Whether secrets are put into its requests.
    pub(crate) fn uses_secrets(&self) -> bool {
        match self {
            Self::Process(plan) => !plan.secrets.is_empty(),
            Self::Reply(_) | Self::File(_) => false,
        }
    }

    pub(crate) const fn tier(&self) -> Tier {
        match self {
            Self::Reply(_) => Tier::Builtin,
            Self::Process(plan) => plan.tier,
            Self::File(plan) => plan.tier,
        }
    }
}

impl AnyPlan {
    /// Whether its caller sends it something while it runs.
    pub(crate) const fn takes_input(&self) -> bool {
        match self {
            Self::Process(plan) => plan.stdin.is_live(),
            Self::Reply(_) | Self::File(_) => false,
        }
    }
}

impl Plan for AnyPlan {
    fn digest(&self) -> PlanDigest {
        match self {
            Self::Reply(plan) => plan.digest(),
            Self::Process(plan) => plan.digest(),
            Self::File(plan) => plan.digest(),
        }
    }
}

/// A call made ready: what it does, and what exactly would run.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What it does to the machine, and what was understood of it.
    pub analysis: Analysis,
    /// What would run.
    pub plan: AnyPlan,
    /// The files that run, of a plan that does not say yet what is in them.
    pub code: Option<CodeWanted>,
}

impl Prepared {
    /// The same, with what is in the files that run: the plan of a process means nothing before.
    ///
    /// # Errors
    /// What would run cannot be told.
    pub(crate) async fn pinned(mut self, sandbox: &Sandbox) -> Result<Self, Refusal> {
        if let (Some(wanted), AnyPlan::Process(plan)) = (self.code.take(), &mut self.plan) {
            plan.code = sandbox
                .pin(wanted)
                .await
                .map_err(|error| unpinned(&error))?;
        }
        Ok(self)
    }

    /// The files that run, for policy and for a person.
    pub(crate) fn code_facts(&self) -> Vec<CodeFact> {
        match &self.plan {
            AnyPlan::Process(plan) => plan.code.iter().map(CodeFact::from).collect(),
            AnyPlan::Reply(_) | AnyPlan::File(_) => Vec::new(),
        }
    }
}

fn unpinned(problem: &PinProblem) -> Refusal {
    let (kind, code, next_step) = match problem {
        PinProblem::Changed(_) => (
            RefusalKind::Conflict,
            "program_changed",
            "repeat the call when nothing changes the program or a link to it",
        ),
        PinProblem::TooLarge(_) => (
            RefusalKind::TooLarge,
            "program_too_large",
            "run a smaller program, or a part of it",
        ),
        PinProblem::Unreadable(..) => (
            RefusalKind::Invalid,
            "program_unreadable",
            "make it readable for whom the call runs as: what cannot be read cannot be approved",
        ),
        PinProblem::NoInterpreter(..) => (
            RefusalKind::NotFound,
            "program_not_found",
            "install the interpreter, or mend the script's first line",
        ),
    };
    Refusal::new(kind, code, problem.to_string(), next_step)
}

/// Where a call is prepared.
#[derive(Debug)]
pub struct Place<'a> {
    /// The folder it works on, real.
    pub workspace: Option<&'a Path>,
    /// The daemon's own folders.
    pub masked: &'a [PathBuf],
    /// What calls may do with files, besides what is usual.
    pub rules: &'a [FsRule],
    /// The people of this machine, for `HOME`.
    pub people: &'a People,
    /// How calls reach hosts.
    pub egress: &'a EgressSettings,
    /// Whether this machine has Tier-C.
    pub has_tier_c: bool,
}

/// A workspace as it was found, once: which folder exactly, and under which uid calls in it run.
struct Ground<'a> {
    path: &'a Path,
    id: FileId,
    run_as: RunAs,
}

impl Place<'_> {
    /// The strongest tier that a call can have here.
    const fn strongest(&self) -> Tier {
        if self.has_tier_c { Tier::C } else { Tier::B }
    }

    fn ground(&self, tier: Tier) -> Result<Ground<'_>, Refusal> {
        let path = self.workspace()?;
        let found = palyra_sandbox::look_at_folder(path).map_err(|error| {
            Refusal::new(
                RefusalKind::Invalid,
                "workspace_missing",
                format!("the folder `{}` cannot be used: {error}", path.display()),
                "choose another with `--workspace`",
            )
        })?;
        let group = self.people.group_of(found.uid);
        let run_as = palyra_sandbox::run_as(found.uid, group, tier).map_err(|error| {
            Refusal::new(
                RefusalKind::Forbidden,
                "root_in_tier_b",
                format!("`{}`: {error}", path.display()),
                "leave `--tier` out (Tier-C lends it a uid of its own), work on a folder of an \
                 ordinary user, or see `palyra doctor` for what Tier-C lacks",
            )
        })?;
        Ok(Ground {
            path,
            id: found.id,
            run_as,
        })
    }

    fn workspace(&self) -> Result<&Path, Refusal> {
        self.workspace.ok_or_else(|| {
            Refusal::new(
                RefusalKind::Invalid,
                "workspace_required",
                "this tool works on a folder and none was given",
                "give one with `--workspace DIR`",
            )
        })
    }
}

/// A tool.
pub trait Tool: Send + Sync {
    /// What it says of itself.
    fn metadata(&self) -> ToolMetadata;

    /// Turns arguments that fit the schema into a plan.
    ///
    /// # Errors
    /// The arguments fit the schema and still make no sense here.
    fn prepare(&self, arguments: &CanonicalJson, place: &Place<'_>) -> Result<Prepared, Refusal>;
}

/// A tool with what is computed once.
pub struct Registered {
    /// What the tool says of itself.
    pub metadata: ToolMetadata,
    schema: jsonschema::Validator,
    tool: Box<dyn Tool>,
}

/// Every tool, by name.
pub struct Registry(Vec<Registered>);

/// A tool's schema is no schema: a mistake of ours, found at start.
#[derive(Debug, thiserror::Error)]
#[error("the schema of tool `{tool}` cannot be used: {why}")]
pub struct BadSchema {
    tool: ToolName,
    why: String,
}

impl Registry {
    /// The tools we ship.
    ///
    /// # Errors
    /// One of them has a broken schema.
    pub fn standard() -> Result<Self, BadSchema> {
        Self::of(vec![
            Box::new(echo::Echo),
            Box::new(process_run::ProcessRun),
            Box::new(files::FileTool::Read),
            Box::new(files::FileTool::List),
            Box::new(files::FileTool::Write),
            Box::new(files::FileTool::ApplyPatch),
        ])
    }

    fn of(tools: Vec<Box<dyn Tool>>) -> Result<Self, BadSchema> {
        let register = |tool: Box<dyn Tool>| {
            let metadata = tool.metadata();
            match jsonschema::validator_for(&metadata.input_schema) {
                Ok(schema) => Ok(Registered {
                    metadata,
                    schema,
                    tool,
                }),
                Err(error) => Err(BadSchema {
                    tool: metadata.name,
                    why: error.to_string(),
                }),
            }
        };
        tools
            .into_iter()
            .map(register)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.0.iter()
    }

    /// The tool of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Registered> {
        let mut tools = self.0.iter();
        tools.find(|tool| tool.metadata.name.as_str() == name)
    }
}

/// There is no tool of this name; names the nearest of those that the caller may hear of.
pub(crate) fn unknown<'a>(
    name: &str,
    listed: impl IntoIterator<Item = &'a ToolMetadata>,
) -> Refusal {
    let near = |tool: &&ToolMetadata| strsim::jaro_winkler(tool.name.as_str(), name);
    let nearest = listed
        .into_iter()
        .max_by(|one, other| near(one).total_cmp(&near(other)));
    let hint = nearest.map_or_else(String::new, |tool| {
        format!("did you mean `{}`? ", tool.name)
    });
    let shown: String = name.escape_debug().take(140).collect();
    Refusal::new(
        RefusalKind::NotFound,
        "unknown_tool",
        format!("there is no tool `{shown}`"),
        format!("{hint}see `palyra tools list`"),
    )
}

impl Registered {
    /// Checks arguments against the size cap and the schema, then prepares the call.
    pub(crate) fn prepare(
        &self,
        arguments: &CanonicalJson,
        place: &Place<'_>,
    ) -> Result<Prepared, Refusal> {
        let name = self.metadata.name.as_str();
        let size = arguments.bytes().len() as u64;
        if size > self.metadata.max_input_bytes {
            return Err(Refusal::new(
                RefusalKind::TooLarge,
                "input_too_large",
                format!(
                    "`{name}` takes {} bytes of arguments and was given {size}",
                    self.metadata.max_input_bytes
                ),
                "send less; put large content into a file of the workspace",
            ));
        }
        if let Some(error) = self.schema.iter_errors(arguments.value()).next() {
            let place = error.instance_path().to_string();
            let what = match place.as_str() {
                "" => "the arguments".to_owned(),
                place => format!("`{place}`"),
            };
            let why: String = error.to_string().chars().take(300).collect();
            return Err(Refusal::arguments(format!("{what}: {why}"), name));
        }
        self.tool.prepare(arguments, place)
    }
}

/// A tool name of ours.
fn own_name(name: &'static str) -> ToolName {
    #[expect(
        clippy::expect_used,
        reason = "the names in this folder are legal; a test lists them"
    )]
    name.parse().expect("a legal tool name")
}

fn text<'a>(arguments: &'a CanonicalJson, member: &str) -> Option<&'a str> {
    arguments.value().get(member)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_registers_under_its_own_name() {
        let registry = Registry::standard().unwrap();
        let names: Vec<&str> = registry
            .iter()
            .map(|tool| tool.metadata.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "palyra.echo",
                "palyra.process.run",
                "palyra.fs.read",
                "palyra.fs.list",
                "palyra.fs.write",
                "palyra.fs.apply_patch"
            ]
        );
    }

    #[test]
    fn a_typo_is_met_with_the_nearest_name() {
        let registry = Registry::standard().unwrap();
        assert!(registry.find("palyra.fs.raed").is_none());
        let listed = registry.iter().map(|tool| &tool.metadata);
        let refusal = unknown("palyra.fs.raed", listed);
        assert_eq!(refusal.code, "unknown_tool");
        assert!(
            refusal.next_step.contains("palyra.fs.read"),
            "{}",
            refusal.next_step
        );
    }
}
