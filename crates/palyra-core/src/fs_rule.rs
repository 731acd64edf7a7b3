//! What calls may do with files: rules of the operator, by path.

use std::path::{Path, PathBuf};

/// What a call may do with a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsAccess {
    /// Nothing: its name can be listed and its content cannot be read.
    Masked,
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    Writable,
}

/// One rule: what calls may do with a path and with everything beneath it.
///
/// A relative path is beneath every workspace. An absolute one is a place of the machine, which
/// Tier-C shows besides what it always shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsRule {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub access: FsAccess,
}

impl FsRule {
    /// The rule that decides about `path`: the one with the longest path on the way to it. Of two
    /// with the same path the stricter one.
    #[must_use]
    pub fn most_specific<'a>(rules: &'a [Self], path: &Path) -> Option<&'a Self> {
        rules
            .iter()
            .filter(|rule| path.starts_with(&rule.path))
            .max_by_key(|rule| {
                let strict = match rule.access {
                    FsAccess::Masked => 2,
                    FsAccess::ReadOnly => 1,
                    FsAccess::Writable => 0,
                };
                (rule.path.components().count(), strict)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, access: FsAccess) -> FsRule {
        FsRule {
            path: path.into(),
            access,
        }
    }

    #[test]
    fn the_most_specific_path_wins_whatever_the_order() {
        let mut rules = vec![
            rule("data", FsAccess::ReadOnly),
            rule("data/out", FsAccess::Writable),
            rule("data/out/keys", FsAccess::Masked),
        ];
        for _ in 0..rules.len() {
            rules.rotate_left(1);
            let access =
                |path: &str| FsRule::most_specific(&rules, Path::new(path)).map(|rule| rule.access);
            assert_eq!(access("data/in/x"), Some(FsAccess::ReadOnly));
            assert_eq!(access("data/out/x"), Some(FsAccess::Writable));
            assert_eq!(access("data/out/keys/x"), Some(FsAccess::Masked));
            // A path is whole names, not letters.
            assert_eq!(access("database"), None);
        }
    }

    #[test]
    fn of_two_rules_for_one_path_the_stricter_counts() {
        let rules = [
            rule("x", FsAccess::Masked),
            rule("x", FsAccess::Writable),
            rule("x", FsAccess::ReadOnly),
        ];
        let found = FsRule::most_specific(&rules, Path::new("x/y")).map(|rule| rule.access);
        assert_eq!(found, Some(FsAccess::Masked));
    }
}
