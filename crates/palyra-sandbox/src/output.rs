//! A call's output: streamed while it runs, kept up to a cap.

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
}

/// Where output goes while the call runs: the sending half of a bounded channel.
///
/// A full channel slows the call down as a full pipe would, but not forever: a receiver that takes
/// nothing for a while loses the rest of the live stream (the kept output is not affected).
pub type OutputSink = tokio::sync::mpsc::Sender<OutputChunk>;
