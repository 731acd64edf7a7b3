//! Which folder an agent may be given.
//!
//! An agent's workspace is the part of the machine it may change without leaving it. So it is
//! never everything, never all of a person's files, and never a folder from which the daemon's
//! own state can be reached.

use std::path::{Component, Path, PathBuf};

/// Why a folder is not given to an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceRefused {
    /// It means something else in every folder.
    #[error("`{}` is not an absolute path", .0.display())]
    Relative(PathBuf),
    /// It holds `.` or `..`, so it is not the folder it seems to be.
    #[error("`{}` is not in its canonical form", .0.display())]
    NotCanonical(PathBuf),
    /// A record could not name it.
    #[error("the path `{}` is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// The whole machine.
    #[error("`/` is the whole machine, not a workspace")]
    Root,
    /// All of a person's files, keys and start-up scripts among them.
    #[error("`{}` is or contains the home directory `{}`", folder.display(), home.display())]
    Home {
        /// What was asked for.
        folder: PathBuf,
        /// The home directory.
        home: PathBuf,
    },
    /// The daemon's own state could be reached from it.
    #[error("`{}` overlaps the daemon's own folder `{}`", folder.display(), masked.display())]
    DaemonHome {
        /// What was asked for.
        folder: PathBuf,
        /// The daemon's folder.
        masked: PathBuf,
    },
}

impl WorkspaceRefused {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Relative(_) | Self::NotCanonical(_) => {
                "name the folder in full: `palyra agents add NAME --workspace /path/to/project`"
            }
            Self::NotUtf8(_) => {
                "rename the folder, then `palyra agents add NAME --workspace /path/to/project`"
            }
            Self::Root | Self::Home { .. } | Self::DaemonHome { .. } => {
                "choose one project: `palyra agents add NAME --workspace /path/to/project`"
            }
        }
    }
}

/// Whether this folder may become an agent's workspace. The caller canonicalises all paths first:
/// a link to a home directory is that home directory.
///
/// `homes` are the home directories of people, `masked` the daemon's own folders.
///
/// # Errors
/// Says which of the folders that an agent never gets it is.
pub fn check_agent_workspace(
    path: &Path,
    homes: &[PathBuf],
    masked: &[PathBuf],
) -> Result<(), WorkspaceRefused> {
    let folder = || path.to_path_buf();
    if !path.is_absolute() {
        return Err(WorkspaceRefused::Relative(folder()));
    }
    // `Path` compares `/a/./b` and `/a/b` as equal, so only `..` can lead elsewhere.
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(WorkspaceRefused::NotCanonical(folder()));
    }
    if path.to_str().is_none() {
        return Err(WorkspaceRefused::NotUtf8(folder()));
    }
    if path.parent().is_none() {
        return Err(WorkspaceRefused::Root);
    }
    // A folder that contains a home is wider than that home.
    if let Some(home) = homes.iter().find(|home| home.starts_with(path)) {
        return Err(WorkspaceRefused::Home {
            folder: folder(),
            home: home.clone(),
        });
    }
    let overlaps = |own: &&PathBuf| own.starts_with(path) || path.starts_with(own);
    if let Some(masked) = masked.iter().find(overlaps) {
        return Err(WorkspaceRefused::DaemonHome {
            folder: folder(),
            masked: masked.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn check(path: impl AsRef<Path>) -> Result<(), WorkspaceRefused> {
        let homes = ["/home/ada".into(), "/root".into()];
        let masked = [
            "/home/ada/.local/share/palyra".into(),
            "/run/user/1000/palyra".into(),
        ];
        check_agent_workspace(path.as_ref(), &homes, &masked)
    }

    #[test]
    fn a_project_is_a_workspace() {
        for path in [
            "/home/ada/src/project",
            "/srv/work",
            "/home/ada/src",
            "/tmp/x",
            // Only a name that starts alike.
            "/home/ada/.local/share/palyra-notes",
            "/home/adam",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn relative_and_climbing_paths_are_refused() {
        for path in ["", ".", "src", "../src", "~/src"] {
            assert!(
                matches!(check(path), Err(WorkspaceRefused::Relative(_))),
                "{path}"
            );
        }
        for path in ["/srv/../home/ada", "/home/ada/src/..", "/.."] {
            assert!(
                matches!(check(path), Err(WorkspaceRefused::NotCanonical(_))),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_no_record_can_name_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/srv/\xff"));
        assert!(matches!(check(path), Err(WorkspaceRefused::NotUtf8(_))));
    }

    #[test]
    fn the_whole_machine_is_refused_however_it_is_spelled() {
        for path in ["/", "//", "/.", "/./"] {
            assert_eq!(check(path), Err(WorkspaceRefused::Root), "{path}");
        }
    }

    #[test]
    fn a_home_and_what_contains_it_are_refused() {
        for path in [
            "/home/ada",
            "/home/ada/",
            "/home/./ada",
            "/home//ada",
            "/home",
            "/root",
        ] {
            assert!(
                matches!(check(path), Err(WorkspaceRefused::Home { .. })),
                "{path}"
            );
        }
    }

    #[test]
    fn the_daemons_home_its_inside_and_its_parents_are_refused() {
        for path in [
            "/home/ada/.local/share/palyra",
            "/home/ada/.local/share/palyra/blobs/aa",
            "/home/ada/.local/share",
            "/home/ada/.local",
            "/run/user/1000",
            "/run",
            "/run/user/1000/palyra/",
        ] {
            let refused = check(path).unwrap_err();
            assert!(
                matches!(refused, WorkspaceRefused::DaemonHome { .. }),
                "{path}"
            );
            assert!(refused.hint().contains("palyra agents add"));
        }
    }

    #[test]
    fn a_home_at_the_root_refuses_only_the_root() {
        let homes = [PathBuf::from("/")];
        assert_eq!(
            check_agent_workspace(Path::new("/srv/w"), &homes, &[]),
            Ok(())
        );
        assert_eq!(
            check_agent_workspace(Path::new("/"), &homes, &[]),
            Err(WorkspaceRefused::Root)
        );
    }
}
