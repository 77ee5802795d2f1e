//! A pass of a sweep: a range of checksums, and the holders of each, as many as fit in memory.

use crate::addr::{Lba, Vba};
use crate::index::Holder;
use alloc::vec::Vec;
use core::ops::Range;

/// The number of checksums.
pub(super) const CHECKSUMS: u64 = 1 << 32;
/// The least number of holders and checksums that a sweep keeps at once: 16 MiB of them, and an eighth more.
const ENTRIES: usize = 2 << 20;
/// How many passes a sweep takes at most, if it may use the memory for that: 0.6 bytes a block, a seventh of the map's memory.
const PASSES: u64 = 16;
/// The bits of a [`Stored`] for a checksum.
const PLACE_BITS: u32 = 31;

/// A stored block: its checksum's place in the pass, whether its holder is an LBA and not a shared page, and the holder's number.
/// When sorted, the shared page of a content comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stored(u64);

const OF_LBA: u64 = 1 << 32;

impl Stored {
    fn new(place: u64, holder: Holder) -> Self {
        let number = match holder {
            Holder::Lba(lba) => OF_LBA | (lba.0 & u64::from(u32::MAX)),
            Holder::Page(vba) => u64::from(vba.0),
        };
        Self(place << 33 | number)
    }

    fn place(self) -> u64 {
        self.0 >> 33
    }

    fn holder(self) -> Holder {
        match self.0 & OF_LBA {
            0 => Holder::Page(Vba(self.0 as u32)),
            _ => Holder::Lba(Lba(self.0 & (OF_LBA - 1))),
        }
    }
}

/// One pass of a sweep.
#[derive(Debug)]
pub(super) struct Pass {
    from: u64,
    to: u64,
    /// If a pass covers more checksums than a [`Stored`] can distinguish, neighbouring checksums are treated as one. The comparison tells
    /// their blocks apart.
    shift: u32,
    stored: Vec<Stored>,
    most: usize,
}

impl Pass {
    /// A pass from this checksum on, for a volume with `blocks` blocks; `spare`: bytes that it may use.
    pub fn new(from: u64, blocks: u64, spare: u64) -> Self {
        Self::of(from, blocks, room(blocks, spare))
    }

    fn of(from: u64, blocks: u64, expected: usize) -> Self {
        // Checksums are spread evenly, but not perfectly, and clients keep writing.
        let most = expected + expected / 8;
        let width = CHECKSUMS * expected as u64 / blocks.max(expected as u64);
        let to = (from + width.max(1)).min(CHECKSUMS);
        Self {
            from,
            to,
            shift: u32::from(to - from > 1 << PLACE_BITS),
            stored: Vec::with_capacity(most.min(blocks as usize + 1024)),
            most,
        }
    }

    /// Where the next pass begins.
    pub fn to(&self) -> u64 {
        self.to
    }

    pub fn add(&mut self, holder: Holder, sum: u32) {
        let sum = u64::from(sum);
        if self.stored.len() == self.most && self.is_ours(sum) {
            self.leave_to_the_next();
        }
        if self.is_ours(sum) {
            let place = (sum - self.from) >> self.shift;
            self.stored.push(Stored::new(place, holder));
        }
    }

    fn is_ours(&self, sum: u64) -> bool {
        (self.from..self.to).contains(&sum)
    }

    /// Leaves the upper half of the checksums to the next pass, because there are more blocks than expected (if one content is very
    /// frequent).
    fn leave_to_the_next(&mut self) {
        self.sort();
        let (first, middle) = (self.stored[0], self.stored[self.most / 2]);
        let kept = middle.place().max(first.place() + 1);
        let count = self.stored.partition_point(|one| one.place() < kept);
        self.stored.truncate(count);
        self.to = self.to.min(self.from + (kept << self.shift));
        if count == self.most {
            // One content alone exceeds the room: the rest of its blocks is left to the next sweep.
            self.stored.truncate(self.most / 2);
        }
    }

    pub fn sort(&mut self) {
        self.stored.sort_unstable();
    }

    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Returns the blocks with the checksum of the one at `from`, starting there; the pass must be sorted.
    pub fn content(&self, from: usize) -> Range<usize> {
        let mut contents = self.stored[from..].chunk_by(|one, next| one.place() == next.place());
        from..from + contents.next().map_or(0, <[Stored]>::len)
    }

    pub fn holder(&self, index: usize) -> Holder {
        self.stored[index].holder()
    }

    /// Returns the checksum that follows the one of this block.
    pub fn behind(&self, index: usize) -> u64 {
        self.from + ((self.stored[index].place() + 1) << self.shift)
    }

    /// Returns how much of a sweep is done when `inside` thousandths of this pass are.
    pub fn permille(&self, inside: u64) -> u64 {
        (self.from * 1000 + (self.to - self.from) * inside) / CHECKSUMS
    }
}

/// Returns how many entries there is room for: enough for few passes of a large volume, if it may use that many bytes.
fn room(blocks: u64, spare: u64) -> usize {
    let wanted = blocks.div_ceil(PASSES) as usize;
    let fits = (wanted * size_of::<Stored>()) as u64 <= spare;
    if fits { wanted } else { 0 }.max(ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all passes of a sweep over blocks with these checksums; returns the number of passes, and the holders by checksum.
    fn passes(sums: &[u32], from: u64, expected: usize) -> (usize, Vec<Vec<Holder>>) {
        let (mut at, mut count, mut found) = (from, 0, Vec::new());
        while at < CHECKSUMS {
            let mut pass = Pass::of(at, sums.len() as u64, expected);
            for (lba, &sum) in sums.iter().enumerate() {
                pass.add(Holder::Lba(Lba(lba as u64)), sum);
            }
            pass.sort();
            assert!(pass.len() <= expected * 9 / 8);
            assert!(pass.to() > at && pass.to() <= CHECKSUMS);
            let mut index = 0;
            while index < pass.len() {
                assert!(pass.behind(index) > at && pass.behind(index) <= pass.to());
                let same = pass.content(index);
                found.push(same.clone().map(|one| pass.holder(one)).collect());
                index = same.end;
            }
            (at, count) = (pass.to(), count + 1);
        }
        (count, found)
    }

    fn spread(lba: u32) -> u32 {
        lba.wrapping_mul(0x9E37_79B1)
    }

    #[test]
    fn each_block_is_in_one_pass_with_all_of_its_checksum() {
        let sums: Vec<u32> = (0..10_000).map(|lba| spread(lba % 4000)).collect();
        for (expected, least) in [(100_000, 1), (4000, 3), (500, 20)] {
            let (count, found) = passes(&sums, 0, expected);
            assert!((least..=2 * least + 4).contains(&count), "{count} passes");
            assert_eq!(found.len(), 4000);
            assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 10_000);
        }
    }

    #[test]
    fn a_sweep_skips_checksums_that_are_already_done() {
        let sums: Vec<u32> = (0..1000).map(spread).collect();
        let from = 3 << 30;
        let (_, found) = passes(&sums, from, 100_000);
        let left = sums.iter().filter(|&&sum| u64::from(sum) >= from);
        assert_eq!(found.len(), left.count());
        assert!(!found.is_empty() && found.len() < 500);
    }

    /// If one content is so frequent that nothing else fits beside it, the others are in separate passes.
    #[test]
    fn a_very_frequent_content_displaces_no_other() {
        let sums: Vec<u32> = (0..3000)
            .map(|lba| if lba % 3 == 0 { spread(lba) } else { 1 << 20 })
            .collect();
        let (_, found) = passes(&sums, 0, 800);
        assert_eq!(found.len(), 1001);
        assert!(
            found
                .iter()
                .all(|same| same.len() == 1 || same.len() >= 400)
        );
    }

    /// A wide pass does not distinguish a checksum from its neighbour; a narrow one does.
    #[test]
    fn a_wide_pass_does_not_distinguish_neighbouring_checksums() {
        let (_, found) = passes(&[6, 7, 8], 0, 100);
        assert_eq!(found.len(), 2);
        let (_, found) = passes(&[u32::MAX, u32::MAX - 1], 1 << 31, 100);
        assert_eq!(found.len(), 2);
    }
}
