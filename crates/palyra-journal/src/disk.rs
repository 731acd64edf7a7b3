//! What the journal does to its files itself, beside SQLite. It all goes through here, so that
//! tests can see it, refuse it and cut the power between two steps of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Opens a file to do any of this to it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    #[cfg(test)]
    crate::faults::opened(&file);
    Ok(file)
}

/// Makes what was written durable.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(watched) = crate::faults::watched(file) {
        return watched.sync().map_err(|code| code.to_io());
    }
    file.sync_data()
}

/// Cuts a file.
pub(crate) fn truncate(file: &File, length: u64) -> io::Result<()> {
    #[cfg(test)]
    if let Some(watched) = crate::faults::watched(file) {
        watched.truncate(length).map_err(|code| code.to_io())?;
    }
    file.set_len(length)
}

/// Writes into the middle of a file.
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    if let Some(watched) = crate::faults::watched(file) {
        watched.write(bytes, offset).map_err(|code| code.to_io())?;
    }
    file.write_all_at(bytes, offset)
}

/// Makes durable which files are beside this one, and which are not any more.
pub(crate) fn sync_folder(file: &Path) -> io::Result<()> {
    #[cfg(test)]
    crate::faults::synced_folder(file);
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
