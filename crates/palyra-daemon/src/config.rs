//! `palyra.toml`: read as written ([`ConfigFile`]), then as meant ([`Config`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use palyra_core::{
    AgentName, Channel, EgressBudget, EgressHost, EgressRule, FsAccess, FsRule, PresenceMode, Span,
    ToolName,
};
use palyra_gateway::{Budget, FloodLimits};
use palyra_policy::Baseline;
use palyra_policy::operator::settings as policy;
use palyra_sandbox::TierCBackend;
use palyra_vault::KeyStoreKind;
use serde::Deserialize;

use crate::notices::Notify;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// It cannot be read.
    #[error("the configuration `{}` cannot be read: {source}", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not say what we understand.
    #[error("the configuration `{}` has a mistake\n{message}{hint}", .path.display())]
    Mistake {
        /// Which file.
        path: PathBuf,
        /// What the reader said, with the place.
        message: String,
        /// The nearest known name.
        hint: String,
    },
}

/// The file as written. Unknown keys are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    log: LogPart,
    daemon: DaemonPart,
    policy: PolicyPart,
    sandbox: SandboxPart,
    approvals: ApprovalsPart,
    budget: BudgetPart,
    floods: FloodsPart,
    egress: EgressPart,
    #[serde(deserialize_with = "files")]
    files: Vec<FsRule>,
    vault: VaultPart,
    presence: Option<PresenceMode>,
    notify: Notify,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogPart {
    format: Option<LogFormat>,
    level: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DaemonPart {
    stop_grace: Option<Span>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PolicyPart {
    #[serde(deserialize_with = "baseline")]
    baseline: Option<Baseline>,
    staging: Option<bool>,
    allow_sensitive_tools: Option<bool>,
    allowed_tools: Option<Vec<ToolName>>,
    allowed_agents: Option<Vec<AgentName>>,
    allowed_channels: Option<Vec<Channel>>,
}

fn baseline<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Baseline>, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Rules about files. Beneath a workspace everything can be said; a place of the machine can be
/// shown.
fn files<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<FsRule>, D::Error> {
    let rules = Vec::<FsRule>::deserialize(from)?;
    for rule in &rules {
        let path = rule.path.display();
        let leads_up = rule
            .path
            .components()
            .any(|part| part == Component::ParentDir);
        if rule.path.as_os_str().is_empty() || leads_up {
            let message = format!("`{path}` is not a path beneath a workspace");
            return Err(serde::de::Error::custom(message));
        }
        if rule.path.is_absolute() && rule.access != FsAccess::ReadOnly {
            let message = format!(
                "`{path}` is a place of the machine, which can only be `read_only`; write paths \
                 beneath workspaces without the leading `/`"
            );
            return Err(serde::de::Error::custom(message));
        }
    }
    Ok(rules)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SandboxPart {
    tier_c_backend: Option<TierCBackend>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EgressPart {
    #[serde(deserialize_with = "hosts")]
    allowed_hosts: Option<Vec<EgressRule>>,
    addresses: BTreeMap<EgressHost, IpAddr>,
    connections: Option<u64>,
    at_once: Option<u32>,
    bytes: Option<u64>,
    trust: Option<PathBuf>,
}

/// Hosts as they are named on the command line, and `*.example.com` for all below one.
fn hosts<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<EgressRule>>, D::Error> {
    let mut rules = Vec::new();
    for text in Vec::<String>::deserialize(from)? {
        rules.extend(EgressRule::named(&text).map_err(serde::de::Error::custom)?);
    }
    Ok(Some(rules))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ApprovalsPart {
    wait: Option<Span>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BudgetPart {
    calls: Option<u64>,
    wall: Option<Span>,
    input_bytes: Option<u64>,
    output_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FloodsPart {
    pending: Option<usize>,
    asks_per_minute: Option<usize>,
    proposals_per_minute: Option<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct VaultPart {
    keystore: Option<KeyStoreKind>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The configuration as meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged, as `tracing` filters say it.
    pub log_level: String,
    /// How long running calls get when the daemon stops.
    pub stop_grace: Duration,
    /// What is decided where the operator's own policies say nothing else.
    pub baseline: Baseline,
    /// Whether changed policies wait for a person to activate them.
    pub staging: bool,
    /// What else the file says about who may use which tools.
    pub policy_settings: policy::Settings,
    /// What makes the walls of Tier-C; none means whatever is found to work.
    pub tier_c_backend: Option<TierCBackend>,
    /// How long a call waits for a person.
    pub approval_wait: Duration,
    /// What one run may use up.
    pub budget: Budget,
    /// How much one agent may propose and ask.
    pub floods: FloodLimits,
    /// What calls may do with files, besides what is usual.
    pub rules: Vec<FsRule>,
    /// Where the vault's key is.
    pub keystore: KeyStoreKind,
    /// Which hosts calls may ask for; none means whatever policy and people allow.
    pub allowed_hosts: Option<Vec<EgressRule>>,
    /// The addresses of names that are not looked up.
    pub addresses: BTreeMap<EgressHost, Vec<IpAddr>>,
    /// What one call may use of the network.
    pub egress_budget: EgressBudget,
    /// Authorities that vouch for hosts, besides the machine's own.
    pub trust: Option<PathBuf>,
    /// What person actions demand.
    pub presence: PresenceMode,
    /// Who elsewhere is told that a person is asked.
    pub notify: Notify,
}

impl ConfigFile {
    /// The file at `path`; nothing there means all defaults.
    ///
    /// # Errors
    /// It cannot be read, or says something we do not understand.
    pub fn read(path: &Path) -> Result<Self, BadConfig> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(source) => {
                return Err(BadConfig::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        toml::from_str(&text).map_err(|error| BadConfig::Mistake {
            path: path.to_owned(),
            hint: nearest(error.message()).unwrap_or_default(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// What the file means.
    #[must_use]
    pub fn meant(self) -> Config {
        let (budget, floods) = (Budget::default(), FloodLimits::default());
        let usual = EgressBudget::default();
        let addresses = self.egress.addresses.into_iter();
        let span = |given: Option<Span>, usual: Duration| given.map_or(usual, |span| span.0);
        Config {
            log_format: self.log.format.unwrap_or(LogFormat::Text),
            log_level: self.log.level.unwrap_or_else(|| "info".to_owned()),
            stop_grace: span(self.daemon.stop_grace, Duration::from_secs(5)),
            baseline: self.policy.baseline.unwrap_or_default(),
            policy_settings: policy::Settings {
                // Saying yes to what is allowed anyway says nothing.
                allow_sensitive_tools: self.policy.allow_sensitive_tools.filter(|yes| !yes),
                allowed_tools: self.policy.allowed_tools,
                allowed_agents: self.policy.allowed_agents,
                allowed_channels: self.policy.allowed_channels,
            },
            staging: self.policy.staging.unwrap_or(false),
            tier_c_backend: self.sandbox.tier_c_backend,
            rules: self.files,
            approval_wait: span(self.approvals.wait, palyra_approval::DEFAULT_WAIT),
            keystore: self.vault.keystore.unwrap_or(KeyStoreKind::File),
            allowed_hosts: self.egress.allowed_hosts,
            addresses: addresses.map(|(name, at)| (name, vec![at])).collect(),
            egress_budget: EgressBudget {
                connections: self.egress.connections.unwrap_or(usual.connections),
                at_once: self.egress.at_once.unwrap_or(usual.at_once),
                bytes: self.egress.bytes.unwrap_or(usual.bytes),
            },
            trust: self.egress.trust,
            presence: self.presence.unwrap_or_default(),
            notify: self.notify,
            budget: Budget {
                calls: self.budget.calls.unwrap_or(budget.calls),
                wall: span(self.budget.wall, budget.wall),
                input_bytes: self.budget.input_bytes.unwrap_or(budget.input_bytes),
                output_bytes: self.budget.output_bytes.unwrap_or(budget.output_bytes),
            },
            floods: FloodLimits {
                pending: self.floods.pending.unwrap_or(floods.pending),
                asks_per_minute: self
                    .floods
                    .asks_per_minute
                    .unwrap_or(floods.asks_per_minute),
                proposals_per_minute: self
                    .floods
                    .proposals_per_minute
                    .unwrap_or(floods.proposals_per_minute),
            },
        }
    }
}

/// The known name nearest to the unknown one that the reader complains about.
fn nearest(message: &str) -> Option<String> {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = quoted.split_first()?;
    if !message.starts_with("unknown ") {
        return None;
    }
    let score = |name: &&&str| strsim::jaro_winkler(name, unknown);
    let best = known
        .iter()
        .max_by(|one, other| score(one).total_cmp(&score(other)))?;
    Some(format!("\ndid you mean `{best}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigFile, BadConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("palyra.toml");
        std::fs::write(&path, text).unwrap();
        ConfigFile::read(&path)
    }

    #[test]
    fn nothing_means_defaults() {
        let missing = ConfigFile::read(Path::new("/nonexistent/palyra.toml")).unwrap();
        assert_eq!(missing, ConfigFile::default());
        assert_eq!(missing.meant().approval_wait, Duration::from_secs(600));
    }

    #[test]
    fn what_is_written_is_meant() {
        let config = read("[approvals]\nwait = \"30s\"\n[floods]\npending = 2\n")
            .unwrap()
            .meant();
        assert_eq!(config.approval_wait, Duration::from_secs(30));
        assert_eq!(config.floods.pending, 2);
        let config = read("[[files]]\npath = \"data\"\naccess = \"read_only\"\n").unwrap();
        let egress = "[egress]\nallowed_hosts = [\"*.a.example\", \"b:1\"]\nbytes = 7\n\
                      [egress.addresses]\n\"A.example\" = \"10.0.0.1\"\n";
        let meant = read(egress).unwrap().meant();
        assert_eq!(meant.allowed_hosts.map(|rules| rules.len()), Some(3));
        assert_eq!(meant.egress_budget.bytes, 7);
        let name = "a.example".parse().unwrap();
        assert!(meant.addresses.contains_key(&name));
        let path = PathBuf::from("data");
        let access = FsAccess::ReadOnly;
        assert_eq!(config.meant().rules, [FsRule { path, access }]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = read("[approvals]\nwiat = \"30s\"\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("wiat") && error.contains("did you mean `wait`?"),
            "{error}"
        );
        assert!(error.contains("line 2"), "{error}");
        let error = read("[approvls]\n").unwrap_err().to_string();
        assert!(error.contains("did you mean `approvals`?"), "{error}");
    }

    #[test]
    fn corrupt_text_and_wrong_types_name_the_place() {
        for wrong in [
            "[log",
            "[log]\nformat = \"xml\"",
            "[floods]\npending = \"many\"",
            "[approvals]\nwait = \"soon\"",
            "[[files]]\npath = \"../x\"\naccess = \"masked\"",
            "[[files]]\npath = \"/srv\"\naccess = \"writable\"",
            "[[files]]\npath = \"x\"\naccess = \"hidden\"",
            "[egress]\nallowed_hosts = [\"a b\"]",
            "[egress]\nallowed_hosts = [\"a:0\"]",
            "[egress.addresses]\n\"a\" = \"b\"",
            "presence = \"always\"",
            "[[notify.commands]]\nname = \"n\"\nargv = [\"notify-send\"]",
            "[[notify.webhooks]]\nname = \"n\"\nurl = \"ftp://x\"\nsecret = \"s\"",
            "[[notify.webhooks]]\nname = \"n\"\nurl = \"https://u:p@x\"\nsecret = \"s\"",
        ] {
            assert!(
                matches!(read(wrong), Err(BadConfig::Mistake { .. })),
                "{wrong}"
            );
        }
    }
}
