//! Hostile files: every parser gets true files with anything done to them. None of it breaks a
//! parser, and nothing but the true file is believed.
//!
//! `PALYRA_FUZZ_CASES` sets how many; `make fuzz` takes the long form.

use palyra_core::entry::Stream;
use palyra_journal::proof::{Checkpoint, EntryLine, Hash, Note, VerifierKey};
use palyra_journal::verify::{Trust, Verdict, verify_segment};
use palyra_journal::{AttestationFile, Expected, JournalKeys};

use crate::recording::executed;
use crate::support::{Place, blob_key, keys, started};

fn cases() -> u64 {
    let wanted = std::env::var("PALYRA_FUZZ_CASES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Chance that can be told again: a seed is a whole story.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).unwrap();
        Self(u64::from_le_bytes(seed) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

/// What means something to one of the parsers.
const WORDS: &[&str] = &[
    "\n",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "\u{2014} ",
    "\0",
    "-1",
    "0",
    "1e400",
    "18446744073709551616",
    "null",
    "\\u0000",
    "\\ud800",
    "\"seq\":",
    "\"body\":{}",
    "=",
    "/",
];

/// A true file with a few things done to it.
fn spoiled(honest: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + 1 + chance.below(40)).min(bytes.len());
        match chance.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes.get(at..end).unwrap_or_default().to_vec();
                let to = chance.below(bytes.len() + 1);
                bytes.splice(to..to, again);
            }
            3 => {
                let word = WORDS.get(chance.below(WORDS.len()));
                bytes.splice(at..at, word.unwrap().bytes());
            }
            4 => bytes.get_mut(at..end).unwrap_or_default().reverse(),
            5 => {
                // Whole lines change places.
                let mut lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                let (one, two) = (chance.below(lines.len()), chance.below(lines.len()));
                if !lines.is_empty() {
                    lines.swap(one, two);
                }
                bytes = lines.concat();
            }
            6 => {
                let byte = u8::try_from(chance.below(256)).unwrap();
                if let Some(found) = bytes.get_mut(at) {
                    *found = byte;
                }
            }
            _ => {
                if let Some(found) = bytes.get_mut(at) {
                    *found ^= 1 << chance.below(8);
                }
            }
        }
    }
    bytes
}

#[tokio::test]
async fn nothing_but_the_true_file_is_believed_and_nothing_breaks_a_parser() {
    let place = Place::new();
    let journal = place.open();
    let first = journal.key().unwrap();
    let call = executed(&journal, true).await;
    drop(journal);
    let journal = place.open_keyed(keys().rotated().unwrap());
    let more = journal.append_if(Stream::Daemon, Expected::Any, vec![started("\"\\\u{7f}é")]);
    more.await.unwrap();
    let note = journal.checkpoint().unwrap();
    let mut segment = Vec::new();
    journal.export(0, &mut segment).unwrap();
    let attestation = journal.attestation(&call).unwrap().unwrap().to_bytes();
    let mut lines = segment.split(|byte| *byte == b'\n');
    let line = lines.find(|line| EntryLine::parse(line).is_some()).unwrap();
    let leaf = Hash::leaf(line);
    let said = Checkpoint::signed_by(&note, &journal.key().unwrap()).unwrap();
    let trust = Trust::nobody().key(first).pinned(note.clone()).unwrap();
    let control = verify_segment(&segment[..], &trust).unwrap();
    assert_eq!(control.verdict(), Verdict::Verified, "{control:?}");
    assert!(
        AttestationFile::parse(&attestation)
            .unwrap()
            .verify()
            .is_ok()
    );

    let mut chance = Chance::new();
    for _ in 0..cases() {
        let story = chance.0;
        let bytes = spoiled(&segment, &mut chance);
        let report = verify_segment(&bytes[..], &trust).unwrap();
        let believed = report.verdict() == Verdict::Verified;
        assert_eq!(believed, bytes == segment, "story {story}: {report:?}");

        let bytes = spoiled(&attestation, &mut chance);
        let shown = AttestationFile::parse(&bytes).and_then(|file| file.verify());
        assert_eq!(shown.is_ok(), bytes == attestation, "story {story}");

        let bytes = spoiled(line, &mut chance);
        if let Some(parsed) = EntryLine::parse(&bytes) {
            let same = parsed.record().leaf(&mut Vec::new()) == leaf;
            assert_eq!(same, bytes == line, "story {story}");
        }

        let bytes = spoiled(note.to_string().as_bytes(), &mut chance);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(parsed) = text.parse::<Note>() {
            assert_eq!(parsed.to_string(), text, "story {story}: one spelling");
            let _read = Checkpoint::unverified(&parsed);
            if let Ok(found) = Checkpoint::signed_by(&parsed, &journal.key().unwrap()) {
                assert_eq!(found, said, "story {story}");
            }
        }

        let bytes = spoiled(keys().to_text().as_bytes(), &mut chance);
        let text = String::from_utf8_lossy(&bytes);
        let _keys = JournalKeys::from_text(&text, blob_key());
        let _key = text.parse::<VerifierKey>();
    }
}
