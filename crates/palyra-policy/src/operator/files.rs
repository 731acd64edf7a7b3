//! The only place here that reads files: a folder of policies becomes named texts.
//!
//! The folder decides what an agent may do, so nothing is followed or guessed: links, folders,
//! odd names and oversized files are refused, each by name. A file is opened without following a
//! link and its size is counted as it is read, so what was checked is what is used.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::source::{NamedSource, Problem};

/// How large one file may be.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// How large all files together may be.
pub const MAX_FOLDER_BYTES: u64 = 16 * 1024 * 1024;
/// How many files there may be.
pub const MAX_FILES: usize = 4_096;
/// How long a file's name may be.
const MAX_NAME_BYTES: usize = 100;
/// `O_NOFOLLOW | O_NONBLOCK` on Linux: a link is an error, a pipe does not wait.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "x86")))]
const OPEN_FLAGS: i32 = 0o400_000 | 0o4_000;
#[cfg(all(
    target_os = "linux",
    not(any(target_arch = "x86_64", target_arch = "x86"))
))]
const OPEN_FLAGS: i32 = 0o100_000 | 0o4_000;
#[cfg(not(target_os = "linux"))]
const OPEN_FLAGS: i32 = 0;

/// What a folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folder {
    /// `*.cedar`, by name.
    pub policies: Vec<NamedSource>,
    /// `*.test.toml`, by name.
    pub tests: Vec<NamedSource>,
    /// There is no such folder.
    pub absent: bool,
}

/// Reads a folder of policies and their tests. A folder that does not exist is an empty one.
///
/// Names that begin with a dot and names with other endings (`README.md`) are left alone.
///
/// # Errors
/// Every file that is refused, with its name and the reason; nothing of the folder is used then.
pub fn read_folder(folder: &Path) -> Result<Folder, Vec<Problem>> {
    let shown = folder.display().to_string();
    let whole =
        |error: &io::Error| vec![Problem::whole(&shown, format!("cannot be read: {error}"))];
    if fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink()) {
        let message = "is a link, and what it points to may be a tool's to write; \
                       put the folder here";
        return Err(vec![Problem::whole(&shown, message)]);
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Folder {
                absent: true,
                ..Folder::default()
            });
        }
        Err(error) => return Err(whole(&error)),
    };
    let mut found = Folder::default();
    let mut problems = Vec::new();
    let mut left = MAX_FOLDER_BYTES;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| whole(&error))?.file_name();
        if names.len() >= MAX_FILES {
            let message = format!("the folder holds more than {MAX_FILES} entries");
            return Err(vec![Problem::whole(&shown, message)]);
        }
        names.push(name);
    }
    names.sort();
    for name in names {
        let Some(name) = name.to_str() else {
            let message = "the name of this file is not UTF-8; rename it";
            problems.push(Problem::whole(&name.to_string_lossy(), message));
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        match read_file(folder, name, &mut left) {
            Ok(None) => {}
            Ok(Some((Kind::Policy, source))) => found.policies.push(source),
            Ok(Some((Kind::Test, source))) => found.tests.push(source),
            Err(message) => problems.push(Problem::whole(name, message)),
        }
    }
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(problems)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Policy,
    Test,
}

fn read_file(
    folder: &Path,
    name: &str,
    left: &mut u64,
) -> Result<Option<(Kind, NamedSource)>, String> {
    let path = folder.join(name);
    let unread = |error: io::Error| format!("cannot be read: {error}");
    let about = fs::symlink_metadata(&path).map_err(unread)?;
    if about.is_dir() {
        return Err("folders inside the policy folder are not read; move its files up".to_owned());
    }
    let kind = match name {
        name if name.ends_with(".cedar") => Kind::Policy,
        name if name.ends_with(".test.toml") => Kind::Test,
        _ => return Ok(None),
    };
    if about.is_symlink() {
        return Err(
            "is a link, which could point elsewhere tomorrow; put the file here".to_owned(),
        );
    }
    if !about.is_file() {
        return Err("is not a regular file".to_owned());
    }
    plain_name(name)?;
    let file = File::options()
        .read(true)
        .custom_flags(OPEN_FLAGS)
        .open(&path)
        .map_err(unread)?;
    if !file.metadata().map_err(unread)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES.min(*left);
    let count = file
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(unread)?;
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if count > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes; split it"));
    }
    if count > *left {
        *left = 0;
        return Err(format!(
            "with this file the folder holds more than {MAX_FOLDER_BYTES} bytes"
        ));
    }
    *left -= count;
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "is not UTF-8 from byte {}",
            error.utf8_error().valid_up_to()
        )
    })?;
    Ok(Some((kind, NamedSource::new(name, text))))
}

fn plain_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.len() <= MAX_NAME_BYTES && name.bytes().all(plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(format!(
        "the name of a policy file is at most {MAX_NAME_BYTES} of a-z, A-Z, 0-9, `_`, `-` and `.`; \
         rename it"
    ))
}
