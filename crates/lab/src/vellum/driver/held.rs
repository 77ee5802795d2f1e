//! Requests that wait at the gate before the core.

use super::submitted::Submitted;
use std::collections::HashMap;
use vellum_watch::CommitGate;

/// The state of the gate; see the module.
#[derive(Default)]
pub(super) struct Gate {
    pub commits: CommitGate<Submitted>,
    /// Writes into a journal that the core has not answered: the first block and the length of each. Never iterated:
    /// the order would be random.
    pub open: HashMap<u32, (u64, u64)>,
    /// True while requests are being passed on.
    pub lets_go: bool,
    /// Commit blocks answered here, and the sum of all waits.
    pub answered: u32,
    pub wait_ns: u64,
}
