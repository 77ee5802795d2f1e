//! Reads that wait for leaves, and leaves that are on their way.

use crate::addr::{Generation, Lba, Leaf, RequestId};
use alloc::vec::Vec;

/// Leaves that are read at once, at most.
pub(super) const AT_ONCE: usize = 64;

/// How often a read waits: for a leaf of the map, of the pages, and of what a delta needs, of two places, and twice more.
pub(super) const TRIES: u8 = 8;

/// A read that waits for a leaf.
pub(super) struct Waits {
    pub leaf: Leaf,
    pub id: RequestId,
    pub lba: Lba,
    pub blocks: u32,
    pub tries: u8,
}

/// See the module.
#[derive(Default)]
pub(super) struct Fetches {
    pub waiting: Vec<Waits>,
    /// Leaves that are being read, as the root of this number leads to them.
    pub under_way: Vec<(Leaf, Generation)>,
    /// Memory for those that a read misses.
    pub missing: Vec<Leaf>,
}

impl Fetches {
    /// Whether no read waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a leaf is being read from where only a root of before leads. The next map checkpoint may write there.
    pub fn is_behind(&self, newest: Generation) -> bool {
        self.under_way.iter().any(|(_, of)| *of < newest)
    }

    /// The next read that waits is refused.
    pub fn give_up(&mut self) -> Option<RequestId> {
        self.waiting.pop().map(|waits| waits.id)
    }
}
