//! The index of contents: where to look when a block is written that may be a duplicate (CAFTL §3.2).
//!
//! A hint in bounded memory, never a proof: 8 bytes a content, eight of them in a cache line, so a lookup is
//! one miss. It names an LBA or a shared page's number and no physical address, for the map knows where that
//! is: the collector need not tell it what it moves. An entry whose LBA has been overwritten is found out by
//! its checksum or by the comparison, and leaves. When a line is full, the content that was met least leaves
//! (CAFTL §3.2.1, "hotness"); newcomers make the others age, so that none stays for what it was long ago.

use crate::addr::{Lba, Vba};
use alloc::{vec, vec::Vec};

const WAYS: usize = 8;
/// Bytes of a line.
const LINE: usize = WAYS * 8;
/// Of so many newcomers to a full line one makes one of its entries count as met once less.
const AGED_EVERY: usize = 4;

// An entry: 27 bits of the hash, 1 that tells a page from an LBA, 4 of how often it was met, 32 of number; 0
// for none (what is there was met once).
const PRINT_SHIFT: u32 = 37;
const PAGE: u64 = 1 << 36;
const MET_SHIFT: u32 = 32;
const MET_MAX: u64 = 15;

/// Who has a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The last LBA that it was written to.
    Lba(Lba),
    /// A shared page.
    Page(Vba),
}

/// See the module.
#[derive(Default)]
pub struct Index {
    lines: Vec<[u64; WAYS]>,
    entries: usize,
}

fn met(entry: u64) -> u64 {
    entry >> MET_SHIFT & MET_MAX
}

fn is_of(hash: u64) -> impl Fn(&u64) -> bool {
    // The half that does not choose the line.
    move |&entry| entry != 0 && entry >> PRINT_SHIFT == hash & (u64::MAX >> PRINT_SHIFT)
}

fn entry(hash: u64, met: u64, holder: Holder) -> u64 {
    let number = match holder {
        Holder::Lba(lba) => lba.0 & u64::from(u32::MAX),
        Holder::Page(vba) => PAGE | u64::from(vba.0),
    };
    hash << PRINT_SHIFT | met << MET_SHIFT | number
}

impl Index {
    /// An index in at most `bytes`; none, when that is less than a line.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            lines: vec![[0; WAYS]; (bytes / LINE).min(u32::MAX as usize)],
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

    fn line_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// Who had this content last.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<Holder> {
        let line = self.lines.get(self.line_of(hash))?;
        let entry = *line.iter().find(|entry| is_of(hash)(entry))?;
        Some(if entry & PAGE == 0 {
            Holder::Lba(Lba(entry & u64::from(u32::MAX)))
        } else {
            Holder::Page(Vba(entry as u32))
        })
    }

    /// This content was met, and has this holder now.
    pub fn insert(&mut self, hash: u64, holder: Holder) {
        let at = self.line_of(hash);
        let Some(line) = self.lines.get_mut(at) else {
            return;
        };
        if let Some(same) = line.iter_mut().find(|entry| is_of(hash)(entry)) {
            *same = entry(hash, (met(*same) + 1).min(MET_MAX), holder);
            return;
        }
        if let Some(empty) = line.iter_mut().find(|entry| **entry == 0) {
            *empty = entry(hash, 1, holder);
            self.entries += 1;
            return;
        }
        let least = line.iter().map(|&entry| met(entry)).min().unwrap_or(1);
        // Which of several is chance, but the same chance for the same hash.
        let from = hash as usize >> 27;
        let coldest = (0..WAYS)
            .map(|step| from.wrapping_add(step) % WAYS)
            .find(|&way| met(line[way]) == least);
        let aged = &mut line[(from >> 3) % WAYS];
        if (from >> 6).is_multiple_of(AGED_EVERY) && met(*aged) > 1 {
            *aged -= 1 << MET_SHIFT;
        }
        if let Some(way) = coldest {
            line[way] = entry(hash, 1, holder);
        }
    }

    /// The content has another holder now, if it is known here at all.
    pub fn moved(&mut self, hash: u64, holder: Holder) {
        let at = self.line_of(hash);
        let Some(line) = self.lines.get_mut(at) else {
            return;
        };
        if let Some(same) = line.iter_mut().find(|entry| is_of(hash)(entry)) {
            *same = entry(hash, met(*same), holder);
        }
    }

    /// The hint for this content was wrong.
    pub fn remove(&mut self, hash: u64) {
        let at = self.line_of(hash);
        let Some(line) = self.lines.get_mut(at) else {
            return;
        };
        if let Some(same) = line.iter_mut().find(|entry| is_of(hash)(entry)) {
            *same = 0;
            self.entries -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(content: u64) -> u64 {
        content.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn no_memory_no_hints() {
        let mut index = Index::new(63);
        index.insert(5, Holder::Lba(Lba(1)));
        index.remove(5);
        assert_eq!((index.find(5), index.capacity(), index.len()), (None, 0, 0));
    }

    #[test]
    fn what_is_met_often_stays() {
        let mut index = Index::new(LINE);
        for round in 0..100 {
            let holder = Holder::Page(Vba(round));
            index.insert(hash(1), holder);
            for cold in 0..4 {
                index.insert(hash(u64::from(2 + round * 4 + cold)), Holder::Lba(Lba(7)));
            }
            assert_eq!(index.find(hash(1)), Some(holder));
        }
        assert_eq!(index.len(), WAYS);
    }

    #[test]
    fn what_was_met_often_long_ago_goes() {
        let mut index = Index::new(LINE);
        for _ in 0..20 {
            for old in 0..8 {
                index.insert(hash(old), Holder::Lba(Lba(old)));
            }
        }
        for new in 8..4000u64 {
            index.insert(hash(new), Holder::Lba(Lba(new)));
        }
        let old = (0..8)
            .filter(|&old| index.find(hash(old)).is_some())
            .count();
        assert!(old < 2, "{old} of 8 are still there");
    }

    proptest! {
        #[test]
        fn a_hint_is_the_last_holder_of_its_content_or_none(
            steps in prop::collection::vec((0u64..200, 0u32..1000, 0..10), 1..600)
        ) {
            let mut index = Index::new(9 * LINE);
            let mut last = alloc::collections::BTreeMap::new();
            for (content, number, kind) in steps {
                let hash = hash(content);
                if kind == 0 {
                    index.remove(hash);
                    last.remove(&hash);
                } else {
                    let holder = match kind % 2 {
                        0 => Holder::Lba(Lba(number.into())),
                        _ => Holder::Page(Vba(number)),
                    };
                    index.insert(hash, holder);
                    last.insert(hash, holder);
                }
                let mut held = 0;
                for (&hash, &holder) in &last {
                    if let Some(found) = index.find(hash) {
                        prop_assert_eq!(found, holder);
                        held += 1;
                    }
                }
                prop_assert_eq!(held, index.len());
                prop_assert!(held <= index.capacity());
            }
        }
    }
}
