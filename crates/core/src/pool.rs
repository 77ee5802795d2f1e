//! The fingerprint pool: which journal block to compare when a home block is written (WOJ §3.2, §3.3).
//!
//! An entry is a journal block's place in the journal, not a physical address: the map knows the address, so the pool need not learn of
//! moves. The pool always takes 6 bytes for each journal block: 4 for chain and fingerprint, 2 for the table. Of two blocks with one
//! fingerprint the newer stays. It is marked collided, because its fingerprint is known to be ambiguous even after the other block has
//! left.
//!
//! A fingerprint is the bucket's number, and as many more bits as the link of the chain leaves: 13 for a journal of 256 MiB, 9 for 4 GiB,
//! the most that is watched. If the whole journal waits for its checkpoint, two hashes are confused in 1 of 4096 cases in the smaller
//! journal, and in 1 of 256 in the larger one. The cost of that is a block that is written home.

use alloc::{vec, vec::Vec};

/// The most entries of one bucket that are compared. A client that can choose hashes (the paper's hash is not keyed) must not be able to
/// make a write slow.
const CHAIN_MAX: usize = 32;

/// Journal blocks for each bucket: the entries it has when all of them wait for their checkpoint.
const BLOCKS_A_BUCKET: usize = 2;

const PRESENT: u32 = 1 << 31;
const COLLIDED: u32 = 1 << 30;
/// A flag in the last entry of a bucket. That entry holds the bucket instead of a next entry, so the bucket is found from any of its
/// entries.
const LAST: u32 = 1 << 29;

/// What the pool proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The journal block, counted from the first of the first region.
    pub index: u32,
    /// True if others had the same fingerprint.
    pub collided: bool,
}

/// The fingerprint pool of a volume's journals.
#[derive(Default)]
pub struct Pool {
    /// First entry of each bucket, plus one; 0 for none.
    buckets: Vec<u32>,
    /// For each journal block: whether it has an entry, whether that is collided, its fingerprint, and the next entry of its
    /// bucket, or the bucket.
    links: Vec<u32>,
    /// The lower bits of a link: the next entry.
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

    /// The number of journal blocks that it can hold.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.links.len()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// True if nothing can be proposed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the bucket of a hash, by its upper half: a table in front of the pool may have used the lower half.
    fn bucket(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The bits of a link that hold the fingerprint: between the flags and the next entry.
    fn print_bits(&self) -> u32 {
        (LAST - 1) & !self.next
    }

    /// Returns a hash's fingerprint in those bits: the lower end of the upper half.
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

    /// Notes that a block was written into the journal at `index`.
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

    /// Returns the journal block whose fingerprint matches a home block's hash.
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

    /// Whether a journal block's entry is collided; `None` if it has none.
    #[must_use]
    pub fn is_collided(&self, index: u32) -> Option<bool> {
        let link = *self.links.get(index as usize)?;
        (link & PRESENT != 0).then_some(link & COLLIDED != 0)
    }

    /// Returns the bucket of a journal block that has an entry.
    fn bucket_of(&self, index: u32) -> usize {
        let rest = core::iter::successors(Some(index), |&at| self.next(at));
        let last = rest.last().unwrap_or(index);
        (self.links[last as usize] & self.next) as usize
    }

    /// Removes a journal block's entry: its checkpoint is done, or its space is reused.
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
        // The first block's space is reused. The second stays collided, because the fingerprint is ambiguous.
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
    fn a_bucket_that_a_client_fills_on_purpose_stays_short() {
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
        /// Compared with the obvious model: the newest block of each fingerprint.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u32..40, 0u64..30, any::<bool>()), 1..400)) {
            // Some hashes are alone in their bucket, and some are with others.
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
