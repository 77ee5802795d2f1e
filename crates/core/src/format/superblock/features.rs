//! What a program must know of a volume to read it: a bit for each thing that volumes from before have not.

use super::resettled::Resettled;

/// Blocks' sums are XXH3.
pub(super) const XXH3_SUMS: u64 = 1;

/// Sectors of tables say of which edition of their block they are, and there is a table of these.
const EDITIONS: u64 = 2;

/// A log's leaves have parities, and its roots second copies.
pub(super) const COPIES: u64 = 4;

/// Behind a second root is the summary so far of each segment that a head is in.
const OPEN_SUMMARIES: u64 = 8;

/// It is a pack. Data is not there, and nothing is to be served.
pub(super) const WITHOUT_DATA: u64 = 16;

/// Of tables in place what leads to data is there twice.
const TWINS: u64 = 32;

/// A chunk's header names the LBAs of the chunk before.
const NAMES: u64 = 64;

/// A log's roots and leaves lie behind its segments.
const MOVED: u64 = 128;

/// There is room for what snapshots keep.
pub(super) const SNAPSHOTS: u64 = 256;

/// There are clones in the list of snapshots, or were.
pub(super) const CLONES: u64 = 512;

/// It has grown, and what belongs to snapshots has moved: blocks have had other addresses.
const RESETTLED: u64 = 1024;

pub(super) const KNOWN: u64 = XXH3_SUMS
    | EDITIONS
    | COPIES
    | OPEN_SUMMARIES
    | WITHOUT_DATA
    | TWINS
    | NAMES
    | MOVED
    | SNAPSHOTS
    | CLONES
    | RESETTLED;

/// What a volume has that one from before has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub editions: bool,
    pub open_summaries: bool,
    pub twins: bool,
    pub names: bool,
    pub moved: bool,
    pub resettled: Option<Resettled>,
}

impl Features {
    /// By its bits; `resettled` counts where they say so.
    pub(super) fn of(incompatible: u64, resettled: Resettled) -> Self {
        Self {
            editions: incompatible & EDITIONS != 0,
            open_summaries: incompatible & OPEN_SUMMARIES != 0,
            twins: incompatible & TWINS != 0,
            names: incompatible & NAMES != 0,
            moved: incompatible & MOVED != 0,
            resettled: (incompatible & RESETTLED != 0).then_some(resettled),
        }
    }

    pub(super) fn bits(self) -> u64 {
        let of = |has: bool, feature: u64| if has { feature } else { 0 };
        of(self.editions, EDITIONS)
            | of(self.open_summaries, OPEN_SUMMARIES)
            | of(self.twins, TWINS)
            | of(self.names, NAMES)
            | of(self.moved, MOVED)
            | of(self.resettled.is_some(), RESETTLED)
    }
}
