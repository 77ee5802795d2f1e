//! Eight bytes a content, eight of them in a cache line, and two lines for each content: a look-up is two misses,
//! and both are under way together.
//!
//! A newcomer goes into the emptier of its lines. Hashes are random, so that with one line for each some would be full
//! when the table is half empty: of a set that takes 90% of it only 90% stayed. The lines are of two halves of the table,
//! and of two that are as empty the left one is taken, which evens out more than chance (Vöcking, "How asymmetry helps
//! load balancing", 1999).
//!
//! A line is in the order in which its contents were met, the last one first. When both are full, the content that
//! was met least leaves, of several the one that was met longest ago (CAFTL §3.2.1, "hotness"). In a line where
//! all were met again a newcomer makes each count for one time less, so that none stays for what it was once.

use super::Holder;
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

// An entry: 27 bits of the hash, 1 that tells a page from an LBA, 4 of how often it was met, 32 of number; 0
// for none (what is there was met once).
const PRINT_SHIFT: u32 = 37;
const PAGE: u64 = 1 << 36;
const MET_SHIFT: u32 = 32;
const MET_MAX: u64 = 15;

/// What makes a second hash of the first: any odd number whose bits are mixed.
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

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

/// The ways of a line, a bit for each, where a content is.
fn ways_of(line: &[u64; WAYS], hash: u64) -> u32 {
    let print = hash << PRINT_SHIFT;
    // What is left of an entry without its print tells that it was met, and is not 0 therefore.
    let is_of = |entry: u64| (entry ^ print).wrapping_sub(1) < (1 << PRINT_SHIFT) - 1;
    let back_to_front = line.iter().rev();
    back_to_front.fold(0, |ways, &entry| ways << 1 | u32::from(is_of(entry)))
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
        // All of it is touched now: a page that is met for the first time costs a look-up more than many misses.
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

    /// The lines that a content may be in, of each half of the table one; none when there is no table.
    fn lines_of(&self, hash: u64) -> Option<[usize; 2]> {
        // Halves of an odd number share a line.
        let half = self.lines.len().div_ceil(2);
        let of_half = |hash: u64| (((hash >> 32) * half as u64) >> 32) as usize;
        // Nothing that the first line or the print tells of a content tells where its second line is.
        let other = (hash ^ hash >> 32).wrapping_mul(SECOND);
        (half > 0).then(|| [of_half(hash), self.lines.len() - half + of_half(other)])
    }

    /// In which of its lines a content is, and where there.
    fn place_of(&self, hash: u64) -> Option<(usize, usize)> {
        let lines = self.lines_of(hash)?;
        let ways = |line: usize| ways_of(&self.lines[line].0, hash);
        // One branch: which of the two it is would be guessed wrong half of the time.
        let ways = ways(lines[0]) | ways(lines[1]) << WAYS;
        let way = ways.trailing_zeros() as usize;
        (ways != 0).then(|| (lines[way / WAYS], way % WAYS))
    }

    /// Looks at the lines of contents that are looked up soon: their cache misses are under way together then.
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
            Holder::Lba(Lba(entry & u64::from(u32::MAX)))
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

    /// Which entry of these lines a newcomer takes.
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
            // If it were the left one each time, the right half would grow old.
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

/// Contents in a line.
fn held(line: &[u64; WAYS]) -> usize {
    line.iter().filter(|&&entry| entry != 0).count()
}

/// Which of a full line has to leave.
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

    /// The same without bits: each line a list of hashes, how often they were met, and holders, the last one met first.
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
                // Those met least are the candidates; of the two lines' the one that is further back.
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
        fn it_is_two_lists_for_each_content(
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
    fn what_nobody_writes_any_more_leaves_both_halves() {
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
    fn what_is_met_often_stays() {
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
    fn of_what_was_met_once_the_oldest_leaves() {
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
    fn what_was_met_often_long_ago_goes() {
        let mut index = Compact::new(LINE, &mut |_, _| {}).unwrap();
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
