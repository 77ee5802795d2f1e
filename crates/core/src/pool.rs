//! The fingerprint pool: which journal block to look at when a home block is written (WOJ §3.2, §3.3).
//!
//! An entry is a journal block's place in the journal, not a physical address: the map knows where it is,
//! so nothing that moves it has to be told to the pool. 6 bytes a journal block, whatever happens: 4 of
//! chain and fingerprint, 2 of table. Of two blocks with one fingerprint the newer stays, marked collided,
//! so that a third cannot be mistaken for the only one.
//!
//! A fingerprint is what its bucket says, and as many bits beside that as the chain leaves: 13 of a journal of
//! 256 MiB, 9 of the 4 GiB that are watched at most. Two hashes are taken for one in 1 of 4096 cases there if the whole
//! journal waits for its checkpoint, and 1 of 256 here; what that costs is a block that is written home.

use alloc::{vec, vec::Vec};

/// Entries of one bucket that are looked at, at most: a client who could choose the hash (the paper's is
/// not keyed) must not be able to make a write slow.
const CHAIN_MAX: usize = 32;

/// Journal blocks for each bucket: so many entries it has when all of them wait for their checkpoint.
const BLOCKS_A_BUCKET: usize = 2;

const PRESENT: u32 = 1 << 31;
const COLLIDED: u32 = 1 << 30;
/// The last of its bucket: in place of the next one is the bucket, so that it is found from any of its entries.
const LAST: u32 = 1 << 29;

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
    /// Of each journal block: whether it has an entry, whether that is collided, its fingerprint, and the next of its
    /// bucket, or the bucket.
    links: Vec<u32>,
    /// The lower bits of a link: the next one.
    next: u32,
    entries: usize,
}

impl Pool {
    /// An empty pool for a journal of `blocks`.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        assert!(blocks < LAST, "a journal of {blocks} blocks has no numbers");
        let next = blocks.next_power_of_two() - 1;
        let blocks = blocks as usize;
        Self {
            buckets: vec![0; blocks.div_ceil(BLOCKS_A_BUCKET)],
            links: vec![0; blocks],
            next,
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

    /// The bucket of a hash, by its upper half: the lower is what a table in front of us may have used.
    fn bucket(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// Where a link has a fingerprint: between what it is and the next.
    fn print_bits(&self) -> u32 {
        (LAST - 1) & !self.next
    }

    /// Its fingerprint, there: the lower end of the upper half.
    fn print(&self, hash: u64) -> u32 {
        ((hash >> 32) as u32).wrapping_mul(self.next + 1) & self.print_bits()
    }

    fn has_print(&self, index: u32, print: u32) -> bool {
        self.links[index as usize] & self.print_bits() == print
    }

    /// The entries of a bucket.
    fn chain(&self, bucket: usize) -> impl Iterator<Item = u32> + '_ {
        let first = self.buckets[bucket].checked_sub(1);
        core::iter::successors(first, |&at| self.next(at))
    }

    fn next(&self, index: u32) -> Option<u32> {
        let link = self.links[index as usize];
        (link & LAST == 0).then_some(link & self.next)
    }

    /// A block was written into the journal at `index`.
    pub fn insert(&mut self, index: u32, hash: u64) {
        self.remove(index);
        let (bucket, print) = (self.bucket(hash), self.print(hash));
        let same = |&other: &u32| self.has_print(other, print);
        let found = self.chain(bucket).take(CHAIN_MAX).find(same);
        if let Some(other) = found {
            self.remove(other);
        } else if self.chain(bucket).nth(CHAIN_MAX - 1).is_some() {
            return;
        }
        let next = match self.buckets[bucket].checked_sub(1) {
            Some(first) => first,
            None => LAST | bucket as u32,
        };
        let collided = if found.is_some() { COLLIDED } else { 0 };
        self.links[index as usize] = PRESENT | collided | print | next;
        self.buckets[bucket] = index + 1;
        self.entries += 1;
    }

    /// The journal block whose fingerprint a home block's hash has.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<Proposal> {
        if self.is_empty() {
            return None;
        }
        let print = self.print(hash);
        let mut chain = self.chain(self.bucket(hash));
        let index = chain.find(|&index| self.has_print(index, print))?;
        Some(Proposal {
            index,
            collided: self.links[index as usize] & COLLIDED != 0,
        })
    }

    /// Whether a journal block's entry is collided; `None` when it has none.
    #[must_use]
    pub fn is_collided(&self, index: u32) -> Option<bool> {
        let link = *self.links.get(index as usize)?;
        (link & PRESENT != 0).then_some(link & COLLIDED != 0)
    }

    /// The bucket of a journal block that has an entry.
    fn bucket_of(&self, index: u32) -> usize {
        let rest = core::iter::successors(Some(index), |&at| self.next(at));
        let last = rest.last().unwrap_or(index);
        (self.links[last as usize] & self.next) as usize
    }

    /// The entry of a journal block leaves: its checkpoint is done, or its space is used again.
    pub fn remove(&mut self, index: u32) {
        let link = self.links[index as usize];
        if link & PRESENT == 0 {
            return;
        }
        let bucket = self.bucket_of(index);
        let before = self.chain(bucket).find(|&at| self.next(at) == Some(index));
        if let Some(before) = before {
            let rest = LAST | self.next;
            let before = &mut self.links[before as usize];
            *before = *before & !rest | link & rest;
        } else {
            let is_only = link & LAST != 0;
            self.buckets[bucket] = if is_only { 0 } else { (link & self.next) + 1 };
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

    #[test]
    fn two_hashes_are_seldom_one_fingerprint() {
        for (blocks, of_ten_thousand) in [(1 << 16, 9_997), (1 << 20, 9_970)] {
            let mut pool = Pool::new(blocks);
            for index in 0..blocks {
                pool.insert(index, crate::flat::hash(index));
            }
            let kept = pool.len() * 10_000 / blocks as usize;
            assert!(kept >= of_ten_thousand, "{kept} of 10000 in {blocks}");
        }
    }

    proptest! {
        /// Against the obvious: the newest block of each fingerprint.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u32..40, 0u64..30, any::<bool>()), 1..400)) {
            // Some alone in their bucket, and some beside others.
            let mixed = |hash: u64| (hash % 15).wrapping_mul(0x9e37_79b9_7f4a_7c15) + ((hash / 15) << 32);
            let mut pool = Pool::new(40);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (index, hash, inserts) in steps {
                model.retain(|_, at| *at != index);
                if inserts {
                    pool.insert(index, mixed(hash));
                    model.insert(hash, index);
                } else {
                    pool.remove(index);
                }
                prop_assert_eq!(pool.len(), model.len());
                for hash in 0..30 {
                    prop_assert_eq!(
                        pool.find(mixed(hash)).map(|found| found.index),
                        model.get(&hash).copied()
                    );
                }
            }
        }
    }
}
