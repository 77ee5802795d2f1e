//! Carries out comparisons: at once where the other block is in memory, otherwise after reading it back.

use super::{Batch, Cause, Inner};
use crate::compare::{Comparison, Run, nanos_since};
use crate::part_reads::{Decoded, EarlyOutcome, PartsRead};
use std::time::Instant;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Nanos, Pba};
use vellum_core::seam::{Against, Input, Outcome, PagePlace};
use vellum_medium::Kind;

impl Inner {
    /// Compares at once if the other block is in memory; otherwise notes the comparison for [`Inner::read_back`].
    pub(crate) fn start_compare(
        &mut self,
        id: EffectId,
        buf: Buf,
        with: Against,
        batch: &mut Batch,
    ) {
        let began = Instant::now();
        self.comparisons.asked();
        match with {
            Against::Buffer(other) => {
                let same = self.frame(buf) == self.frame(other);
                self.outcomes.push((id, EarlyOutcome::Same(same)));
            }
            Against::Part(page, slot, base @ Some(_)) => {
                let kept = match page {
                    PagePlace::Medium(at) => self.frames.is_same(at, Some(slot), self.frame(buf)),
                    PagePlace::Buffer(_) => None,
                };
                match kept {
                    Some(same) => {
                        self.counters.compares_kept += 1;
                        self.outcomes.push((id, EarlyOutcome::Same(same)));
                    }
                    None => {
                        let read = PartsRead::new(slot, 1, Decoded::Compared(buf));
                        self.start_parts(id, page, base, read, batch);
                    }
                }
            }
            Against::Part(PagePlace::Buffer(page), slot, None) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page =
                    unsafe { std::slice::from_raw_parts(self.frames.ptr(page), BLOCK_BYTES) };
                let same = self.part_is(page, slot, None, buf);
                self.outcomes.push((id, EarlyOutcome::Same(same)));
            }
            Against::Medium(at) => self.compare_stored(id, buf, at, None),
            Against::Part(PagePlace::Medium(at), slot, None) => {
                self.compare_stored(id, buf, at, Some(slot));
            }
        }
        self.counters.compare_nanos += nanos_since(began);
    }

    fn compare_stored(&mut self, id: EffectId, buf: Buf, at: Pba, slot: Option<u8>) {
        match self.frames.is_same(at, slot, self.frame(buf)) {
            Some(same) => {
                self.counters.compares_kept += 1;
                self.outcomes.push((id, EarlyOutcome::Same(same)));
            }
            None => {
                let comparison = Comparison { at, slot, id, buf };
                self.comparisons.to_read.push(comparison);
            }
        }
    }

    /// True if a part of a page decodes to a frame's bytes.
    pub(crate) fn part_is(
        &mut self,
        page: &[u8],
        slot: u8,
        base: Option<&Bytes>,
        buf: Buf,
    ) -> bool {
        let mut block = [0; BLOCK_BYTES];
        self.unpacker.unpack(page, slot, base, &mut block) && block == self.frame(buf)
    }

    /// Reads back the blocks that are to be compared.
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
        // Each page once, however many of its parts are compared.
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

    /// Notes that what was read back has arrived, or cannot be read.
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
            // One bad block must not fail its neighbours.
            for one in run.comparisons {
                self.read_run(&[one], batch);
            }
        }
        self.drain(batch);
    }

    /// Reports to the core how the comparisons with what was read have ended.
    fn judge(&mut self, now: Nanos, run: &Run, came: bool) {
        let from = run.extent().start;
        for one in &run.comparisons {
            let began = Instant::now();
            let block = run.blocks[(one.at.0 - from.0) as usize].bytes();
            let outcome = match one.slot {
                _ if !came => Outcome::Failed,
                None => Outcome::Same(block == self.frame(one.buf)),
                Some(slot) => Outcome::Parts {
                    sum: self.unpacker.sum.of(block),
                    whole: self.part_is(block, slot, None, one.buf),
                    base: true,
                },
            };
            self.counters.compare_nanos += nanos_since(began);
            let id = one.id;
            self.core.handle(now, Input::Done { id, outcome });
        }
    }
}
