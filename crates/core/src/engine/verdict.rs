//! The twin of a block in the queue: its proposer, and the result of comparing the two.

use crate::front;
use crate::index::Holder;
use crate::policy::{Answer, Proposer};
use crate::seam::Fingerprint;
use crate::state::Place;

/// The state of the comparison of a block with its twin.
pub(super) type Verdict = front::Verdict<Twin>;

/// A block that may be equal, and its state when it was proposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub by: Proposer,
    pub of: Holder,
    pub place: Place,
    /// How often the page's segment had been opened for writing. If that has changed, the address holds another page.
    pub uses: u32,
    /// If it was in an open chunk: the number of blocks replaced in open chunks by then.
    pub absorptions: Option<u64>,
    /// The page's fingerprint then, or that of the block once it was found equal.
    pub print: Option<Fingerprint>,
}

impl Verdict {
    /// Ends the comparison in flight, and returns its proposer.
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
