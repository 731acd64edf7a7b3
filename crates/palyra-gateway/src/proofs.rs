//! The journal's proofs, for whoever may read it.

use std::io::Write;

use palyra_journal::proof::{Hash, Note, VerifierKey};
use palyra_journal::{AttestationFile, ExportFailed, JournalError};
use palyra_policy::{Action, Resource};

use crate::error::{Refusal, RefusalKind};
use crate::service::{Caller, GatewayService};

/// The journal's head, and that it continues an earlier one.
#[derive(Debug, Clone)]
pub struct Head {
    /// Who signs.
    pub key: VerifierKey,
    /// The signed checkpoint.
    pub checkpoint: Note,
    /// The proof, when there was something to prove.
    pub continues: Option<Vec<Hash>>,
}

impl GatewayService {
    /// The signed checkpoint about everything that is durable, with the proof that it continues the
    /// one about `since` entries.
    ///
    /// # Errors
    /// Policy forbids it, the journal is shorter, or it cannot be read.
    pub fn journal_head(&self, caller: &Caller, since: Option<u64>) -> Result<Head, Refusal> {
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        let journal = &self.0.journal;
        let checkpoint = journal.checkpoint()?;
        let size = palyra_journal::proof::Checkpoint::unverified(&checkpoint)
            .map_err(|error| JournalError::Corrupt {
                what: error.to_string(),
            })?
            .size;
        let continues = match since {
            None => None,
            Some(since) => Some(
                journal
                    .prove_consistency(since, size)?
                    .ok_or_else(|| no_such_place(since, size))?,
            ),
        };
        Ok(Head {
            key: journal.key().ok_or(JournalError::Keyless)?,
            checkpoint,
            continues,
        })
    }

    /// A call's attestation as a file that proves itself, for whoever may read the call.
    ///
    /// # Errors
    /// Policy forbids it, there is no such call, it did not run, or the journal cannot be read.
    pub fn attestation(&self, caller: &Caller, id: &str) -> Result<AttestationFile, Refusal> {
        let record = self.call_record(caller, id)?;
        let call = &record.row.call;
        self.0.journal.attestation(call)?.ok_or_else(|| {
            Refusal::new(
                RefusalKind::NotFound,
                "not_attested",
                format!("`{call}` has no attestation: it did not run, or is not over"),
                format!("see how it ended with `palyra calls show {call}`"),
            )
        })
    }

    /// Writes the journal after this place as lines that anybody can verify. This blocks.
    ///
    /// # Errors
    /// Policy forbids it, the journal is shorter or cannot be read, or `out` refused.
    pub fn journal_export(
        &self,
        caller: &Caller,
        after: u64,
        out: &mut dyn Write,
    ) -> Result<u64, Refusal> {
        self.allowed(caller, Action::JournalRead, Resource::Daemon)?;
        match self.0.journal.export(after, out) {
            Ok(last) => Ok(last),
            Err(ExportFailed::Journal(JournalError::NoSuchPlace { place, head })) => {
                Err(no_such_place(place, head))
            }
            Err(ExportFailed::Journal(error)) => Err(error.into()),
            Err(ExportFailed::Write(error)) => Err(Refusal::new(
                RefusalKind::Unavailable,
                "export_broken",
                format!("the export could not be passed on: {error}"),
                "ask again",
            )),
        }
    }
}

fn no_such_place(place: u64, head: u64) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        "no_such_entry",
        format!("the journal has no entry {place}; its last one is {head}"),
        "see the last entries with `palyra journal tail`",
    )
}
