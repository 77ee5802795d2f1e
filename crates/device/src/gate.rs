//! The gate before the core: a commit block waits here for the blocks that it commits.
//!
//! The watch decides which block waits, for what and for how long ([`CommitOrder`]). This module holds what waits, and lets it go
//! on. What must hold:
//!
//! 1. Only writes wait here, and the flush of (3). Threads and reads never wait: a client cannot rely on a write that is not
//!    answered. The part of a write before the commit block goes on at once.
//! 2. A commit block that is answered because nothing more arrives keeps waiting: see `gate/answered.rs`.
//! 3. A flush does not overtake the commit block that it is for: see `gate/flushes.rs`. No other flush waits.
//! 4. What waits is bounded, to a quarter of the frames for writes. Beyond that nothing waits, and is not followed.

mod answered;
mod early;
mod flushes;
mod messages;
pub(crate) mod passage;

use crate::bases::BaseLookup;
use crate::block::{BlockError, Op, Request};
use crate::requests::Pending;
use crate::stats::CommitStats;
use crate::watching::{JournalEntry, Watching, change_of};
use std::sync::Arc;
use vellum_core::addr::Nanos;
use vellum_core::seam::{Ack, Payload};
use vellum_watch::{CommitOrder, Findings, Stop, Wait};

use early::Early;
pub(crate) use early::{Turn, has_marks};
use flushes::Flushes;

/// See the module.
#[derive(Default)]
pub(crate) struct Gate {
    /// Writes that are answered before they arrive here.
    pub early: Early,
    flushes: Flushes<Pending>,
    order: CommitOrder,
    waiting: Vec<Waiting>,
    /// Blocks in `waiting`.
    blocks: usize,
    counts: CommitStats,
}

/// A write on its way to the core.
pub(crate) struct Write<'a> {
    pub pending: Pending,
    pub blocks: &'a mut [Payload],
    pub found: &'a [BaseLookup],
    /// What it says about a journal, read with `watching`.
    pub entries: &'a mut Vec<JournalEntry>,
    pub watching: &'a Arc<Watching>,
}

/// The waiting part of a write: from the first block that must wait.
struct Waiting {
    pending: Pending,
    blocks: Vec<Payload>,
    found: Vec<BaseLookup>,
    entries: Vec<JournalEntry>,
    watching: Arc<Watching>,
    wait: Wait,
}

impl Gate {
    /// Sets the journals to follow from now on. One that was known keeps its state.
    pub fn follow(&mut self, found: &Findings) {
        let waits = self.waiting.iter_mut().map(|waiting| &mut waiting.wait);
        self.order.follow(found.commits(), waits);
    }

    /// Takes the core's answer to a request, and returns the answer for the client.
    pub fn ended(
        &mut self,
        now: Nanos,
        pending: &Pending,
        result: Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let Pending {
            request, watched, ..
        } = pending;
        self.flushes.ended(pending.is_answered(), watched.is_behind);
        if !self.flushes.is_empty() {
            self.order.wake();
        }
        // Reported twice, perhaps a lap of the log later, the write would count for that lap.
        if !watched.is_in_effect || result.is_err() {
            self.answered(now, request, result.is_ok());
        }
        if watched.is_behind && result.is_err() {
            self.lose(request);
            return result;
        }
        self.early.ended(request, watched.is_answered, result)
    }

    /// Notes that the core refused a commit block whose client already had its answer. From then on no flush succeeds. jbd2 ignores
    /// the answer to its flush, so no later commit block of that log succeeds either.
    fn lose(&mut self, request: &Request) {
        self.early.lose(request);
        if let Some(change) = change_of(request) {
            self.order.lose(&change);
        }
    }

    /// Notes that the core is handed a request. Returns when the core is to answer it, if it writes.
    pub fn handed_over(&mut self, pending: &Pending, fua: bool) -> Ack {
        self.flushes
            .handed_over(pending.is_answered(), pending.watched.is_behind);
        pending.ack(fua)
    }

    /// True if this is a flush that has to wait.
    fn holds(&self, pending: &Pending) -> bool {
        let is_flush = pending.request.op == Op::Flush;
        let mut waiting = self.waiting.iter();
        is_flush
            && self
                .flushes
                .must_wait(waiting.any(|waiting| waiting.wait.is_answered))
    }

    /// Notes that a request is answered: what it wrote has taken effect, or never will.
    pub fn answered(&mut self, now: Nanos, request: &Request, is_done: bool) {
        if let Some(change) = change_of(request) {
            self.order.ended(now, &change, is_done);
        }
    }

    /// When to look at the clock, if at all.
    pub fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|waiting| self.order.deadline(&waiting.wait))
            .min()
    }

    /// True if a write waits here.
    pub fn is_waited_at(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if anything waits here.
    pub fn holds_any(&self) -> bool {
        !(self.waiting.is_empty() && self.flushes.is_empty())
    }

    /// The counters.
    pub fn stats(&self) -> CommitStats {
        let (complete, unjudged) = self.order.counts();
        CommitStats {
            complete,
            unjudged,
            waiting: self.waiting.len() as u64,
            ..self.counts
        }
    }

    /// True if a write is answered and still waits, here or in the core.
    pub fn holds_answered(&self) -> bool {
        let mut waiting = self.waiting.iter();
        self.early.holds_answered()
            || self.flushes.awaits_commit()
            || waiting.any(|waiting| waiting.wait.is_answered)
    }

    /// Removes everything that waits, for a caller that answers it otherwise.
    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.blocks = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let waiting = waiting.into_iter().map(|waiting| waiting.pending);
        waiting.chain(self.flushes.drain())
    }

    /// Tells the journals that a write goes on, whatever it waits for.
    fn let_through(&mut self, waiting: &Waiting) {
        if let Some(change) = change_of(&waiting.pending.request) {
            self.order.let_through(&change, &waiting.blocks);
        }
    }

    /// Finds the first block of a write that must not go on, if `room` blocks may wait in all.
    fn stop(
        &mut self,
        request: &Request,
        blocks: &[Payload],
        is_behind: impl Fn() -> bool,
        room: usize,
    ) -> Option<(usize, Stop)> {
        let all = self.blocks + blocks.len();
        let waits = self.waiting.iter().map(|waiting| &waiting.wait);
        let has_room = |index| all - index <= room;
        let change = change_of(request)?;
        self.order.stop(&change, blocks, has_room, is_behind, waits)
    }
}
