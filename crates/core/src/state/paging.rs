//! How much memory the leaves of all tables may take, and how much they do
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).

use crate::addr::{BLOCK_BYTES, Pba};
use crate::format::superblock::Superblock;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// So many dirty leaves may always take memory before a map checkpoint is due because of that (4 MiB). If half of the leaves that may stay
/// in memory are more than this, that half is the limit.
const LEAVES_DIRTY_MIN: usize = 1024;

/// The memory that is always needed for a leaf of the map or of the table of pages: its slot, its place in memory, its marks, and the
/// places of its changes.
const BYTES_OF_LEAF: usize = 20;

/// The same for a segment.
const BYTES_OF_SEGMENT: usize = 48;

/// Where a host reads leaves from: the medium as it is now, with all writes that it reported complete.
pub trait Nodes: Send + Sync {
    /// Reads a block; false if it cannot be read.
    fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool;
}

/// How the map and the table of pages are kept within a memory bound.
#[derive(Clone)]
pub struct Paging {
    nodes: Arc<dyn Nodes>,
    most: usize,
    most_dirty: usize,
    counts_later: bool,
    here: Arc<AtomicUsize>,
    /// The leaves whose memory has changes instead.
    lent: Arc<AtomicUsize>,
    /// The number of leaves that are only on the medium.
    away: Arc<AtomicUsize>,
    /// True if a leaf is damaged, and that was not reported, or it is lost.
    has_damage: Arc<AtomicBool>,
}

impl Paging {
    /// Allows the memory of `leaves` leaves, a block each. If the volume has more leaves, three things share this memory. What it always
    /// needs for each leaf and segment gets up to half. Changes since the last map checkpoint get up to half of the rest, or 4 MiB if that
    /// is more. Leaves get what is left, and always a quarter of the rest.
    #[must_use]
    pub fn new(nodes: Arc<dyn Nodes>, leaves: usize) -> Self {
        Self {
            nodes,
            most: leaves,
            most_dirty: (leaves / 2).max(LEAVES_DIRTY_MIN),
            counts_later: false,
            here: Arc::default(),
            lent: Arc::default(),
            away: Arc::default(),
            has_damage: Arc::default(),
        }
    }

    /// True if `leaves` leaves may all stay in memory.
    pub(super) fn has_room_for(&self, leaves: u32) -> bool {
        self.most >= leaves as usize
    }

    /// The same for a state of this volume that has nothing in memory yet.
    pub(super) fn for_volume(&self, volume: &Superblock) -> Self {
        let leaves = volume.leaves() as usize * BYTES_OF_LEAF;
        let segments = volume.segment_count() as usize * BYTES_OF_SEGMENT;
        let always = ((leaves + segments) / BLOCK_BYTES).min(self.most / 2);
        let most = self.most - always;
        Self {
            most,
            most_dirty: self.most_dirty.min((most / 2).max(LEAVES_DIRTY_MIN)),
            here: Arc::default(),
            lent: Arc::default(),
            away: Arc::default(),
            has_damage: Arc::default(),
            ..self.clone()
        }
    }

    /// Allows recovery to leave counting to a census, if not all leaves may stay in memory.
    #[must_use]
    pub fn with_census(self) -> Self {
        let counts_later = true;
        Self {
            counts_later,
            ..self
        }
    }

    pub(crate) fn counts_later(&self) -> bool {
        self.counts_later
    }

    /// Sets how many leaves' memory what has changed may take.
    #[must_use]
    pub fn with_dirty(self, most_dirty: usize) -> Self {
        Self { most_dirty, ..self }
    }

    /// Reads a block of the medium; false if it cannot be read.
    pub(super) fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool {
        self.nodes.read(at, block)
    }

    /// Notes that one more leaf is in memory.
    pub(super) fn came(&self) {
        self.here.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one leaf fewer is.
    pub(super) fn went(&self) {
        self.here.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a leaf's memory has changes from now on.
    pub(super) fn lend(&self) {
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one more leaf is only on the medium.
    pub(super) fn left_out(&self) {
        self.away.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one leaf fewer is, if there was one.
    pub(super) fn came_back(&self) {
        let one_fewer = |away: usize| away.checked_sub(1);
        let _ = (self.away).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_fewer);
    }

    /// True if any leaf is only on the medium.
    #[inline]
    pub(super) fn has_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) > 0
    }

    /// How many leaves are in memory, and how many may be. A quarter may always be, however much has changed.
    pub(super) fn here(&self) -> (usize, usize) {
        let [here, lent] = [&self.here, &self.lent].map(|count| count.load(Ordering::Relaxed));
        (here, self.most.saturating_sub(lent).max(self.most / 4))
    }

    /// The memory that changes may take, in bytes.
    pub(super) fn room_for_changes(&self) -> usize {
        self.most_dirty * BLOCK_BYTES
    }

    /// True if so many leaves are in memory that none may change before some can be evicted.
    pub(super) fn is_overfull(&self) -> bool {
        let (here, most) = self.here();
        here > most + self.most_dirty
    }

    /// True if a leaf of any table is damaged, and that was not reported, or it is lost.
    #[inline]
    pub(super) fn has_damage(&self) -> bool {
        self.has_damage.load(Ordering::Relaxed)
    }

    pub(super) fn set_damage(&self, has_damage: bool) {
        self.has_damage.store(has_damage, Ordering::Relaxed);
    }
}
