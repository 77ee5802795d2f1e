//! What Dmdedup would write for a load: counted, block by block, and not run; so it has no times.
//!
//! Dmdedup (Tarasov and others, OLS 2014) keeps its metadata, when it is to survive, in copy-on-write B-trees of the kernel's device
//! mapper, of blocks of 4 KiB: the map by LBA, the index by hash, and of the blocks of data a space map: two bits of count a block in bitmaps, a tree
//! of these bitmaps, and a tree of the counts above two. A transaction copies whatever changes and all above it, then what says
//! which blocks of metadata are free (a bitmap and its index), and writes the superblock. A device of its own for metadata is as
//! if it were the same one.
//!
//! It is counted in Dmdedup's favour: copied blocks of metadata are all in one bitmap, which is true up to 64 MiB of them; nodes are never put
//! together; and a flush with nothing new is free.

use super::btree::{Transaction, Tree};
use crate::content::Content;
use crate::rng::mix;
use crate::trace::Op;
use crate::workload::Request;
use std::collections::HashMap;

/// Bytes of a block's number, and of the SHA-1 that OrderMergeDedup's authors use (§3).
const NUMBER_BYTES: usize = 8;
const HASH_BYTES: usize = 20;
/// Of a bitmap's entry in its tree, and of a count above two.
const BITMAP_ENTRY_BYTES: usize = 16;
const COUNT_BYTES: usize = 4;
/// Blocks whose counts are in one bitmap: two bits each, behind a header of 16 bytes.
const BITMAP_BLOCKS: u64 = (4096 - 16) * 4;
/// The largest count that two bits hold; three says that it is elsewhere.
const SMALL_COUNT: u32 = 2;

/// What waits at most this long for its transaction, in nanoseconds (§4.2).
const COMMIT_AFTER: u64 = 1_000_000_000;

/// When a transaction is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// At a flush, at a write with FUA, and after a second.
    Weak,
    /// After each block: Dmdedup takes requests apart into these.
    Strong,
}

/// Blocks written, by what for.
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
    /// Which blocks are free, of data and of metadata, and their counts.
    pub space: u64,
    /// The superblock.
    pub roots: u64,
}

impl Written {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.data + self.map + self.hashes + self.space + self.roots
    }
}

/// A block of data.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Number(u64);

struct Dmdedup {
    map: Tree,
    hashes: Tree,
    bitmaps: Tree,
    counts: Tree,
    /// By bitmap: which transaction has copied it.
    copied: Vec<Transaction>,
    links: HashMap<u64, Number>,
    stored: HashMap<Content, Number>,
    /// By block of data. What has no link any more is kept for its hash: blocks are given up by hand alone.
    references: Vec<u32>,
    now: Transaction,
    /// Since when something is not committed.
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
            Op::Read | Op::Discard => {}
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

    /// A block of data, with the reference of its hash.
    fn store(&mut self, content: Content) -> Number {
        let number = Number(self.references.len() as u64);
        self.references.push(0);
        self.written.data += 1;
        // Contents that differ in little have hashes that differ in all.
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
        // What the bitmap's entry says has changed as well: where it is.
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
        // Metadata's own bitmap, and its index.
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
        // A bitmap and its tree of data, a bitmap and its index of metadata.
        assert_eq!((one.space, one.total()), (4, 8));
        // The same again changes nothing, and is no transaction.
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
    fn transactions_end_when_they_are_said_to() {
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
