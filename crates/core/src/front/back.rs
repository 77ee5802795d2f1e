//! What the front needs of the layout behind it.

use super::verdict::Verdict;
use super::waiting::Waiting;
use super::whole::Front;
use super::write::{Placed, Write};
use crate::addr::{Lba, RequestId};
use crate::seam::{CopyBlocks, Payload, Refusal};
use crate::stats::Stats;
use alloc::vec::Vec;

/// The end of a request: done, or refused.
pub(crate) type Ended = Result<(), Refusal>;

/// A layout behind the front: a log, or tables in place. What has a default is for a log alone, or for tables alone.
pub(crate) trait Back: Sized {
    /// What an effect in flight is for.
    type Purpose;
    /// What a block of a write is compared with.
    type Twin: Copy;

    /// The front itself.
    fn front(&mut self) -> &mut Front<Self::Purpose, Self::Twin>;

    /// The counters.
    fn counters(&mut self) -> &mut Stats;

    /// The number of blocks that clients see.
    fn logical_blocks(&self) -> u64;

    /// Notes that a client's write or discard was taken.
    fn on_taken(&mut self) {}

    /// Proposes twins of a write's blocks, and starts to compare them.
    fn propose(&mut self, id: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict<Self::Twin>>;

    /// Requests what a write needs that is not in memory; true if it has to wait for that.
    fn misses(&mut self, _lba: Lba, _blocks: usize) -> bool {
        false
    }

    /// True if requests may change something now.
    fn may_change(&self) -> bool {
        true
    }

    /// Prepares the first request of the queue; false if it has to wait.
    fn may_begin(&mut self, _first: &Waiting<Self::Twin>) -> bool {
        true
    }

    /// Notes that the first request of the queue has taken effect.
    fn on_begun(&mut self) {}

    /// Places one block of a write.
    fn place(&mut self, lba: Lba, payload: &Payload, verdict: &Verdict<Self::Twin>) -> Placed;

    /// Makes blocks read as zeros; `None` if that has to wait.
    fn unmap(&mut self, lba: Lba, blocks: u64) -> Option<Ended>;

    /// Copies blocks from number `placed` on; `None` if the others have to wait.
    fn copy(&mut self, copy: CopyBlocks, placed: &mut u64) -> Option<Ended>;

    /// Reads blocks, now.
    fn read_now(&mut self, id: RequestId, lba: Lba, blocks: u32);

    /// Pledges a transaction's blocks to their homes.
    fn pledge(&mut self, _pairs: &[(Lba, Lba)]) {}

    /// True if each change is durable when it is answered.
    fn answers_when_durable(&self) -> bool {
        false
    }

    /// Answers a request, a FLUSH or another, once everything placed so far is durable.
    fn wait_for_durability(&mut self, id: RequestId, flush: bool);

    /// Prepares a write that has to wait.
    fn on_wait(&mut self, _write: &mut Write<'static, Self::Twin>) {}

    /// Notes that a write was refused, with the verdicts on blocks of it that were not placed.
    fn on_refused(&mut self, verdicts: &[Verdict<Self::Twin>]);

    /// Refuses all who wait for something other than their turn.
    fn refuse_waiters(&mut self, refusal: Refusal);
}
