//! Sealing: what makes a group of entries evidence.
//!
//! Each group is one signed checkpoint, written in the transaction that appends it:
//!
//! ```text
//! checkpoints  size, the signed note, and the leaves that the group added, packed
//! nodes        the subtrees of 256, 65 536, … leaves, once they are complete
//! ```
//!
//! So a group costs one row, and one more every 256 entries; nothing is ever rewritten. What is in
//! between is made of at most 128 hashes when somebody asks ([`crate::nodes`]).

use std::sync::Arc;

use palyra_core::entry::Entry;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::error::JournalError;
use crate::keys::{Handover, JournalKeys};
use crate::nodes::{self, STEP};
use crate::proof::{
    Checkpoint, EntryRecord, Frontier, Hash, LeafStart, Note, SignerKey, VerifierKey,
};
use crate::queries::{self, to_sql};
use crate::schema;

/// The stream in which keys take over from each other.
const STREAM: &str = "journal";

/// Entries for each checkpoint when a journal without any is sealed.
const CHUNK: usize = 4_096;

/// Seals what is appended.
pub(crate) struct Sealer {
    /// Without it nothing is sealed, and so nothing is written.
    key: Option<Arc<SignerKey>>,
    /// Who signed last; `None` when there is no tree yet.
    signer: Option<VerifierKey>,
    /// Who signs from the next group on, which hands the key over.
    next: Option<VerifierKey>,
    /// The tree that is committed.
    frontier: Frontier,
    /// The tree with what is written and not committed.
    ahead: Option<Frontier>,
    /// The leaves of the open transaction.
    leaves: Vec<Hash>,
    buffer: Vec<u8>,
    #[cfg(feature = "unsealed")]
    off: bool,
}

impl Sealer {
    /// Reads the tree in the file; it needs nobody's key for that. A file of an earlier version
    /// gets the tables for one.
    pub(crate) fn open(connection: &mut Connection) -> Result<Self, JournalError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema::upgrade(&transaction)?;
        let (signer, frontier) = match first_key(&transaction)? {
            Some(_) => {
                let signer = signer(&transaction)?;
                let frontier = committed(&transaction, &signer)?;
                (Some(signer), frontier)
            }
            None => (None, Frontier::default()),
        };
        transaction.commit()?;
        Ok(Self::of(None, signer, frontier))
    }

    /// Seals with these keys from now on. A journal that never had a tree, because it is new or was
    /// written by an earlier version, is sealed as it is found. Gives what is to be appended first
    /// when another key takes over.
    pub(crate) fn take(
        &mut self,
        connection: &mut Connection,
        keys: JournalKeys,
    ) -> Result<Option<Entry>, JournalError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let first = first_key(&transaction)?;
        let (key, previous) = match &first {
            Some(first) => keys.named(first.name()),
            None => Ok(keys.split()),
        }
        .map_err(|error| JournalError::key(&error))?;
        if first.is_none() {
            begin(&transaction, &key)?;
        }
        let signer = signer(&transaction)?;
        let frontier = committed(&transaction, &signer)?;
        transaction.commit()?;
        let handover = (signer != key.verifier())
            .then(|| handover(&frontier, &signer, &key, previous.as_ref()))
            .transpose()?;
        self.frontier = frontier;
        self.forget();
        // Until the handover is written, the last checkpoint is the old key's.
        self.signer = Some(signer);
        self.next = handover.as_ref().map(|_| key.verifier());
        self.key = Some(Arc::new(key));
        Ok(handover)
    }

    /// Forgets the key. The tree stays known.
    pub(crate) fn drop_key(&mut self) {
        self.key = None;
        self.next = None;
    }

    fn of(key: Option<Arc<SignerKey>>, signer: Option<VerifierKey>, frontier: Frontier) -> Self {
        Self {
            key,
            signer,
            next: None,
            frontier,
            ahead: None,
            leaves: Vec::new(),
            buffer: Vec::new(),
            #[cfg(feature = "unsealed")]
            off: false,
        }
    }

    /// Seals nothing from now on.
    #[cfg(feature = "unsealed")]
    pub(crate) const fn switch_off(&mut self) {
        self.off = true;
    }

    /// Whose signatures these are, while that key is at hand.
    pub(crate) fn key(&self) -> Option<Arc<SignerKey>> {
        self.key.clone()
    }

    /// Who signed last.
    pub(crate) const fn signer(&self) -> Option<&VerifierKey> {
        self.signer.as_ref()
    }

    /// An entry was inserted; its place is the next one.
    pub(crate) fn add(&mut self, record: &EntryRecord<'_>, start: LeafStart) {
        #[cfg(feature = "unsealed")]
        if self.off {
            return;
        }
        let leaf = record.leaf_from(start, &mut self.buffer);
        self.leaves.push(leaf);
    }

    /// Writes what seals the entries of the open transaction.
    pub(crate) fn write(&mut self, connection: &Connection) -> Result<(), JournalError> {
        if self.leaves.is_empty() {
            return Ok(());
        }
        let key = self.key.as_ref().ok_or(JournalError::Keyless)?;
        let mut ahead = self.frontier.clone();
        let mut packed = Vec::with_capacity(self.leaves.len() * 32);
        let mut complete = Vec::new();
        for leaf in &self.leaves {
            packed.extend_from_slice(leaf.as_bytes());
            ahead.push(*leaf, |level, index, node| {
                if level > 0 && level.is_multiple_of(STEP) {
                    complete.push((level, index, *node));
                }
            });
        }
        for (level, index, node) in complete {
            connection
                .prepare_cached("INSERT INTO nodes (level, place, hash) VALUES (?1, ?2, ?3)")?
                .execute(params![level, to_sql(index), node.as_bytes()])?;
        }
        insert_checkpoint(connection, key, &ahead, &packed)?;
        self.ahead = Some(ahead);
        Ok(())
    }

    /// What was written is committed.
    pub(crate) fn committed(&mut self) {
        self.leaves.clear();
        if let Some(ahead) = self.ahead.take() {
            self.frontier = ahead;
            if let Some(next) = self.next.take() {
                self.signer = Some(next);
            }
        }
    }

    /// What was written is gone.
    pub(crate) fn forget(&mut self) {
        self.leaves.clear();
        self.ahead = None;
    }

    /// Reads from the file where the tree stands, and that nobody else touched its end: what
    /// somebody slipped in must not get our signature.
    pub(crate) fn reload(&mut self, connection: &Connection) -> Result<u64, JournalError> {
        let Some(signer) = &self.signer else {
            // Nothing was ever sealed here, and nothing is written without a seal.
            return queries::last_seq(connection);
        };
        let found = committed(connection, signer)?;
        let known = &self.frontier;
        // What is longer continues what was known; what is shorter was cut, and how much may be cut
        // the caller knows.
        if found.size() >= known.size()
            && nodes::frontier(connection, known.size())?.root() != known.root()
        {
            return Err(JournalError::corrupt(format!(
                "the first {} entries are another history",
                known.size()
            )));
        }
        self.frontier = found;
        Ok(self.frontier.size())
    }
}

/// Entries whose leaves are made anew when the journal was read anew.
const END: u64 = 256;

impl Sealer {
    /// Compares the last entries with the leaves that the tree is made of.
    pub(crate) fn compare_end(&self, connection: &Connection) -> Result<(), JournalError> {
        if self.signer.is_none() {
            return Ok(());
        }
        let size = self.frontier.size();
        let mut statement = connection.prepare_cached(
            "SELECT seq, stream, revision, kind, at, body FROM entries
             WHERE seq > ?1 ORDER BY seq",
        )?;
        let mut rows = statement.query([to_sql(size.saturating_sub(END))])?;
        let mut buffer = Vec::new();
        while let Some(row) = rows.next()? {
            let record = queries::entry_record(row)?;
            let leaf = nodes::node(connection, 0, record.seq.saturating_sub(1))?;
            if record.leaf(&mut buffer) != leaf {
                return Err(JournalError::corrupt(format!(
                    "entry {} changed",
                    record.seq
                )));
            }
        }
        Ok(())
    }
}

/// Starts the tree: the first key, the empty checkpoint, and all entries that are there.
fn begin(transaction: &Transaction<'_>, key: &SignerKey) -> Result<(), JournalError> {
    transaction.execute(
        "INSERT INTO signer (id, first_key) VALUES (1, ?1)",
        [key.verifier().to_string()],
    )?;
    insert_checkpoint(transaction, key, &Frontier::default(), &[])?;
    let key =
        SignerKey::from_secret(&key.to_secret()).map_err(|error| JournalError::key(&error))?;
    let signer = key.verifier();
    let mut sealer = Sealer::of(Some(Arc::new(key)), Some(signer), Frontier::default());
    let mut statement = transaction
        .prepare("SELECT seq, stream, revision, kind, at, body FROM entries ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut next = 1;
    while let Some(row) = rows.next()? {
        let record = queries::entry_record(row)?;
        if record.seq != next {
            return Err(JournalError::corrupt(format!("entry {next} is missing")));
        }
        next += 1;
        sealer.add(&record, LeafStart::of(record.body));
        if sealer.leaves.len() >= CHUNK {
            sealer.write(transaction)?;
            sealer.committed();
        }
    }
    sealer.write(transaction)
}

fn insert_checkpoint(
    connection: &Connection,
    key: &SignerKey,
    frontier: &Frontier,
    leaves: &[u8],
) -> Result<(), JournalError> {
    let checkpoint = Checkpoint {
        origin: key.name().to_owned(),
        size: frontier.size(),
        root: frontier.root(),
    };
    let note = checkpoint
        .sign(key)
        .map_err(|error| JournalError::key(&error))?;
    connection
        .prepare_cached("INSERT INTO checkpoints (size, note, leaves) VALUES (?1, ?2, ?3)")?
        .execute(params![to_sql(frontier.size()), note.to_string(), leaves])?;
    Ok(())
}

fn handover(
    frontier: &Frontier,
    signer: &VerifierKey,
    key: &SignerKey,
    previous: Option<&SignerKey>,
) -> Result<Entry, JournalError> {
    let previous = previous.filter(|previous| previous.verifier() == *signer);
    if previous.is_none() {
        tracing::warn!(%signer, "the journal's key is another one, and the old one does not vouch for it");
    }
    let next = key.verifier();
    let handover = Handover {
        size: frontier.size(),
        root: frontier.root(),
        previous: signer,
        next: &next,
    };
    let note = handover
        .sign(key, previous)
        .map_err(|error| JournalError::key(&error))?;
    Ok(Entry::KeyRotated {
        previous: signer.to_string(),
        next: next.to_string(),
        note: note.to_string(),
    })
}

/// The key that began; `None` when there is no tree yet.
fn first_key(connection: &Connection) -> Result<Option<VerifierKey>, JournalError> {
    let first: Option<String> = connection
        .query_row("SELECT first_key FROM signer WHERE id = 1", [], |row| {
            row.get(0)
        })
        .optional()?;
    let parse = |text: String| {
        let wrong = |_| JournalError::corrupt("the journal's first key does not read");
        text.parse().map_err(wrong)
    };
    first.map(parse).transpose()
}

/// The key whose signature the last checkpoint should have.
fn signer(connection: &Connection) -> Result<VerifierKey, JournalError> {
    signer_after(connection, u64::MAX)
}

/// The key that signs after this many entries, if every key before it took over as it should.
pub(crate) fn signer_after(
    connection: &Connection,
    size: u64,
) -> Result<VerifierKey, JournalError> {
    let first = first_key(connection)?
        .ok_or_else(|| JournalError::corrupt("the journal's first key is missing"))?;
    let mut signer = first;
    let recorded = queries::entries_of(connection, STREAM)?;
    for recorded in recorded.into_iter().filter(|entry| entry.seq <= size) {
        let Entry::KeyRotated { next, note, .. } = recorded.entry else {
            continue;
        };
        let wrong = || JournalError::corrupt(format!("entry {} hands no key over", recorded.seq));
        let next: VerifierKey = next.parse().map_err(|_| wrong())?;
        let before = nodes::frontier(connection, recorded.seq.saturating_sub(1))?;
        let handover = Handover {
            size: before.size(),
            root: before.root(),
            previous: &signer,
            next: &next,
        };
        let note: Note = note.parse().map_err(|_| wrong())?;
        handover.vouched(&note).map_err(|_| wrong())?;
        signer = next;
    }
    Ok(signer)
}

/// The tree that the last checkpoint is about, which must be all there is.
fn committed(connection: &Connection, signer: &VerifierKey) -> Result<Frontier, JournalError> {
    let last = connection
        .prepare_cached("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")?
        .query_row([], |row| row.get::<_, String>(0))
        .optional()?
        .ok_or_else(|| JournalError::corrupt("the last checkpoint is missing"))?;
    let checkpoint = last
        .parse::<Note>()
        .map_err(Into::into)
        .and_then(|note| Checkpoint::signed_by(&note, signer))
        .map_err(|error| JournalError::corrupt(format!("the last checkpoint: {error}")))?;
    let head = queries::last_seq(connection)?;
    if head != checkpoint.size {
        return Err(JournalError::corrupt(format!(
            "the last checkpoint is about {} entries, and there are {head}",
            checkpoint.size
        )));
    }
    let frontier = nodes::frontier(connection, checkpoint.size)?;
    (frontier.root() == checkpoint.root)
        .then_some(frontier)
        .ok_or_else(|| JournalError::corrupt("the tree does not lead to the last checkpoint"))
}
