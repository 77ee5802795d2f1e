//! The log's append points.

/// The two append points: clients' data, and what the collector moves (cold by experience).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Hot = 0,
    Cold = 1,
}

/// For each head, how many chunks it had opened when a block was replaced: the replacement is in one of these chunks.
pub(crate) type Marks = [u64; 2];

pub(crate) const HEADS: [Head; 2] = [Head::Hot, Head::Cold];
