//! A call's output: streamed while it runs, kept up to a cap.

use base64::Engine;
use serde_json::{Value, json};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output, in the order in which it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// From which stream.
    pub stream: OutputStream,
    /// The bytes; a character may be cut in two by the chunk's end.
    pub bytes: Vec<u8>,
    /// How many bytes of the stream before these were not passed on, because nobody took them in
    /// time. As far as they are kept, they are in the call's output.
    pub missed: u64,
}

impl OutputChunk {
    pub(crate) const fn new(stream: OutputStream, bytes: Vec<u8>) -> Self {
        Self {
            stream,
            bytes,
            missed: 0,
        }
    }
}

/// Where output goes while the call runs: the sending half of a bounded channel.
///
/// A full channel slows the call down as a full pipe would, but not forever: a receiver that takes
/// nothing for a while misses what comes meanwhile (the kept output is not affected).
pub type OutputSink = tokio::sync::mpsc::Sender<OutputChunk>;

/// One stream as it is kept.
#[derive(Debug)]
pub(crate) struct Capture {
    stream: OutputStream,
    kept: Vec<u8>,
    cap: usize,
    total: u64,
    shown: Shown,
}

/// What of a stream whoever watches it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// What is kept, and that the rest is not.
    Kept,
    /// All of it: a terminal that fell silent would be of no use.
    All,
}

impl Capture {
    pub(crate) fn new(stream: OutputStream, cap: u64) -> Self {
        Self {
            stream,
            kept: Vec::new(),
            cap: usize::try_from(cap).unwrap_or(usize::MAX),
            total: 0,
            shown: Shown::Kept,
        }
    }

    /// The same with more to see.
    pub(crate) fn showing(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// Takes what was read, and gives back the part of it that is shown.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<OutputChunk> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.cap.saturating_sub(self.kept.len());
        let (kept, _) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.kept.extend_from_slice(kept);
        let shown = match self.shown {
            Shown::Kept => kept,
            Shown::All => bytes,
        };
        (!shown.is_empty()).then(|| OutputChunk::new(self.stream, shown.to_vec()))
    }

    /// How many bytes were not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.total.saturating_sub(self.kept.len() as u64)
    }

    /// What stands at the end when something was dropped.
    pub(crate) fn marker(&self) -> Option<OutputChunk> {
        let dropped = self.dropped();
        let text = format!("\n[palyra: {dropped} bytes dropped]\n");
        (dropped > 0).then(|| OutputChunk::new(self.stream, text.into_bytes()))
    }

    /// The same, for whoever watches and has not seen them.
    pub(crate) fn marker_shown(&self) -> Option<OutputChunk> {
        match self.shown {
            Shown::Kept => self.marker(),
            Shown::All => None,
        }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// The bytes themselves, without a marker.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.kept
    }

    /// `{"text": …}`, or `{"base64": …}` when it is not UTF-8, with the marker if there is one.
    pub(crate) fn into_value(self) -> Value {
        let marker = self.marker();
        let cut = marker.is_some();
        let marker = marker.map(|chunk| chunk.bytes).unwrap_or_default();
        match text(self.kept, cut) {
            Ok(mut text) => {
                text.push_str(&String::from_utf8_lossy(&marker));
                json!({ "text": text })
            }
            Err(mut bytes) => {
                bytes.extend(marker);
                let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
                json!({ "base64": encoded })
            }
        }
    }
}

/// The bytes as text if they are. When they were `cut`, a character may be incomplete at the end:
/// it is dropped rather than turning all of it into something unreadable.
pub(crate) fn text(mut bytes: Vec<u8>, cut: bool) -> Result<String, Vec<u8>> {
    if cut
        && let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(cap: u64, parts: &[&[u8]]) -> Capture {
        let mut capture = Capture::new(OutputStream::Stdout, cap);
        for part in parts {
            capture.take(part);
        }
        capture
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let capture = captured(8, &[b"abcd", b"efgh"]);
        assert_eq!((capture.total(), capture.dropped()), (8, 0));
        assert_eq!(capture.into_value(), json!({ "text": "abcdefgh" }));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_marked() {
        let capture = captured(6, &[b"abcd", b"efgh", b"ijkl"]);
        assert_eq!((capture.total(), capture.dropped()), (12, 6));
        let text = "abcdef\n[palyra: 6 bytes dropped]\n";
        assert_eq!(capture.into_value(), json!({ "text": text }));
    }

    #[test]
    fn only_kept_bytes_are_streamed() {
        let mut capture = Capture::new(OutputStream::Stderr, 3);
        assert_eq!(capture.take(b"abcd").unwrap().bytes, b"abc");
        assert_eq!(capture.take(b"e"), None);
        assert_eq!(capture.take(b""), None);
    }

    #[test]
    fn a_terminal_shows_what_is_not_kept_any_more() {
        let mut capture = Capture::new(OutputStream::Stdout, 3).showing(Shown::All);
        assert_eq!(capture.take(b"abcd").unwrap().bytes, b"abcd");
        assert_eq!(capture.take(b"e").unwrap().bytes, b"e");
        assert_eq!(capture.marker_shown(), None);
        let text = "abc\n[palyra: 2 bytes dropped]\n";
        assert_eq!(capture.into_value(), json!({ "text": text }));
    }

    #[test]
    fn a_character_cut_in_two_does_not_spoil_the_text() {
        let capture = captured(4, &["aé€".as_bytes()]);
        let text = "aé\n[palyra: 2 bytes dropped]\n";
        assert_eq!(capture.into_value(), json!({ "text": text }));
        assert_eq!(
            captured(9, &[b"\xff\x00"]).into_value(),
            json!({ "base64": "/wA=" })
        );
        // Not cut: the incomplete character is the program's own doing.
        assert_eq!(
            captured(9, &[b"\xc3"]).into_value(),
            json!({ "base64": "ww==" })
        );
    }
}
