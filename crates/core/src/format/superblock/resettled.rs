//! The blocks of snapshots get other LBAs when a volume grows, because they follow those that clients see.
//!
//! Older structures on the medium name the old LBAs: tags of blocks, records of chunks, directories of pages. Some of these are
//! clients' LBAs now. So an LBA that an older structure names is trusted if the map agrees, or if it is settled: clients' blocks
//! from before the first growth have always had their LBA.

use crate::addr::Life;

/// The LBAs that once meant another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resettled {
    /// The number of blocks, from the first on, whose LBA has always been theirs.
    pub settled: u64,
    /// Since this life began, LBAs have not changed.
    pub since: Life,
}
