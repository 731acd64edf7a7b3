//! The specification's settings, as Cedar: sensitive tools at all, and who may use which tools by
//! which way.
//!
//! Each setting that is given becomes one `forbid` for agents. So it is listed, explained, compared
//! and kept with the other policies, and what it says can be read. A setting that is left out says
//! nothing: the baseline decides.

use std::fmt::Write as _;

use palyra_core::{AgentName, Channel, ToolName};
use serde::Deserialize;

use super::source::NamedSource;

/// Under which name the settings stand among the policy files.
pub const FILE: &str = "palyra.toml";

/// What `[policy]` in `palyra.toml` says besides the baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Settings {
    /// Whether agents may use sensitive tools at all, asked or not.
    pub allow_sensitive_tools: Option<bool>,
    /// The only tools that agents may use.
    pub allowed_tools: Option<Vec<ToolName>>,
    /// The only agents that may use tools.
    pub allowed_agents: Option<Vec<AgentName>>,
    /// The only ways in by which agents may use tools.
    pub allowed_channels: Option<Vec<Channel>>,
}

impl Settings {
    /// The settings as a policy file; none when nothing is set.
    #[must_use]
    pub fn source(&self) -> Option<NamedSource> {
        let mut text = String::new();
        if self.allow_sensitive_tools == Some(false) {
            let condition = "when { context.tool.sensitive }";
            forbid(&mut text, "allow_sensitive_tools", "is off", condition);
        }
        let tools = self.allowed_tools.as_ref().map(|tools| {
            let named = tools.iter().map(|tool| format!("Palyra::Tool::\"{tool}\""));
            ("allowed_tools", "context.tool", list(named))
        });
        let agents = self.allowed_agents.as_ref().map(|agents| {
            let named = agents
                .iter()
                .map(|agent| format!("Palyra::Agent::\"{agent}\""));
            ("allowed_agents", "principal", list(named))
        });
        let channels = self.allowed_channels.as_ref().map(|channels| {
            let named = channels
                .iter()
                .map(|channel| format!("Palyra::Channel::\"{}\"", channel.as_str()));
            ("allowed_channels", "context.channel", list(named))
        });
        for (setting, what, among) in [tools, agents, channels].into_iter().flatten() {
            let condition = format!("unless {{ {what} in {among} }}");
            forbid(&mut text, setting, "does not name it", &condition);
        }
        (!text.is_empty()).then(|| NamedSource::new(FILE, text))
    }
}

/// Names and tools are plain words by their types: nothing in them ends a Cedar string.
fn list(named: impl Iterator<Item = String>) -> String {
    format!("[{}]", named.collect::<Vec<_>>().join(", "))
}

fn forbid(text: &mut String, setting: &str, why: &str, condition: &str) {
    let _ = writeln!(
        text,
        "@id(\"setting_{setting}\")\n\
         @reason(\"`{setting}` in palyra.toml {why}\")\n\
         @hint(\"change it under [policy] in palyra.toml, then restart the daemon\")\n\
         forbid (\n  principal is Palyra::Agent,\n  \
         action in [Palyra::Action::\"run\", Palyra::Action::\"ask\"],\n  resource\n)\n\
         {condition};\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Baseline;
    use crate::operator::{Bundle, NamedSource};

    fn named(settings: &str) -> Settings {
        toml::from_str(settings).unwrap()
    }

    #[test]
    fn nothing_set_is_nothing_said() {
        assert_eq!(Settings::default().source(), None);
        assert_eq!(named("allow_sensitive_tools = true").source(), None);
    }

    #[test]
    fn every_setting_is_a_policy_over_every_baseline() {
        let all = named(
            "allow_sensitive_tools = false\n\
             allowed_tools = [\"palyra.echo\", \"palyra.fs.read\"]\n\
             allowed_agents = [\"claude\"]\n\
             allowed_channels = [\"cli\"]",
        );
        let source = all.source().unwrap();
        for baseline in [Baseline::Standard, Baseline::Sandboxed, Baseline::Locked] {
            let under = NamedSource::new("baseline.cedar", baseline.source());
            let bundle = Bundle::load(&under, std::slice::from_ref(&source)).unwrap();
            for setting in [
                "allow_sensitive_tools",
                "allowed_tools",
                "allowed_agents",
                "allowed_channels",
            ] {
                let policy = bundle.policy(&format!("setting_{setting}")).unwrap();
                assert!(!policy.permits() && !policy.baseline, "{setting}");
            }
        }
    }

    /// An empty list allows nothing; it does not mean "not set".
    #[test]
    fn an_empty_list_is_a_list() {
        let source = named("allowed_tools = []").source().unwrap();
        assert!(
            source.text.contains("context.tool in []"),
            "{}",
            source.text
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            "allowed_tools = [\"x\\\"] }; permit (principal, action, resource);\"]",
            "allowed_agents = [\"a b\"]",
            "allowed_channels = [\"telegram\"]",
        ] {
            assert!(toml::from_str::<Settings>(wrong).is_err(), "{wrong}");
        }
    }
}
