//! What can be chosen when a volume is opened.

use crate::addr::Buf;
use crate::limits;
pub use crate::log::VictimPolicy;

/// The collector's buffers: `count` of them from `first` on, never used by the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The first.
    pub first: Buf,
    /// How many; at least one collector read's worth.
    pub count: u32,
}

/// What can be chosen when a volume is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the collector chooses.
    pub victim: VictimPolicy,
    /// True if freed space is discarded on the medium: segments of a log, runs of blocks of tables.
    pub discard: bool,
    /// For a log: the most blocks erased at once, in adjacent segments that were found empty when the volume was opened. 0: each
    /// segment by itself, as flash does.
    pub erase_blocks_max: u32,
    /// For tables: the fewest blocks of a run that is discarded.
    pub discard_blocks_min: u32,
    /// True if blocks of zeros are stored as a map entry alone.
    pub zero: bool,
    /// For a log: true if new deltas are made. [`Setting::Deltas`](crate::seam::Setting::Deltas) changes it.
    pub deltas: bool,
    /// The number of segments whose checksums are kept in memory.
    pub cached_sums: usize,
    /// The most strays that are remembered, or a quarter of a journal's pages if that is more. A stray is a page whose summary does not
    /// name its owner.
    pub strays: usize,
    /// Buffers that clients' writes share: in-line deduplication pauses when few are free. 0: unknown, and it never pauses.
    pub write_buffers: u32,
    /// For a log: the segments from this one on are emptied, and not written to as long as others are free. The volume then has room
    /// only for what fits before them.
    pub segments_end: Option<u32>,
    /// For a log: the blocks of a root that are written at once.
    pub root_piece: u32,
    /// For a log: the most leaves that a census counts in one step, besides those that are read for it.
    pub census_step: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            victim: VictimPolicy::Greedy,
            discard: false,
            erase_blocks_max: 0,
            discard_blocks_min: 1,
            zero: true,
            deltas: false,
            cached_sums: limits::CACHED_SUMS,
            strays: limits::STRAYS,
            write_buffers: 0,
            segments_end: None,
            root_piece: limits::ROOT_PIECE,
            census_step: limits::CENSUS_STEP,
        }
    }
}
