//! The twin of a block in the queue: who proposed it, and how they compare.

use crate::front;
use crate::index::Holder;
use crate::seam::Fingerprint;
use crate::state::Place;

/// What is known of it.
pub(super) type Verdict = front::Verdict<Twin>;

/// Who proposed a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proposer {
    /// The pool: this block of the journals.
    Journal(u32),
    /// The index, by this hash.
    Index(u64),
    /// A pair that was told.
    Pair,
}

/// A block that may be equal, and what it was when it was proposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub by: Proposer,
    pub of: Holder,
    pub place: Place,
    /// Which use of its segment the page was written in: another's pages are others, wherever they lie.
    pub uses: u32,
    /// It was in a chunk that still took blocks: how many had been replaced in such chunks by then.
    pub absorptions: Option<u64>,
    /// The fingerprint that the page had then, or that the block turned out to have when it was equal.
    pub print: Option<Fingerprint>,
}

/// How a block compares with its twin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// They are equal; the fingerprint of both, if that was computed.
    Same(Option<Fingerprint>),
    Other,
    /// The twin cannot be read, or is not what was written.
    Damaged,
}

impl Verdict {
    /// The comparison that was under way has been answered; who had proposed it.
    pub fn on_answer(&mut self, answer: Answer) -> Option<Proposer> {
        let Self::Asked(twin) = *self else {
            return None;
        };
        *self = match answer {
            Answer::Same(print) => Self::Same(Twin { print, ..twin }),
            Answer::Other | Answer::Damaged => Self::Write,
        };
        Some(twin.by)
    }
}
