//! What is decided about: policies by the thousand, agents, tools, and calls.

use std::fmt::Write as _;

use palyra_core::facts::Origin;
use palyra_core::{
    CallId, CanonicalJson, Channel, DeviceId, DigestKey, Effect, Facts, Limits, Principal,
    ProgramFacts, ProgramGroup, ReplyPlan, Risk, RiskLevel, RunId, Tier, Timestamp, ToolCapability,
    ToolMetadata, ToolProposal, Understanding, UserName,
};
use palyra_policy::PolicyEngine;
use palyra_policy::operator::{Bundle, NamedSource};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_042);
const AGENTS: usize = 100;
const TOOLS: usize = 50;
/// As many as fit into the files that a folder may hold.
const IN_ONE_FILE: usize = 2_500;

/// The ten that decide about every call.
const TEN: &str = include_str!("ten.cedar");

/// Ten policies and then rules about single agents with single tools, folders and domains, in
/// files as an operator would have them.
pub(crate) fn sources(count: usize) -> (NamedSource, Vec<NamedSource>) {
    let mut files: Vec<String> = Vec::new();
    for number in 0..count.saturating_sub(10) {
        if number % IN_ONE_FILE == 0 {
            files.push(String::new());
        }
        let file = files.last_mut().unwrap();
        file.push_str(&rule(number));
    }
    let named = files.into_iter().enumerate();
    let named = named.map(|(at, text)| NamedSource::new(format!("rules-{at}.cedar"), text));
    (NamedSource::new("ten.cedar", TEN), named.collect())
}

fn rule(number: usize) -> String {
    let agent = number / 3 % AGENTS;
    let group = number / 3 / AGENTS;
    let (resource, what) = match number % 3 {
        0 => (
            format!("== Palyra::Tool::\"tool.{}\"", group % TOOLS),
            "tool",
        ),
        1 => (
            format!("in Palyra::Path::\"/home/ada/src/p{group}\""),
            "path",
        ),
        _ => (
            format!("in Palyra::Domain::\"d{group}.example.com\""),
            "host",
        ),
    };
    let (effect, condition) = match number / 7 % 3 {
        0 => (
            "forbid",
            format!("context.calls_last_minute > {}", 100 + number),
        ),
        1 => (
            "permit",
            format!("context.tier >= 3 && context.calls_last_minute < {number}"),
        ),
        _ => (
            "permit",
            "context.capabilities.contains(\"network\") && context has grant".to_owned(),
        ),
    };
    let verb = if number.is_multiple_of(2) {
        "run"
    } else {
        "ask"
    };
    let mut text = String::new();
    write!(
        text,
        "@id(\"rule-{number}\")\n@reason(\"rule {number} about a {what}\")\n\
         {effect} (\n  principal == Palyra::Agent::\"agent-{agent}\",\n  \
         action in Palyra::Action::\"{verb}\",\n  resource {resource}\n)\nwhen {{ {condition} }};\n\n"
    )
    .unwrap();
    text
}

pub(crate) fn bundle(count: usize) -> Bundle {
    let (ten, rules) = sources(count);
    let bundle = Bundle::load(&ten, &rules).unwrap();
    assert_eq!(bundle.policies().len(), count);
    bundle
}

/// An engine among as many policies, with its agents and tools.
pub(crate) fn engine(bundle: &Bundle) -> PolicyEngine {
    let engine = PolicyEngine::of(bundle).unwrap();
    let tools: Vec<ToolMetadata> = (0..TOOLS)
        .map(|number| tool(&format!("tool.{number}"), number % 2 == 1))
        .collect();
    engine.set_tools(&tools).unwrap();
    let agents = (0..AGENTS).map(|number| {
        let name = format!("agent-{number}").parse().unwrap();
        (name, UserName::owner())
    });
    engine.set_agents(agents).unwrap();
    engine
}

pub(crate) fn agent() -> Principal {
    Principal::Agent {
        name: "agent-7".parse().unwrap(),
        user: UserName::owner(),
    }
}

pub(crate) fn owner() -> Principal {
    Principal::User {
        name: UserName::owner(),
    }
}

pub(crate) fn tool(name: &str, sensitive: bool) -> ToolMetadata {
    ToolMetadata {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: sensitive
            .then_some(ToolCapability::ProcessExec)
            .into_iter()
            .collect(),
        default_sensitive: false,
        max_input_bytes: 1024,
        default_limits: Limits::default(),
    }
}

/// A call of every agent to every tool, without effects.
pub(crate) fn everybody() -> Vec<Facts> {
    let call = |number: usize| {
        let (agent, which) = (number % AGENTS, number / AGENTS);
        let principal = Principal::Agent {
            name: format!("agent-{agent}").parse().unwrap(),
            user: UserName::owner(),
        };
        let tool = tool(&format!("tool.{which}"), which % 2 == 1);
        facts(&principal, &tool, Vec::new())
    };
    (0..AGENTS * TOOLS).map(call).collect()
}

/// `git status | head`, as effects finds it.
pub(crate) fn git_status_head() -> Vec<Effect> {
    let programs = ["/usr/bin/git", "/usr/bin/head"];
    let exec = |program: &str| Effect::Exec {
        program: program.into(),
    };
    let mut effects: Vec<Effect> = programs.map(exec).to_vec();
    effects.push(Effect::FsRead {
        path: "/home/ada/src/project".into(),
    });
    effects
}

pub(crate) fn facts(principal: &Principal, tool: &ToolMetadata, effects: Vec<Effect>) -> Facts {
    let arguments = serde_json::json!({ "argv": ["sh", "-c", "git status | head"] });
    let origin = Origin {
        principal: principal.clone(),
        run: RunId::mint(NOW),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let proposal = ToolProposal {
        tool: tool.name.clone(),
        arguments: CanonicalJson::from_value(&arguments).unwrap(),
    };
    let programs = effects.iter().filter_map(|effect| match effect {
        Effect::Exec { program } => Some(ProgramFacts {
            program: program.clone(),
            real: None,
            groups: match program.ends_with("git") {
                true => vec![ProgramGroup::Vcs, ProgramGroup::Network],
                false => Vec::new(),
            },
        }),
        Effect::FsRead { .. } | Effect::FsWrite { .. } | Effect::NetConnect { .. } => None,
    });
    let programs = programs.collect();
    let facts = Facts::new(
        CallId::mint(NOW),
        origin,
        tool,
        &proposal,
        effects,
        Some("/home/ada/src/project".into()),
        Tier::B,
        &ReplyPlan { reply: arguments },
        &DigestKey::from_bytes([7; 32]),
        NOW,
        3,
    );
    facts.with_understanding(Understanding {
        opaque: false,
        programs,
        risk: Risk {
            level: RiskLevel::Medium,
            reasons: Vec::new(),
        },
        scopes: Vec::new(),
    })
}
