//! What a person is shown beside the call itself: how far a yes can reach, what that would have
//! covered before, what looks odd, what changes in files.

use std::path::PathBuf;

use palyra_approval::{ApprovalPromptRecord, ApprovalRecord};
use palyra_core::{
    AgentName, Channel, Effect, Facts, GrantId, GrantTerms, Reach, Scope, ScopeKind, Timestamp,
    render,
};
use palyra_policy::{GrantRule, grant_text};
use serde_json::Value;

use crate::calls::CallRow;
use crate::error::Refusal;
use crate::records::{ApprovalView, ListQuery};
use crate::service::{Caller, GatewayService, Inner};

/// How many of the last calls a draft is evaluated on.
const LAST_CALLS: usize = 1_000;

/// How many of those that it covers are shown.
const EXAMPLES: usize = 5;

/// How much of a file is read to show what changes in it.
const MOST_FILE: usize = 256 << 10;

/// One way in which a yes can reach further, with what there is to know about it.
#[derive(Debug, Clone)]
pub struct CoverShown {
    /// Which.
    pub kind: ScopeKind,
    /// In words.
    pub sentence: String,
    /// As Cedar text.
    pub rule: String,
    /// How many of the last calls were looked at.
    pub looked_at: u64,
    /// How many of them the rule covers.
    pub covered: u64,
    /// Some of those.
    pub examples: Vec<String>,
}

impl ApprovalView {
    /// How many bytes of the arguments a prompt leaves out.
    #[must_use]
    pub fn hidden_bytes(&self) -> usize {
        ApprovalPromptRecord::new(&self.record, self.arguments.as_ref()).hidden_bytes
    }

    /// What a person should know before they answer, one line each, safe to print.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = self
            .arguments
            .as_ref()
            .map(palyra_approval::suspects)
            .unwrap_or_default();
        let Some(facts) = &self.facts else {
            return lines;
        };
        // A command is run here in its place; what changes files there is not.
        if facts.origin.channel == Channel::Hook && facts.programs.is_empty() {
            let line =
                "the agent's client does this by itself, outside of Palyra: nothing contains it";
            lines.push(line.to_owned());
        }
        if facts.reads_more_code {
            let line = "what this program reads and runs later is not part of what you approve";
            lines.push(line.to_owned());
        }
        if facts.opaque {
            lines.push("part of this call could not be understood; it may do anything".to_owned());
        }
        lines
    }

    /// What changes in a file, safe to print. `read` gives the file as it is.
    #[must_use]
    pub fn diff(&self, read: impl Fn(&std::path::Path) -> Option<String>) -> Option<String> {
        let text = |name: &str| self.arguments.as_ref()?.get(name)?.as_str();
        if let Some(patch) = text("patch") {
            return Some(palyra_approval::shown_patch(patch));
        }
        let content = text("content")?;
        let path = self
            .facts
            .as_ref()?
            .effects
            .iter()
            .find_map(|it| match it {
                Effect::FsWrite { path } => Some(path),
                Effect::Exec { .. } | Effect::FsRead { .. } | Effect::NetConnect { .. } => None,
            })?;
        Some(palyra_approval::diff(
            &read(path).unwrap_or_default(),
            content,
        ))
    }
}

impl GatewayService {
    /// What changes in a file, for a person: an agent might learn what it may not read.
    #[must_use]
    pub fn file_diff(&self, caller: &Caller, view: &ApprovalView) -> Option<String> {
        self.only_a_person(caller, "see what changes").ok()?;
        let workspace = view.facts.as_ref()?.workspace.as_deref()?;
        view.diff(|path| {
            let own = |masked: &PathBuf| path.starts_with(masked);
            let hidden = self.0.settings.masked.iter().any(own);
            (!hidden).then(|| palyra_sandbox::text_of(workspace, path, MOST_FILE))?
        })
    }

    /// How far a yes can reach, each with its rule and what that would have covered.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn covers(&self, caller: &Caller, view: &ApprovalView) -> Result<Vec<CoverShown>, Refusal> {
        let Some(facts) = view
            .facts
            .as_ref()
            .filter(|_| caller.principal.agent().is_none())
        else {
            return Ok(Vec::new());
        };
        let Some(agent) = facts.origin.principal.agent() else {
            return Ok(Vec::new());
        };
        let query = ListQuery {
            limit: LAST_CALLS,
            ..ListQuery::default()
        };
        let rows = self.calls(caller, &query)?;
        let looked_at = rows.len() as u64;
        let mut past: Vec<(CallRow, Facts)> = Vec::new();
        for row in rows {
            if row.principal.agent() != Some(agent) || row.call == view.record.call {
                continue;
            }
            if let Some(facts) = self.facts_of(&row)? {
                past.push((row, facts));
            }
        }
        let now = self.0.clock.now();
        let mut shown = Vec::new();
        for scope in &facts.scopes {
            // As a grant for a window. In the sessions before this one nothing has this session's
            // key, so for a session nothing else can be found either.
            let rule = grant_text(&draft(&view.record, agent, scope, now), &scope.sentence);
            let mut evaluated = GrantRule::parse(&rule)?;
            let (mut covered, mut examples) = (0, Vec::new());
            for (row, facts) in &past {
                if evaluated.covers(facts, now).unwrap_or(false) {
                    covered += 1;
                    if examples.len() < EXAMPLES {
                        examples.push(self.in_one_line(row)?);
                    }
                }
            }
            shown.push(CoverShown {
                kind: scope.kind,
                sentence: render::line(&scope.sentence),
                rule,
                looked_at,
                covered,
                examples,
            });
        }
        Ok(shown)
    }

    fn in_one_line(&self, row: &CallRow) -> Result<String, Refusal> {
        let arguments = self.blob_json(Some(row.arguments))?;
        let argv = arguments.as_ref().and_then(|it| it.get("argv")?.as_array());
        let words = match (argv, &arguments) {
            (Some(words), _) => {
                let words = words.iter().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(" ")
            }
            (None, Some(arguments)) => arguments.to_string(),
            (None, None) => "(arguments erased)".to_owned(),
        };
        Ok(render::line(&format!("{}: {words}", row.call)))
    }
}

impl Inner {
    /// What says that all of an approval was shown. Nobody finds it without having asked for all.
    pub(crate) fn shown_code(&self, record: &ApprovalRecord) -> Result<String, Refusal> {
        let digest = serde_json::to_string(&record.digest).unwrap_or_default();
        let parts: [&[u8]; 3] = [
            b"shown in full",
            record.id.as_str().as_bytes(),
            digest.as_bytes(),
        ];
        let code = self.vault.digest_key()?.call_digest(&parts).to_text();
        let code = code.strip_prefix("sha256:").unwrap_or(&code);
        Ok(code.get(..8).unwrap_or_default().to_owned())
    }
}

impl GatewayService {
    /// All of the arguments, safe to print, and the code that says that they were shown.
    ///
    /// # Errors
    /// The vault is locked, and the key of the code with it.
    pub fn in_full(&self, view: &ApprovalView) -> Result<(String, String), Refusal> {
        let whole = view.arguments.as_ref().map_or_else(
            || "(arguments erased)".to_owned(),
            |arguments| render::json(arguments, usize::MAX).text,
        );
        Ok((whole, self.0.shown_code(&view.record)?))
    }
}

/// A grant as it would be made now.
fn draft(record: &ApprovalRecord, agent: &AgentName, scope: &Scope, now: Timestamp) -> GrantTerms {
    GrantTerms {
        id: GrantId::mint(now),
        approval: record.id.clone(),
        call: record.call.clone(),
        agent: agent.clone(),
        user: record.principal.user().clone(),
        tool: record.tool.clone(),
        reach: Reach::Window,
        cover: scope.kind,
        key: scope.window,
        session: None,
        not_after: now.plus(palyra_approval::DEFAULT_WINDOW),
        made_by: record.principal.user().clone(),
        facts: record.arguments,
    }
}
