//! The twin of a block in the queue, and its proposer.

use crate::front;
use crate::policy::Proposer;

/// What is known about the twin of a queued block.
pub(super) type Verdict = front::Verdict<Twin>;

/// A request that waits for its turn.
pub(super) type Waiting = front::Waiting<Twin>;

/// A data block that may be equal; pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub by: Proposer,
    pub index: u32,
}
