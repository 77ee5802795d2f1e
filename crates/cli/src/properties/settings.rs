//! A value for each property.

use vellum_core::addr::BLOCK_BYTES;
use vellum_core::engine::VictimPolicy;
use vellum_core::format::superblock::Superblock;
use vellum_core::snapshots::{Schedule, USUAL_KEEP};
use vellum_core::tables::Persistence;
use vellum_device::Extent;
use vellum_device::policy::Policy;

/// The default memory for blocks in flight.
const BUFFER_BYTES: u64 = 64 << 20;

/// The default memory for the map of a volume whose clients see so many bytes.
fn map_bytes(logical_bytes: u64) -> u64 {
    match logical_bytes.div_ceil(1 << 30) {
        ..=64 => 16 << 20,
        65..=256 => 32 << 20,
        _ => 64 << 20,
    }
}

/// Whether the volume itself writes home, after a crash, what a journal had committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// If `attach --mount` mounts the file system itself, because then no cache is between the two (decision 0014).
    Auto,
    /// Yes: the user knows that no cache above the volume writes back in another order.
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
    /// What is done with written data.
    pub policy: Policy,
    /// Memory for blocks in flight.
    pub buffer_bytes: u64,
    /// Memory for the map; 0: no limit.
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
    /// How the collector chooses its victims.
    pub victim: VictimPolicy,
    /// How often the volume takes a snapshot on its own.
    pub snapshot_every: String,
    /// Which of these are kept.
    pub snapshot_keep: String,
}

impl Settings {
    /// The defaults for this volume.
    pub fn usual(superblock: &Superblock) -> Self {
        Self {
            policy: Policy::usual(superblock),
            buffer_bytes: BUFFER_BYTES,
            map_bytes: map_bytes(superblock.logical_blocks() * BLOCK_BYTES as u64),
            mount_options: String::new(),
            label: String::new(),
            replay: Replay::Auto,
            journals: Vec::new(),
            persistence: Persistence::default(),
            victim: VictimPolicy::default(),
            snapshot_every: "off".to_owned(),
            snapshot_keep: USUAL_KEEP.to_owned(),
        }
    }

    /// The schedule of automatic snapshots.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            every: self.snapshot_every.parse().ok(),
            keep: self.snapshot_keep.parse().unwrap_or_default(),
        }
    }
}
