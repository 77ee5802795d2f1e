//! A pass of a sweep: a range of checksums, and the holders of each, as many as fit in memory.

use crate::addr::{Lba, Vba};
use crate::index::Holder;
use crate::limits::{MAX_MAPPED_BLOCKS, MAX_NARROW_BLOCKS};
use alloc::vec::Vec;
use core::ops::Range;

/// The number of checksums.
pub(super) const CHECKSUMS: u64 = 1 << 32;
/// The least number of holders and checksums that a sweep keeps at once: 16 MiB of them, and an eighth more.
const ENTRIES: usize = 2 << 20;
/// How many passes a sweep takes at most, if it may use the memory for that: 0.6 bytes a block, a seventh of the map's memory.
const PASSES: u64 = 16;

/// How a stored block is encoded in 8 bytes: its checksum's place in the pass, whether its holder is an LBA and not a shared page, and the
/// holder's number. When sorted, the shared page of a content comes first. Numbers have 32 bits, or 35 on a volume of more than 16 TiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    number_bits: u32,
}

impl Form {
    /// For a volume whose LBAs end there.
    pub fn of(mapped_blocks: u64) -> Self {
        let number_bits = match mapped_blocks > MAX_NARROW_BLOCKS {
            true => MAX_MAPPED_BLOCKS.trailing_zeros(),
            false => 32,
        };
        Self { number_bits }
    }

    /// How many of a checksum's bits its place lacks in a pass of this width.
    fn shift(self, width: u64) -> u32 {
        let place_bits = u64::BITS - 1 - self.number_bits;
        (u64::BITS - (width - 1).leading_zeros()).saturating_sub(place_bits)
    }

    fn stored(self, place: u64, holder: Holder) -> u64 {
        let number = match holder {
            Holder::Lba(lba) => 1 << self.number_bits | lba.0,
            Holder::Page(vba) => u64::from(vba.0),
        };
        place << (self.number_bits + 1) | number
    }

    fn place(self, stored: u64) -> u64 {
        stored >> (self.number_bits + 1)
    }

    fn holder(self, stored: u64) -> Holder {
        let number = stored & ((1 << self.number_bits) - 1);
        match stored >> self.number_bits & 1 {
            0 => Holder::Page(Vba(number as u32)),
            _ => Holder::Lba(Lba(number)),
        }
    }
}

/// One pass of a sweep.
#[derive(Debug)]
pub(super) struct Pass {
    from: u64,
    to: u64,
    form: Form,
    /// If a pass covers more checksums than there are places, neighbouring checksums are treated as one. The comparison tells their blocks
    /// apart.
    shift: u32,
    stored: Vec<u64>,
    most: usize,
}

impl Pass {
    /// A pass from this checksum on, for a volume with `blocks` blocks; `spare`: bytes that it may use.
    pub fn new(form: Form, from: u64, blocks: u64, spare: u64) -> Self {
        Self::of(form, from, blocks, room(blocks, spare))
    }

    fn of(form: Form, from: u64, blocks: u64, expected: usize) -> Self {
        // Checksums are spread evenly, but not perfectly, and clients keep writing.
        let most = expected + expected / 8;
        let width = CHECKSUMS * expected as u64 / blocks.max(expected as u64);
        let to = (from + width.max(1)).min(CHECKSUMS);
        Self {
            from,
            to,
            form,
            shift: form.shift(to - from),
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
            self.stored.push(self.form.stored(place, holder));
        }
    }

    fn is_ours(&self, sum: u64) -> bool {
        (self.from..self.to).contains(&sum)
    }

    /// Leaves the upper half of the checksums to the next pass, because there are more blocks than expected (if one content is very
    /// frequent).
    fn leave_to_the_next(&mut self) {
        self.sort();
        let [first, middle] = [0, self.most / 2].map(|index| self.place(index));
        let kept = middle.max(first + 1);
        let count = (self.stored).partition_point(|one| self.form.place(*one) < kept);
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
        let place = |stored: &u64| self.form.place(*stored);
        let mut contents = self.stored[from..].chunk_by(|one, next| place(one) == place(next));
        from..from + contents.next().map_or(0, <[u64]>::len)
    }

    pub fn holder(&self, index: usize) -> Holder {
        self.form.holder(self.stored[index])
    }

    fn place(&self, index: usize) -> u64 {
        self.form.place(self.stored[index])
    }

    /// Returns the checksum that follows the one of this block.
    pub fn behind(&self, index: usize) -> u64 {
        (self.from + ((self.place(index) + 1) << self.shift)).min(self.to)
    }

    /// Returns how much of a sweep is done when `inside` thousandths of this pass are.
    pub fn permille(&self, inside: u64) -> u64 {
        (self.from * 1000 + (self.to - self.from) * inside) / CHECKSUMS
    }
}

/// Returns how many entries there is room for: enough for few passes of a large volume, if it may use that many bytes.
fn room(blocks: u64, spare: u64) -> usize {
    let wanted = blocks.div_ceil(PASSES) as usize;
    let fits = (wanted * size_of::<u64>()) as u64 <= spare;
    if fits { wanted } else { 0 }.max(ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Form = Form { number_bits: 32 };
    const WIDE: Form = Form { number_bits: 35 };

    /// Runs all passes of a sweep over blocks with these checksums; returns the number of passes, and the holders by checksum.
    fn passes(form: Form, sums: &[u32], from: u64, expected: usize) -> (usize, Vec<Vec<Holder>>) {
        let (mut at, mut count, mut found) = (from, 0, Vec::new());
        while at < CHECKSUMS {
            let mut pass = Pass::of(form, at, sums.len() as u64, expected);
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
        for form in [NARROW, WIDE] {
            for (expected, least) in [(100_000, 1), (4000, 3), (500, 20)] {
                let (count, found) = passes(form, &sums, 0, expected);
                assert!((least..=2 * least + 4).contains(&count), "{count} passes");
                assert_eq!(found.len(), 4000);
                assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 10_000);
            }
        }
    }

    #[test]
    fn a_sweep_skips_checksums_that_are_already_done() {
        // Of a pass from the latter of these on, the last place may have fewer checksums than others.
        let sums: Vec<u32> = (0..1000).map(spread).chain([u32::MAX]).collect();
        for from in [3 << 30, (3 << 30) + 1] {
            for form in [NARROW, WIDE] {
                let (_, found) = passes(form, &sums, from, 100_000);
                let left = sums.iter().filter(|&&sum| u64::from(sum) >= from);
                assert_eq!(found.len(), left.count());
                assert!(!found.is_empty() && found.len() < 500);
            }
        }
    }

    /// If one content is so frequent that nothing else fits beside it, the others are in separate passes.
    #[test]
    fn a_very_frequent_content_displaces_no_other() {
        let sums: Vec<u32> = (0..3000)
            .map(|lba| if lba % 3 == 0 { spread(lba) } else { 1 << 20 })
            .collect();
        let (_, found) = passes(NARROW, &sums, 0, 800);
        assert_eq!(found.len(), 1001);
        assert!(
            found
                .iter()
                .all(|same| same.len() == 1 || same.len() >= 400)
        );
    }

    #[test]
    fn holders_behind_16_tib_come_back() {
        let mut pass = Pass::of(Form::of(1 << 33), 0, 100, 100);
        let lba = Holder::Lba(Lba((1 << 34) + 5));
        let page = Holder::Page(Vba((1 << 30) - 1));
        pass.add(lba, 7);
        pass.add(page, 7);
        pass.sort();
        assert_eq!((pass.holder(0), pass.holder(1)), (page, lba));
    }

    /// A pass over all checksums does not distinguish one from its neighbour; a shorter one does.
    #[test]
    fn a_long_pass_does_not_distinguish_neighbouring_checksums() {
        let (_, found) = passes(NARROW, &[6, 7, 8], 0, 100);
        assert_eq!(found.len(), 2);
        let (_, found) = passes(WIDE, &[6, 7, 8, 15, 16], 0, 100);
        assert_eq!(found.len(), 2);
        for (form, from) in [(NARROW, 1 << 31), (WIDE, 15 << 28)] {
            let (_, found) = passes(form, &[u32::MAX, u32::MAX - 1], from, 100);
            assert_eq!(found.len(), 2);
        }
    }
}
