//! The walk along a history: entries and checkpoints in order, whichever file they come from.

use palyra_core::entry::Entry;

use super::answers::Answers;
use super::{Completeness, Fault, KeyUsed, Place, Report, Trust};
use crate::body;
use crate::keys::Handover;
use crate::nodes::STEP;
use crate::proof::{Checkpoint, EntryRecord, Frontier, Hash, Note, VerifierKey};

/// Faults that are told one by one.
const TOLD: usize = 100;

/// Missing entries that are gone through one by one; more are one fault.
const GAP: u64 = 65_536;

/// The kind of entry by which a key takes over.
const ROTATED: &str = "key_rotated";

pub(super) struct Walk<'t> {
    trust: &'t Trust,
    after: u64,
    /// The tree up to the last checkpoint.
    tree: Frontier,
    /// Leaves since then, as they come from the entries; `None` where one is missing.
    pending: Vec<Option<Hash>>,
    /// Whose signature the next checkpoint should have; `None` when that cannot be known.
    signer: Option<VerifierKey>,
    /// Whether what the signer signs is believed.
    trusted: bool,
    /// Whether the tree is still the one that was signed.
    lost: bool,
    /// Entries that were skipped so far: each takes its place in memory.
    missing: u64,
    buffer: Vec<u8>,
    complete: Vec<(u32, u64, Hash)>,
    pinned: Pinned,
    answers: Answers,
    report: Report,
}

/// How far the checkpoints from elsewhere were compared.
struct Pinned {
    next: usize,
    agrees: Option<u64>,
    differs: Option<u64>,
}

/// A checkpoint that is signed as it should be.
struct Said {
    checkpoint: Checkpoint,
    note: Note,
}

/// A tree with some more leaves, and the nodes that they completed.
struct Grown {
    tree: Frontier,
    leaves: Vec<Hash>,
    complete: Vec<(u32, u64, Hash)>,
}

impl Grown {
    fn new(tree: &Frontier, leaves: Vec<Hash>) -> Self {
        let (mut tree, mut complete) = (tree.clone(), Vec::new());
        for leaf in &leaves {
            tree.push(*leaf, |level, index, node| {
                if level > 0 && level.is_multiple_of(STEP) {
                    complete.push((level, index, *node));
                }
            });
        }
        Self {
            tree,
            leaves,
            complete,
        }
    }
}

impl<'t> Walk<'t> {
    /// Starts after `tree`, where this key signs.
    pub(super) fn new(trust: &'t Trust, tree: Frontier, signer: Option<VerifierKey>) -> Self {
        let trusted = signer
            .as_ref()
            .is_some_and(|signer| trust.keys.contains(signer));
        let used = signer.as_ref().map(|signer| KeyUsed {
            key: signer.to_string(),
            from: tree.size() + 1,
            vouched: None,
        });
        let mut walk = Self {
            trust,
            after: tree.size(),
            pending: Vec::new(),
            trusted,
            lost: false,
            missing: 0,
            buffer: Vec::new(),
            complete: Vec::new(),
            pinned: Pinned {
                next: 0,
                agrees: None,
                differs: None,
            },
            answers: Answers::default(),
            report: Report {
                origin: signer.as_ref().map(|signer| signer.name().to_owned()),
                after: tree.size(),
                last: tree.size(),
                checkpoints: 0,
                blobs: None,
                blobs_erased: None,
                blobs_unopened: None,
                blobs_of_another_key: None,
                faults: Vec::new(),
                fault_count: 0,
                completeness: Completeness::Unknown,
                anchored: None,
                keys: used.into_iter().collect(),
                head: None,
            },
            signer,
            tree,
        };
        walk.skip_pinned_before();
        walk
    }

    /// Something is wrong.
    pub(super) fn fault(&mut self, place: Place, what: impl Into<String>) {
        self.report.fault_count += 1;
        if self.report.faults.len() < TOLD {
            let what = what.into();
            self.report.faults.push(Fault { place, what });
        }
    }

    /// Whether another fault would still be told.
    pub(super) const fn tells_more(&self) -> bool {
        self.report.faults.len() < TOLD
    }

    /// The place that the next entry should have.
    pub(super) fn next_seq(&self) -> u64 {
        self.tree.size() + self.pending.len() as u64 + 1
    }

    /// The next entry.
    pub(super) fn entry(&mut self, record: &EntryRecord<'_>) {
        let expected = self.next_seq();
        if record.seq < expected {
            self.fault(Place::Entry(record.seq), "is there twice or out of order");
            return;
        }
        if record.seq > expected && !self.missing_until(record.seq) {
            return;
        }
        if record.kind == ROTATED {
            self.rotate(record);
        }
        if let Some(wrong) = self.answers.look(record) {
            self.fault(Place::Entry(record.seq), wrong);
        }
        let leaf = record.leaf(&mut self.buffer);
        self.pending.push(Some(leaf));
        self.report.last = record.seq;
    }

    /// An entry that cannot be read.
    pub(super) fn unreadable(&mut self, seq: u64, why: &str) {
        self.fault(
            Place::Entry(seq),
            format!("is not spelled as an entry: {why}"),
        );
        if seq == self.next_seq() {
            self.pending.push(None);
            self.report.last = seq;
        }
    }

    fn missing_until(&mut self, seq: u64) -> bool {
        let expected = self.next_seq();
        self.missing = self.missing.saturating_add(seq - expected);
        if self.missing > GAP {
            self.fault(
                Place::Entry(seq),
                format!("is out of place; the next is {expected}"),
            );
            return false;
        }
        for missing in expected..seq {
            self.fault(Place::Entry(missing), "is missing");
            self.pending.push(None);
        }
        true
    }

    /// A key takes over.
    fn rotate(&mut self, record: &EntryRecord<'_>) {
        let place = Place::Entry(record.seq);
        let Ok(Entry::KeyRotated { next, note, .. }) = body::decode(record.seq, record.body) else {
            return self.fault(place, "hands no key over");
        };
        let (Ok(next), Ok(note)) = (next.parse::<VerifierKey>(), note.parse::<Note>()) else {
            return self.fault(place, "hands over a key that does not read");
        };
        if self.report.origin.as_deref() != Some(next.name()) {
            return self.fault(place, "hands over to the key of another journal");
        }
        let spelled = next.to_string();
        if self.report.keys.iter().any(|used| used.key == spelled) {
            // Whoever has a retired key would be believed again.
            return self.fault(place, "hands over to a key that was retired before");
        }
        let before = self.tree_with_pending();
        let (Some(previous), Some(before)) = (self.signer.take(), before) else {
            self.signer = Some(next);
            return;
        };
        let handover = Handover {
            size: before.size(),
            root: before.root(),
            previous: &previous,
            next: &next,
        };
        let vouched = handover.vouched(&note).unwrap_or_else(|error| {
            self.fault(place, format!("hands a key over, but {error}"));
            false
        });
        self.trusted = self.trust.keys.contains(&next) || (self.trusted && vouched);
        self.report.keys.push(KeyUsed {
            key: next.to_string(),
            from: record.seq,
            vouched: Some(vouched),
        });
        self.signer = Some(next);
    }

    fn tree_with_pending(&self) -> Option<Frontier> {
        let mut tree = self.tree.clone();
        for leaf in &self.pending {
            tree.push((*leaf)?, |_, _, _| {});
        }
        Some(tree)
    }

    /// The next checkpoint, with the leaves that are kept beside it.
    pub(super) fn checkpoint(&mut self, size: u64, note: &str, kept: &[Hash]) {
        let place = Place::Checkpoint(size);
        let before = self.tree.size();
        let repeated = self.report.checkpoints > 0 && size <= before;
        if size < before || repeated {
            return self.fault(place, "is there twice or out of order");
        }
        let count = size - before;
        if count.saturating_sub(self.pending.len() as u64) > GAP {
            return self.fault(place, "is about entries that are missing");
        }
        while (self.pending.len() as u64) < count {
            let missing = self.next_seq();
            self.fault(Place::Entry(missing), "is missing");
            self.pending.push(None);
        }
        let rest = self
            .pending
            .split_off(usize::try_from(count).unwrap_or(usize::MAX));
        if !rest.is_empty() {
            self.fault(place.clone(), "stands after entries that it is not about");
        }
        let found = std::mem::replace(&mut self.pending, rest);
        let said = self.signed(size, note);
        self.grow(size, &found, kept, said.as_ref());
    }

    /// What a checkpoint says, if it is signed as it should be.
    fn signed(&mut self, size: u64, note: &str) -> Option<Said> {
        let place = Place::Checkpoint(size);
        let parsed = match note.parse::<Note>() {
            Ok(parsed) => parsed,
            Err(error) => {
                self.fault(place, format!("does not hold: {error}"));
                return None;
            }
        };
        let Some(signer) = &self.signer else {
            self.fault(place, "is signed by nobody known");
            return None;
        };
        match Checkpoint::signed_by(&parsed, signer) {
            Ok(checkpoint) if checkpoint.size == size && parsed.signatures().len() == 1 => {
                Some(Said {
                    checkpoint,
                    note: parsed,
                })
            }
            Ok(_) => {
                self.fault(place, "says something else than where it stands");
                None
            }
            Err(error) => {
                self.fault(place, format!("does not hold: {error}"));
                None
            }
        }
    }

    /// Adds a group to the tree. What the entries give is compared with what was signed; when they
    /// differ, the leaves that are kept beside the checkpoint tell which entry it is.
    fn grow(&mut self, size: u64, found: &[Option<Hash>], kept: &[Hash], said: Option<&Said>) {
        let from_entries: Option<Vec<Hash>> = found.iter().copied().collect();
        let from_entries = from_entries.map(|leaves| Grown::new(&self.tree, leaves));
        let right = |grown: &Option<Grown>| {
            let root = grown.as_ref().map(|grown| grown.tree.root());
            said.is_some_and(|said| root == Some(said.checkpoint.root))
        };
        let entries_right = right(&from_entries);
        let whole = kept.len() == found.len();
        if !whole {
            self.fault(Place::Checkpoint(size), "does not keep its leaves");
        }
        // Only when something is wrong, the leaves that are kept are needed.
        let from_kept = (whole && !entries_right).then(|| Grown::new(&self.tree, kept.to_vec()));
        let kept_right = right(&from_kept);
        if whole {
            self.compare_leaves(size, found, kept, entries_right);
        }
        if said.is_some() && !entries_right && !kept_right && !self.lost {
            let first = self.tree.size() + 1;
            let what = format!("signs another history somewhere in entries {first} to {size}");
            self.fault(Place::Checkpoint(size), what);
            // Everything after it would differ for the same reason.
            self.lost = true;
        }
        let grown = match (entries_right, kept_right) {
            (true, _) => from_entries,
            (false, true) => from_kept,
            (false, false) => from_entries.or(from_kept),
        };
        self.adopt(grown, found.len());
        self.report.last = self.report.last.max(size);
        if let Some(said) = said
            && (entries_right || kept_right)
            && !self.lost
        {
            self.held(said);
        }
    }

    /// Names the entries whose leaf is another one than was kept.
    fn compare_leaves(
        &mut self,
        size: u64,
        found: &[Option<Hash>],
        kept: &[Hash],
        entries_right: bool,
    ) {
        let differ = |(_, (found, kept)): &(u64, (&Option<Hash>, &Hash))| {
            found.is_some_and(|found| found != **kept)
        };
        let places = (self.tree.size() + 1..).zip(found.iter().zip(kept));
        let differing: Vec<u64> = places.filter(differ).map(|(seq, _)| seq).collect();
        for seq in differing {
            if entries_right {
                let what = format!("keeps another leaf for entry {seq}");
                self.fault(Place::Checkpoint(size), what);
            } else {
                self.fault(Place::Entry(seq), "was changed");
            }
        }
    }

    fn adopt(&mut self, grown: Option<Grown>, count: usize) {
        let grown = grown.unwrap_or_else(|| {
            // Leaves that nobody knows any more make a tree that nobody signed.
            self.lost = true;
            Grown::new(&self.tree, vec![Hash::empty(); count])
        });
        let old = std::mem::replace(&mut self.tree, grown.tree);
        self.complete.extend(grown.complete);
        self.compare_pinned_within(old, &grown.leaves);
    }

    /// A checkpoint holds: its root and its signature.
    fn held(&mut self, said: &Said) {
        self.report.checkpoints += 1;
        if self.trusted {
            self.report.anchored = self.report.anchored.max(Some(said.checkpoint.size));
        }
        self.report.head = Some(said.note.to_string());
    }

    /// Complete nodes since the last time, for whoever keeps them.
    pub(super) fn completed(&mut self) -> Vec<(u32, u64, Hash)> {
        std::mem::take(&mut self.complete)
    }

    /// Checkpoints from elsewhere that are about what was before this segment say nothing here.
    fn skip_pinned_before(&mut self) {
        let before = |(checkpoint, _): &&(Checkpoint, Note)| checkpoint.size < self.after;
        self.pinned.next = self.trust.pinned.iter().take_while(before).count();
        self.compare_pinned(&self.tree.clone());
    }

    /// Compares with checkpoints from elsewhere about any size on the way to the present one.
    fn compare_pinned_within(&mut self, mut tree: Frontier, leaves: &[Hash]) {
        let due = |walk: &Self| {
            let next = walk.trust.pinned.get(walk.pinned.next);
            next.is_some_and(|(checkpoint, _)| checkpoint.size <= walk.tree.size())
        };
        let mut leaves = leaves.iter();
        while due(self) {
            self.compare_pinned(&tree);
            let Some(leaf) = leaves.next() else { return };
            tree.push(*leaf, |_, _, _| {});
        }
    }

    fn compare_pinned(&mut self, tree: &Frontier) {
        while let Some((checkpoint, note)) = self.trust.pinned.get(self.pinned.next)
            && checkpoint.size == tree.size()
        {
            self.pinned.next += 1;
            let same_journal = self.report.origin.as_ref() == Some(&checkpoint.origin);
            if same_journal && checkpoint.root == tree.root() {
                self.pinned.agrees = Some(checkpoint.size);
                self.report.anchored = self.report.anchored.max(Some(checkpoint.size));
                // Whoever signed what is believed is believed from here on.
                self.trusted |= self
                    .signer
                    .as_ref()
                    .is_some_and(|signer| note.signed_by(signer).is_ok());
            } else if self.pinned.differs.is_none() {
                self.pinned.differs = Some(checkpoint.size);
            }
        }
    }

    /// Whether a key that is trusted signs anywhere.
    fn signers_known(&self) -> bool {
        let trusted = |used: &KeyUsed| {
            let same = |key: &VerifierKey| key.to_string() == used.key;
            self.trust.keys.iter().any(same)
        };
        self.report.keys.iter().any(trusted)
    }

    /// The end of the file.
    pub(super) fn finish(mut self) -> Report {
        let uncovered = self.pending.len() as u64;
        if uncovered > 0 {
            let first = self.tree.size() + 1;
            self.fault(
                Place::Entry(first),
                format!("and what follows ({uncovered} in all) is signed by no checkpoint"),
            );
        }
        if self.report.checkpoints == 0 && self.report.fault_count == 0 {
            self.fault(Place::File, "holds no checkpoint");
        }
        let known = self.signers_known();
        if self.after == 0 && !self.trust.keys.is_empty() && !known {
            self.fault(
                Place::File,
                "is signed with none of the keys that are trusted",
            );
        }
        let found = self.report.last;
        let cut = self
            .trust
            .pinned
            .get(self.pinned.next..)
            .and_then(<[_]>::last)
            .map(|(checkpoint, _)| checkpoint);
        self.report.completeness = match (self.pinned.differs, cut, self.pinned.agrees) {
            (Some(by), _, agrees) => Completeness::Forked {
                after: agrees.unwrap_or(self.after),
                by,
            },
            (None, Some(cut), agrees) if self.report.origin.as_ref() != Some(&cut.origin) => {
                Completeness::Forked {
                    after: agrees.unwrap_or(0),
                    by: cut.size,
                }
            }
            (None, Some(cut), _) => Completeness::Cut {
                found,
                expected: cut.size,
            },
            (None, None, Some(size)) => Completeness::Complete { size },
            (None, None, None) => Completeness::Unknown,
        };
        if let Completeness::Forked { after, .. } = &self.report.completeness {
            // What is not the history that is believed is not anchored either.
            self.report.anchored = self.report.anchored.min(Some(*after));
        }
        self.report
    }
}
