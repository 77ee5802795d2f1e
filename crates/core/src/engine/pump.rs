//! Drives the engine: each step checks for itself whether it can make progress.

use super::Engine;
use crate::addr::Seq;
use crate::front::{admit, refuse};
use crate::seam::{Effect, Refusal};

impl Engine {
    /// What a write or a read changes of the state that [`Engine::advance`] depends on. It does not change if the request only adds to an
    /// open chunk.
    pub(super) fn marks(&self) -> (Seq, usize) {
        (self.log.last_seq(), self.segments.free())
    }

    /// True if the pump need not run: a write only added to an open chunk, or a read only began or ended, so nothing can progress now that
    /// could not before. Most inputs are like that. False if a read ended for which an emptied segment waited. A victim may have become
    /// worth collecting, or strays may exceed their bound: that can wait until the chunk is sealed.
    pub(super) fn is_as_at(&self, before: (Seq, usize)) -> bool {
        self.marks() == before
            && self.front.queue.is_empty()
            && !self.log.durability().has_waiters()
            && !self.segments.has_news()
            && self.front.course.is_sound()
    }

    /// Advances everything that can make progress.
    pub(super) fn pump(&mut self) {
        self.advance();
        // Nothing is in flight that could make room for the waiting requests, so they get an error instead of an endless wait.
        // Quarantined space can cause this.
        while !self.front.course.is_poisoned() && self.is_quiet() && !self.front.queue.is_empty() {
            self.advance();
            if self.is_quiet()
                && let Some(waiting) = self.front.queue.pop()
            {
                refuse::one(self, waiting, Refusal::Full);
            }
        }
        self.stop_when_done();
    }

    fn advance(&mut self) {
        if self.front.course.is_poisoned() {
            return refuse::all(self);
        }
        if self.front.course.is_reading() {
            return;
        }
        self.advance_census();
        if self.front.course.is_poisoned() {
            return refuse::all(self);
        }
        self.advance_durability();
        self.reclaim_segments();
        self.collect();
        admit::serve_waiting(self);
        self.collect();
        self.restamp();
        self.advance_checkpoint();
        self.write_mirrors();
        self.advance_durability();
        self.reclaim_segments();
        admit::serve_waiting(self);
    }

    fn stop_when_done(&mut self) {
        if !self.front.course.is_stopping() {
            return;
        }
        if self.is_quiet() && !self.collector.is_idle() {
            self.abandon_victim();
        }
        let served = self.front.queue.is_served()
            && self.residency.is_empty()
            && self.residency.census.is_idle()
            && !self.log.durability().has_waiters()
            && self.superblock.is_written()
            && self.collector.is_idle();
        let sealed = self.log.durability().is_all_durable() && self.log.is_all_sealed();
        if self.checkpoint.is_idle() && served && !self.front.course.is_poisoned() {
            let clean = sealed && self.checkpoint.holds_all(self.log.last_seq());
            if !clean {
                self.checkpoint.due_if(true);
                self.advance_checkpoint();
                return;
            }
        }
        if self.front.course.is_poisoned() || (served && sealed && self.checkpoint.is_idle()) {
            self.front.course.on_stopped();
            self.front.tell(Effect::Stopped);
        }
    }
}
