//! Map checkpoints: each leaf is written to the slot that the durable root does not use, then a root.
//!
//! A checkpoint runs beside requests: a leaf is written as it is at that moment, so it may already hold effects of chunks sealed
//! later than the checkpoint's `seq`. That is sound because replay from `seq` on gives the same map whether or not a leaf has
//! seen some of it, and because the root is written only when every chunk that any leaf may have seen is durable.

mod run;

use super::ahead::Ahead;
use super::leaf_blocks::LeafBlocks;
use super::open_summaries::OpenSummaries;
use crate::addr::{EffectId, Generation, Leaf, Life, Pba, Segment, Seq};
use crate::format::Crc;
use crate::format::root::{Cursor, LeafSlot, RootHeader};
use crate::format::superblock::Superblock;
use crate::limits;
use crate::log::Sums;
use crate::seam::Effect;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Writing leaves, from this stripe on.
    Leaves(u32),
    /// Everything up to this chunk, and every leaf, must be durable before the root.
    Settle(Seq),
    /// The sync for `Settle` is in flight, or complete.
    Synced(Seq),
    /// The root is being written, durably.
    Root,
    /// The superblock is being made to record the root, durably. Nothing that the previous root needs is freed before that: otherwise
    /// recovery could not tell a root that was damaged later from one whose write was cut short.
    Mark,
}

pub(super) struct Checkpoint {
    pub due: bool,
    /// The newest chunk that the durable root includes.
    pub durable_seq: Seq,
    /// The newest root's generation.
    pub generation: Generation,
    /// Where its leaves are.
    pub slots: Vec<LeafSlot>,
    /// How far a sweep for duplicates has come; see [`RootHeader::swept`].
    pub swept: Progress,
    /// How far a scrub has come; see [`RootHeader::scrubbed`].
    pub scrubbed: Progress,
    /// What has been written to the log since the last checkpoint began.
    log: Written,
    /// Segments whose summaries are being written.
    pub summaries: Vec<Segment>,
    phase: Phase,
    seq: Seq,
    life: Life,
    cursors: [Cursor; 2],
    /// The chunk up to which the root says the log is durable: the same in all copies of the root.
    durable: Seq,
    pub in_flight: usize,
    /// The slots of the leaves that this checkpoint wrote, for the next root.
    pub staged: Vec<(Leaf, LeafSlot)>,
    /// The leaves being written.
    pub blocks: LeafBlocks,
    /// Blocks read for parities.
    pub ahead: Ahead,
    /// Summaries of open segments, written with the root.
    open: OpenSummaries,
    /// True if a sync that began after the last leaf was written is complete.
    synced: bool,
}

/// The progress of a pass that continues after a restart: the current place, and the place that the newest root records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub now: u32,
    pub kept: u32,
}

impl Progress {
    fn found(place: u32) -> Self {
        Self {
            now: place,
            kept: place,
        }
    }

    /// True if the newest root records the current place.
    pub fn is_kept(self) -> bool {
        self.now == self.kept
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    blocks: u64,
    chunks: u64,
}

impl Checkpoint {
    /// Continues from the root that recovery found.
    pub fn new(root: &RootHeader, slots: Vec<LeafSlot>) -> Self {
        Self {
            due: false,
            durable_seq: root.seq,
            generation: root.generation,
            slots,
            swept: Progress::found(root.swept),
            scrubbed: Progress::found(root.scrubbed),
            log: Written::default(),
            summaries: Vec::new(),
            phase: Phase::Idle,
            seq: Seq(0),
            life: Life(0),
            cursors: [Cursor {
                segment: Segment(0),
                offset: 0,
            }; 2],
            durable: Seq(0),
            in_flight: 0,
            staged: Vec::new(),
            blocks: LeafBlocks::default(),
            ahead: Ahead::default(),
            open: OpenSummaries::default(),
            synced: false,
        }
    }

    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Notes that a chunk of `blocks` blocks was added to the log.
    #[inline]
    pub fn on_sealed(&mut self, blocks: u32) {
        self.log.blocks += u64::from(blocks);
        self.log.chunks += 1;
    }

    /// True if a checkpoint should begin; `dirty`: the leaves that it would write.
    #[inline]
    fn is_due(&self, dirty: u64) -> bool {
        let (least, most) = limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
        self.due
            || self.log.chunks >= limits::CHUNKS_BETWEEN_CHECKPOINTS
            || self.log.blocks >= (dirty * limits::LOG_BLOCKS_PER_DIRTY_LEAF).clamp(least, most)
    }

    fn next_generation(&self) -> Generation {
        Generation(self.generation.0 + 1)
    }

    fn keep_open_summaries(&mut self, superblock: &Superblock, sums: &Sums, crc: Crc) {
        self.open
            .keep(superblock, sums, &self.cursors, self.seq, crc);
    }

    pub fn synced(&mut self) {
        if matches!(self.phase, Phase::Synced(_)) {
            self.synced = true;
        }
    }
}

pub(super) fn mirror_effect(id: EffectId, at: Pba) -> Effect {
    Effect::WriteMeta {
        id,
        at,
        blocks: 1,
        durable: true,
    }
}
