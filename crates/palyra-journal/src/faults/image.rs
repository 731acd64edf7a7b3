//! What a disk may hold after the power was cut.
//!
//! The kernel writes pages back whenever it likes, in any order, and the disk writes sectors. So
//! after a cut each sector is as the last sync left it, or as any write since made it. A page that
//! is written carries everything that was in it, also what an earlier, failed sync lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::{Op, Part};

/// What the kernel keeps and writes as one.
const PAGE: u64 = 4_096;

/// What of the unsynced survives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kept {
    /// Nothing.
    Synced,
    /// All of it: this is what everybody reads while the machine runs.
    Everything,
    /// Each piece of so many bytes up to any of its writes; the chance of each, in 256.
    Some { piece: u64, chance: u64 },
}

/// All files, with what is not synced yet.
#[derive(Default)]
pub(crate) struct Image {
    parts: BTreeMap<Part, Held>,
    ops: usize,
}

#[derive(Default)]
struct Held {
    /// What a sync made durable; `None` while there is no such file.
    durable: Option<Vec<u8>>,
    pending: Vec<Pending>,
}

#[derive(Clone)]
struct Pending {
    at: usize,
    change: Change,
    /// A sync of it failed: only another write to its page can take it along.
    lost: bool,
}

#[derive(Clone)]
enum Change {
    Write(u64, Arc<[u8]>),
    Truncate(u64),
    Remove,
}

impl Image {
    pub(crate) fn after(ops: &[Op]) -> Self {
        let mut image = Self::default();
        ops.iter().for_each(|op| image.apply(op));
        image
    }

    /// The next thing of the record.
    pub(crate) fn apply(&mut self, op: &Op) {
        let at = self.ops;
        self.ops += 1;
        let (part, change) = match op {
            Op::Write(part, offset, bytes) => (part, Change::Write(*offset, Arc::clone(bytes))),
            Op::Truncate(part, length) => (part, Change::Truncate(*length)),
            Op::Remove(part, true) => {
                *self.held(*part) = Held::default();
                return;
            }
            Op::Remove(part, false) => (part, Change::Remove),
            Op::Synced(part, upto) => return self.held(*part).settle(*upto),
            Op::Unsynced(part, upto) => {
                let pending = self.held(*part).pending.iter_mut();
                return pending
                    .filter(|pending| pending.at < *upto)
                    .for_each(|pending| pending.lost = true);
            }
            Op::Forgotten(part) => return self.held(*part).pending.clear(),
            Op::SyncedFolder => return self.parts.values_mut().for_each(Held::settle_removal),
            Op::Told(_) => return,
        };
        let lost = false;
        self.held(*part).pending.push(Pending { at, change, lost });
    }

    /// Whether anything waits for a sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.parts.values().any(|held| !held.pending.is_empty())
    }

    /// The files that are there after a cut now.
    pub(crate) fn survives(&self, kept: Kept, seed: &mut u64) -> BTreeMap<Part, Vec<u8>> {
        let parts = self.parts.iter();
        parts
            .filter_map(|(part, held)| Some((*part, held.survives(kept, seed)?)))
            .collect()
    }

    fn held(&mut self, part: Part) -> &mut Held {
        self.parts.entry(part).or_default()
    }
}

impl Held {
    /// A sync went through: every page that was written and not lost since is on disk, with all
    /// that was in it at the time.
    fn settle(&mut self, upto: usize) {
        let mut written: HashMap<u64, usize> = HashMap::new();
        for pending in self.pending.iter().filter(|it| it.at < upto && !it.lost) {
            if let Change::Write(offset, bytes) = &pending.change {
                for (page, _, _) in pieces(*offset, bytes, PAGE) {
                    written.insert(page, pending.at);
                }
            }
        }
        let mut rest = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if pending.at >= upto {
                rest.push(pending);
                continue;
            }
            let Change::Write(offset, bytes) = &pending.change else {
                apply(&mut self.durable, &pending.change);
                continue;
            };
            for (page, start, piece) in pieces(*offset, bytes, PAGE) {
                let change = Change::Write(start, piece.into());
                if written.get(&page).is_some_and(|last| pending.at <= *last) {
                    apply(&mut self.durable, &change);
                } else {
                    rest.push(Pending { change, ..pending });
                }
            }
        }
        rest.sort_by_key(|pending| pending.at);
        self.pending = rest;
    }

    /// What was removed is gone for good.
    fn settle_removal(&mut self) {
        let removed = |pending: &Pending| matches!(pending.change, Change::Remove);
        if let Some(last) = self.pending.iter().rposition(removed) {
            self.durable = None;
            self.pending.drain(..=last);
        }
    }

    fn survives(&self, kept: Kept, seed: &mut u64) -> Option<Vec<u8>> {
        let mut found = self.durable.clone();
        let (piece, chance) = match kept {
            Kept::Synced => return found,
            Kept::Everything => (PAGE, 256),
            Kept::Some { piece, chance } => (piece, chance),
        };
        let mut stopped = HashSet::new();
        for pending in &self.pending {
            let Change::Write(offset, bytes) = &pending.change else {
                // What was written after a cut lies in what the cut made: no cut, no later write.
                if random(seed) % 256 >= chance {
                    break;
                }
                apply(&mut found, &pending.change);
                continue;
            };
            for (place, start, bytes) in pieces(*offset, bytes, piece) {
                if stopped.contains(&place) || random(seed) % 256 >= chance {
                    stopped.insert(place);
                    continue;
                }
                apply(&mut found, &Change::Write(start, bytes.into()));
            }
        }
        found
    }
}

/// A write, piece by piece: which piece, where it begins, what is in it.
fn pieces(offset: u64, bytes: &[u8], piece: u64) -> impl Iterator<Item = (u64, u64, &[u8])> {
    let mut start = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = usize::try_from(piece - start % piece).unwrap();
        let (now, later) = rest.split_at(room.min(rest.len()));
        let found = (start / piece, start, now);
        start += now.len() as u64;
        rest = later;
        Some(found)
    })
}

fn apply(file: &mut Option<Vec<u8>>, change: &Change) {
    match change {
        Change::Remove => *file = None,
        Change::Truncate(length) => {
            let length = usize::try_from(*length).unwrap();
            file.get_or_insert_default().resize(length, 0);
        }
        Change::Write(offset, bytes) => {
            let file = file.get_or_insert_default();
            let start = usize::try_from(*offset).unwrap();
            let end = start + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[start..end].copy_from_slice(bytes);
        }
    }
}

/// xorshift: a seed is a whole story that can be told again.
pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}
