//! The daemon's folders, as far as the command line makes them: private, and never somebody
//! else's.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use palyra_api::Home;

use crate::exit::Meaning;
use crate::failure::Failure;

/// A folder of the daemon's, after [`create`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// Whether it was made just now.
    pub created: bool,
}

/// Refuses a home that is not the caller's own.
///
/// Root with somebody else's `HOME` (as `sudo` may leave it) would make root's files where their
/// owner could swap them, so for root even the folders above must be root's.
///
/// # Errors
/// Names the folder and its owner.
pub fn check_owner(home: &Home) -> Result<(), Failure> {
    let me = rustix::process::geteuid().as_raw();
    for folder in home.folders() {
        let (found, owners) = nearest(&folder).map_err(|error| unusable(&folder, &error))?;
        if let Some(owner) = foreign_owner(me, found == folder, owners) {
            return Err(foreign_home(&found, owner, me));
        }
    }
    Ok(())
}

/// Makes the folders that are missing, for their owner alone.
///
/// # Errors
/// The home is somebody else's or in use for something else, or a folder could not be made.
pub fn create(home: &Home) -> Result<Vec<Folder>, Failure> {
    check_owner(home)?;
    home.folders().into_iter().map(create_one).collect()
}

/// Options for a new file of the daemon's.
#[must_use]
pub fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// A folder or file of the daemon's cannot be used.
pub fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Meaning::Error,
        "home_unusable",
        format!("`{}` cannot be used: {error}", path.display()),
        "mend its permissions, free disk space, or set `PALYRA_HOME` to another folder",
    )
}

fn create_one(path: PathBuf) -> Result<Folder, Failure> {
    let created = !path.exists();
    match make_private(&path) {
        Ok(true) => Ok(Folder { path, created }),
        Ok(false) => Err(Failure::new(
            Meaning::Error,
            "home_in_use",
            format!(
                "`{}` holds other files and is open to others",
                path.display()
            ),
            "set `PALYRA_HOME` to a folder of its own",
        )),
        Err(error) => Err(unusable(&path, &error)),
    }
}

/// Makes the folder, or closes it to others if it is empty or ours already; `false` when it is in
/// use for something else, where closing it would lock its users out. The daemon does the same.
fn make_private(path: &Path) -> std::io::Result<bool> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    if std::fs::metadata(path)?.permissions().mode() & 0o077 == 0 {
        return Ok(true);
    }
    let names: Vec<_> = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    let ours = names.is_empty() || names.iter().any(|name| Home::owns(name));
    if ours {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(ours)
}

/// The folder, or the nearest one above it that exists, with everybody who owns it: a link has
/// an owner too.
fn nearest(folder: &Path) -> std::io::Result<(PathBuf, [u32; 2])> {
    for candidate in folder.ancestors() {
        match std::fs::metadata(candidate) {
            Ok(facts) => {
                let link = std::fs::symlink_metadata(candidate)?;
                return Ok((candidate.to_owned(), [facts.uid(), link.uid()]));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::NotFound.into())
}

/// Anyone but root may make a folder where the kernel lets them, such as in `/tmp`.
fn foreign_owner(me: u32, is_home: bool, owners: [u32; 2]) -> Option<u32> {
    let foreign = owners.into_iter().find(|owner| *owner != me);
    foreign.filter(|_| me == 0 || is_home)
}

fn foreign_home(found: &Path, owner: u32, me: u32) -> Failure {
    let shown = found.display();
    let (message, hint) = match me {
        0 => (
            format!("`{shown}` belongs to uid {owner}, and root only works in a home of its own"),
            "run it as that user, or set `PALYRA_HOME` to a folder of root's",
        ),
        _ => (
            format!("`{shown}` belongs to uid {owner}, not to you (uid {me})"),
            "set `PALYRA_HOME` to a folder of your own",
        ),
    };
    Failure::new(Meaning::Error, "foreign_home", message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn open(path: &Path) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn folders_are_made_private_and_reported_once() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::in_folder(&scratch.path().join("a/b"));
        let first = create(&home).unwrap();
        assert!(first.len() == 1 && first[0].created);
        assert_eq!(mode(&scratch.path().join("a/b")), 0o700);
        assert_eq!(mode(&scratch.path().join("a")), 0o700);
        assert!(!create(&home).unwrap()[0].created);
    }

    #[test]
    fn an_empty_folder_is_closed_and_one_in_use_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::in_folder(scratch.path());
        open(scratch.path());
        create(&home).unwrap();
        assert_eq!(mode(scratch.path()), 0o700);
        std::fs::write(scratch.path().join("thesis.tex"), "").unwrap();
        open(scratch.path());
        assert_eq!(create(&home).unwrap_err().code, "home_in_use");
        assert_eq!(mode(scratch.path()), 0o755);
        std::fs::write(scratch.path().join("palyra.toml"), "").unwrap();
        create(&home).unwrap();
        assert_eq!(mode(scratch.path()), 0o700);
    }

    #[test]
    fn root_works_nowhere_but_at_home() {
        assert_eq!(foreign_owner(0, true, [0, 0]), None);
        assert_eq!(foreign_owner(0, false, [0, 0]), None);
        assert_eq!(foreign_owner(0, true, [1000, 1000]), Some(1000));
        // Not even below a folder of somebody else's, nor through their link.
        assert_eq!(foreign_owner(0, false, [1000, 1000]), Some(1000));
        assert_eq!(foreign_owner(0, true, [0, 1000]), Some(1000));
    }

    #[test]
    fn others_work_where_they_may() {
        assert_eq!(foreign_owner(7, true, [7, 7]), None);
        assert_eq!(foreign_owner(7, false, [0, 0]), None);
        assert_eq!(foreign_owner(7, true, [0, 0]), Some(0));
    }

    #[test]
    fn the_nearest_folder_is_asked() {
        let scratch = tempfile::tempdir().unwrap();
        let (found, owners) = nearest(&scratch.path().join("no/such")).unwrap();
        assert_eq!(found, scratch.path());
        assert_eq!(owners[0], rustix::process::geteuid().as_raw());
    }
}
