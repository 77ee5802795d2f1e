//! Comparisons: a block that a client writes with one that is stored (promise 4).
//!
//! Most stored ones are still in memory: in a chunk, or [kept](crate::kept) since they were written. The others
//! are read back.

use crate::digest::crc32c;
use crate::drive::{Batch, Cause, Inner};
use crate::limits::{
    COMPARE_READ_BLOCKS, COMPARE_READ_GAP, COMPARE_READS, KEPT_BLOCKS, KEPT_BLOCKS_MAX,
};
use crate::memory::Buffer;
use crate::pack::{Decoded, PartsRead, unpack};
use crate::sight::Expected;
use std::collections::VecDeque;
use std::time::Instant;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba};
use vellum_core::seam::{Against, Outcome, Page};
use vellum_medium::Kind;

/// Comparisons under way.
pub(crate) struct Comparisons {
    /// With blocks of the medium that are still to be read: what was asked since the last look.
    unsorted: Vec<Comparison>,
    /// The same, in the order in which they are read.
    to_read: VecDeque<Comparison>,
    /// What is being read, and in which order that ends is not known.
    reading: Vec<Run>,
    /// Of reads that have ended, for use again.
    idle: Vec<Run>,
    /// So many more blocks are kept for copies of them: contents come again, of late.
    keep: usize,
}

impl Default for Comparisons {
    fn default() -> Self {
        Self {
            unsorted: Vec::new(),
            to_read: VecDeque::new(),
            reading: Vec::with_capacity(COMPARE_READS),
            idle: Vec::with_capacity(COMPARE_READS),
            keep: KEPT_BLOCKS_MAX,
        }
    }
}

impl Comparisons {
    fn asked(&mut self) {
        self.keep = (self.keep + KEPT_BLOCKS).min(KEPT_BLOCKS_MAX);
    }

    /// What is read next, if there is something and one read more may be under way.
    fn next_run(&mut self) -> Option<Run> {
        let mut last = *self.to_read.front()?;
        let mut run = match self.idle.pop() {
            Some(run) => run,
            None if self.reading.len() < COMPARE_READS => Run::new(),
            None => return None,
        };
        run.at = last.at;
        run.id = last.id;
        loop {
            run.comparisons.push(last);
            self.to_read.pop_front();
            match self.to_read.front() {
                Some(next) if last.is_followed_by(next, run.at) => last = *next,
                _ => return Some(run),
            }
        }
    }

    /// The read that began with this comparison.
    fn ended(&mut self, first: EffectId) -> Run {
        match self.reading.iter().position(|run| run.id == first) {
            Some(at) => self.reading.swap_remove(at),
            None => unreachable!("nothing was read for comparison {first}"),
        }
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
    /// Whether it was in a read that failed, and has to be read by itself.
    alone: bool,
}

impl Comparison {
    /// Whether one read brings both, if this is the last of those that it brings and `first` is where it begins.
    fn is_followed_by(&self, next: &Self, first: Pba) -> bool {
        let near = self.at..=self.at.plus(1 + COMPARE_READ_GAP);
        let room = next.at < first.plus(COMPARE_READ_BLOCKS as u64);
        !self.alone && !next.alone && near.contains(&next.at) && room
    }
}

/// One read, and what is compared with what it brings.
struct Run {
    /// Where it begins, and the first comparison's effect.
    at: Pba,
    id: EffectId,
    /// In order of their blocks, and at least one.
    comparisons: Vec<Comparison>,
    memory: Buffer,
}

impl Run {
    fn new() -> Self {
        Self {
            at: Pba(0),
            id: EffectId(0),
            comparisons: Vec::new(),
            memory: Buffer::zeroed(COMPARE_READ_BLOCKS),
        }
    }

    /// How far behind the first block this one is.
    fn offset(&self, at: Pba) -> usize {
        (at.0 - self.at.0) as usize * BLOCK_BYTES
    }

    /// The block at `at`, which it has read.
    fn block(&self, at: Pba) -> &[u8] {
        &self.memory.bytes()[self.offset(at)..][..BLOCK_BYTES]
    }

    /// Bytes that it reads.
    fn len(&self) -> usize {
        let last = self.comparisons.last();
        last.map_or(0, |last| self.offset(last.at) + BLOCK_BYTES)
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
                self.told.push((id, Outcome::Same(same)));
            }
            Against::Part(page, slot, base @ Some(_)) => {
                let kept = match page {
                    Page::Medium(at) => self.frames.is_same(at, Some(slot), self.frame(buf)),
                    Page::Buffer(_) => None,
                };
                match kept {
                    Some(same) => {
                        self.counters.compares_kept += 1;
                        self.told.push((id, Outcome::Same(same)));
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
                self.told.push((id, Outcome::Same(same)));
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
                self.told.push((id, Outcome::Same(same)));
            }
            None => {
                self.comparisons.unsorted.push(Comparison {
                    at,
                    slot,
                    id,
                    buf,
                    alone: false,
                });
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
        unpack(&mut self.decoder, page, slot, base, &mut block) && block == self.frame(buf)
    }

    /// Reads back what is to be compared, as far as there is memory for it; the rest when a read has ended. What lies side by
    /// side is one operation, as copies in a journal and those of a file mostly do, and so are the few blocks between two: they
    /// are in memory mostly, or the copy differs there.
    pub(crate) fn read_back(&mut self, batch: &mut Batch) {
        let Comparisons {
            unsorted, to_read, ..
        } = &mut self.comparisons;
        unsorted.sort_unstable();
        to_read.extend(unsorted.drain(..));
        while let Some(run) = self.comparisons.next_run() {
            self.read_run(run, batch);
        }
    }

    fn read_run(&mut self, run: Run, batch: &mut Batch) {
        self.counters.reads_compare += 1;
        self.counters.read_blocks_compare += (run.len() / BLOCK_BYTES) as u64;
        assert!(run.len() <= run.memory.len(), "a read fits in its memory");
        let mut io = self.io(Cause::Compare, run.id, Kind::Read, run.at);
        // SAFETY: the run is put away untouched, until `compared` takes it when the operation is back.
        unsafe { io.push(run.memory.ptr(), run.len()) };
        self.comparisons.reading.push(run);
        batch.ios.push(io);
    }

    /// What was read back has come, or cannot be had. `first` of what it is compared with.
    pub(crate) fn compared(&mut self, first: EffectId, came: bool, batch: &mut Batch) {
        let mut run = self.comparisons.ended(first);
        if came || run.comparisons.len() == 1 {
            self.judge(&run, came);
        } else {
            // One bad block must not speak for its neighbours.
            for &one in run.comparisons.iter().rev() {
                let alone = Comparison { alone: true, ..one };
                self.comparisons.to_read.push_front(alone);
            }
        }
        run.comparisons.clear();
        self.comparisons.idle.push(run);
        self.drain(batch);
    }

    fn judge(&mut self, run: &Run, came: bool) {
        let began = Instant::now();
        for &Comparison {
            at, slot, id, buf, ..
        } in &run.comparisons
        {
            let block = run.block(at);
            let outcome = match slot {
                _ if !came => Outcome::Failed,
                None => Outcome::Same(block == self.frame(buf)),
                Some(slot) => Outcome::Parts {
                    crc: crc32c(block),
                    whole: self.part_is(block, slot, None, buf),
                    base: true,
                },
            };
            self.told.push((id, outcome));
        }
        self.counters.compare_nanos += nanos_since(began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
