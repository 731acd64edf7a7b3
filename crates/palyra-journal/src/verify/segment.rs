//! An exported segment, line by line.

use std::io::{self, BufRead, Read as _};

use super::walk::Walk;
use super::{Place, Report, Trust};
use crate::proof::{EntryLine, Frontier};
use crate::segment::{CheckpointLine, Header};

/// The longest line that is read; an entry holds no arguments and no output.
const MAX_LINE: u64 = 64 << 20;

pub(super) fn verify(mut segment: impl BufRead, trust: &Trust) -> io::Result<Report> {
    let mut line = Vec::new();
    let header = read_line(&mut segment, &mut line)?
        .then(|| Header::parse(&line))
        .flatten()
        .and_then(|header| Some((header.frontier()?, header.key)));
    let Some((before, key)) = header else {
        let mut walk = Walk::new(trust, Frontier::default(), None);
        walk.fault(
            Place::Line(1),
            "is not the beginning of a journal's export, and the file is no journal",
        );
        return Ok(walk.finish());
    };
    let mut walk = Walk::new(trust, before, Some(key));
    for number in 2.. {
        line.clear();
        if !read_line(&mut segment, &mut line)? {
            break;
        }
        if let Some(checkpoint) = CheckpointLine::parse(&line) {
            match checkpoint.size() {
                Some(size) => walk.checkpoint(size, &checkpoint.checkpoint, &checkpoint.leaves),
                None => walk.fault(
                    Place::Line(number),
                    "holds something else than a checkpoint",
                ),
            }
        } else if let Some(entry) = EntryLine::parse(&line) {
            walk.entry(&entry.record());
        } else {
            let seq = walk.next_seq();
            walk.unreadable(
                seq,
                &format!("line {number} is neither entry nor checkpoint"),
            );
        }
    }
    Ok(walk.finish())
}

/// Reads a line without its newline; `false` at the end. A line without a newline, or one that
/// never ends, is given as it is, with something in it that no line of ours has.
fn read_line(segment: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let read = segment.take(MAX_LINE).read_until(b'\n', line)?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        line.push(0);
    }
    Ok(read > 0)
}
