//! What is known about blocks that may be stored already.

use crate::front;

/// What is known about the twin of a queued block.
pub(super) type Verdict = front::Verdict<Twin>;

/// What proposed a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proposer {
    /// The pool: this block of the journals.
    Journal(u32),
    /// The index, by this hash.
    Index(u64),
}

/// A data block that may be equal; pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub by: Proposer,
    pub index: u32,
}
