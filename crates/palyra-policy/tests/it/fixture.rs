//! An engine with a few tools and agents, and calls to ask it about.

use std::path::Path;

use palyra_core::facts::Origin;
use palyra_core::{
    ApprovalId, CallDigest, CallId, CanonicalJson, Channel, DeviceId, DigestKey, Effect, Facts,
    Grant, Limits, Principal, ProgramFacts, ProgramGroup, ReplyPlan, Risk, RiskLevel, RunId, Tier,
    Timestamp, ToolCapability, ToolMetadata, ToolName, ToolProposal, Understanding, UserName,
};
use palyra_policy::PolicyEngine;

pub(crate) const ECHO: &str = "palyra.echo";
pub(crate) const RUN: &str = "palyra.process.run";
pub(crate) const READ: &str = "palyra.fs.read";
pub(crate) const WRITE: &str = "palyra.fs.write";
pub(crate) const SHY: &str = "palyra.shy";

/// The instant at which every call of these tests is asked.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_042);

pub(crate) fn tool(name: &str) -> ToolMetadata {
    let needs: &[ToolCapability] = match name {
        RUN => &[ToolCapability::ProcessExec],
        READ => &[ToolCapability::FilesystemRead],
        WRITE => &[ToolCapability::FilesystemWrite],
        _ => &[],
    };
    ToolMetadata {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: needs.iter().copied().collect(),
        // Sensitive although it needs nothing.
        default_sensitive: name == SHY,
        max_input_bytes: 1024,
        default_limits: Limits::default(),
    }
}

pub(crate) fn tools() -> Vec<ToolMetadata> {
    [ECHO, RUN, READ, WRITE, SHY].map(tool).to_vec()
}

/// `claude` and `codex` act for the owner, `stray` for a guest whom no policy knows.
pub(crate) fn engine_of(source: &str) -> PolicyEngine {
    furnish(PolicyEngine::new(source).unwrap())
}

/// The same engine with the tools and agents of these tests.
pub(crate) fn furnish(engine: PolicyEngine) -> PolicyEngine {
    engine.set_tools(&tools()).unwrap();
    let agents = [("claude", "owner"), ("codex", "owner"), ("stray", "guest")];
    let agents = agents.map(|(agent, user)| (agent.parse().unwrap(), user.parse().unwrap()));
    engine.set_agents(agents).unwrap();
    engine
}

pub(crate) fn engine() -> PolicyEngine {
    engine_of(palyra_policy::DEFAULT_POLICY_SRC)
}

/// `owner`, `guest`, or the name of an agent.
pub(crate) fn who(name: &str) -> Principal {
    match name {
        "owner" | "guest" => Principal::User {
            name: name.parse().unwrap(),
        },
        "stray" => agent_of("stray", "guest"),
        agent => agent_of(agent, "owner"),
    }
}

pub(crate) fn agent_of(agent: &str, user: &str) -> Principal {
    Principal::Agent {
        name: agent.parse().unwrap(),
        user: user.parse::<UserName>().unwrap(),
    }
}

pub(crate) fn name(tool: &str) -> ToolName {
    tool.parse().unwrap()
}

/// A call of this tool with these arguments.
pub(crate) fn call(principal: &Principal, tool_name: &str, arguments: &str) -> Facts {
    let origin = Origin {
        principal: principal.clone(),
        run: RunId::mint(NOW),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let arguments = serde_json::json!({ "text": arguments });
    let proposal = ToolProposal {
        tool: name(tool_name),
        arguments: CanonicalJson::from_value(&arguments).unwrap(),
    };
    let effects = vec![Effect::Exec {
        program: "/usr/bin/git".into(),
    }];
    let facts = Facts::new(
        CallId::mint(NOW),
        origin,
        &tool(tool_name),
        &proposal,
        effects,
        Some("/src/project".into()),
        Tier::B,
        &ReplyPlan { reply: arguments },
        &DigestKey::from_bytes([7; 32]),
        NOW,
        1,
    );
    let effects = facts.effects.clone();
    does(facts, effects)
}

/// The same call with these effects, all of it understood.
pub(crate) fn does(mut facts: Facts, effects: Vec<Effect>) -> Facts {
    let programs = effects.iter().filter_map(|effect| match effect {
        Effect::Exec { program } => Some(known(program)),
        Effect::FsRead { .. } | Effect::FsWrite { .. } | Effect::NetConnect { .. } => None,
    });
    let understood = Understanding {
        opaque: false,
        programs: programs.collect(),
        risk: Risk {
            level: RiskLevel::Medium,
            reasons: Vec::new(),
        },
        scopes: Vec::new(),
    };
    facts.effects = effects;
    facts.with_understanding(understood)
}

/// A few programs and the groups they are in.
pub(crate) fn known(program: &Path) -> ProgramFacts {
    let name = program.file_name().and_then(|name| name.to_str());
    let groups = match name.unwrap_or_default() {
        "bash" | "sh" | "python3.12" => vec![ProgramGroup::Interpreters],
        "env" => vec![ProgramGroup::Wrappers],
        "sudo" => vec![ProgramGroup::Wrappers, ProgramGroup::System],
        "git" => vec![ProgramGroup::Vcs, ProgramGroup::Network],
        _ => Vec::new(),
    };
    ProgramFacts {
        program: program.to_owned(),
        real: None,
        groups,
    }
}

/// A yes that fits this call of `claude`, ending a minute from now.
pub(crate) fn grant_for(digest: &CallDigest) -> Grant {
    Grant {
        approval: ApprovalId::mint(NOW),
        standing: None,
        scope: None,
        agent: "claude".parse().unwrap(),
        digest: *digest,
        not_after: Timestamp::from_millis(NOW.as_millis() + 60_000),
        people: 1,
    }
}

/// The same call with a yes, which may be changed first.
pub(crate) fn granted(facts: Facts, change: impl FnOnce(&mut Grant)) -> Facts {
    let mut grant = grant_for(facts.digest());
    change(&mut grant);
    let now = facts.now;
    facts.with_grant(grant, now)
}
