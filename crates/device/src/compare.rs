//! Compares blocks that clients write with blocks that are stored (promise 4).
//!
//! Most of the stored ones are still in memory: in a chunk, or [kept](crate::kept) since they were written. The others are read
//! back.

use crate::limits::{
    COMPARE_READ_BLOCKS, COMPARE_READ_GAP, COMPARE_READ_THROUGH, COMPARE_READS_BROKEN,
    COMPARE_SPARE_BLOCKS, KEPT_BLOCKS, KEPT_BLOCKS_MAX,
};
use crate::memory::Buffer;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;
use vellum_core::addr::{Buf, EffectId, Pba};
use vellum_watch::Expected;

/// Comparisons under way.
pub(crate) struct Comparisons {
    /// Comparisons whose blocks are still to be read from the medium.
    pub to_read: Vec<Comparison>,
    /// Runs that are being read, by the effect number of the first comparison in each operation.
    pub reading: Vec<Run>,
    /// Blocks that are read although nothing is compared with them.
    pub through: u64,
    /// Where reads of several blocks failed lately. No later read runs through a gap there: the drive would retry a bad block each
    /// time.
    broken: VecDeque<Range<Pba>>,
    /// Reads that have ended, kept for the capacity of their lists.
    pub ended: Vec<Run>,
    /// Memory of reads that have ended; the latest is on top, because it is in the processor's caches.
    spare: Vec<Buffer>,
    /// How many more written blocks are kept in memory: contents have been repeated lately, so copies of these may follow.
    keep: usize,
    /// For each write frame: true if its block is worth keeping once it is written. At most one for each such frame.
    worth: Vec<bool>,
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
            worth: Vec::new(),
        }
    }
}

impl Comparisons {
    /// Notes that a comparison is wanted.
    pub fn asked(&mut self) {
        self.keep = (self.keep + KEPT_BLOCKS).min(KEPT_BLOCKS_MAX);
    }

    /// How many of these comparisons one read serves, from the first on. They are in order. Their blocks are adjacent, as copies in
    /// a journal or of a file mostly are, or have small gaps between them. Most blocks in a gap are in memory, or differ from the
    /// copy.
    pub fn together(&self, all: &[Comparison]) -> usize {
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

    /// True if one of these blocks may be one that could not be read.
    fn is_broken(&self, gap: &Range<Pba>) -> bool {
        let meets = |broken: &Range<Pba>| broken.start < gap.end && gap.start < broken.end;
        !gap.is_empty() && self.broken.iter().any(meets)
    }

    /// Notes that a read of several blocks failed.
    pub fn note_broken(&mut self, run: &Run) {
        if self.broken.len() == COMPARE_READS_BROKEN {
            self.broken.pop_front();
        }
        self.broken.push_back(run.extent());
    }

    /// Takes memory for a block. It needs no bound here: while a comparison waits, the write buffer fills, and then deduplication
    /// stops.
    pub fn take_block(&mut self) -> Buffer {
        self.spare.pop().unwrap_or_else(|| Buffer::zeroed(1))
    }

    /// Takes memory back that `take_block` gave.
    pub fn give_back(&mut self, blocks: impl Iterator<Item = Buffer>) {
        let room = COMPARE_SPARE_BLOCKS - self.spare.len();
        self.spare.extend(blocks.take(room));
    }

    /// True if blocks that are written now are worth keeping. Keeping has a cost: a kept frame is reused late, when the processor's
    /// caches no longer hold it. Where no content is repeated, that cost is wasted.
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

    /// Notes whether the block of a write frame is worth keeping once it is written.
    pub fn set_worth(&mut self, buf: Buf, keep: bool) {
        let index = buf.0 as usize;
        if self.worth.len() <= index {
            self.worth.resize(index + 1, false);
        }
        self.worth[index] = keep;
    }

    /// True if the block of a write frame is worth keeping once it is written.
    pub fn is_worth(&self, buf: Buf) -> bool {
        self.worth.get(buf.0 as usize).is_some_and(|&keep| keep)
    }
}

/// A comparison of a frame with a block of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Comparison {
    pub at: Pba,
    /// Which part of the page there; `None`: the whole block.
    pub slot: Option<u8>,
    pub id: EffectId,
    pub buf: Buf,
}

impl Comparison {
    /// The blocks between those of this comparison and the next.
    pub fn gap_to(&self, next: &Self) -> Range<Pba> {
        let start = self.at.plus(1);
        start..next.at.max(start)
    }
}

/// One read, and the comparisons that it serves.
#[derive(Default)]
pub(crate) struct Run {
    /// Ordered by their blocks.
    pub comparisons: Vec<Comparison>,
    /// Blocks that are read although nothing is compared with them.
    pub through: u64,
    /// From the first comparison's block on. An operation transfers into them: they stay here until it is back.
    pub blocks: Vec<Buffer>,
}

impl Run {
    /// The blocks to read.
    pub fn extent(&self) -> Range<Pba> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_never_shared_and_bounded() {
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
    fn reads_go_through_small_unbroken_gaps_within_the_memory_limit() {
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
