//! Postures: what people set about tools, and which of it is the strictest for a call.
//!
//! A registry that cannot be read means that every tool is off: what a person turned off must not
//! come back because a row was lost.

use std::collections::BTreeMap;
use std::path::Path;

use palyra_core::entry::{Entry, Fold, Recorded, Row};
use palyra_core::{AgentName, Posture, PostureLevel, SessionId, Timestamp, ToolName, UserName};

/// What was set about one tool at one level.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PostureRow {
    /// For which calls.
    #[serde(flatten)]
    pub at: PostureLevel,
    /// Which tool.
    pub tool: ToolName,
    /// How it is treated.
    pub posture: Posture,
    /// Who wanted it.
    pub set_by: UserName,
    /// Since when.
    pub set_at: Timestamp,
}

/// The projection `postures`: one row for each tool and level about which something is set.
#[derive(Debug, Clone, Copy, Default)]
pub struct PosturesFold;

impl PosturesFold {
    /// The projection's name.
    pub const NAME: &'static str = "postures";
}

fn key(at: &PostureLevel, tool: &ToolName) -> String {
    format!("{tool} {at}")
}

impl Fold for PosturesFold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn key(&self, recorded: &Recorded) -> Option<String> {
        let Entry::PostureSet { at, tool, .. } = &recorded.entry else {
            return None;
        };
        Some(key(at, tool))
    }

    fn fold(&self, _before: Option<&[u8]>, recorded: &Recorded) -> Option<Row> {
        let Entry::PostureSet {
            at,
            tool,
            posture,
            by,
        } = &recorded.entry
        else {
            return None;
        };
        let row = PostureRow {
            at: at.clone(),
            tool: tool.clone(),
            posture: (*posture)?,
            set_by: by.clone(),
            set_at: recorded.at,
        };
        Some(Row {
            key: key(at, tool),
            state: row.posture.as_str().to_owned(),
            value: serde_json::to_vec(&row).ok()?,
        })
    }
}

/// Whose call of which tool, as far as postures ask.
#[derive(Debug, Clone, Copy)]
pub struct PosedCall<'a> {
    /// The tool.
    pub tool: &'a ToolName,
    /// The agent, when it is one's.
    pub agent: Option<&'a AgentName>,
    /// The folder it works on.
    pub workspace: Option<&'a Path>,
    /// Its session.
    pub session: Option<&'a SessionId>,
}

/// What is set, as one reader sees it.
#[derive(Debug, Clone, Default)]
pub struct Postures {
    rows: BTreeMap<String, PostureRow>,
    lost: bool,
}

impl Postures {
    /// From the rows of the projection. One that cannot be read turns every tool off.
    #[must_use]
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut postures = Self::default();
        for row in rows {
            match serde_json::from_slice::<PostureRow>(&row.value) {
                Ok(read) if key(&read.at, &read.tool) == row.key => {
                    postures.rows.insert(row.key.clone(), read);
                }
                Ok(_) | Err(_) => postures.lost = true,
            }
        }
        postures
    }

    /// A registry that could not be read at all.
    #[must_use]
    pub const fn lost() -> Self {
        Self {
            rows: BTreeMap::new(),
            lost: true,
        }
    }

    /// Whether it could not be read, so that everything is off.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// What is set.
    pub fn iter(&self) -> impl Iterator<Item = &PostureRow> {
        self.rows.values()
    }

    /// The strictest that is set for this call, and where; nothing when nothing is.
    #[must_use]
    pub fn strictest(&self, call: PosedCall<'_>) -> Option<(Posture, Option<PostureLevel>)> {
        if self.lost {
            return Some((Posture::Disabled, None));
        }
        let meant = self
            .rows
            .values()
            .filter(|row| row.tool == *call.tool && concerns(&row.at, call));
        let strictest = meant.max_by_key(|row| row.posture)?;
        Some((strictest.posture, Some(strictest.at.clone())))
    }
}

fn concerns(level: &PostureLevel, call: PosedCall<'_>) -> bool {
    match level {
        PostureLevel::Global => true,
        // Folder by folder: `/work-evil` is not in `/work`.
        PostureLevel::Workspace { folder } => {
            call.workspace.is_some_and(|own| own.starts_with(folder))
        }
        PostureLevel::Agent { name } => call.agent == Some(name),
        PostureLevel::Session { id } => call.session == Some(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &str = "palyra.process.run";

    fn row(at: PostureLevel, posture: Posture) -> Row {
        let recorded = Recorded {
            seq: 1,
            stream: "postures".to_owned(),
            revision: 1,
            at: Timestamp::from_millis(1),
            entry: Entry::PostureSet {
                at,
                tool: TOOL.parse().unwrap(),
                posture: Some(posture),
                by: UserName::owner(),
            },
        };
        PosturesFold.fold(None, &recorded).unwrap()
    }

    fn of(postures: &Postures, tool: &str, agent: &str, workspace: &str) -> Option<Posture> {
        let call = PosedCall {
            tool: &tool.parse().unwrap(),
            agent: Some(&agent.parse().unwrap()),
            workspace: Some(Path::new(workspace)),
            session: None,
        };
        postures.strictest(call).map(|(posture, _)| posture)
    }

    #[test]
    fn the_strictest_wins_and_disabled_always() {
        let agent = PostureLevel::Agent {
            name: "a".parse().unwrap(),
        };
        let folder = PostureLevel::Workspace {
            folder: "/app".into(),
        };
        let rows = [
            row(PostureLevel::Global, Posture::AskEachTime),
            row(agent, Posture::AlwaysAllow),
            row(folder, Posture::Disabled),
        ];
        let postures = Postures::from_rows(&rows);
        let asked = |agent, workspace| of(&postures, TOOL, agent, workspace);
        assert_eq!(asked("a", "/else"), Some(Posture::AskEachTime));
        assert_eq!(asked("b", "/else"), Some(Posture::AskEachTime));
        assert_eq!(asked("a", "/app"), Some(Posture::Disabled));
        assert_eq!(asked("b", "/app/sub"), Some(Posture::Disabled));
        assert_eq!(asked("b", "/app-evil"), Some(Posture::AskEachTime));
        assert_eq!(of(&postures, "palyra.echo", "a", "/app"), None);
    }

    #[test]
    fn a_lost_registry_turns_everything_off() {
        let good = row(PostureLevel::Global, Posture::AlwaysAllow);
        let torn = Row {
            value: b"{".to_vec(),
            ..good.clone()
        };
        let moved = Row {
            key: "palyra.echo global".to_owned(),
            ..good.clone()
        };
        for bad in [torn, moved] {
            let postures = Postures::from_rows([&good, &bad]);
            assert!(postures.is_lost());
            assert_eq!(
                of(&postures, "palyra.echo", "a", "/x"),
                Some(Posture::Disabled)
            );
        }
        let whole = Postures::from_rows([&good]);
        assert_eq!(of(&whole, TOOL, "a", "/x"), Some(Posture::AlwaysAllow));
        let lost = Postures::lost();
        assert_eq!(of(&lost, TOOL, "a", "/x"), Some(Posture::Disabled));
    }
}
