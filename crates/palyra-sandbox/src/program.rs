//! Which program, and under which uid: both found out once, before the decision.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use palyra_core::plan::RunAs;

/// Why a name is not a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramProblem {
    /// Nothing of that name.
    #[error("`{0}` was not found")]
    NotFound(String),
    /// It is there, but it is a folder or has no permission to execute.
    #[error("`{0}` is not an executable file")]
    NotExecutable(String),
    /// It cannot be the name of a program.
    #[error("`{0}` is not the name of a program")]
    NotAName(String),
}

/// Finds the program that `name` means, once.
///
/// A name with a slash is a path, relative to `cwd`; any other is looked up in `path_var`, whose
/// empty and relative entries are skipped: they would let a workspace shadow `git`. Symlinks stay
/// as they are, because programs such as busybox look at the name they were called by.
///
/// # Errors
/// No such program, or nothing that may be executed.
pub fn resolve_program(name: &str, path_var: &str, cwd: &Path) -> Result<PathBuf, ProgramProblem> {
    if name.is_empty() || name.contains('\0') {
        return Err(ProgramProblem::NotAName(name.replace('\0', "\\0")));
    }
    if name.contains('/') {
        let path = cwd.join(name);
        return match look(&path) {
            Found::Program => Ok(path),
            Found::Other => Err(ProgramProblem::NotExecutable(name.to_owned())),
            Found::Nothing => Err(ProgramProblem::NotFound(name.to_owned())),
        };
    }
    let mut seen = false;
    for folder in path_var.split(':').map(Path::new) {
        if !folder.is_absolute() {
            continue;
        }
        let path = folder.join(name);
        match look(&path) {
            Found::Program => return Ok(path),
            Found::Other => seen = true,
            Found::Nothing => {}
        }
    }
    Err(if seen {
        ProgramProblem::NotExecutable(name.to_owned())
    } else {
        ProgramProblem::NotFound(name.to_owned())
    })
}

enum Found {
    Program,
    Other,
    Nothing,
}

fn look(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Found::Program,
        Ok(_) => Found::Other,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Found::Other,
        Err(_) => Found::Nothing,
    }
}

/// Under which uid a call in this workspace runs: never as root when the folder's owner is not.
///
/// # Errors
/// The workspace cannot be looked at.
pub fn run_as(workspace: &Path) -> io::Result<RunAs> {
    if !rustix::process::geteuid().is_root() {
        return Ok(RunAs::Daemon);
    }
    let owner = std::fs::metadata(workspace)?;
    Ok(match owner.uid() {
        0 => RunAs::Root,
        uid => RunAs::Owner {
            uid,
            gid: owner.gid(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_in_absolute_entries_only() {
        let here = tempfile::tempdir().unwrap();
        let tool = here.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        let path = |entries: &str| resolve_program("tool", entries, here.path());
        let name = here.path().to_str().unwrap();

        assert_eq!(
            path(name),
            Err(ProgramProblem::NotExecutable("tool".into()))
        );
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(path(&format!(":.:/nowhere:{name}")), Ok(tool.clone()));
        assert_eq!(path(":."), Err(ProgramProblem::NotFound("tool".into())));

        assert_eq!(
            resolve_program("./tool", "", here.path()),
            Ok(here.path().join("./tool"))
        );
        assert_eq!(
            resolve_program("/bin/sh", "", here.path()),
            Ok("/bin/sh".into())
        );
        for wrong in ["", "a\0b"] {
            assert!(matches!(
                resolve_program(wrong, name, here.path()),
                Err(ProgramProblem::NotAName(_))
            ));
        }
        assert!(matches!(
            resolve_program("/tmp", "", here.path()),
            Err(ProgramProblem::NotExecutable(_))
        ));
    }

    #[test]
    fn a_symlink_keeps_its_name() {
        let here = tempfile::tempdir().unwrap();
        let link = here.path().join("also-sh");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let found = resolve_program("also-sh", here.path().to_str().unwrap(), Path::new("/"));
        assert_eq!(found, Ok(link));
    }
}
