//! Standard input: read to its end when it is asked for, and only looked at otherwise.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::block_in_place;

use crate::exit::Meaning;
use crate::failure::Failure;

/// More than any tool takes; the daemon's own limits are lower and speak for themselves.
const MAX: u64 = 64 << 20;

/// Everything that is given on standard input.
///
/// # Errors
/// It cannot be read, or never seems to end.
pub fn read() -> Result<Vec<u8>, Failure> {
    // Reading may wait for a person, and somebody has to hear Ctrl-C meanwhile.
    block_in_place(|| limited("standard input", Ok(std::io::stdin().lock())))
}

/// Everything that is given on standard input, as text.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn read_text() -> Result<String, Failure> {
    String::from_utf8(read()?).map_err(|error| {
        Failure::usage(
            format!(
                "standard input is not UTF-8: byte {} is the first that is not text",
                error.utf8_error().valid_up_to()
            ),
            "records are text: put the bytes into a file of the workspace, and name that instead",
        )
    })
}

/// All of a source, unless it is larger than any input may be.
///
/// # Errors
/// It cannot be opened or read, or it is too large.
pub fn limited(name: &str, source: std::io::Result<impl Read>) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = source.and_then(|source| source.take(MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| {
        Failure::usage(
            format!("{name} cannot be read: {error}"),
            "give something that can be read; `palyra call` takes `--args JSON`, `-` or `@FILE`",
        )
    })?;
    if bytes.len() as u64 > MAX {
        return Err(Failure::new(
            Meaning::Usage,
            "input_too_large",
            format!("{name} holds more than {} MiB", MAX >> 20),
            "send less; put large content into a file of the workspace",
        ));
    }
    Ok(bytes)
}

/// Whether somebody gave us something to read, as far as it can be told without waiting.
#[must_use]
pub fn has_data() -> bool {
    let stdin = std::io::stdin();
    !stdin.is_terminal() && holds_data(stdin.as_fd()).unwrap_or(false)
}

fn holds_data(from: BorrowedFd<'_>) -> std::io::Result<bool> {
    let mut file = File::from(from.try_clone_to_owned()?);
    let found = file.metadata()?;
    if found.is_file() {
        return Ok(file.stream_position()? < found.len());
    }
    if !found.file_type().is_fifo() {
        return Ok(false);
    }
    let mut asked = [PollFd::new(&from, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default()))?;
    // A pipe whose writer left without a word is only hung up.
    Ok(asked.iter().any(|fd| fd.revents().contains(PollFlags::IN)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_endless_source_is_left() {
        let endless = limited("x", Ok(std::io::repeat(b' '))).unwrap_err();
        assert_eq!(endless.code, "input_too_large");
    }

    #[test]
    fn data_is_seen_where_there_is_some() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!holds_data(reader.as_fd()).unwrap(), "nothing yet");
        writer.write_all(b"x").unwrap();
        assert!(holds_data(reader.as_fd()).unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(!holds_data(reader.as_fd()).unwrap(), "hung up");

        let mut file = tempfile::tempfile().unwrap();
        assert!(!holds_data(file.as_fd()).unwrap(), "empty");
        file.write_all(b"x").unwrap();
        assert!(!holds_data(file.as_fd()).unwrap(), "at its end");
        file.rewind().unwrap();
        assert!(holds_data(file.as_fd()).unwrap());
        let null = File::open("/dev/null").unwrap();
        assert!(!holds_data(null.as_fd()).unwrap());
    }
}
