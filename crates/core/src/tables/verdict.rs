//! The twin of a block in the queue, and its proposer.

use crate::front;
use crate::policy::Proposer;

/// What is known about the twin of a queued block.
pub(super) type Verdict = front::Verdict<Twin>;

/// A data block that may be equal; pinned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub by: Proposer,
    pub index: u32,
}
