//! Durability: which chunks are on stable storage, and who waits for that.

use super::*;

/// Of a waiter whose chunk could not be sealed when it came: later than every chunk.
const NOT_SEALED: Seq = Seq(u64::MAX);

impl Engine {
    pub(super) fn flush(&mut self, id: RequestId) {
        self.stats.flushes += 1;
        if self.poisoned {
            return self.reply(id, Err(Refusal::Poisoned));
        }
        if self.held_writes.are_there() {
            return self.reply(id, Err(Refusal::NoRoom));
        }
        // What waits for room is not acknowledged, so a flush need not wait for it.
        self.wait_for_durability(id, true);
    }

    /// Answers `request` once everything placed so far is durable.
    pub(super) fn wait_for_durability(&mut self, request: RequestId, flush: bool) {
        let tells = self.tells_something();
        // An open chunk that cannot be sealed now will be one of the next: its number is not known yet,
        // but nothing else of this head can come before it; the collector's may.
        if !tells && self.told <= self.durable {
            self.stats.flushes_free += u64::from(flush);
            return self.reply(request, Ok(()));
        }
        self.once.awaits(flush, &mut self.stats);
        let seq = match tells {
            false => self.told,
            true if self.seal(Head::Host, true) => self.last_seq,
            true => NOT_SEALED,
        };
        self.waiters.push_back(Waiter {
            seq,
            request,
            flush,
        });
    }

    /// Whether the open chunk has what a FLUSH waits for.
    pub(super) fn tells_something(&self) -> bool {
        let open = self.heads[Head::Host as usize].open;
        open.is_some_and(|open| self.chunks.get(open).tells)
    }

    /// A FLUSH of all that was placed so far is about to come: what it waits for begins now.
    pub(super) fn begin_before_flush(&mut self) {
        if self.tells_something() && self.seal(Head::Host, true) {
            self.sync_wanted = self.last_seq;
            self.stats.flushes_begun_before += 1;
        }
    }

    /// Advances what is durable, answers who waited for it, and starts the next sync if one is needed.
    pub(super) fn advance_durability(&mut self) {
        self.seal_for_waiters();
        while let Some(sealed) = self.order.front() {
            if !(sealed.written && sealed.durable) {
                break;
            }
            self.durable = sealed.seq;
            let head = &mut self.heads[sealed.head as usize];
            head.durable = head.durable.max(sealed.ordinal);
            self.order.pop_front();
            self.reclaim = true;
        }
        let mut answered = 0;
        while self
            .waiters
            .front()
            .is_some_and(|waiter| waiter.seq <= self.durable)
        {
            let Some(waiter) = self.waiters.pop_front() else {
                break;
            };
            if waiter.flush {
                answered += 1;
                self.stats.flushes_merged += u64::from(answered > 1);
            }
            self.reply(waiter.request, Ok(()));
        }
        let target = self
            .waiters
            .front()
            .map_or(Seq(0), |waiter| waiter.seq)
            .max(self.sync_wanted);
        self.settle_first();
        if target <= self.durable || self.sync.is_some() {
            return;
        }
        // One sync for all that is written without a gap; those that follow share the next.
        let mut through = self.durable;
        let mut needed = false;
        for sealed in &self.order {
            if !sealed.written {
                break;
            }
            through = sealed.seq;
            needed |= !sealed.durable;
        }
        let target = target.min(self.last_seq);
        if needed && through >= target {
            self.sync = Some(through);
            self.stats.syncs += 1;
            self.effect(Pending::Sync { through }, |id| Effect::Sync { id });
        }
    }

    /// A waiter whose chunk could not be sealed when it came.
    fn seal_for_waiters(&mut self) {
        if self.waiters.iter().any(|waiter| waiter.seq == NOT_SEALED) && self.seal(Head::Host, true)
        {
            for waiter in &mut self.waiters {
                if waiter.seq == NOT_SEALED {
                    waiter.seq = self.last_seq;
                }
            }
        }
    }

    pub(super) fn synced(&mut self, through: Seq, failed: bool) {
        self.sync = None;
        if failed {
            return self.poison();
        }
        for sealed in &mut self.order {
            if sealed.seq <= through {
                sealed.durable = true;
            }
        }
        self.checkpoint.synced();
    }
}
