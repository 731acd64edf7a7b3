//! A small journal with everything in it, for those who verify.

use palyra_core::attestation::Ending;
use palyra_core::entry::{Entry, Stream};
use palyra_core::facts::{Channel, Origin};
use palyra_core::{
    Blob, BlobKind, Commitment, DeviceId, ExecutionReport, Principal, RunId, Timestamp,
};
use palyra_journal::proof::{Note, VerifierKey};
use palyra_journal::verify::{Place as Where, Report, Trust};
use palyra_journal::{Append, Expected, JournalStore};

use crate::support::{Place, blob_key, call, keys, started, to};

const AT: Timestamp = Timestamp::from_millis(1_794_733_261_000);

/// A small journal with everything in it: commits, blobs, and a key that took over.
pub(crate) struct Sample {
    pub(crate) place: Place,
    pub(crate) journal: JournalStore,
    pub(crate) first: VerifierKey,
}

impl Sample {
    pub(crate) async fn new() -> Self {
        let place = Place::new();
        let journal = place.open();
        let first = journal.key().unwrap();
        append(&journal, "one").await;
        drop(journal);
        let journal = place.open_keyed(keys().rotated().unwrap());
        append(&journal, "two").await;
        Self {
            place,
            journal,
            first,
        }
    }

    pub(crate) fn export(&self, after: u64) -> Vec<u8> {
        let mut out = Vec::new();
        self.journal.export(after, &mut out).unwrap();
        out
    }

    pub(crate) fn checkpoint(&self) -> Note {
        self.journal.checkpoint().unwrap()
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust::nobody().key(self.first.clone()).opening(blob_key())
    }

    pub(crate) fn pinned(&self) -> Trust {
        Trust::nobody().pinned(self.checkpoint()).unwrap()
    }

    /// Closes it, so that all of it is in the file.
    pub(crate) fn close(self) -> Place {
        drop(self.journal);
        self.place
    }
}

/// One commit: two entries that commit to something, and one that does not.
pub(crate) async fn append(journal: &JournalStore, words: &str) {
    let arguments = Blob::new(BlobKind::Arguments, format!("{{\"a\":\"{words}\"}}").into());
    let output = Blob::new(BlobKind::Output, words.as_bytes().to_vec());
    let entries = vec![
        proposed(arguments.commitment()),
        finished(output.commitment()),
    ];
    let streams = vec![
        to(Stream::Call(call()), Expected::NoStream, entries),
        to(Stream::Daemon, Expected::Any, vec![started(words)]),
    ];
    let blobs = vec![arguments, output];
    journal.append(Append { streams, blobs }).await.unwrap();
}

fn proposed(arguments: Commitment) -> Entry {
    let origin = Origin {
        principal: Principal::User {
            name: "ada".parse().unwrap(),
        },
        run: RunId::mint(AT),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    Entry::Proposed {
        tool: "palyra.echo".parse().unwrap(),
        origin: Box::new(origin),
        arguments,
    }
}

fn finished(output: Commitment) -> Entry {
    let report = ExecutionReport {
        executor: "x".to_owned(),
        sandbox_enforcement: "none".to_owned(),
        layers: Vec::new(),
        started_at: AT,
        ended_at: AT,
        ending: Ending::Exited { code: 0 },
        truncated: false,
        running_as_root: false,
        network: None,
    };
    Entry::Finished { report, output }
}

pub(crate) fn segment(bytes: &[u8], trust: &Trust) -> Report {
    palyra_journal::verify::verify_segment(bytes, trust).unwrap()
}

pub(crate) fn places(report: &Report) -> Vec<&Where> {
    report.faults.iter().map(|fault| &fault.place).collect()
}
