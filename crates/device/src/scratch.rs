//! What a thread needs while it submits a batch of requests.

use crate::bases::BaseLookup;
use crate::block::BlockError;
use crate::drive::Batch;
use crate::watched::Watched;
use crate::watching::JournalEntry;
use std::cell::Cell;
use vellum_core::addr::Lba;
use vellum_core::seam::Payload;

/// Why a request is refused, if it is, and what was noticed about it.
pub(crate) type Verdict = (Option<BlockError>, Watched);

/// What a thread needs to submit, kept from one call to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    pub payloads: Vec<Payload>,
    pub verdicts: Vec<Verdict>,
    /// Home blocks and their places in a journal, as the writes of this batch name them.
    pub pairs: Vec<(Lba, Lba)>,
    /// What they write into journals whose transactions are followed.
    pub entries: Vec<JournalEntry>,
    /// What the blocks of its writes replace, if deltas are made.
    pub found: Vec<BaseLookup>,
    pub batch: Batch,
}

thread_local! {
    pub(crate) static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}
