//! What can be chosen when a volume is made or opened, and why that can fail.

use crate::events::OnEvent;
use crate::journals::{Extent, JournalError};
use crate::limits;
use crate::policy::{NoIndex, Policy};
use vellum_core::engine::Victim;
use vellum_core::format::FormatError;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::history::Name;
use vellum_core::format::properties::Properties;
use vellum_core::recovery::RecoveryError;
use vellum_core::recovery::rescue::Trust;
use vellum_core::snapshots::Schedule;
use vellum_core::tables::Persistence;
use vellum_medium::MediumError;

/// Of a new volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Blocks that clients see; `None`: what the medium holds less over-provisioning.
    pub logical_blocks: Option<u64>,
    /// Space kept from the clients, in thousandths of what they see.
    pub over_provisioning: u32,
    /// Blocks in a segment, a power of two; `None`: by the medium's size.
    pub segment_blocks: Option<u32>,
    /// Write over a volume that is there already.
    pub force: bool,
    /// How blocks, and what is known of them, lie on the medium.
    pub layout: Layout,
    /// What its user has chosen already.
    pub properties: Properties,
    /// How much snapshots can keep, in thousandths of what clients see; 0: there are none.
    pub history: u32,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            logical_blocks: None,
            over_provisioning: 100,
            segment_blocks: None,
            force: false,
            layout: Layout::Log,
            properties: Properties::default(),
            history: 0,
        }
    }
}

/// Of a volume that is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Refuse writes, and write nothing to the medium. A volume that is damaged is opened as well, as far as it is whole.
    pub read_only: bool,
    /// Of a damaged volume: what a block is that nothing is certain of.
    pub trust: Trust,
    /// Frames for writes (4 KiB each): the volatile write cache.
    pub write_frames: u32,
    /// Frames for reads in flight.
    pub read_frames: u32,
    /// Frames for the collector.
    pub collector_frames: u32,
    /// Of a log: how many leaves of what says where blocks are stay in memory, 4 KiB each; `None`: all.
    pub map_leaves: Option<usize>,
    /// How the collector chooses.
    pub victim: Victim,
    /// Whether freed segments are discarded; `None`: if the medium wants it.
    pub discard: Option<bool>,
    /// What is done with what is written; can be changed later.
    pub policy: Policy,
    /// Journals that are watched wherever others are found.
    pub journals: Vec<Extent>,
    /// Segments whose checksums are kept in memory; `None`: the core's limit.
    pub cached_sums: Option<usize>,
    /// When a write is answered, on a layout that has the choice (`ordered`, `shadow`).
    pub persistence: Persistence,
    /// Told of each kind of trouble when it first happens.
    pub on_event: Option<OnEvent>,
    /// All snapshots are given up, unread.
    pub without_snapshots: bool,
    /// The snapshots that it takes by itself.
    pub schedule: Schedule,
    /// Open it to write also where a snapshot is being received: to receive the rest of it, or to give it up.
    pub receiving: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            trust: Trust::Certain,
            write_frames: limits::WRITE_FRAMES,
            read_frames: limits::READ_FRAMES,
            collector_frames: limits::COLLECTOR_FRAMES,
            map_leaves: None,
            victim: Victim::default(),
            discard: None,
            policy: Policy::default(),
            journals: Vec::new(),
            cached_sums: None,
            persistence: Persistence::default(),
            on_event: None,
            without_snapshots: false,
            schedule: Schedule::default(),
            receiving: false,
        }
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("read_only", &self.read_only)
            .field("write_frames", &self.write_frames)
            .field("read_frames", &self.read_frames)
            .field("collector_frames", &self.collector_frames)
            .finish_non_exhaustive()
    }
}

impl OpenOptions {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bounds = [
            ("write frames", self.write_frames, limits::WRITE_FRAMES_MIN),
            ("read frames", self.read_frames, limits::READ_FRAMES_MIN),
            (
                "collector frames",
                self.collector_frames,
                limits::COLLECTOR_FRAMES_MIN,
            ),
        ];
        for (what, value, min) in bounds {
            if !(min..=limits::FRAMES_MAX).contains(&value) {
                return Err(OpenError::Frames {
                    what,
                    value,
                    min,
                    max: limits::FRAMES_MAX,
                });
            }
        }
        Ok(())
    }
}

/// Why a volume could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The medium cannot hold it as asked.
    #[error("{name}: {source}")]
    Geometry {
        /// The medium.
        name: String,
        /// Why not.
        source: GeometryError,
    },
    /// A volume is there already.
    #[error("{name} holds a vellum volume already (UUID {uuid}); --force overwrites it")]
    Exists {
        /// The medium.
        name: String,
        /// The volume's UUID.
        uuid: String,
    },
    /// A volume of a newer version is there.
    #[error("{name} holds a vellum volume: {source}; --force overwrites it")]
    Newer {
        /// The medium.
        name: String,
        /// How new.
        source: FormatError,
    },
    /// Something else is there.
    #[error(
        "{name} is not empty: its byte {offset} is not zero, as of a file system or a partition table; --force overwrites it"
    )]
    NotBlank {
        /// The medium.
        name: String,
        /// The first byte that is not zero.
        offset: u64,
    },
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// No randomness for its identity.
    #[error("no randomness from the system for the volume's identity: {0}")]
    Random(std::io::Error),
}

/// Why a volume could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What belongs to snapshots.
    #[error(
        "what says which snapshots there are is damaged: {0}; `vellum delete VOLUME --all` gives all \
         snapshots up, and the volume is as before; until then `vellum serve --read-only` shows it"
    )]
    Snapshots(String),
    /// Half of a snapshot is there.
    #[error(
        "snapshot {0} is being received, and not all of it is there: give `vellum receive` the same stream \
         again; or give it up by `vellum delete VOLUME {0}`, and then go back by `vellum rollback`"
    )]
    Arriving(Name),
    /// What is on the medium.
    #[error("{name}: {source}")]
    Recovery {
        /// The medium.
        name: String,
        /// What is wrong.
        source: Box<RecoveryError>,
    },
    /// A pack.
    #[error(
        "{0} is a pack of a volume, and holds no data: `vellum dump`, `check` and `info` read it, and \
         nothing can be served"
    )]
    WithoutData(String),
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// A journal set by hand.
    #[error("journal {0}")]
    Journal(#[from] JournalError),
    /// A number of frames out of range.
    #[error("{value} {what} of 4 KiB: it must be from {min} to {max}")]
    Frames {
        /// Which.
        what: &'static str,
        /// Asked for.
        value: u32,
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
    /// Something that not every layout has.
    #[error(
        "{what}: the layout {layout} has no such thing; leave it out, or use the layout {instead}"
    )]
    Layout {
        /// Asked for.
        what: &'static str,
        /// The volume's layout.
        layout: &'static str,
        /// One that has it.
        instead: &'static str,
    },
    /// A log that has no place for a table of deltas.
    #[error(
        "deltas (delta=on): the volume was made by a version that had none, and has no table for them; leave it out, or \
         `vellum migrate` to a new volume"
    )]
    NoDeltas,
    /// An index of contents that there is no memory for.
    #[error(transparent)]
    Index(#[from] NoIndex),
    /// No memory or no thread.
    #[error("the system has no {what} for the volume: {source}")]
    System {
        /// What is missing.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

/// Why a volume was not stopped cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// Its medium had failed before, so nothing more was written.
    #[error(
        "the volume was poisoned by a failed write or sync: what was not flushed before may be lost; restart it to recover"
    )]
    Poisoned,
    /// A bug.
    #[error("the volume had stopped on an internal error: restart it to recover")]
    Internal,
}
