//! Files that may be anybody's, and must neither be waited for nor fill the memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file, and nothing else: a pipe may wait for ever, and a device never ends.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// All of a regular file that has at most this many bytes.
///
/// # Errors
/// It cannot be read, is no regular file, or is larger.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "it is larger than the {most} bytes that it may have"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_likely_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"12345").unwrap();
        assert_eq!(read_bounded(&file, 5).unwrap(), b"12345");
        assert!(
            read_bounded(&file, 4)
                .unwrap_err()
                .to_string()
                .contains("larger")
        );
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for odd in [pipe.as_path(), &link, Path::new("/dev/zero"), folder.path()] {
            let refused = read_bounded(odd, 5).unwrap_err();
            assert!(
                refused.to_string().contains("not a regular file"),
                "{refused}"
            );
        }
        let refused = crate::verify::verify(&pipe, &crate::verify::Trust::nobody());
        assert!(refused.is_err(), "and nobody waits for it");
    }
}
