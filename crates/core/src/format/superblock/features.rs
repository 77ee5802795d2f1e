//! Incompatible features: one bit for each thing that older volumes do not have, and that a program must know to read the volume.

use super::resettled::Resettled;

/// Block sums are XXH3.
pub(super) const XXH3_SUMS: u64 = 1;

/// Each sector of a table names the edition of its block, and there is a table of editions.
const EDITIONS: u64 = 2;

/// A log's leaves have parities, and its roots second copies.
pub(super) const COPIES: u64 = 4;

/// The second copy of a root is followed by the open summaries of the segments that the heads are in.
const OPEN_SUMMARIES: u64 = 8;

/// The volume is a pack: it has no data, and must not be served.
pub(super) const WITHOUT_DATA: u64 = 16;

/// Each block of the map, and of the directory, of tables in place has a twin.
const TWINS: u64 = 32;

/// A chunk's header names the LBAs of the chunk before.
const NAMES: u64 = 64;

/// A log's roots and leaves lie after its segments.
const MOVED: u64 = 128;

/// There is room for the blocks that snapshots keep.
pub(super) const SNAPSHOTS: u64 = 256;

/// The list of snapshots has clones, or had some.
pub(super) const CLONES: u64 = 512;

/// The volume has grown, and the blocks of snapshots have moved to other LBAs.
const RESETTLED: u64 = 1024;

/// The volume has shrunk: clients see fewer blocks than there are before those of snapshots.
const SHRUNK: u64 = 2048;

/// A log's roots say which segments are free.
const FREE_SEGMENTS: u64 = 4096;

/// Its tables have more leaves than its medium needs. A program that does not know this may read the volume. But if it made the
/// volume grow, it would give the tables as many leaves as the new medium needs, and lose what is in the others.
pub(super) const LONG_TABLES: u64 = 2;

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
    | RESETTLED
    | SHRUNK
    | FREE_SEGMENTS;

/// What a volume may have that older ones do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub editions: bool,
    pub open_summaries: bool,
    pub twins: bool,
    pub names: bool,
    pub moved: bool,
    pub resettled: Option<Resettled>,
    /// The blocks that clients see, if the volume has shrunk.
    pub shrunk: Option<u64>,
    pub free_segments: bool,
    /// True if the tables have more leaves than the medium needs.
    pub long_tables: bool,
}

impl Features {
    /// Decodes the bits of the incompatible and the read-only compatible features; `resettled` and `shrunk` are used only if
    /// their bits are set.
    pub(super) fn of(
        (incompatible, to_write): (u64, u64),
        resettled: Resettled,
        shrunk: u64,
    ) -> Self {
        Self {
            editions: incompatible & EDITIONS != 0,
            open_summaries: incompatible & OPEN_SUMMARIES != 0,
            twins: incompatible & TWINS != 0,
            names: incompatible & NAMES != 0,
            moved: incompatible & MOVED != 0,
            resettled: (incompatible & RESETTLED != 0).then_some(resettled),
            shrunk: (incompatible & SHRUNK != 0).then_some(shrunk),
            free_segments: incompatible & FREE_SEGMENTS != 0,
            long_tables: to_write & LONG_TABLES != 0,
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
            | of(self.shrunk.is_some(), SHRUNK)
            | of(self.free_segments, FREE_SEGMENTS)
    }

    /// The bits of the features that a program must know to write the volume.
    pub(super) fn bits_to_write(self) -> u64 {
        if self.long_tables { LONG_TABLES } else { 0 }
    }
}
