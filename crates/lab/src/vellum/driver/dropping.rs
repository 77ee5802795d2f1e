//! What dropping freed blocks has to remember.

use std::collections::HashMap;
use vellum_watch::RequestSeen;

/// The number of the volume's own discards. No client's request has it.
pub(super) const OURS: u32 = 1;

/// The state of dropping, besides the watch.
#[derive(Default)]
pub(super) struct Dropping {
    /// Requests whose answers count, and their blocks. Never iterated: the order would be random.
    pub seen: HashMap<u32, (RequestSeen, (u64, u64))>,
    /// A discard has not been answered.
    pub is_open: bool,
    /// True while freed blocks are being dropped.
    pub drops: bool,
    /// Blocks dropped, and the discards used.
    pub blocks: u64,
    pub discards: u64,
}
