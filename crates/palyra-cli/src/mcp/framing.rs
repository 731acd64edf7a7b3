//! What comes in, line by line, before anybody reads it as JSON.
//!
//! A message is a line. One that is too long is not kept in memory: it is read over to its end, and
//! in its place stands something that is JSON and no message, so that its sender hears of it. So
//! does a line that is no JSON at all.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// What stands where a message was that cannot be taken. It is answered as an invalid request.
const INSTEAD: &[u8] = b"[]\n";

/// How much is read at once.
const PIECE: usize = 64 << 10;

/// Lines of at most so many bytes, each of them one JSON text.
pub struct Capped<R> {
    input: R,
    most: usize,
    piece: Vec<u8>,
    line: Vec<u8>,
    /// The line that is being read is too long: the rest of it is dropped.
    too_long: bool,
    ready: Vec<u8>,
    given: usize,
}

impl<R> Capped<R> {
    /// Reads from here.
    pub fn new(input: R, most: usize) -> Self {
        Self {
            input,
            most,
            piece: vec![0; PIECE],
            line: Vec::new(),
            too_long: false,
            ready: Vec::new(),
            given: 0,
        }
    }

    /// Takes in some bytes; whole lines among them become ready.
    fn take_in(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.too_long && self.line.len() + part.len() > self.most {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_of_line();
            }
        }
    }

    fn end_of_line(&mut self) {
        let is_blank = self.line.iter().all(u8::is_ascii_whitespace);
        match (self.too_long, is_blank) {
            (false, true) => {}
            (false, false) if is_json(&self.line) => self.ready.extend_from_slice(&self.line),
            (false, false) | (true, _) => self.ready.extend_from_slice(INSTEAD),
        }
        self.line.clear();
        // A large message now and then should not cost its size for ever.
        self.line.shrink_to(PIECE);
        self.too_long = false;
    }

    /// Gives what is ready; whether there was anything.
    fn give(&mut self, to: &mut ReadBuf<'_>) -> bool {
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let some = rest.get(..to.remaining().min(rest.len())).unwrap_or(rest);
        to.put_slice(some);
        self.given += some.len();
        let gave = !some.is_empty();
        if self.given >= self.ready.len() {
            self.ready.clear();
            self.ready.shrink_to(PIECE);
            self.given = 0;
        }
        gave
    }
}

/// Whether a line is one JSON text, whatever it says.
fn is_json(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    // Skipping over a value does not look at the letters of its strings.
    let text = std::str::from_utf8(line).ok();
    text.is_some_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

impl<R: AsyncRead + Unpin> AsyncRead for Capped<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            if self.give(to) {
                return Poll::Ready(Ok(()));
            }
            let mut piece = std::mem::take(&mut self.piece);
            let mut buffer = ReadBuf::new(&mut piece);
            let read = Pin::new(&mut self.input).poll_read(context, &mut buffer);
            let filled = buffer.filled().len();
            if matches!(read, Poll::Ready(Ok(()))) {
                let bytes = piece.get(..filled).unwrap_or_default();
                self.take_in(bytes);
            }
            self.piece = piece;
            ready!(read)?;
            if filled == 0 {
                // The end. A line that was not ended is no message.
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn through(input: &[u8], most: usize) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut out = Vec::new();
            let mut capped = Capped::new(input, most);
            capped.read_to_end(&mut out).await.unwrap();
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn lines_pass_and_others_are_replaced() {
        assert_eq!(through(b"{\"a\":1}\n\n[2]\r\n", 100), "{\"a\":1}\n[2]\r\n");
        assert_eq!(through(b"nonsense\n{}\n", 100), "[]\n{}\n");
        assert_eq!(through(b"{} {}\n", 100), "[]\n");
        assert_eq!(through(b"\"\xff\"\n", 100), "[]\n", "not UTF-8");
        assert_eq!(through(b"{}", 100), "", "a line that is not ended");
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept() {
        let long = format!("\"{}\"\n{{}}\n", "x".repeat(300_000));
        assert_eq!(through(long.as_bytes(), 1_000), "[]\n{}\n");
        let fits = format!("\"{}\"\n", "x".repeat(997));
        assert_eq!(through(fits.as_bytes(), 1_000), fits);
        let over = format!("\"{}\"\n", "x".repeat(998));
        assert_eq!(through(over.as_bytes(), 1_000), "[]\n");
    }

    proptest::proptest! {
        /// Whatever comes in however it is cut, what goes out are lines of JSON within the limit.
        #[test]
        fn what_goes_out_is_always_lines_of_json(
            input in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
            cuts in proptest::collection::vec(1_usize..40, 1..20),
        ) {
            let mut input: Vec<u8> = input;
            // Some of it nearly JSON, with line ends often enough.
            for byte in &mut input {
                *byte = match *byte % 16 { 0 => b'\n', 1 => b'{', 2 => b'}', 3 => b'"', 4 => b'[', 5 => b']', 6 => b'1', _ => *byte };
            }
            let mut capped = Capped::new(tokio::io::empty(), 64);
            let (mut rest, mut turn) = (input.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let at = rest.len().min(*turn.next().unwrap());
                let (piece, after) = rest.split_at(at);
                capped.take_in(piece);
                rest = after;
            }
            for line in capped.ready.split_inclusive(|byte| *byte == b'\n') {
                proptest::prop_assert!(line.len() <= 64);
                proptest::prop_assert!(line.ends_with(b"\n"));
                proptest::prop_assert!(is_json(line));
            }
            proptest::prop_assert!(capped.line.len() <= 64);
        }
    }
}
