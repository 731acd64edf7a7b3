//! Folders as they are meant: absolute, without links on the way, in UTF-8.

use std::path::{Path, PathBuf};

use crate::exit::Meaning;
use crate::failure::Failure;

/// The folder that `--workspace` names.
///
/// # Errors
/// There is no such folder, or it cannot be named in JSON.
pub fn workspace(given: &Path) -> Result<String, Failure> {
    let shown = given.display();
    let choose = "create it, or choose another with `--workspace`";
    let real = std::fs::canonicalize(given).map_err(|error| {
        Failure::usage(
            format!("the folder `{shown}` cannot be used: {error}"),
            choose,
        )
    })?;
    if !real.is_dir() {
        return Err(Failure::usage(format!("`{shown}` is not a folder"), choose));
    }
    text(real)
}

/// The folder we stand in.
///
/// # Errors
/// It is gone, or cannot be named in JSON.
pub fn here() -> Result<String, Failure> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::new(
            Meaning::Error,
            "no_current_folder",
            format!("the current folder cannot be used: {error}"),
            "change into a folder that exists, or name one with `--workspace`",
        )
    })?;
    text(here)
}

fn text(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|raw| {
        Failure::usage(
            format!("the folder name `{}` is not UTF-8", raw.display()),
            "work in a folder whose name is UTF-8",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_resolved_or_explained() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().canonicalize().unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(workspace(&link).unwrap(), real.to_str().unwrap());
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        for wrong in [file, scratch.path().join("none")] {
            let failure = workspace(&wrong).unwrap_err();
            assert_eq!(failure.meaning, Meaning::Usage);
            assert!(failure.hint.contains("--workspace"));
        }
    }
}
