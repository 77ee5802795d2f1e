//! Requests that wait at the gate before the core.

use std::collections::HashMap;
use vellum_watch::Wait;

/// The state of the gate; see the module.
pub(super) struct Gate<A> {
    pub held: Vec<Held<A>>,
    /// Buffers reserved for the requests that wait.
    pub reserved: usize,
    /// Writes into a journal that the core has not answered: the first block and the length of each. Never iterated:
    /// the order would be random.
    pub open: HashMap<u32, (u64, u64)>,
    /// True while requests are being passed on.
    pub lets_go: bool,
    /// Writes that were answered before the core had them: how many it was handed, and how many it has answered.
    pub given: u64,
    pub ended: u64,
    /// Commit blocks answered here, and how many of them the core has but has not answered.
    pub answered: u32,
    pub behind: u64,
    pub counts: Counts,
}

/// The counters of the gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Commit blocks that waited, and the sum of their waits.
    pub waited: u64,
    pub wait_ns: u64,
}

/// A request that waits.
pub(super) struct Held<A> {
    pub submitted: A,
    pub why: Why,
}

/// What it waits for.
pub(super) enum Why {
    /// A commit block, for the blocks it commits.
    Commit(Wait),
    /// A flush, until this many writes that were answered early have ended.
    Flush(u64),
}

impl<A> Held<A> {
    /// True if it is a commit block that has been answered.
    pub fn is_answered(&self) -> bool {
        matches!(&self.why, Why::Commit(wait) if wait.is_answered)
    }

    /// The wait, if it is a commit block.
    pub fn wait(&self) -> Option<&Wait> {
        match &self.why {
            Why::Commit(wait) => Some(wait),
            Why::Flush(_) => None,
        }
    }
}

impl<A> Default for Gate<A> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            reserved: 0,
            open: HashMap::new(),
            lets_go: false,
            given: 0,
            ended: 0,
            answered: 0,
            behind: 0,
            counts: Counts::default(),
        }
    }
}

impl<A> Gate<A> {
    /// True if a commit block here has been answered.
    pub fn holds_answered(&self) -> bool {
        self.held.iter().any(Held::is_answered)
    }
}
