//! The gate before the core: a commit block waits here for the blocks that it commits.
//!
//! The watch has what waits, and decides how long ([`CommitGate`]). This module lets it go on. The part of a write before the commit
//! block goes on at once. What waits is bounded to a quarter of the frames for writes.

mod early;
mod messages;
pub(crate) mod passage;

use crate::bases::BaseLookup;
use crate::block::{BlockError, Request};
use crate::requests::Pending;
use crate::stats::CommitStats;
use crate::watched::Answered;
use crate::watching::{JournalEntry, Watching, change_of};
use std::sync::Arc;
use vellum_core::addr::Nanos;
use vellum_core::seam::{Ack, Payload};
use vellum_watch::{CommitGate, Refusal};

use early::Early;
pub(crate) use early::{Turn, has_marks};

/// What waits.
pub(crate) type Commits = CommitGate<Waiting, Pending>;

/// See the module.
#[derive(Default)]
pub(crate) struct Gate {
    /// Writes that are answered before they arrive here.
    pub early: Early,
    pub commits: Commits,
    refused: u64,
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
pub(crate) struct Waiting {
    pending: Pending,
    blocks: Vec<Payload>,
    found: Vec<BaseLookup>,
    entries: Vec<JournalEntry>,
    watching: Arc<Watching>,
}

/// What an error says about a block of a journal.
fn why(error: &BlockError) -> Refusal {
    match error {
        BlockError::Full | BlockError::NoRoom => Refusal::NoRoom,
        _ => Refusal::Failed,
    }
}

impl Gate {
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
        let is_commit = watched.answered == Answered::AtGate;
        self.commits.ended(pending.is_answered(), is_commit);
        // Reported twice, perhaps a lap of the log later, the write would count for that lap.
        if !watched.is_in_effect || result.is_err() {
            self.answered(now, request, result.as_ref().copied().map_err(why));
        }
        if is_commit && result.is_err() {
            self.lose(request);
            return result;
        }
        self.early.ended(request, watched.answered, result)
    }

    /// Notes that the core refused a commit block whose client already had its answer. From then on no flush succeeds. jbd2 ignores
    /// the answer to its flush, so no later commit block of that log succeeds either.
    fn lose(&mut self, request: &Request) {
        self.early.lose(request);
        if let Some(change) = change_of(request) {
            self.commits.order.lose(&change);
        }
    }

    /// Notes that the core is handed a request. Returns when the core is to answer it, if it writes.
    pub fn handed_over(&mut self, pending: &Pending, fua: bool) -> Ack {
        let is_commit = pending.watched.answered == Answered::AtGate;
        self.commits.handed_over(pending.is_answered(), is_commit);
        pending.ack(fua)
    }

    /// Notes that a request is answered: what it wrote has taken effect, or never will.
    pub fn answered(&mut self, now: Nanos, request: &Request, result: Result<(), Refusal>) {
        if let Some(change) = change_of(request) {
            self.commits.order.ended(now, &change, result);
        }
    }

    /// Notes that a request is refused before the core has it: what it writes will never be there.
    pub fn refused(&mut self, now: Nanos, request: &Request, error: &BlockError) {
        // A range that is not on the volume says nothing about the journals in it.
        if !matches!(error, BlockError::OutOfRange { .. }) {
            self.answered(now, request, Err(why(error)));
        }
    }

    /// The counters.
    pub fn stats(&self) -> CommitStats {
        let (complete, unjudged) = self.commits.order.counts();
        let (waiting, waited) = self.commits.counts();
        CommitStats {
            complete,
            unjudged,
            waited,
            waiting: waiting as u64,
            refused: self.refused,
            looking: false,
        }
    }

    /// True if a write is answered and still waits, here or in the core.
    pub fn holds_answered(&self) -> bool {
        self.early.holds_answered() || self.commits.holds_answered()
    }

    /// Removes everything that waits, for a caller that answers it otherwise.
    pub fn drain(&mut self) -> Vec<Pending> {
        let (writes, flushes) = self.commits.drain();
        let writes = writes.map(|waiting| waiting.pending);
        writes.chain(flushes).collect()
    }
}
