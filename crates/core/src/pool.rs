//! The fingerprint pool: which journal block to look at when a home block is written (WOJ §3.2, §3.3).
//!
//! An entry is a journal block's place in the journal, not a physical address: the map knows where it is,
//! so nothing that moves it has to be told to the pool. 12 bytes a journal block, whatever happens: 4 of
//! fingerprint, 4 of chain, 4 of table. Of two blocks with one fingerprint the newer stays, marked
//! collided, so that a third cannot be mistaken for the only one.

use alloc::{vec, vec::Vec};

/// Entries of one bucket that are looked at, at most: a client who could choose the hash (the paper's is
/// not keyed) must not be able to make a write slow.
const CHAIN_MAX: usize = 32;

const PRESENT: u32 = 1 << 31;
const COLLIDED: u32 = 1 << 30;
const NEXT: u32 = COLLIDED - 1;

/// What the pool proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The journal block, counted from the first of the first region.
    pub index: u32,
    /// Whether others had the same fingerprint.
    pub collided: bool,
}

/// See the module.
#[derive(Default)]
pub struct Pool {
    /// First entry of each bucket, plus one; 0 for none.
    buckets: Vec<u32>,
    /// Of each journal block: whether it has an entry, whether that is collided, and the next of its
    /// bucket, plus one.
    links: Vec<u32>,
    prints: Vec<u32>,
    entries: usize,
}

impl Pool {
    /// An empty pool for a journal of `blocks`.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        assert!(blocks < NEXT, "a journal of {blocks} blocks has no numbers");
        Self {
            buckets: vec![0; blocks as usize],
            links: vec![0; blocks as usize],
            prints: vec![0; blocks as usize],
            entries: 0,
        }
    }

    /// Journal blocks that it can hold.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.links.len()
    }

    /// Entries in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether nothing can be proposed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn bucket(&self, print: u32) -> usize {
        // As many buckets as blocks, so the print is scaled to them, and not cut.
        ((u64::from(print) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The upper half of a hash: the lower is what a table in front of us may have used.
    fn print(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    /// A block was written into the journal at `index`.
    pub fn insert(&mut self, index: u32, hash: u64) {
        self.remove(index);
        let print = Self::print(hash);
        let mut collided = 0;
        let mut length = 0;
        let mut at = self.buckets[self.bucket(print)];
        while let Some(other) = at.checked_sub(1) {
            at = self.links[other as usize] & NEXT;
            if self.prints[other as usize] == print {
                self.remove(other);
                collided = COLLIDED;
                break;
            }
            length += 1;
            if length == CHAIN_MAX {
                return;
            }
        }
        let bucket = self.bucket(print);
        self.links[index as usize] = PRESENT | collided | self.buckets[bucket];
        self.prints[index as usize] = print;
        self.buckets[bucket] = index + 1;
        self.entries += 1;
    }

    /// The journal block whose fingerprint a home block's hash has.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<Proposal> {
        if self.is_empty() {
            return None;
        }
        let print = Self::print(hash);
        let mut at = self.buckets[self.bucket(print)];
        while let Some(index) = at.checked_sub(1) {
            let link = self.links[index as usize];
            if self.prints[index as usize] == print {
                return Some(Proposal {
                    index,
                    collided: link & COLLIDED != 0,
                });
            }
            at = link & NEXT;
        }
        None
    }

    /// Whether a journal block's entry is collided; `None` when it has none.
    #[must_use]
    pub fn is_collided(&self, index: u32) -> Option<bool> {
        let link = *self.links.get(index as usize)?;
        (link & PRESENT != 0).then_some(link & COLLIDED != 0)
    }

    /// The entry of a journal block leaves: its checkpoint is done, or its space is used again.
    pub fn remove(&mut self, index: u32) {
        let link = self.links[index as usize];
        if link & PRESENT == 0 {
            return;
        }
        let bucket = self.bucket(self.prints[index as usize]);
        let mut at = self.buckets[bucket];
        if at == index + 1 {
            self.buckets[bucket] = link & NEXT;
        } else {
            while let Some(before) = at.checked_sub(1) {
                let before = &mut self.links[before as usize];
                at = *before & NEXT;
                if at == index + 1 {
                    *before = *before & !NEXT | link & NEXT;
                    break;
                }
            }
        }
        self.links[index as usize] = 0;
        self.entries -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn proposed(pool: &Pool, hash: u64) -> Option<(u32, bool)> {
        pool.find(hash).map(|found| (found.index, found.collided))
    }

    #[test]
    fn three_blocks_with_one_hash() {
        let mut pool = Pool::new(8);
        let hash = 7 << 32;
        pool.insert(0, hash);
        assert_eq!(proposed(&pool, hash), Some((0, false)));
        pool.insert(1, hash);
        assert_eq!(proposed(&pool, hash), Some((1, true)));
        // The first one's space is used again: the second stays collided, as its content may be either's.
        pool.insert(0, 9 << 32);
        assert_eq!(proposed(&pool, hash), Some((1, true)));
        pool.insert(2, hash);
        assert_eq!(proposed(&pool, hash), Some((2, true)));
        assert_eq!(pool.len(), 2);
    }

    #[test]
    fn an_entry_leaves_with_its_journal_space() {
        let mut pool = Pool::new(3);
        for round in 0..10u64 {
            for index in 0..3 {
                pool.insert(index, (round * 3 + u64::from(index)) << 32);
            }
        }
        assert_eq!(pool.len(), 3);
        assert_eq!(proposed(&pool, 26 << 32), None);
        assert_eq!(proposed(&pool, 27 << 32), Some((0, false)));
    }

    #[test]
    fn a_bucket_that_someone_fills_on_purpose_stays_short() {
        let mut pool = Pool::new(4096);
        for index in 0..4096 {
            pool.insert(index, u64::from(index) << 32);
        }
        assert_eq!(pool.len(), CHAIN_MAX);
    }

    proptest! {
        /// Against the obvious: the newest block of each fingerprint.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u32..40, 0u64..30, any::<bool>()), 1..400)) {
            let mut pool = Pool::new(40);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (index, hash, inserts) in steps {
                model.retain(|_, at| *at != index);
                if inserts {
                    pool.insert(index, hash << 32);
                    model.insert(hash, index);
                } else {
                    pool.remove(index);
                }
                prop_assert_eq!(pool.len(), model.len());
                for hash in 0..30 {
                    prop_assert_eq!(
                        pool.find(hash << 32).map(|found| found.index),
                        model.get(&hash).copied()
                    );
                }
            }
        }
    }
}
