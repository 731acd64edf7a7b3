//! Which program, and under which uid: both found out once, before the decision.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use palyra_core::Tier;
use palyra_core::plan::{FileId, ProgramId, RunAs};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};

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

/// A folder as it was found: which one exactly, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderFound {
    /// Which one.
    pub id: FileId,
    /// Whose.
    pub uid: u32,
}

/// Looks at a folder whose path holds no links, once: everything that is decided about it is
/// decided about what was found here, not about what its path leads to a moment later.
///
/// # Errors
/// It is not there, is no folder, or a link is on the way.
pub fn look_at_folder(path: &Path) -> io::Result<FolderFound> {
    let found = rustix::fs::fstat(open_folder(path)?)?;
    Ok(FolderFound {
        id: id_of(&found),
        uid: found.st_uid,
    })
}

/// A handle of a folder whose path holds no links.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let strict = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        flags,
        Mode::empty(),
        strict,
    )?)
}

pub(crate) const fn id_of(found: &Stat) -> FileId {
    FileId {
        device: found.st_dev,
        inode: found.st_ino,
    }
}

/// Which program exactly is at this path now.
///
/// # Errors
/// It is not there.
pub fn program_id(path: &Path) -> io::Result<ProgramId> {
    Ok(id_of_program(&rustix::fs::stat(path)?))
}

pub(crate) fn id_of_program(found: &Stat) -> ProgramId {
    let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(0);
    ProgramId {
        file: id_of(found),
        size: u64::try_from(found.st_size).unwrap_or(0),
        modified: (found.st_mtime, signed(found.st_mtime_nsec)),
        changed: (found.st_ctime, signed(found.st_ctime_nsec)),
    }
}

/// The group of a uid that has none of its own: nobody's.
const NOGROUP: u32 = 65_534;

/// A folder of root's, with a daemon of root's, and no namespaces asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the folder belongs to root, and nothing runs as root in this tier")]
pub struct RootsFolder;

/// Under which uid a call in a folder of `owner` runs: never as root.
///
/// `gid` is the owner's own primary group. The folder's group is not asked: anybody can make a
/// folder whose group is `shadow` inside one that passes its group on.
///
/// # Errors
/// It would be root.
pub fn run_as(owner: u32, gid: Option<u32>, tier: Tier) -> Result<RunAs, RootsFolder> {
    let gid = gid.filter(|gid| *gid != 0).unwrap_or(NOGROUP);
    match (rustix::process::geteuid().is_root(), tier, owner) {
        (false, ..) => Ok(RunAs::Daemon),
        (true, Tier::C, 0) => Ok(RunAs::Lent { uid: 0, gid: 0 }),
        (true, Tier::C, uid) => Ok(RunAs::Lent { uid, gid }),
        (true, Tier::B | Tier::Builtin, 0) => Err(RootsFolder),
        (true, Tier::B | Tier::Builtin, uid) => Ok(RunAs::Owner { uid, gid }),
    }
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
