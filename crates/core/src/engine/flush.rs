//! FLUSH, and all requests that wait for chunks to be durable.

use super::Engine;
use crate::addr::{RequestId, Seq};
use crate::log::{Chunk, Head};

impl Engine {
    /// Answers `request` once everything placed so far is durable.
    pub(super) fn wait_for_chunks(&mut self, request: RequestId, flush: bool) {
        let delays_flush = self.open_chunk_delays_flush();
        if !delays_flush && !self.log.durability().has_to_wait() {
            self.stats.flushes_free += u64::from(flush);
            return self.front.reply(request, Ok(()));
        }
        self.proposers.once_mut().awaits(flush, &mut self.stats);
        match delays_flush && !self.seal(Head::Hot, true) {
            true => self.log.durability_mut().wait_for_open(request, flush),
            false => self.log.durability_mut().wait(request, flush),
        }
    }

    /// True if the open chunk has records that a FLUSH waits for.
    pub(super) fn open_chunk_delays_flush(&self) -> bool {
        self.log.open(Head::Hot).is_some_and(Chunk::delays_flush)
    }

    /// Starts to write the chunks that a FLUSH, about to arrive, will wait for.
    pub(super) fn begin_before_flush(&mut self) {
        if self.open_chunk_delays_flush() && self.seal(Head::Hot, true) {
            self.log.want_all_durable();
            self.stats.flushes_begun_before += 1;
        }
    }

    /// Advances what is durable, answers the requests that waited for it, and starts the next sync if one is needed.
    pub(super) fn advance_durability(&mut self) {
        if self.log.durability().waits_for_open() && self.seal(Head::Hot, true) {
            self.log.on_open_sealed();
        }
        while self.log.poll_durable() {
            self.segments.look_again();
        }
        let durable = core::iter::from_fn(|| self.log.durability_mut().poll_waiter());
        self.stats.flushes_merged += self.front.outbox.reply_durable(durable);
        self.settle_first();
        if let Some(through) = self.log.poll_sync() {
            self.sync(through);
        }
    }

    pub(super) fn synced(&mut self, through: Seq, failed: bool) {
        if failed {
            self.log.durability_mut().on_sync_failed();
            return self.poison();
        }
        self.log.durability_mut().on_synced(through);
        self.checkpoint.on_synced();
    }
}
