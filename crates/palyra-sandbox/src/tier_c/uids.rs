//! Uids that a root daemon lends to its calls: numbers that nobody on the machine has.
//!
//! A call gets a block of them, so that inside its user namespace every ordinary uid stands for one
//! of the block. Files of the workspace keep their owners that way, whoever they are, and none of
//! the numbers outside is anybody's: not root's, not nobody's.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Where they begin: above what distributions give to people, services and containers (systemd's
/// own tables end at 0x6fff_ffff), and below what some programs take for negative.
const FIRST: u32 = 0x7100_0000;

/// How many numbers are in a block: one for each ordinary uid, and some for others.
const BLOCK: u32 = 0x2_0000;

/// How many blocks there are.
const BLOCKS: u32 = (0x7fff_0000 - FIRST) / BLOCK;

/// How many uids are ordinary: the rest of a block is for the owner of the workspace, if it is not.
pub(crate) const ORDINARY: u32 = 0x1_0000;

/// Which blocks are lent.
#[derive(Debug)]
pub(crate) struct Uids {
    lent: Arc<Mutex<HashSet<u32>>>,
    /// Where to look first. By chance, so that two daemons on one machine hardly ever lend the same
    /// numbers at the same time.
    start: u32,
}

/// A block, lent to one call and given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    number: u32,
    lent: Arc<Mutex<HashSet<u32>>>,
}

impl Uids {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 4];
        // Without chance, the first block: still numbers that nobody has.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        Self {
            lent: Arc::default(),
            start: u32::from_ne_bytes(bytes) % BLOCKS,
        }
    }

    /// A block that no live call has; none when all are taken.
    pub(crate) fn lend(&self) -> Option<Lease> {
        let mut lent = self
            .lent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut all = (0..BLOCKS).map(|step| (self.start + step) % BLOCKS);
        let number = all.find(|number| !lent.contains(number))?;
        lent.insert(number);
        Some(Lease {
            number,
            lent: Arc::clone(&self.lent),
        })
    }
}

impl Lease {
    /// The first number of the block.
    pub(crate) const fn first(&self) -> u32 {
        FIRST + self.number * BLOCK
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_live_call_gets_numbers_that_nobody_has() {
        let uids = Uids::new();
        let mut leases: Vec<Lease> = std::iter::from_fn(|| uids.lend()).collect();
        assert_eq!(leases.len(), usize::try_from(BLOCKS).unwrap());
        let mut firsts: Vec<u32> = leases.iter().map(Lease::first).collect();
        firsts.sort_unstable();
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] >= BLOCK));
        // Not root, not nobody, not a number that is negative to somebody.
        assert!(firsts[0] >= FIRST);
        assert!(firsts.last().unwrap() + BLOCK <= i32::MAX.unsigned_abs());
        const { assert!(ORDINARY < BLOCK) };

        let freed = leases.pop().unwrap().first();
        assert_eq!(uids.lend().unwrap().first(), freed);
    }
}
