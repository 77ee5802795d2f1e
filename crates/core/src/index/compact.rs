//! The compact index: eight bytes for each content, eight contents in a cache line, and two lines that a content may be in. A look-up
//! takes two cache misses, and both are in flight together.
//!
//! A newcomer goes into the emptier of its two lines. Hashes are random, so with a single line for each content some lines would
//! be full when the table is half empty: of a set that takes 90% of it, only 90% stayed. The two lines come from two halves of
//! the table, and of two that are equally empty the left one is taken, which evens out more than chance does (Vöcking, "How
//! asymmetry helps load balancing", 1999).
//!
//! A line is kept in the order in which its contents were met, the latest first. When both lines are full, the content that was met least
//! is evicted; of several, the one that was met longest ago (CAFTL §3.2.1, "hotness"). In a line where all contents were met again, a
//! newcomer decrements every count, so that no content stays only because it was met often long ago.

use super::holder::Holder;
use crate::addr::{Lba, Vba};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

const WAYS: usize = 8;
/// Bytes of a line.
const LINE: usize = size_of::<Line>();

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

// An entry: 24 bits of the hash, 1 bit that distinguishes a page from an LBA, 4 bits for how often it was met, 35 bits of number;
// 0 for none (an entry in use was met at least once).
const PRINT_SHIFT: u32 = 40;
const PAGE: u64 = 1 << 39;
const MET_SHIFT: u32 = 35;
const NUMBER: u64 = (1 << MET_SHIFT) - 1;
const MET_MAX: u64 = 15;

/// Makes a second hash from the first: any odd number whose bits are mixed.
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

/// The compact index.
#[derive(Default)]
pub struct Compact {
    lines: Vec<Line>,
    entries: usize,
    comparisons: u64,
}

fn met(entry: u64) -> u64 {
    entry >> MET_SHIFT & MET_MAX
}

/// The ways of a line that hold a content, as one bit each.
fn ways_of(line: &[u64; WAYS], hash: u64) -> u32 {
    let print = hash << PRINT_SHIFT;
    // An entry without its print is not 0, because it was met at least once.
    let is_of = |entry: u64| (entry ^ print).wrapping_sub(1) < (1 << PRINT_SHIFT) - 1;
    let back_to_front = line.iter().rev();
    back_to_front.fold(0, |ways, &entry| ways << 1 | u32::from(is_of(entry)))
}

fn entry(hash: u64, met: u64, holder: Holder) -> u64 {
    let number = match holder {
        Holder::Lba(lba) => lba.0 & NUMBER,
        Holder::Page(vba) => PAGE | u64::from(vba.0),
    };
    hash << PRINT_SHIFT | met << MET_SHIFT | number
}

impl Compact {
    /// Calls `advise` with the address and the size of its memory before the memory is touched.
    pub(super) fn new(
        bytes: usize,
        advise: &mut dyn FnMut(*const u8, usize),
    ) -> Result<Self, TryReserveError> {
        let count = Self::lines_in(bytes);
        let mut lines: Vec<Line> = Vec::new();
        lines.try_reserve_exact(count)?;
        if count > 0 {
            advise(lines.as_ptr().cast(), count * LINE);
        }
        // Touch all of it now: the first touch of a page costs a look-up more than many misses.
        lines.resize(count, Line([0; WAYS]));
        Ok(Self {
            lines,
            ..Self::default()
        })
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

    /// The lines that a content may be in, one in each half of the table; `None` when there is no table.
    fn lines_of(&self, hash: u64) -> Option<[usize; 2]> {
        // If the number of lines is odd, the halves share a line.
        let half = self.lines.len().div_ceil(2);
        let of_half = |hash: u64| (((hash >> 32) * half as u64) >> 32) as usize;
        // Neither the first line nor the print reveals where a content's second line is.
        let other = (hash ^ hash >> 32).wrapping_mul(SECOND);
        (half > 0).then(|| [of_half(hash), self.lines.len() - half + of_half(other)])
    }

    /// The line and the way of a content.
    fn place_of(&self, hash: u64) -> Option<(usize, usize)> {
        let lines = self.lines_of(hash)?;
        let ways = |line: usize| ways_of(&self.lines[line].0, hash);
        // This takes one branch. A branch for each of the two lines would be mispredicted half of the time.
        let ways = ways(lines[0]) | ways(lines[1]) << WAYS;
        let way = ways.trailing_zeros() as usize;
        (ways != 0).then(|| (lines[way / WAYS], way % WAYS))
    }

    /// Touches the lines of contents that will soon be looked up, so that their cache misses are in flight together.
    pub(super) fn look_ahead(&self, hashes: impl Iterator<Item = u64>) {
        let lines = hashes.filter_map(|hash| self.lines_of(hash));
        let seen = lines.fold(0, |all, [one, other]| {
            all ^ self.lines[one].0[0] ^ self.lines[other].0[0]
        });
        core::hint::black_box(seen);
    }

    pub(super) fn find(&mut self, hash: u64) -> Option<Holder> {
        let place = self.place_of(hash);
        self.comparisons += 2 * WAYS as u64;
        let (line, way) = place?;
        let entry = self.lines[line].0[way];
        Some(if entry & PAGE == 0 {
            Holder::Lba(Lba(entry & NUMBER))
        } else {
            Holder::Page(Vba(entry as u32))
        })
    }

    pub(super) fn insert(&mut self, hash: u64, holder: Holder) {
        let Some(lines) = self.lines_of(hash) else {
            return;
        };
        let (line, way, times) = match self.place_of(hash) {
            Some((line, way)) => (line, way, (met(self.lines[line].0[way]) + 1).min(MET_MAX)),
            None => {
                let (line, way) = self.make_room(lines, hash);
                (line, way, 1)
            }
        };
        let line = &mut self.lines[line].0;
        line.copy_within(..way, 1);
        line[0] = entry(hash, times, holder);
    }

    /// Picks the entry of these lines that a newcomer takes.
    fn make_room(&mut self, lines: [usize; 2], hash: u64) -> (usize, usize) {
        let (Line(left), Line(right)) = (&self.lines[lines[0]], &self.lines[lines[1]]);
        if !is_full(left) || !is_full(right) {
            self.entries += 1;
            let (held, held_right) = (held(left), held(right));
            return match held <= held_right {
                true => (lines[0], held),
                false => (lines[1], held_right),
            };
        }
        let (way, way_right) = (coldest(left), coldest(right));
        let rank = |line: &[u64; WAYS], way| (met(line[way]), Reverse(way));
        let is_right = match rank(right, way_right).cmp(&rank(left, way)) {
            // If it were always the left one, the right half would grow old.
            Ordering::Equal => hash.is_multiple_of(2),
            order => order.is_lt(),
        };
        let (line, way) = match is_right {
            false => (lines[0], way),
            true => (lines[1], way_right),
        };
        let Line(entries) = &mut self.lines[line];
        if met(entries[way]) > 1 {
            for entry in entries {
                *entry -= 1 << MET_SHIFT;
            }
        }
        (line, way)
    }

    pub(super) fn moved(&mut self, hash: u64, holder: Holder) {
        if let Some((line, way)) = self.place_of(hash) {
            let same = &mut self.lines[line].0[way];
            *same = entry(hash, met(*same), holder);
        }
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some((line, way)) = self.place_of(hash) {
            let Line(line) = &mut self.lines[line];
            line.copy_within(way + 1.., way);
            line[WAYS - 1] = 0;
            self.entries -= 1;
        }
    }
}

fn is_full(line: &[u64; WAYS]) -> bool {
    line[WAYS - 1] != 0
}

/// How many contents a line holds.
fn held(line: &[u64; WAYS]) -> usize {
    line.iter().filter(|&&entry| entry != 0).count()
}

/// The way of a full line that is evicted.
fn coldest(line: &[u64; WAYS]) -> usize {
    let back_to_front = (0..WAYS).rev();
    back_to_front
        .min_by_key(|&way| met(line[way]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tests::hash;
    use super::*;
    use proptest::prelude::*;

    /// The same without bits: each line is a list of hashes, how often they were met, and holders, the latest first.
    struct Model(Vec<Vec<(u64, u64, Holder)>>);

    impl Model {
        fn place_of(&self, hash: u64) -> Option<(usize, usize)> {
            let is_there =
                |line: &Vec<(u64, u64, Holder)>| line.iter().position(|&(of, ..)| of == hash);
            (0..self.0.len()).find_map(|line| is_there(&self.0[line]).map(|way| (line, way)))
        }

        fn find(&self, hash: u64) -> Option<Holder> {
            self.place_of(hash).map(|(line, way)| self.0[line][way].2)
        }

        fn insert(&mut self, hash: u64, holder: Holder, lines: [usize; 2]) {
            if let Some((line, way)) = self.place_of(hash) {
                let (_, times, _) = self.0[line].remove(way);
                self.0[line].insert(0, (hash, MET_MAX.min(times + 1), holder));
                return;
            }
            let emptiest = lines.into_iter().min_by_key(|&line| self.0[line].len());
            let mut line = emptiest.unwrap();
            if self.0[line].len() == WAYS {
                // The contents met least are the candidates; of two candidates, one in each line, the one further back in its line is
                // evicted.
                let coldest = |line: usize| {
                    let least = self.0[line]
                        .iter()
                        .map(|&(_, times, _)| times)
                        .min()
                        .unwrap();
                    let at = |&(_, times, _): &(u64, u64, Holder)| times == least;
                    (least, WAYS - self.0[line].iter().rposition(at).unwrap())
                };
                let [left, right] = lines.map(coldest);
                let is_right = right < left || right == left && hash.is_multiple_of(2);
                line = lines[usize::from(is_right)];
                let (least, from_end) = if is_right { right } else { left };
                if least > 1 {
                    self.0[line]
                        .iter_mut()
                        .for_each(|(_, times, _)| *times -= 1);
                }
                self.0[line].remove(WAYS - from_end);
            }
            self.0[line].insert(0, (hash, 1, holder));
        }

        fn remove(&mut self, hash: u64) {
            if let Some((line, way)) = self.place_of(hash) {
                self.0[line].remove(way);
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_like_two_lists_for_each_content(
            lines in 1usize..8,
            steps in prop::collection::vec((0u64..150, 0u32..1000, 0..10), 1..1500)
        ) {
            let mut index = Compact::new(lines * LINE, &mut |_, _| {}).unwrap();
            let mut model = Model(alloc::vec![Vec::new(); lines]);
            for (content, number, kind) in steps {
                let (hash, holder) = (hash(content), Holder::Page(Vba(number)));
                match kind {
                    0 => {
                        index.remove(hash);
                        model.remove(hash);
                    }
                    1 => {
                        index.moved(hash, holder);
                        if let Some((line, way)) = model.place_of(hash) {
                            model.0[line][way].2 = holder;
                        }
                    }
                    _ => {
                        index.insert(hash, holder);
                        model.insert(hash, holder, index.lines_of(hash).unwrap());
                    }
                }
                prop_assert_eq!(index.find(hash), model.find(hash));
                prop_assert_eq!(index.len(), model.0.iter().map(Vec::len).sum::<usize>());
                for (line, list) in index.lines.iter().zip(&model.0) {
                    let mut entries: Vec<u64> = list
                        .iter()
                        .map(|&(hash, times, holder)| entry(hash, times, holder))
                        .collect();
                    entries.resize(WAYS, 0);
                    prop_assert_eq!(&entries[..], &line.0[..]);
                }
            }
        }
    }

    #[test]
    fn contents_that_are_not_written_any_more_leave_both_halves() {
        let mut index = Compact::new(1000 * LINE, &mut |_, _| {}).unwrap();
        let all = index.capacity() as u64;
        for content in 0..5 * all {
            index.insert(hash(content), Holder::Lba(Lba(content)));
        }
        let of_the_first = (0..all).filter(|&c| index.find(hash(c)).is_some());
        assert_eq!(of_the_first.count(), 0);
        assert_eq!(index.len() as u64, all);
    }

    #[test]
    fn a_content_that_is_met_often_stays() {
        let mut index = Compact::new(LINE, &mut |_, _| {}).unwrap();
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
    fn of_contents_met_once_the_oldest_leaves() {
        let mut index = Compact::new(LINE, &mut |_, _| {}).unwrap();
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
    fn a_content_that_was_met_often_long_ago_leaves() {
        let mut index = Compact::new(LINE, &mut |_, _| {}).unwrap();
        for _ in 0..20 {
            for old in 0..8 {
                index.insert(hash(old), Holder::Lba(Lba(old)));
            }
        }
        for round in 0..4000u64 {
            // Newcomers that are met again: otherwise each old entry is worth more than any of them.
            index.insert(hash(8 + round / 2), Holder::Lba(Lba(round)));
        }
        let old = (0..8)
            .filter(|&old| index.find(hash(old)).is_some())
            .count();
        assert!(old < 2, "{old} of 8 are still there");
    }
}
