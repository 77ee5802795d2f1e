//! Options for making and opening a volume, and the errors of doing so.

use crate::events::OnEvent;
use crate::limits;
use crate::policy::{NoIndex, Policy};
use crate::refusals::map_is_damaged;
use vellum_core::addr::Pba;
use vellum_core::engine::VictimPolicy;
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
use vellum_watch::{Extent, JournalError};

/// Options of a new volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Blocks that clients see; `None`: what the medium holds, less over-provisioning.
    pub logical_blocks: Option<u64>,
    /// Space kept from the clients, in thousandths of what they see.
    pub over_provisioning: u32,
    /// Blocks in a segment, a power of two; `None`: by the medium's size.
    pub segment_blocks: Option<u32>,
    /// Overwrite a volume that is there already.
    pub force: bool,
    /// How blocks and their metadata lie on the medium.
    pub layout: Layout,
    /// What the user has chosen already.
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

/// Options for opening a volume.
#[derive(Clone)]
pub struct OpenOptions {
    /// Refuse writes, and write nothing to the medium. A damaged volume is opened, too, as far as it is whole.
    pub read_only: bool,
    /// What to do with a block of a damaged volume about which nothing is certain.
    pub trust: Trust,
    /// Frames for writes (4 KiB each): the volatile write cache.
    pub write_frames: u32,
    /// Frames for reads in flight.
    pub read_frames: u32,
    /// Frames for the collector.
    pub collector_frames: u32,
    /// How many leaves of a log's map stay in memory, 4 KiB each; `None`: all.
    pub map_leaves: Option<usize>,
    /// How the collector chooses its victims.
    pub victim: VictimPolicy,
    /// Whether freed segments are discarded; `None`: if the medium wants it.
    pub discard: Option<bool>,
    /// What is done with written blocks; can be changed later.
    pub policy: Policy,
    /// Journals to watch besides those that are found.
    pub journals: Vec<Extent>,
    /// Segments whose checksums are kept in memory; `None`: the core's limit.
    pub cached_sums: Option<usize>,
    /// When a write is answered, on a layout that has the choice (`ordered`, `shadow`).
    pub persistence: Persistence,
    /// Called when a kind of trouble first happens.
    pub on_event: Option<OnEvent>,
    /// Give up all snapshots without reading them. If it is read-only, only do not read them.
    pub without_snapshots: bool,
    /// The snapshots that it takes by itself.
    pub schedule: Schedule,
    /// Open it for writing even where a snapshot is being received: to receive the rest of it, to give it up, or to grow the
    /// volume for it. Its schedule rests meanwhile.
    pub receiving: bool,
    /// Open it for writing even where a rollback was cut short and cannot go on: only to give it room. The next opening goes on.
    pub to_make_room: bool,
    /// A copy is written to it, in the order of addresses and perhaps not whole. So no commit block of a journal waits for what it
    /// commits, nothing is replayed by the volume, and it drops nothing that a file system has freed.
    pub copying: bool,
    /// Empty the segments from this one on, because the medium becomes shorter.
    pub segments_end: Option<u32>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            trust: Trust::Shown,
            write_frames: limits::WRITE_FRAMES,
            read_frames: limits::READ_FRAMES,
            collector_frames: limits::COLLECTOR_FRAMES,
            map_leaves: None,
            victim: VictimPolicy::default(),
            discard: None,
            policy: Policy::default(),
            journals: Vec::new(),
            cached_sums: None,
            persistence: Persistence::default(),
            on_event: None,
            without_snapshots: false,
            schedule: Schedule::default(),
            receiving: false,
            to_make_room: false,
            copying: false,
            segments_end: None,
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

    /// The policy, as far as it can be followed.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            replay: self.policy.replay && !self.copying,
            freed: self.policy.freed && !self.copying,
            ..self.policy
        }
    }
}

/// Why a volume could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The medium cannot hold it as requested.
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
        /// What its version says.
        source: FormatError,
    },
    /// The medium is not blank.
    #[error(
        "{name} is not empty: its byte {offset} is not zero, as of a file system or a partition table; \
         --force overwrites it"
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
    /// No randomness for the volume's identity.
    #[error("no randomness from the system for the volume's identity: {0}")]
    Random(std::io::Error),
}

/// Why a volume could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The list of snapshots is damaged.
    #[error(
        "the list of snapshots is damaged: {0}. Do this, in order: copy what you need of the volume, which \
         `vellum serve VOLUME --read-only --socket PATH` serves; see by `vellum rescue VOLUME` which \
         snapshots and clones you lose; give them up by `vellum delete VOLUME --all`, and the volume works \
         as before"
    )]
    Snapshots(String),
    /// Half of a snapshot is there.
    #[error(
        "snapshot {0} is being received, and not all of it is there: give `vellum receive` the same stream \
         again; or give it up by `vellum delete VOLUME {0}`, and then go back by `vellum rollback`"
    )]
    Arriving(Name),
    /// A rollback was cut short, and cannot go on.
    #[error(
        "a rollback to snapshot {name} was cut short, and cannot go on: {why}. Until it has ended, the \
         volume holds a mixture of old and new blocks. `vellum delete` of another snapshot, or \
         `vellum grow`, makes room for it"
    )]
    Returning {
        /// The snapshot.
        name: Name,
        /// Why.
        why: String,
    },
    /// The medium holds no whole volume.
    #[error("{name}: {source}")]
    Recovery {
        /// The medium.
        name: String,
        /// What is wrong.
        source: Box<RecoveryError>,
    },
    /// It is a pack.
    #[error(
        "{0} is a pack of a volume, and holds no data: `vellum dump`, `check` and `info` read it, and \
         nothing can be served"
    )]
    WithoutData(String),
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// A journal set by hand is not valid.
    #[error("journal {0}")]
    Journal(#[from] JournalError),
    /// A number of frames out of range.
    #[error("{value} {what} of 4 KiB: it must be from {min} to {max}")]
    Frames {
        /// Which.
        what: &'static str,
        /// The number requested.
        value: u32,
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
    /// A feature that not every layout has.
    #[error(
        "{what}: the layout {layout} has no such thing; leave it out, or use the layout {instead}"
    )]
    Layout {
        /// What was requested.
        what: &'static str,
        /// The volume's layout.
        layout: &'static str,
        /// A layout that has it.
        instead: &'static str,
    },
    /// The log has no place for a table of deltas.
    #[error(
        "deltas (delta=on): the volume was made by a version that had none, and has no table for them; leave \
         it out, or `vellum migrate` to a new volume"
    )]
    NoDeltas,
    /// There is no memory for the index of contents.
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
        "the volume was poisoned by a failed write or sync: what was not flushed before may be lost; restart \
         it to recover"
    )]
    Poisoned,
    /// A block of its map is lost.
    #[error("{}", map_is_damaged(*.0))]
    MapDamaged(Pba),
    /// A bug.
    #[error("the volume had stopped on an internal error: restart it to recover")]
    Internal,
}
