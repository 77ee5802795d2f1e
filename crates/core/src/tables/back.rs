//! The tables behind the front.

use super::verdict::{Twin, Verdict};
use super::{Pending, Persistence, Tables};
use crate::addr::{Lba, RequestId};
use crate::front::{Back, Ended, Front, Placed};
use crate::seam::{CopyBlocks, Payload, Refusal};
use crate::stats::Stats;
use alloc::vec::Vec;

impl Back for Tables {
    type Purpose = Pending;
    type Twin = Twin;

    #[inline]
    fn front(&mut self) -> &mut Front<Pending, Twin> {
        &mut self.front
    }

    #[inline]
    fn counters(&mut self) -> &mut Stats {
        &mut self.stats
    }

    #[inline]
    fn logical_blocks(&self) -> u64 {
        self.superblock.logical_blocks()
    }

    fn on_taken(&mut self) {
        self.groups.count_arrival(self.front.course.now());
    }

    #[inline]
    fn propose(&mut self, id: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        match self.proposers.are_on() {
            true => self.ask(id, lba, blocks),
            false => Vec::new(),
        }
    }

    fn place(&mut self, lba: Lba, payload: &Payload, verdict: &Verdict) -> Placed {
        let placed = self.place_block(lba, payload, verdict);
        if placed == Placed::Done {
            self.let_go(*verdict);
        }
        placed
    }

    fn unmap(&mut self, lba: Lba, blocks: u64) -> Option<Ended> {
        self.place_unmap(lba, blocks).then_some(Ok(()))
    }

    /// Tables do not link blocks by copies: the client has to write the bytes.
    fn copy(&mut self, _: CopyBlocks, _: &mut u64) -> Option<Ended> {
        Some(Err(Refusal::Unlinkable))
    }

    fn read_now(&mut self, id: RequestId, lba: Lba, blocks: u32) {
        self.start_read(id, lba, blocks);
    }

    fn answers_when_durable(&self) -> bool {
        self.options.persistence == Persistence::Strong
    }

    fn wait_for_durability(&mut self, id: RequestId, flush: bool) {
        self.wait_for_group(id, flush);
    }

    fn on_refused(&mut self, verdicts: &[Verdict]) {
        verdicts.iter().for_each(|verdict| self.let_go(*verdict));
    }

    fn refuse_waiters(&mut self, refusal: Refusal) {
        let outbox = &mut self.front.outbox;
        outbox.refuse(self.superblock.refuse(), refusal);
        let waiters = core::iter::from_fn(|| self.groups.waiters_mut().pop());
        outbox.refuse(waiters.map(|waiter| waiter.request), refusal);
    }
}
