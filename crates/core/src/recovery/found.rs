//! A volume as recovery found it.

use super::source::Unreadable;
use crate::addr::{Leaf, Life, Segment, Seq};
use crate::format::names::Names;
use crate::format::root::{Cursor, FreeSegments, LeafSlot, RootHeader};
use crate::format::slots::Slots;
use crate::format::summary::Tag;
use crate::format::superblock::{LogEnd, Superblock};
use crate::state::State;
use alloc::vec::Vec;

/// What replay did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Chunks applied.
    pub chunks: u64,
    /// Data blocks whose checksums were compared with their header's.
    pub verified: u64,
    /// Leaves of the map loaded.
    pub leaves: u64,
    /// Damaged blocks of metadata that were restored from a copy or a parity.
    pub from_copies: u64,
    /// Whether a superblock mirror was damaged (the next opening for writing repairs it).
    pub mirror_lost: bool,
}

impl Replayed {
    /// True if a map checkpoint is due. Chunks that it includes are not replayed again, and blocks that were restored from a copy get a
    /// copy again.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.chunks > 0 || self.from_copies > 0
    }
}

/// A volume as recovery found it.
pub struct Recovered {
    /// Its superblock.
    pub superblock: Superblock,
    /// Its state. It is counted, unless a census has to follow.
    pub state: State,
    /// Where the hot and the cold head continue.
    pub heads: [Cursor; 2],
    /// The newest chunk.
    pub last_seq: Seq,
    /// The newest chunk's life.
    pub last_life: Life,
    /// What the newest chunk names, if it is newer than the map checkpoint.
    pub last_names: Names,
    /// The map checkpoint that replay began at.
    pub root: RootHeader,
    /// True if the place of the next root holds one that does not count, or the rest of one.
    pub has_passed_over: bool,
    /// Where the checkpoint's leaves are.
    pub slots: Slots,
    /// The segments that were free when that root was written.
    pub free: FreeSegments,
    /// The newest chunk in each segment, as far as replay has seen.
    pub newest: Vec<Seq>,
    /// Owners and checksums of the blocks of segments that are open, or that have chunks newer than the map checkpoint. These may not
    /// have a summary yet.
    pub tags: Vec<(Segment, Vec<Tag>)>,
    /// The first block that could not be read, although what was flushed last, or what a writer needs, may be in it. If set, the volume
    /// must not be written, and readers need a [rescue](super::rescue).
    pub unread: Option<Unreadable>,
    /// True if this is the rest of a damaged volume, which can be read but not written.
    pub is_rest: bool,
    /// True if the volume is only read, so no life begins. Then chunks past the end of the log are not evidence for any block: a chunk
    /// that was lost, or that a crash cut off, may have moved a block whose old place was overwritten since.
    pub is_read_alone: bool,
    /// What replay did.
    pub replayed: Replayed,
}

impl Recovered {
    /// Its newest chunk.
    #[must_use]
    pub fn log_end(&self) -> LogEnd {
        LogEnd {
            seq: self.last_seq,
            life: self.last_life,
        }
    }

    /// True if the volume was stopped in order: nothing has to be replayed, and nothing is in doubt.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        !self.replayed.wants_checkpoint() && !self.is_rest && self.unread.is_none()
    }

    /// The superblock for reading blocks: in a new life, whose log begins where this one ended.
    pub(crate) fn superblock_to_read(&self) -> Superblock {
        let mut superblock = self.superblock.clone();
        // Without a root the end of the log is not known.
        if self.is_read_alone && self.last_seq > Seq(0) {
            superblock.begin_life(self.log_end());
        }
        superblock
    }

    /// Returns the segments that may be written to before anything is counted: nothing that is needed is in them.
    pub(crate) fn free_segments(&self) -> Vec<Segment> {
        let all = (0..self.superblock.segment_count()).map(Segment);
        let is_free = |segment: &Segment| {
            self.free.holds(*segment)
                && self.newest[segment.0 as usize] == Seq(0)
                && self.heads.iter().all(|head| head.segment != *segment)
        };
        all.filter(is_free).collect()
    }

    /// The free segments of a volume that was stopped in order, in its next layout: without live blocks, and no head is in them.
    pub(crate) fn free_at_rest(&self, next: &Superblock) -> FreeSegments {
        let mut free = FreeSegments::default();
        let known = self.state.live().of_all();
        for segment in (0..next.segment_count()).map(Segment) {
            let live = known.get(segment.0 as usize).copied().unwrap_or(0);
            if live == 0 && self.heads.iter().all(|head| head.segment != segment) {
                free.put(segment);
            }
        }
        free
    }

    /// True if pages have ever been shared (the leaves of a table that was once used remain). Then a page may belong to another LBA than
    /// the one that its segment's summary names.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        let tables = self.superblock.map_leaves()..self.superblock.first_parity();
        let mut tables = tables.map(Leaf);
        !self.state.shared().is_empty()
            || self.state.shared().packed() > 0
            || !self.state.strays().is_empty()
            || tables.any(|leaf| self.slots.get(leaf) != LeafSlot::Absent)
    }
}
