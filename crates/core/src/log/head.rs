//! The log's append points.

/// The two append points: clients' data, and what the collector moves (cold by experience).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Host = 0,
    Cold = 1,
}

pub(crate) const HEADS: [Head; 2] = [Head::Host, Head::Cold];
