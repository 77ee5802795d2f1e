//! The index of contents: which LBA to look at when a block is written that may be a duplicate (CAFTL §3.2).
//!
//! A hint in bounded memory, never a proof: 8 bytes a content, eight of them in a cache line, so a lookup is
//! one miss. It names an LBA and not a page, for the map knows where that is: a page that the collector
//! moves, or that becomes shared, need not be told to the index. An entry whose LBA has been overwritten is
//! found out by its checksum or by the comparison, and leaves. When a line is full, the content that was met
//! least leaves (CAFTL §3.2.1, "hotness"); if even that was met again since, all others of the line count
//! as met once less, so that none stays for what it was long ago.

use crate::addr::Lba;
use alloc::{vec, vec::Vec};

const WAYS: usize = 8;
/// Bytes of a line.
const LINE: usize = WAYS * 8;

/// An entry: 28 bits of the hash, 4 of how often it was met, 32 of LBA; 0 for none.
const MET_SHIFT: u32 = 32;
const MET_MAX: u64 = 15;
const PRINT_SHIFT: u32 = 36;

/// See the module.
#[derive(Default)]
pub struct Index {
    lines: Vec<[u64; WAYS]>,
    entries: usize,
}

fn met(entry: u64) -> u64 {
    entry >> MET_SHIFT & MET_MAX
}

fn print(hash: u64) -> u64 {
    hash >> PRINT_SHIFT
}

impl Index {
    /// An index in at most `bytes`; none, when that is less than a line.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let lines = match bytes / LINE {
            0 => 0,
            lines => 1 << lines.ilog2(),
        };
        Self {
            lines: vec![[0; WAYS]; lines],
            entries: 0,
        }
    }

    /// Contents that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }

    /// Contents in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn line(&mut self, hash: u64) -> &mut [u64; WAYS] {
        let line = hash as usize & (self.lines.len() - 1);
        &mut self.lines[line]
    }

    /// The LBA that had this content last.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<Lba> {
        let line = self
            .lines
            .get(hash as usize & self.lines.len().wrapping_sub(1))?;
        let entry = line
            .iter()
            .find(|&&entry| entry != 0 && entry >> PRINT_SHIFT == print(hash))?;
        Some(Lba(*entry & u64::from(u32::MAX)))
    }

    /// `lba` has this content now.
    pub fn insert(&mut self, hash: u64, lba: Lba) {
        if self.lines.is_empty() {
            return;
        }
        let new =
            |met: u64| print(hash) << PRINT_SHIFT | met << MET_SHIFT | lba.0 & u64::from(u32::MAX);
        let line = self.line(hash);
        if let Some(same) = line
            .iter_mut()
            .find(|entry| **entry != 0 && **entry >> PRINT_SHIFT == print(hash))
        {
            *same = new((met(*same) + 1).min(MET_MAX));
            return;
        }
        if let Some(empty) = line.iter_mut().find(|entry| **entry == 0) {
            *empty = new(1);
            self.entries += 1;
            return;
        }
        let least = line.iter().map(|&entry| met(entry)).min().unwrap_or(1);
        // Which of several is chance, but the same chance for the same hash.
        let from = (hash >> 16) as usize;
        let mut coldest = None;
        for step in 0..WAYS {
            let way = from.wrapping_add(step) % WAYS;
            if coldest.is_none() && met(line[way]) == least {
                coldest = Some(way);
            } else if least > 1 {
                line[way] -= 1 << MET_SHIFT;
            }
        }
        if let Some(way) = coldest {
            line[way] = new(1);
        }
    }

    /// The hint for this content was wrong.
    pub fn remove(&mut self, hash: u64) {
        if self.lines.is_empty() {
            return;
        }
        let same = |entry: &&mut u64| **entry != 0 && **entry >> PRINT_SHIFT == print(hash);
        if let Some(entry) = self.line(hash).iter_mut().find(same) {
            *entry = 0;
            self.entries -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_memory_no_hints() {
        let mut index = Index::new(63);
        index.insert(5, Lba(1));
        index.remove(5);
        assert_eq!((index.find(5), index.capacity(), index.len()), (None, 0, 0));
    }

    #[test]
    fn what_is_met_often_stays() {
        let mut index = Index::new(LINE);
        let hot = 1 << PRINT_SHIFT;
        for round in 0..100 {
            index.insert(hot, Lba(round));
            for cold in 0..4 {
                index.insert((2 + round * 4 + cold) << PRINT_SHIFT, Lba(cold));
            }
            assert_eq!(index.find(hot), Some(Lba(round)));
        }
        assert_eq!(index.len(), WAYS);
    }

    proptest! {
        #[test]
        fn a_hint_is_the_last_lba_of_its_content_or_none(
            steps in prop::collection::vec((0u64..200, 0u64..1000, 0..10), 1..600)
        ) {
            let mut index = Index::new(8 * LINE);
            let mut last = alloc::collections::BTreeMap::new();
            for (content, lba, kind) in steps {
                let hash = content.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if kind == 0 {
                    index.remove(hash);
                    last.remove(&hash);
                } else {
                    index.insert(hash, Lba(lba));
                    last.insert(hash, lba);
                }
                let mut held = 0;
                for (&hash, &lba) in &last {
                    if let Some(found) = index.find(hash) {
                        prop_assert_eq!(found, Lba(lba));
                        held += 1;
                    }
                }
                prop_assert_eq!(held, index.len());
                prop_assert!(held <= index.capacity());
            }
        }
    }
}
