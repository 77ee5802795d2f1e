//! What moves on when: each step of the engine looks for itself whether it can do something.

use super::Engine;
use crate::addr::Seq;
use crate::seam::{Effect, Refusal};

/// What is to be done when an effect has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Something may move on.
    Move,
    /// Nothing yet: another answer is on its way.
    Wait,
}

impl Engine {
    /// What a write or a read changes of all that [`Engine::advance`] goes by, if it does more than add to an open chunk.
    pub(super) fn marks(&self) -> (Seq, usize) {
        (self.log.last_seq(), self.segments.free())
    }

    /// Whether a write has only added to an open chunk, or a read only asked: then nothing can move on that could not
    /// before, and most are like that. What may be put off a little (a victim that has become worth it, strays over their
    /// bound) is seen to when the chunk is sealed.
    pub(super) fn is_as_at(&self, before: (Seq, usize)) -> bool {
        self.marks() == before
            && self.queue.is_empty()
            && !self.log.durability().has_waiters()
            && !self.segments.has_news()
            && self.course.is_sound()
    }

    /// Moves everything on that can move.
    pub(super) fn pump(&mut self) {
        self.advance();
        // Nothing is under way that could make room for what waits: an error is better than a wait for
        // ever. Space that quarantine holds can bring this about.
        while !self.course.is_poisoned() && self.is_quiet() && !self.queue.is_empty() {
            self.advance();
            if self.is_quiet()
                && let Some(waiting) = self.queue.pop()
            {
                self.refuse(waiting, Refusal::Full);
            }
        }
        self.stop_when_done();
    }

    fn advance(&mut self) {
        if self.course.is_poisoned() {
            return self.fail_all();
        }
        if self.course.is_reading() {
            return;
        }
        self.advance_durability();
        self.reclaim_segments();
        self.collect();
        self.place_waiting();
        self.collect();
        self.restamp();
        self.advance_checkpoint();
        self.write_mirrors();
        self.advance_durability();
        self.reclaim_segments();
        self.place_waiting();
    }

    /// Whether no effect is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.outbox.is_quiet()
    }

    fn stop_when_done(&mut self) {
        if !self.course.is_stopping() {
            return;
        }
        if self.is_quiet() && !self.collector.is_idle() {
            self.abandon_victim();
        }
        let served = self.queue.is_empty()
            && self.queue.is_none_doomed()
            && self.queue.fetches.is_empty()
            && !self.log.durability().has_waiters()
            && self.superblock.is_written()
            && self.collector.is_idle();
        let sealed = self.log.durability().is_all_durable() && self.log.is_all_sealed();
        if self.checkpoint.is_idle() && served && !self.course.is_poisoned() {
            let clean = sealed
                && self.log.last_seq() == self.checkpoint.durable_seq
                && self.checkpoint.swept.is_kept()
                && self.checkpoint.scrubbed.is_kept();
            if !clean {
                self.checkpoint.due = true;
                self.advance_checkpoint();
                return;
            }
        }
        if self.course.is_poisoned() || (served && sealed && self.checkpoint.is_idle()) {
            self.course.on_stopped();
            self.outbox.tell(Effect::Stopped);
        }
    }
}
