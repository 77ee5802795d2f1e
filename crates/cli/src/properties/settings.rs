//! A value for each property.

use vellum_core::engine::Victim;
use vellum_core::format::superblock::Superblock;
use vellum_core::snapshots::{Schedule, USUAL_KEEP};
use vellum_core::tables::Persistence;
use vellum_device::Extent;
use vellum_device::policy::Policy;

/// Memory for blocks in flight unless it is chosen.
const BUFFER_BYTES: u64 = 64 << 20;

/// Whether, after a crash, the volume puts home by itself what a journal had committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Where `attach --mount` mounts the file system itself, for then no cache lies between both (decision 0014).
    Auto,
    /// Yes: its user knows that no cache is above the volume that writes back in another order.
    On,
    /// No.
    Off,
}

impl Replay {
    pub(super) fn is_on(self, may_replay: bool) -> bool {
        match self {
            Self::Auto => may_replay,
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// A value for each property.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is done with what is written.
    pub policy: Policy,
    /// Memory for blocks in flight.
    pub buffer_bytes: u64,
    /// Memory for what says where blocks are; 0: all that it takes.
    pub map_bytes: u64,
    /// Options of a mount; empty for those that suit the layout.
    pub mount_options: String,
    /// A name for people.
    pub label: String,
    /// Whether the volume replays journals by itself.
    pub replay: Replay,
    /// Journals set by hand.
    pub journals: Vec<Extent>,
    /// When a write is answered.
    pub persistence: Persistence,
    /// How the collector chooses.
    pub victim: Victim,
    /// How often the volume takes a snapshot by itself.
    pub snapshot_every: String,
    /// Which of these stay.
    pub snapshot_keep: String,
}

impl Settings {
    /// What is usual for this volume.
    pub fn usual(superblock: &Superblock) -> Self {
        Self {
            policy: Policy::usual(superblock),
            buffer_bytes: BUFFER_BYTES,
            map_bytes: 0,
            mount_options: String::new(),
            label: String::new(),
            replay: Replay::Auto,
            journals: Vec::new(),
            persistence: Persistence::default(),
            victim: Victim::default(),
            snapshot_every: "off".to_owned(),
            snapshot_keep: USUAL_KEEP.to_owned(),
        }
    }

    /// What the volume does by itself.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            every: self.snapshot_every.parse().ok(),
            keep: self.snapshot_keep.parse().unwrap_or_default(),
        }
    }
}
