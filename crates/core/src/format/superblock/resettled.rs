//! What belongs to snapshots has other LBAs from when a volume grew: it lies behind what clients see.
//!
//! What is on the medium since before names the old ones: tags of blocks, records of chunks, directories of pages. Some are clients'
//! by now. So an LBA that something of before names is believed where the map says the same, and where it has been
//! settled: clients' blocks from before the first growth have their LBA since ever.

use crate::addr::Life;

/// Which LBAs have meant another block before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resettled {
    /// Blocks, from the first on, that have not.
    pub settled: u64,
    /// From this life on none has.
    pub since: Life,
}
