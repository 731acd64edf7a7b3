//! What this room has to be told about the machine.

use std::path::{Path, PathBuf};

/// Facts about files, supplied by whoever may look at them.
///
/// `None` always means "cannot be told", and makes a call opaque.
pub trait Resolver {
    /// The program that `name` means to somebody who stands in `cwd` and has this `PATH`: in its
    /// real folder, under its own name even when that is a link. A program of many names acts by
    /// the one it is called by.
    fn program(&self, name: &str, path: &str, cwd: &Path) -> Option<PathBuf>;

    /// The real path of an absolute one: links and `..` of whatever exists are resolved, and what
    /// does not exist yet stands beneath its real ancestor.
    fn real(&self, path: &Path) -> Option<PathBuf>;

    /// What stands behind `#!` in the first line of a script; `None` when it is no script.
    fn interpreter(&self, program: &Path) -> Option<String>;
}
