//! Eight bytes a content, eight of them in a cache line: a look-up is one miss.
//!
//! A line is in the order in which its contents were met, the last one first. When it is full, the content that
//! was met least leaves, of several the one that was met longest ago (CAFTL §3.2.1, "hotness"). In a line where
//! all were met again a newcomer makes each count for one time less, so that none stays for what it was once.

use super::Holder;
use crate::addr::{Lba, Vba};
use alloc::vec::Vec;

const WAYS: usize = 8;
/// Bytes of a line.
const LINE: usize = size_of::<Line>();

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

// An entry: 27 bits of the hash, 1 that tells a page from an LBA, 4 of how often it was met, 32 of number; 0
// for none (what is there was met once).
const PRINT_SHIFT: u32 = 37;
const PAGE: u64 = 1 << 36;
const MET_SHIFT: u32 = 32;
const MET_MAX: u64 = 15;

/// See the module.
#[derive(Default)]
pub struct Compact {
    lines: Vec<Line>,
    entries: usize,
    comparisons: u64,
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

impl Compact {
    /// `advise` is told where its memory is, and how many bytes, before that is touched.
    pub(super) fn new(bytes: usize, advise: &mut dyn FnMut(*const u8, usize)) -> Self {
        let count = Self::lines_in(bytes);
        let mut lines: Vec<Line> = Vec::with_capacity(count);
        if count > 0 {
            advise(lines.as_ptr().cast(), count * LINE);
        }
        // All of it is touched now: a page that is met for the first time costs a look-up more than many misses.
        lines.resize(count, Line([0; WAYS]));
        Self {
            lines,
            ..Self::default()
        }
    }

    fn lines_in(bytes: usize) -> usize {
        (bytes / LINE).min(u32::MAX as usize)
    }

    pub(super) fn is_of(&self, bytes: usize) -> bool {
        self.lines.len() == Self::lines_in(bytes)
    }

    pub(super) fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    fn line_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// Looks at the lines of contents that are looked up soon: their cache misses are under way together then.
    pub(super) fn look_ahead(&self, hashes: impl Iterator<Item = u64>) {
        let lines = hashes.filter_map(|hash| self.lines.get(self.line_of(hash)));
        core::hint::black_box(lines.fold(0, |all, line| all ^ line.0[0]));
    }

    pub(super) fn find(&mut self, hash: u64) -> Option<Holder> {
        let Line(line) = self.lines.get(self.line_of(hash))?;
        let way = line.iter().position(is_of(hash));
        self.comparisons += way.map_or(WAYS, |way| way + 1) as u64;
        let entry = line[way?];
        Some(if entry & PAGE == 0 {
            Holder::Lba(Lba(entry & u64::from(u32::MAX)))
        } else {
            Holder::Page(Vba(entry as u32))
        })
    }

    pub(super) fn insert(&mut self, hash: u64, holder: Holder) {
        let at = self.line_of(hash);
        let Some(Line(line)) = self.lines.get_mut(at) else {
            return;
        };
        let (way, times) = match line.iter().position(is_of(hash)) {
            Some(way) => (way, (met(line[way]) + 1).min(MET_MAX)),
            None => {
                let empty = line.iter().position(|&entry| entry == 0);
                self.entries += usize::from(empty.is_some());
                (empty.unwrap_or_else(|| coldest(line)), 1)
            }
        };
        line[..=way].rotate_right(1);
        line[0] = entry(hash, times, holder);
    }

    pub(super) fn moved(&mut self, hash: u64, holder: Holder) {
        let at = self.line_of(hash);
        let Some(Line(line)) = self.lines.get_mut(at) else {
            return;
        };
        if let Some(same) = line.iter_mut().find(|entry| is_of(hash)(entry)) {
            *same = entry(hash, met(*same), holder);
        }
    }

    pub(super) fn remove(&mut self, hash: u64) {
        let at = self.line_of(hash);
        let Some(Line(line)) = self.lines.get_mut(at) else {
            return;
        };
        if let Some(same) = line.iter_mut().find(|entry| is_of(hash)(entry)) {
            *same = 0;
            self.entries -= 1;
        }
    }
}

/// Which of a full line has to leave.
fn coldest(line: &mut [u64; WAYS]) -> usize {
    let mut coldest = (WAYS - 1, u64::MAX);
    for (way, &entry) in line.iter().enumerate().rev() {
        if met(entry) < coldest.1 {
            coldest = (way, met(entry));
        }
    }
    if coldest.1 > 1 {
        for entry in line {
            *entry -= 1 << MET_SHIFT;
        }
    }
    coldest.0
}

#[cfg(test)]
mod tests {
    use super::super::tests::hash;
    use super::*;

    #[test]
    fn what_is_met_often_stays() {
        let mut index = Compact::new(LINE, &mut |_, _| {});
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
    fn of_what_was_met_once_the_oldest_leaves() {
        let mut index = Compact::new(LINE, &mut |_, _| {});
        for content in 0..8 {
            index.insert(hash(content), Holder::Lba(Lba(content)));
        }
        index.insert(hash(0), Holder::Lba(Lba(0)));
        for new in 8..12 {
            index.insert(hash(new), Holder::Lba(Lba(new)));
        }
        let there = (0..12).filter(|&c| index.find(hash(c)).is_some());
        assert!(there.eq([0, 5, 6, 7, 8, 9, 10, 11]));
    }

    #[test]
    fn what_was_met_often_long_ago_goes() {
        let mut index = Compact::new(LINE, &mut |_, _| {});
        for _ in 0..20 {
            for old in 0..8 {
                index.insert(hash(old), Holder::Lba(Lba(old)));
            }
        }
        for round in 0..4000u64 {
            // Newcomers that are met again: else the old ones are worth more than each of them.
            index.insert(hash(8 + round / 2), Holder::Lba(Lba(round)));
        }
        let old = (0..8)
            .filter(|&old| index.find(hash(old)).is_some())
            .count();
        assert!(old < 2, "{old} of 8 are still there");
    }
}
