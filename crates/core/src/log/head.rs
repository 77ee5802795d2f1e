//! Where the log grows.

/// Which of the two append points: clients' data, or what the collector moves (cold by experience).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Host = 0,
    Cold = 1,
}

pub(crate) const HEADS: [Head; 2] = [Head::Host, Head::Cold];
