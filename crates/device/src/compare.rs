//! Comparisons: a block that a client writes with one that is stored (promise 4).
//!
//! Most stored ones are still in memory: in a chunk, or [kept](crate::kept) since they were written. The others
//! are read back.

use crate::drive::{Batch, Cause, Inner};
use crate::limits::{
    COMPARE_READ_BLOCKS, COMPARE_READ_GAP, COMPARE_READ_THROUGH, COMPARE_READS_BROKEN,
    COMPARE_SPARE_BLOCKS, KEPT_BLOCKS, KEPT_BLOCKS_MAX,
};
use crate::memory::Buffer;
use crate::pack::{Decoded, PartsRead, Told, unpack};
use crate::sight::Expected;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Nanos, Pba};
use vellum_core::seam::{Against, Input, Outcome, Page};
use vellum_medium::Kind;

/// Comparisons under way.
pub(crate) struct Comparisons {
    /// With blocks of the medium that are still to be read.
    to_read: Vec<Comparison>,
    /// What is being read, by the number of the first in each operation.
    reading: Vec<Run>,
    /// Blocks that are read though nothing is compared with them.
    through: u64,
    /// Where reads of several blocks failed lately. A bad block that nobody needs is not read through again: each time would
    /// cost a drive's attempts to read it.
    broken: VecDeque<Range<Pba>>,
    /// Reads that have ended, for the room in their lists.
    ended: Vec<Run>,
    /// Memory of reads that have ended, the last one's on top: it is in the processor's caches.
    spare: Vec<Buffer>,
    /// So many more blocks are kept for copies of them: contents come again, of late.
    keep: usize,
}

impl Default for Comparisons {
    fn default() -> Self {
        Self {
            to_read: Vec::new(),
            reading: Vec::new(),
            through: 0,
            broken: VecDeque::with_capacity(COMPARE_READS_BROKEN),
            ended: Vec::new(),
            spare: Vec::new(),
            keep: KEPT_BLOCKS_MAX,
        }
    }
}

impl Comparisons {
    fn asked(&mut self) {
        self.keep = (self.keep + KEPT_BLOCKS).min(KEPT_BLOCKS_MAX);
    }

    /// How many of these, which are in order, one read brings: those that lie side by side, as copies in a journal and those
    /// of a file mostly do, and beyond the few blocks between two. These are in memory mostly, or the copy differs there.
    fn together(&self, all: &[Comparison]) -> usize {
        let Some((first, others)) = all.split_first() else {
            return 0;
        };
        let end = first.at.plus(COMPARE_READ_BLOCKS as u64);
        let mut through = self.through;
        let joined = all.iter().zip(others).take_while(|(one, next)| {
            let gap = one.gap_to(next);
            let skipped = gap.end.0 - gap.start.0;
            through += skipped;
            let is_near = skipped <= COMPARE_READ_GAP && next.at < end;
            is_near && through <= COMPARE_READ_THROUGH && !self.is_broken(&gap)
        });
        (1 + joined.count()).min(COMPARE_READ_BLOCKS)
    }

    /// Whether one of these blocks may be one that could not be read.
    fn is_broken(&self, gap: &Range<Pba>) -> bool {
        let meets = |broken: &Range<Pba>| broken.start < gap.end && gap.start < broken.end;
        !gap.is_empty() && self.broken.iter().any(meets)
    }

    fn note_broken(&mut self, run: &Run) {
        if self.broken.len() == COMPARE_READS_BROKEN {
            self.broken.pop_front();
        }
        self.broken.push_back(run.extent());
    }

    /// Memory for a block. Nothing waits for it: while a comparison waits the write buffer fills, and then deduplication
    /// leaves off.
    fn take_block(&mut self) -> Buffer {
        self.spare.pop().unwrap_or_else(|| Buffer::zeroed(1))
    }

    fn give_back(&mut self, blocks: impl Iterator<Item = Buffer>) {
        let room = COMPARE_SPARE_BLOCKS - self.spare.len();
        self.spare.extend(blocks.take(room));
    }

    /// Whether blocks that are written now are worth keeping. A frame that is kept is not the next to be used again,
    /// and the caches have lost it by then: that is for nothing where no content comes twice.
    pub(crate) fn are_to_come(&mut self, expected: Expected, blocks: usize) -> bool {
        match expected {
            Expected::Nothing => false,
            Expected::HomeWrite => true,
            Expected::Duplicate => {
                let worth = self.keep > 0;
                self.keep = self.keep.saturating_sub(blocks);
                worth
            }
        }
    }
}

/// A comparison of a frame with a block of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Comparison {
    at: Pba,
    /// Which part of the page there; `None`: the block as it is.
    slot: Option<u8>,
    id: EffectId,
    buf: Buf,
}

impl Comparison {
    /// The blocks between what this is compared with and the next one is.
    fn gap_to(&self, next: &Self) -> Range<Pba> {
        let start = self.at.plus(1);
        start..next.at.max(start)
    }
}

/// One read, and what is compared with what it brings.
#[derive(Default)]
struct Run {
    /// In order of their blocks.
    comparisons: Vec<Comparison>,
    /// Blocks that are read though nothing is compared with them.
    through: u64,
    /// From the first one's on. An operation transfers into them: they stay here until it is back.
    blocks: Vec<Buffer>,
}

impl Run {
    /// What is read.
    fn extent(&self) -> Range<Pba> {
        match (self.comparisons.first(), self.comparisons.last()) {
            (Some(first), Some(last)) => first.at..last.at.plus(1),
            _ => Pba(0)..Pba(0),
        }
    }
}

/// For counters.
pub(crate) fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    /// Compares at once where the other block is in memory, and notes it for [`Inner::read_back`] otherwise.
    pub(crate) fn compare(&mut self, id: EffectId, buf: Buf, with: Against, batch: &mut Batch) {
        let began = Instant::now();
        self.comparisons.asked();
        match with {
            Against::Buffer(other) => {
                let same = self.frame(buf) == self.frame(other);
                self.told.push((id, Told::Same(same)));
            }
            Against::Part(page, slot, base @ Some(_)) => {
                let kept = match page {
                    Page::Medium(at) => self.frames.is_same(at, Some(slot), self.frame(buf)),
                    Page::Buffer(_) => None,
                };
                match kept {
                    Some(same) => {
                        self.counters.compares_kept += 1;
                        self.told.push((id, Told::Same(same)));
                    }
                    None => {
                        let read = PartsRead::new(slot, 1, Decoded::Compared(buf));
                        self.read_parts(id, page, base, read, batch);
                    }
                }
            }
            Against::Part(Page::Buffer(page), slot, None) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page =
                    unsafe { std::slice::from_raw_parts(self.frames.ptr(page), BLOCK_BYTES) };
                let same = self.part_is(page, slot, None, buf);
                self.told.push((id, Told::Same(same)));
            }
            Against::Medium(at) => self.compare_stored(id, buf, at, None),
            Against::Part(Page::Medium(at), slot, None) => {
                self.compare_stored(id, buf, at, Some(slot));
            }
        }
        self.counters.compare_nanos += nanos_since(began);
    }

    fn compare_stored(&mut self, id: EffectId, buf: Buf, at: Pba, slot: Option<u8>) {
        match self.frames.is_same(at, slot, self.frame(buf)) {
            Some(same) => {
                self.counters.compares_kept += 1;
                self.told.push((id, Told::Same(same)));
            }
            None => {
                let comparison = Comparison { at, slot, id, buf };
                self.comparisons.to_read.push(comparison);
            }
        }
    }

    /// Whether a part of a page, decoded, has a frame's bytes.
    pub(crate) fn part_is(
        &mut self,
        page: &[u8],
        slot: u8,
        base: Option<&Bytes>,
        buf: Buf,
    ) -> bool {
        let mut block = [0; BLOCK_BYTES];
        unpack(&mut self.decoder, self.sum, page, slot, base, &mut block)
            && block == self.frame(buf)
    }

    /// Reads back what is to be compared.
    pub(crate) fn read_back(&mut self, batch: &mut Batch) {
        if self.comparisons.to_read.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.comparisons.to_read);
        all.sort_unstable();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.comparisons.together(rest));
            self.read_run(run, batch);
            rest = others;
        }
        all.clear();
        self.comparisons.to_read = all;
    }

    fn read_run(&mut self, comparisons: &[Comparison], batch: &mut Batch) {
        let Some(first) = comparisons.first() else {
            return;
        };
        let index = first.id.0 as usize;
        let reading = &mut self.comparisons.reading;
        if reading.len() <= index {
            reading.resize_with(index + 1, Run::default);
        }
        assert!(
            reading[index].blocks.is_empty(),
            "comparison {} is read",
            first.id
        );
        let mut run = self.comparisons.ended.pop().unwrap_or_default();
        run.comparisons.extend_from_slice(comparisons);
        let gaps = comparisons.iter().zip(&comparisons[1..]);
        let skipped = gaps.map(|(one, next)| one.gap_to(next));
        run.through = skipped.map(|gap| gap.end.0 - gap.start.0).sum();
        self.comparisons.through += run.through;
        let mut io = self.io(Cause::Compare, first.id, Kind::Read, first.at);
        // A page once, however many of its parts are compared.
        let extent = run.extent();
        for _ in extent.start.0..extent.end.0 {
            let block = self.comparisons.take_block();
            // SAFETY: the run keeps the block, untouched, until `compared` takes both when the operation is back.
            unsafe { io.push(block.ptr(), block.len()) };
            run.blocks.push(block);
        }
        self.counters.reads_compare += 1;
        self.counters.read_blocks_compare += run.blocks.len() as u64;
        self.comparisons.reading[index] = run;
        batch.ios.push(io);
    }

    /// What was read back has come, or cannot be had.
    pub(crate) fn compared(&mut self, now: Nanos, first: EffectId, came: bool, batch: &mut Batch) {
        let index = first.0 as usize;
        let mut run = std::mem::take(&mut self.comparisons.reading[index]);
        self.comparisons.through -= run.through;
        if came || run.comparisons.len() == 1 {
            self.judge(now, &run, came);
            self.comparisons.give_back(run.blocks.drain(..));
            run.comparisons.clear();
            self.comparisons.ended.push(run);
        } else {
            self.comparisons.give_back(run.blocks.drain(..));
            self.comparisons.note_broken(&run);
            // One bad block must not speak for its neighbours.
            for one in run.comparisons {
                self.read_run(&[one], batch);
            }
        }
        self.drain(batch);
    }

    /// Tells the core how the comparisons with what was read have ended.
    fn judge(&mut self, now: Nanos, run: &Run, came: bool) {
        let from = run.extent().start;
        for one in &run.comparisons {
            let began = Instant::now();
            let block = run.blocks[(one.at.0 - from.0) as usize].bytes();
            let outcome = match one.slot {
                _ if !came => Outcome::Failed,
                None => Outcome::Same(block == self.frame(one.buf)),
                Some(slot) => Outcome::Parts {
                    sum: self.sum.of(block),
                    whole: self.part_is(block, slot, None, one.buf),
                    base: true,
                },
            };
            self.counters.compare_nanos += nanos_since(began);
            let id = one.id;
            self.engine.handle(now, Input::Done { id, outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_serves_again_is_never_in_use_twice_and_what_is_left_over_is_dropped() {
        let mut comparisons = Comparisons::default();
        let addresses = |blocks: &[Buffer]| blocks.iter().map(Buffer::ptr).collect::<Vec<_>>();
        for more in [3, 0, 3] {
            let count = COMPARE_SPARE_BLOCKS + more;
            let spare = addresses(&comparisons.spare);
            let taken: Vec<Buffer> = (0..count).map(|_| comparisons.take_block()).collect();
            let mut places = addresses(&taken);
            assert!(spare.iter().all(|block| places.contains(block)));
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), count);
            comparisons.give_back(taken.into_iter());
            assert_eq!(comparisons.spare.len(), COMPARE_SPARE_BLOCKS);
        }
    }

    #[test]
    fn reads_go_through_small_gaps_as_far_as_there_is_memory_and_nothing_is_broken() {
        let at = |at| Comparison {
            at: Pba(at),
            slot: None,
            id: EffectId(0),
            buf: Buf(0),
        };
        let count = |comparisons: &Comparisons, places: &[u64]| {
            let all: Vec<Comparison> = places.iter().copied().map(at).collect();
            comparisons.together(&all)
        };
        let gap = COMPARE_READ_GAP + 1;
        let most = COMPARE_READ_BLOCKS as u64;
        let mut comparisons = Comparisons::default();
        assert_eq!(count(&comparisons, &[5, 5, 6, 6 + gap, 7 + gap + gap]), 4);
        assert_eq!(
            count(&comparisons, &[5; COMPARE_READ_BLOCKS + 1]),
            COMPARE_READ_BLOCKS
        );
        let side_by_side: Vec<u64> = (5..=5 + most).collect();
        assert_eq!(count(&comparisons, &side_by_side), COMPARE_READ_BLOCKS);
        let scattered: Vec<u64> = (0..most).map(|n| 5 + n * gap).collect();
        assert_eq!(count(&comparisons, &scattered) as u64, most.div_ceil(gap));

        comparisons.through = COMPARE_READ_THROUGH - COMPARE_READ_GAP;
        assert_eq!(count(&comparisons, &[5, 6, 6 + gap, 7 + gap, 9 + gap]), 4);
        comparisons.through = 0;

        for failed in 0..=COMPARE_READS_BROKEN as u64 {
            assert_eq!(count(&comparisons, &[1000, 1002]), 2);
            comparisons.note_broken(&Run {
                comparisons: vec![at(1003 + failed), at(1004 + failed)],
                ..Run::default()
            });
        }
        assert_eq!(count(&comparisons, &[1002, 1005]), 1);
        assert_eq!(count(&comparisons, &[1005, 1006, 1007]), 3);
        assert_eq!(
            count(&comparisons, &[1002, 1004]),
            2,
            "the oldest is forgotten"
        );
    }

    #[test]
    fn blocks_are_kept_for_copies_where_there_are_some() {
        let mut comparisons = Comparisons::default();
        assert!(comparisons.are_to_come(Expected::Duplicate, KEPT_BLOCKS_MAX));
        assert!(comparisons.are_to_come(Expected::HomeWrite, 1));
        assert!(!comparisons.are_to_come(Expected::Duplicate, 1));
        comparisons.asked();
        assert!(comparisons.are_to_come(Expected::Duplicate, KEPT_BLOCKS - 1));
        assert!(!comparisons.are_to_come(Expected::Nothing, 1));
        assert!(comparisons.are_to_come(Expected::Duplicate, 32));
        assert!(!comparisons.are_to_come(Expected::Duplicate, 1));
        for _ in 0..2 * KEPT_BLOCKS_MAX {
            comparisons.asked();
        }
        assert!(comparisons.are_to_come(Expected::Duplicate, KEPT_BLOCKS_MAX));
        assert!(!comparisons.are_to_come(Expected::Duplicate, 1));
    }
}
