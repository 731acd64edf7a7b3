//! Output on its way to whoever watches the call.
//!
//! At most one piece waits here, and while it does nothing more is read: the program feels a full
//! pipe, and the daemon's memory does not grow. What the call may use up is counted elsewhere, by
//! its supervisor, so a watcher who takes nothing delays no limit.
//!
//! A pipe's watcher who takes nothing for a while is left behind: what comes meanwhile is counted
//! as missed and said so with the next piece that they do take. Nothing is lost for good, as far as
//! it is kept: the end of the call brings the kept output as a whole. A terminal's watcher is waited
//! for while the call runs, as a terminal on a slow line is.

use std::time::Duration;

use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use crate::output::{OutputChunk, OutputSink, OutputStream};

/// How long a pipe's watcher holds a call up before they are left behind, and how long any of them
/// does after its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who is waited for while a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as it takes.
    Always,
    /// For a moment.
    AMoment,
}

/// The live stream.
pub(crate) struct Stream {
    sink: Option<OutputSink>,
    waiting: Option<OutputChunk>,
    wait: Wait,
    patience: Duration,
    /// Until when is waited, from the moment in which the watcher took nothing.
    until: Option<Instant>,
    /// The watcher has been waited for long enough.
    left_behind: bool,
    /// The call is over, and with it all waiting at this moment.
    over: Option<Instant>,
    missed: [u64; 2],
}

impl Stream {
    pub(crate) const fn new(sink: Option<OutputSink>, wait: Wait) -> Self {
        Self {
            sink,
            waiting: None,
            wait,
            patience: PATIENCE,
            until: None,
            left_behind: false,
            over: None,
            missed: [0; 2],
        }
    }

    /// Whether nothing more is to be read for now.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Passes a piece on, or keeps it until it can be.
    pub(crate) fn push(&mut self, chunk: OutputChunk) {
        let missed = std::mem::take(self.counter(chunk.stream));
        let chunk = OutputChunk {
            missed: missed + chunk.missed,
            ..chunk
        };
        let Some(sink) = &self.sink else { return };
        match sink.try_send(chunk) {
            Ok(()) => self.left_behind = false,
            Err(TrySendError::Closed(_)) => self.sink = None,
            Err(TrySendError::Full(chunk)) if self.left_behind => self.miss(&chunk),
            Err(TrySendError::Full(chunk)) => {
                let now = Instant::now();
                self.until = match (self.over, self.wait) {
                    (Some(over), _) => Some(over),
                    (None, Wait::AMoment) => Some(now + self.patience),
                    (None, Wait::Always) => None,
                };
                self.waiting = Some(chunk);
            }
        }
    }

    /// The call has ended: from here on everybody is waited for only for a moment, in all.
    pub(crate) fn is_over(&mut self) {
        let over = Instant::now() + self.patience;
        self.over = Some(over);
        self.until = self.until.or(Some(over));
    }

    /// Waits until the piece is taken, or for as long as its watcher is waited for. May be left and
    /// begun again.
    pub(crate) async fn unblocked(&mut self) {
        if self.waiting.is_none() {
            return;
        }
        let room = match &self.sink {
            Some(sink) => room(sink, self.until).await,
            None => Room::Never,
        };
        match (room, self.waiting.take()) {
            (Room::Now(permit), Some(chunk)) => drop(permit.send(chunk)),
            (Room::Never, _) => self.sink = None,
            (Room::NotInTime, Some(chunk)) => {
                self.left_behind = true;
                self.miss(&chunk);
            }
            (Room::Now(_) | Room::NotInTime, None) => {}
        }
    }

    /// Says what was missed and not said yet.
    pub(crate) async fn finish(&mut self) {
        self.unblocked().await;
        let Some(sink) = self.sink.take() else { return };
        let both = [OutputStream::Stdout, OutputStream::Stderr];
        let missed = both.map(|stream| OutputChunk {
            missed: self.missed_of(stream),
            ..OutputChunk::new(stream, Vec::new())
        });
        if missed.iter().all(|chunk| chunk.missed == 0) {
            return;
        }
        // The call does not wait for that. Whoever watches to the end takes it, or is gone.
        tokio::spawn(async move {
            for chunk in missed.into_iter().filter(|chunk| chunk.missed > 0) {
                if sink.send(chunk).await.is_err() {
                    return;
                }
            }
        });
    }

    fn miss(&mut self, chunk: &OutputChunk) {
        *self.counter(chunk.stream) += chunk.missed + chunk.bytes.len() as u64;
    }

    const fn missed_of(&self, stream: OutputStream) -> u64 {
        let [stdout, stderr] = self.missed;
        match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        }
    }

    const fn counter(&mut self, stream: OutputStream) -> &mut u64 {
        let [stdout, stderr] = &mut self.missed;
        match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        }
    }
}

/// Whether there is room for a piece.
enum Room {
    Now(OwnedPermit<OutputChunk>),
    NotInTime,
    /// Whoever watched is gone.
    Never,
}

async fn room(sink: &OutputSink, until: Option<Instant>) -> Room {
    let reserving = sink.clone().reserve_owned();
    let reserved = match until {
        Some(until) => match tokio::time::timeout_at(until, reserving).await {
            Ok(reserved) => reserved,
            Err(_) => return Room::NotInTime,
        },
        None => reserving.await,
    };
    reserved.map_or(Room::Never, Room::Now)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn stream(room: usize, wait: Wait) -> (Stream, mpsc::Receiver<OutputChunk>) {
        let (sink, watcher) = mpsc::channel(room);
        let stream = Stream {
            patience: Duration::from_millis(20),
            ..Stream::new(Some(sink), wait)
        };
        (stream, watcher)
    }

    fn piece(text: &str) -> OutputChunk {
        OutputChunk::new(OutputStream::Stdout, text.as_bytes().to_vec())
    }

    fn taken(from: &mut mpsc::Receiver<OutputChunk>) -> (String, u64) {
        let chunk = from.try_recv().unwrap();
        (String::from_utf8(chunk.bytes).unwrap(), chunk.missed)
    }

    #[tokio::test]
    async fn who_takes_nothing_is_left_behind_and_told_what_they_missed() {
        let (mut stream, mut watcher) = stream(1, Wait::AMoment);
        stream.push(piece("a"));
        assert!(!stream.is_blocked());
        stream.push(piece("bc"));
        assert!(stream.is_blocked(), "the program feels a full pipe");
        stream.unblocked().await;
        assert!(!stream.is_blocked(), "and not for ever");
        stream.push(piece("def"));
        assert!(!stream.is_blocked(), "nor again and again");
        assert_eq!(taken(&mut watcher), ("a".to_owned(), 0));
        stream.push(piece("g"));
        assert_eq!(taken(&mut watcher), ("g".to_owned(), 5));
        stream.push(piece("h"));
        assert_eq!(taken(&mut watcher), ("h".to_owned(), 0));
    }

    #[tokio::test]
    async fn who_missed_the_end_is_told_that_too() {
        let (mut stream, mut watcher) = stream(2, Wait::AMoment);
        for text in ["a", "b", "c"] {
            stream.push(piece(text));
            stream.unblocked().await;
        }
        stream.is_over();
        stream.finish().await;
        for expected in [("a", 0), ("b", 0), ("", 1)] {
            let chunk = watcher.recv().await.unwrap();
            assert_eq!(
                (chunk.bytes.as_slice(), chunk.missed),
                (expected.0.as_bytes(), expected.1)
            );
        }
        assert_eq!(watcher.recv().await, None);
    }

    #[tokio::test]
    async fn a_terminals_watcher_is_waited_for_until_the_call_is_over() {
        let (mut stream, mut watcher) = stream(1, Wait::Always);
        stream.push(piece("a"));
        stream.push(piece("b"));
        let long = tokio::time::timeout(Duration::from_millis(60), stream.unblocked());
        assert!(long.await.is_err());
        assert!(stream.is_blocked());
        stream.is_over();
        stream.unblocked().await;
        assert!(!stream.is_blocked());
        assert_eq!(taken(&mut watcher), ("a".to_owned(), 0));
    }

    #[tokio::test]
    async fn nobody_is_waited_for_who_went_away() {
        let (mut stream, watcher) = stream(1, Wait::Always);
        stream.push(piece("a"));
        stream.push(piece("b"));
        drop(watcher);
        stream.unblocked().await;
        assert!(!stream.is_blocked());
        stream.push(piece("c"));
        assert!(!stream.is_blocked());
    }
}
