//! How an entry is spelled as a leaf of the tree.
//!
//! The spelling is canonical JSON on one line, with everything that the journal says about an
//! entry: its place in the whole and in its stream, its kind, its time and its body. An export
//! holds these very lines, so anybody can compute a leaf with `sha256(0x00 || line)`.
//!
//! The body comes first, and what only the writer knows comes after it: so whoever appends hashes
//! most of the leaf, and the writer, for whom everybody waits, only its end.

use sha2::Digest as _;

use crate::proof::tree::Hash;

/// What the spelling begins to mean something else with: another version, another leaf.
const RECORD: &str = "palyra.entry.v1";

/// An entry as the journal keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRecord<'a> {
    /// Place in the whole journal, from 1.
    pub seq: u64,
    /// The stream.
    pub stream: &'a str,
    /// Place in the stream, from 1.
    pub revision: u64,
    /// The kind, as in the body.
    pub kind: &'a str,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The body: canonical JSON, embedded as it is.
    pub body: &'a [u8],
}

/// How a line begins.
const START: &[u8] = b"{\"body\":";

/// A leaf that is hashed up to the end of its body.
#[derive(Clone)]
pub(crate) struct LeafStart(sha2::Sha256);

impl LeafStart {
    /// The beginning of the leaf of an entry with this body.
    pub(crate) fn of(body: &[u8]) -> Self {
        let mut hash = Hash::leaf_start();
        hash.update(START);
        hash.update(body);
        Self(hash)
    }
}

impl EntryRecord<'_> {
    /// Its leaf; `buffer` is used on the way.
    #[must_use]
    pub fn leaf(&self, buffer: &mut Vec<u8>) -> Hash {
        self.leaf_from(LeafStart::of(self.body), buffer)
    }

    /// Its leaf, from the beginning that belongs to its body; `buffer` is used on the way.
    pub(crate) fn leaf_from(&self, start: LeafStart, buffer: &mut Vec<u8>) -> Hash {
        buffer.clear();
        self.spell_after_body(buffer);
        let LeafStart(mut hash) = start;
        hash.update(buffer);
        Hash::leaf_end(hash)
    }

    /// Its line, without the newline, in place of what `buffer` held.
    pub fn spell(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(START);
        buffer.extend_from_slice(self.body);
        self.spell_after_body(buffer);
    }

    fn spell_after_body(&self, buffer: &mut Vec<u8>) {
        let mut number = NumberText::default();
        buffer.extend_from_slice(b",\"kind\":");
        quoted(self.kind, buffer);
        buffer.extend_from_slice(b",\"record\":");
        quoted(RECORD, buffer);
        buffer.extend_from_slice(b",\"revision\":");
        buffer.extend_from_slice(number.of(self.revision));
        buffer.extend_from_slice(b",\"seq\":");
        buffer.extend_from_slice(number.of(self.seq));
        buffer.extend_from_slice(b",\"stream\":");
        quoted(self.stream, buffer);
        buffer.extend_from_slice(b",\"time\":");
        buffer.extend_from_slice(number.of(self.at));
        buffer.push(b'}');
    }
}

/// Numbers as text, without an allocation for each.
#[derive(Default)]
struct NumberText(Vec<u8>);

impl NumberText {
    fn of(&mut self, number: impl std::fmt::Display) -> &[u8] {
        use std::io::Write as _;
        self.0.clear();
        // Writing to memory does not fail.
        let _written = write!(self.0, "{number}");
        &self.0
    }
}

/// A string of JSON, with the escapes of RFC 8785.
fn quoted(text: &str, buffer: &mut Vec<u8>) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        buffer.push(b'"');
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'"');
        return;
    }
    buffer.extend_from_slice(&palyra_core::json::canonical_bytes(&text.into()));
}

/// A line that was read back; [`EntryLine::record`] is what it says.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryLine<'a> {
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    record: std::borrow::Cow<'a, str>,
    revision: u64,
    seq: u64,
    #[serde(borrow)]
    stream: std::borrow::Cow<'a, str>,
    #[serde(rename = "time")]
    at: i64,
}

impl<'a> EntryLine<'a> {
    /// Reads a line, without its newline, that is spelled exactly as [`EntryRecord::spell`] would;
    /// `None` for any other.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let parsed: Self = serde_json::from_slice(line).ok()?;
        let mut again = Vec::with_capacity(line.len());
        parsed.record().spell(&mut again);
        (parsed.record == RECORD && again == line).then_some(parsed)
    }

    /// What it says.
    #[must_use]
    pub fn record(&self) -> EntryRecord<'_> {
        EntryRecord {
            seq: self.seq,
            stream: &self.stream,
            revision: self.revision,
            kind: &self.kind,
            at: self.at,
            body: self.body.get().as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> EntryRecord<'static> {
        EntryRecord {
            seq: 3,
            stream: "daemon",
            revision: 2,
            kind: "daemon_started",
            at: 1_794_733_261_000,
            body: br#"{"kind":"daemon_started","v":1,"version":"0.1.0"}"#,
        }
    }

    fn line(record: &EntryRecord<'_>) -> Vec<u8> {
        let mut line = Vec::new();
        record.spell(&mut line);
        line
    }

    #[test]
    fn the_spelling_is_canonical_json_and_stays_as_it_is() {
        let spelled = line(&record());
        let canonical = palyra_core::json::CanonicalJson::parse(&spelled).unwrap();
        assert_eq!(canonical.bytes(), spelled);
        // Proofs that were handed out depend on this very text.
        let text = r#"{"body":{"kind":"daemon_started","v":1,"version":"0.1.0"},"kind":"daemon_started","record":"palyra.entry.v1","revision":2,"seq":3,"stream":"daemon","time":1794733261000}"#;
        assert_eq!(String::from_utf8_lossy(&spelled), text);
        assert_eq!(
            record().leaf(&mut Vec::new()).to_string(),
            Hash::leaf(text.as_bytes()).to_string()
        );
    }

    #[test]
    fn everything_is_in_it() {
        let mut buffer = Vec::new();
        let one = record();
        for other in [
            EntryRecord { seq: 4, ..one },
            EntryRecord { stream: "d", ..one },
            EntryRecord { revision: 3, ..one },
            EntryRecord { kind: "x", ..one },
            EntryRecord { at: -1, ..one },
            EntryRecord { body: b"{}", ..one },
        ] {
            assert_ne!(one.leaf(&mut buffer), other.leaf(&mut buffer));
        }
    }

    /// A body may be anything once somebody edited the file: it must not be able to stand in for
    /// the members around it.
    #[test]
    fn a_body_cannot_reach_out() {
        let inside =
            br#"{},"kind":"a","record":"palyra.entry.v1","revision":1,"seq":1,"stream":"s"#;
        let forged = EntryRecord {
            body: inside,
            kind: "b",
            ..record()
        };
        assert!(EntryLine::parse(&line(&forged)).is_none());
        let honest = EntryRecord {
            stream: r#"s","x":"y"#,
            ..record()
        };
        let spelled = line(&honest);
        assert_eq!(EntryLine::parse(&spelled).unwrap().record(), honest);
    }

    #[test]
    fn a_line_has_one_spelling() {
        let spelled = line(&record());
        assert_eq!(EntryLine::parse(&spelled).unwrap().record(), record());
        let text = String::from_utf8(spelled).unwrap();
        for wrong in [
            text.replace(":1794", ": 1794"),
            text.replace("\"seq\":3", "\"seq\":3.0"),
            text.replace("\"seq\":3", "\"seq\":03"),
            text.replace("daemon\",\"t", "d\\u0061emon\",\"t"),
            text.replace("v1\"", "v2\""),
            text.replace("\"seq\":3", "\"seq\":3,\"seq\":3"),
            text.replace("\"seq\":3,", ""),
            format!("{text} "),
            format!(" {text}"),
        ] {
            assert!(EntryLine::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_spelled_reads_back(
            seq in 1..u64::MAX, revision in 1..u64::MAX, at in any::<i64>(),
            stream in "\\PC*|[\u{0}-\u{20}\"\\\\]*", kind in "[a-z_]*",
        ) {
            let record = EntryRecord { seq, stream: &stream, revision, kind: &kind, at, body: b"{}" };
            let spelled = line(&record);
            let parsed = EntryLine::parse(&spelled);
            prop_assert_eq!(parsed.as_ref().map(EntryLine::record), Some(record));
        }

        #[test]
        fn no_bytes_break_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = EntryLine::parse(&bytes);
        }

        #[test]
        fn a_changed_line_is_another_leaf_or_none(place in 0..150_usize, byte in any::<u8>()) {
            let spelled = line(&record());
            let mut changed = spelled.clone();
            changed[place] = byte;
            if let Some(parsed) = EntryLine::parse(&changed) {
                let same = parsed.record().leaf(&mut Vec::new()) == Hash::leaf(&spelled);
                prop_assert_eq!(same, changed == spelled);
            }
        }
    }
}
