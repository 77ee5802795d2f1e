//! The twin of a block in the queue, and its proposer.

use crate::front;
use crate::index::Holder;
use crate::policy::Proposer;
use crate::seam::Fingerprint;
use crate::state::Place;

/// The state of the comparison of a block with its twin.
pub(super) type Verdict = front::Verdict<Twin>;

/// A request that waits for its turn.
pub(super) type Waiting = front::Waiting<Twin>;

/// A block that may be equal, and its state when it was proposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
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
