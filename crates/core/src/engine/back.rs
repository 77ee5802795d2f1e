//! The log behind the front.

use super::residency::{Needs, Who};
use super::verdict::{Twin, Verdict, Waiting};
use super::{Engine, Pending};
use crate::addr::{Lba, RequestId};
use crate::front::{Back, Ended, Front, Placed, Write};
use crate::seam::{CopyBlocks, Payload, Refusal};
use crate::stats::Stats;
use alloc::vec::Vec;

impl Back for Engine {
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
        self.state.map().blocks()
    }

    #[inline]
    fn propose(&mut self, id: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        match self.proposers.are_on() {
            true => self.ask(id, lba, blocks),
            false => Vec::new(),
        }
    }

    #[inline]
    fn misses(&mut self, lba: Lba, blocks: usize) -> bool {
        self.state.has_away() && matches!(self.ask_for_leaves(lba, blocks as u32), Needs::Coming(_))
    }

    /// Requests wait until the pledges that recovery redeemed are in a durable map checkpoint. They also wait for a map checkpoint that
    /// has to make room for leaves, but only while something is in flight: otherwise nothing would end the wait.
    fn may_change(&self) -> bool {
        let has_room = !self.state.is_overfull() || self.checkpoint.is_idle() || self.is_quiet();
        !self.state.is_redeeming() && has_room
    }

    fn may_begin(&mut self, first: &Waiting) -> bool {
        if self.state.has_away() && self.first_waits_for_leaves(first) {
            return false;
        }
        self.look_ahead_answered(first);
        true
    }

    fn on_begun(&mut self) {
        self.residency.start_again(Who::First);
    }

    #[inline]
    fn place(&mut self, lba: Lba, payload: &Payload, verdict: &Verdict) -> Placed {
        self.place_block(lba, payload, verdict)
    }

    fn unmap(&mut self, lba: Lba, blocks: u64) -> Option<Ended> {
        self.place_unmap(lba, blocks)
    }

    fn copy(&mut self, copy: CopyBlocks, placed: &mut u64) -> Option<Ended> {
        self.place_copy(copy, placed)
    }

    #[inline]
    fn read_now(&mut self, id: RequestId, lba: Lba, blocks: u32) {
        self.begin_read(id, lba, blocks, 0);
    }

    fn pledge(&mut self, pairs: &[(Lba, Lba)]) {
        self.pledge_homes(pairs);
    }

    fn wait_for_durability(&mut self, id: RequestId, flush: bool) {
        self.wait_for_chunks(id, flush);
    }

    fn on_wait(&mut self, write: &mut Write<'static, Twin>) {
        self.drop_lost_bases(write);
    }

    fn on_refused(&mut self, _: &[Verdict]) {
        self.proposers.once_mut().note_refused();
    }

    fn refuse_waiters(&mut self, refusal: Refusal) {
        let outbox = &mut self.front.outbox;
        outbox.refuse(self.superblock.refuse(), refusal);
        let durability = self.log.durability_mut();
        let waiters = core::iter::from_fn(|| durability.give_up_waiter());
        outbox.refuse(waiters.map(|waiter| waiter.request), refusal);
        if refusal == Refusal::Poisoned {
            let fetching = core::iter::from_fn(|| self.residency.give_up());
            outbox.refuse(fetching, refusal);
        }
    }
}
