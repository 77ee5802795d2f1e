//! Counts, block by block, what Dmdedup would write for a load. It is not run, so there are no times.
//!
//! Dmdedup (Tarasov and others, OLS 2014) can keep its metadata durable in copy-on-write B-trees of the kernel's
//! device mapper, with blocks of 4 KiB: the map by LBA, the index by hash, and a space map of the data blocks. The
//! space map has two bits of count per block in bitmaps, a tree of these bitmaps, and a tree of the counts above two.
//! A transaction copies whatever changes and everything above it, then the blocks that say which metadata blocks are
//! free (a bitmap and its index), and writes the superblock. A separate device for metadata is counted as if it were
//! the same one.
//!
//! It is counted in Dmdedup's favour: copied metadata blocks are all in one bitmap, which is true up to 64 MiB of
//! them; nodes are never merged; and a flush with nothing new is free.

use super::btree::{Transaction, Tree};
use crate::content::Content;
use crate::rng::mix;
use crate::trace::Op;
use crate::workload::Request;
use std::collections::HashMap;

/// Bytes of a block's number, and of the SHA-1 that OrderMergeDedup's authors use (§3).
const NUMBER_BYTES: usize = 8;
const HASH_BYTES: usize = 20;
/// Bytes of a bitmap's entry in its tree, and of a count above two.
const BITMAP_ENTRY_BYTES: usize = 16;
const COUNT_BYTES: usize = 4;
/// Blocks whose counts are in one bitmap: two bits each, after a header of 16 bytes.
const BITMAP_BLOCKS: u64 = (4096 - 16) * 4;
/// The largest count that two bits hold; three says that the count is elsewhere.
const SMALL_COUNT: u32 = 2;

/// The longest wait for a transaction to commit, in nanoseconds (§4.2).
const COMMIT_AFTER: u64 = 1_000_000_000;

/// When a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// At a flush, at a write with FUA, and after a second.
    Weak,
    /// After each block: Dmdedup splits requests into blocks.
    Strong,
}

/// Blocks written, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Transactions.
    pub commits: u64,
    /// Data.
    pub data: u64,
    /// The map.
    pub map: u64,
    /// The index of hashes.
    pub hashes: u64,
    /// The free blocks of data and metadata, and the counts.
    pub space: u64,
    /// The superblock.
    pub roots: u64,
}

impl Written {
    /// The sum of all blocks.
    pub fn total(&self) -> u64 {
        self.data + self.map + self.hashes + self.space + self.roots
    }
}

/// The number of a data block.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Number(u64);

struct Dmdedup {
    map: Tree,
    hashes: Tree,
    bitmaps: Tree,
    counts: Tree,
    /// For each bitmap: the last transaction that copied it.
    copied: Vec<Transaction>,
    links: HashMap<u64, Number>,
    stored: HashMap<Content, Number>,
    /// For each data block. A block without links is kept for its hash: blocks are only given up by hand.
    references: Vec<u32>,
    now: Transaction,
    /// When the first uncommitted change was made.
    since: Option<u64>,
    written: Written,
}

/// Counts what a load writes.
pub fn count(requests: &[Request], persistence: Persistence) -> Written {
    let mut dmdedup = Dmdedup {
        map: Tree::new(NUMBER_BYTES),
        hashes: Tree::new(HASH_BYTES + NUMBER_BYTES),
        bitmaps: Tree::new(BITMAP_ENTRY_BYTES),
        counts: Tree::new(COUNT_BYTES),
        copied: Vec::new(),
        links: HashMap::new(),
        stored: HashMap::new(),
        references: Vec::new(),
        now: Transaction(1),
        since: None,
        written: Written::default(),
    };
    for request in requests {
        if dmdedup
            .since
            .is_some_and(|since| request.at >= since + COMMIT_AFTER)
        {
            dmdedup.commit();
        }
        match request.op {
            Op::Write { fua } => {
                for (lba, &content) in (request.lba..).zip(&request.contents) {
                    dmdedup.write(lba, content, request.at);
                    if persistence == Persistence::Strong {
                        dmdedup.commit();
                    }
                }
                if fua {
                    dmdedup.commit();
                }
            }
            Op::Flush => dmdedup.commit(),
            Op::Read | Op::Discard { .. } => {}
        }
    }
    dmdedup.commit();
    dmdedup.ended()
}

impl Dmdedup {
    fn write(&mut self, lba: u64, content: Content, at: u64) {
        let old = self.links.get(&lba).copied();
        let new = match self.stored.get(&content) {
            Some(&number) if Some(number) == old => return,
            Some(&number) => number,
            None => self.store(content),
        };
        self.since.get_or_insert(at);
        self.refer(new, 1);
        self.map.set(lba, self.now);
        self.links.insert(lba, new);
        if let Some(old) = old {
            self.refer(old, -1);
        }
    }

    /// Stores a data block, with the reference of its hash.
    fn store(&mut self, content: Content) -> Number {
        let number = Number(self.references.len() as u64);
        self.references.push(0);
        self.written.data += 1;
        // Similar contents have unrelated hashes.
        self.hashes.set(mix(content.0), self.now);
        self.refer(number, 1);
        self.stored.insert(content, number);
        number
    }

    fn refer(&mut self, number: Number, by: i32) {
        let references = &mut self.references[number.0 as usize];
        let before = *references;
        *references = before.saturating_add_signed(by);
        if *references > SMALL_COUNT {
            self.counts.set(number.0, self.now);
        } else if before > SMALL_COUNT {
            self.counts.remove(number.0, self.now);
        }
        let bitmap = number.0 / BITMAP_BLOCKS;
        // The bitmap's entry has changed as well: it says where the bitmap is.
        self.bitmaps.set(bitmap, self.now);
        let copied = bitmap as usize;
        if self.copied.len() <= copied {
            self.copied.resize(copied + 1, Transaction::default());
        }
        if self.copied[copied] < self.now {
            self.copied[copied] = self.now;
            self.written.space += 1;
        }
    }

    fn commit(&mut self) {
        if self.since.take().is_none() {
            return;
        }
        self.now.0 += 1;
        self.written.commits += 1;
        // The metadata's bitmap, and its index.
        self.written.space += 2;
        self.written.roots += 1;
    }

    fn ended(self) -> Written {
        Written {
            map: self.map.written,
            hashes: self.hashes.written,
            space: self.written.space + self.bitmaps.written + self.counts.written,
            ..self.written
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn write(at: u64, lba: u64, content: u64, fua: bool) -> Request {
        Request {
            op: Op::Write { fua },
            lba,
            blocks: 1,
            contents: smallvec![Content(content)],
            ..Request::flush(at)
        }
    }

    #[test]
    fn a_single_write_is_data_three_ways_and_the_superblock() {
        let one = count(&[write(0, 5, 1, false)], Persistence::Weak);
        let Written {
            data, map, hashes, ..
        } = one;
        assert_eq!((one.commits, data, map, hashes, one.roots), (1, 1, 1, 1, 1));
        // A bitmap and its tree for data, a bitmap and its index for metadata.
        assert_eq!((one.space, one.total()), (4, 8));
        // The same again changes nothing and is no transaction.
        let again = [
            write(0, 5, 1, false),
            Request::flush(0),
            write(0, 5, 1, true),
        ];
        assert_eq!(count(&again, Persistence::Strong), one);
    }

    #[test]
    fn a_duplicate_is_counted_beside_the_bitmap() {
        let load = [write(0, 5, 1, true), write(0, 6, 1, true)];
        let (one, two) = (
            count(&load[..1], Persistence::Weak),
            count(&load, Persistence::Weak),
        );
        assert_eq!((two.data, two.hashes), (one.data, one.hashes));
        // Three references: that of the hash, and two links.
        assert_eq!(two.space - one.space, 5);
        assert_eq!(two.map - one.map, 1);
    }

    #[test]
    fn transactions_end_after_a_second_at_a_flush_and_at_a_fua_write() {
        let second = COMMIT_AFTER;
        let load = [
            write(0, 1, 1, false),
            write(second - 1, 2, 2, false),
            write(second, 3, 3, false),
            Request::flush(second),
            Request::flush(second),
            write(second, 4, 4, true),
            write(second, 5, 5, false),
        ];
        assert_eq!(count(&load, Persistence::Weak).commits, 4);
        assert_eq!(count(&load, Persistence::Strong).commits, 5);
    }
}
