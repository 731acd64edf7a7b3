//! The folder a call works on: a person's is the one they stand in, an agent's is fixed.

use std::path::{Component, Path, PathBuf};

use palyra_identity::Agent;

use crate::error::{Refusal, RefusalKind};

/// The folder a call works on, real and outside the daemon's own folders.
///
/// # Errors
/// Says why the folder cannot be worked on.
pub(crate) fn resolve(
    given: Option<&Path>,
    agent: Option<&Agent>,
    masked: &[PathBuf],
) -> Result<Option<PathBuf>, Refusal> {
    let Some(wanted) = wanted(given, agent)? else {
        return Ok(None);
    };
    let real = real_folder(&wanted)?;
    // Registered as one folder, found as another: a link on the way was changed since.
    if agent.is_some_and(|agent| agent.workspace != real) {
        return Err(refused(
            "workspace_moved",
            format!("`{}` now leads to `{}`", wanted.display(), real.display()),
            "register the agent again with `palyra agents add`",
        ));
    }
    if let Some(own) = masked.iter().find(|own| real.starts_with(own)) {
        return Err(refused(
            "workspace_is_daemon_home",
            format!(
                "`{}` belongs to the daemon (`{}`)",
                real.display(),
                own.display()
            ),
            "choose another folder with `--workspace`",
        ));
    }
    Ok(Some(real))
}

fn wanted(given: Option<&Path>, agent: Option<&Agent>) -> Result<Option<PathBuf>, Refusal> {
    match (given, agent) {
        (None, None) => Ok(None),
        (Some(given), None) => Ok(Some(given.to_owned())),
        (None, Some(agent)) => Ok(Some(agent.workspace.clone())),
        (Some(given), Some(agent)) if given == agent.workspace => Ok(Some(given.to_owned())),
        (Some(given), Some(agent)) => Err(refused(
            "workspace_fixed",
            format!(
                "agent `{}` works on `{}`, not on `{}`",
                agent.name,
                agent.workspace.display(),
                given.display()
            ),
            "leave `--workspace` out, or register another agent with `palyra agents add`",
        )),
    }
}

/// A folder with every link on its way resolved.
///
/// # Errors
/// It is relative, missing, or no folder.
pub(crate) fn real_folder(path: &Path) -> Result<PathBuf, Refusal> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(refused(
            "workspace_not_absolute",
            format!("`{shown}` is not an absolute path"),
            "give the folder's full path with `--workspace`",
        ));
    }
    let real = path.canonicalize().map_err(|error| {
        refused(
            "workspace_missing",
            format!("the folder `{shown}` cannot be used: {error}"),
            "create it, or choose another with `--workspace`",
        )
    })?;
    if !real.is_dir() {
        return Err(refused(
            "workspace_not_a_folder",
            format!("`{shown}` is not a folder"),
            "choose a folder with `--workspace`",
        ));
    }
    if real.to_str().is_none() {
        return Err(refused(
            "workspace_not_utf8",
            format!("the name of `{shown}` is not UTF-8"),
            "choose a folder with a UTF-8 name with `--workspace`",
        ));
    }
    Ok(real)
}

/// `path`, absolute or relative to `workspace`, as a path beneath it without `.` and `..`.
///
/// # Errors
/// It leaves the workspace.
pub(crate) fn beneath(workspace: &Path, path: &str) -> Result<PathBuf, Refusal> {
    let leaves = || {
        refused(
            "outside_workspace",
            format!(
                "`{}` is not beneath `{}`",
                path.escape_debug(),
                workspace.display()
            ),
            "give a path inside the workspace",
        )
    };
    let given = Path::new(path);
    let relative = match given.is_absolute() {
        true => given.strip_prefix(workspace).map_err(|_| leaves())?,
        false => given,
    };
    let mut plain = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return Err(leaves());
                }
            }
            Component::RootDir | Component::Prefix(_) => return Err(leaves()),
        }
    }
    Ok(plain)
}

fn refused(code: &'static str, message: String, next_step: &str) -> Refusal {
    Refusal::new(RefusalKind::Invalid, code, message, next_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_beneath() {
        let workspace = Path::new("/w/a");
        assert_eq!(beneath(workspace, "b/../c/./d").unwrap(), Path::new("c/d"));
        assert_eq!(beneath(workspace, "/w/a/b").unwrap(), Path::new("b"));
        assert_eq!(beneath(workspace, ".").unwrap(), Path::new(""));
        for hostile in [
            "..",
            "a/../../b",
            "/w/a-evil/x",
            "/etc/passwd",
            "/w/a/../b",
            "/",
        ] {
            assert!(beneath(workspace, hostile).is_err(), "{hostile}");
        }
    }
}
