//! What a volume counts, as its users read it: in bytes, serialisable.

pub use crate::waits::{WaitStats, WaitStep};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::recovery::Replayed;
use vellum_core::room::{Level, Room};
use vellum_core::stats::Stats;
use vellum_watch::{Extent, FileSystemStats};

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpStats {
    /// How many.
    pub requests: u64,
    /// Bytes that they named.
    pub bytes: u64,
}

/// What clients asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStats {
    /// Reads.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// Flushes.
    pub flush: OpStats,
    /// Discards.
    pub discard: OpStats,
    /// Writes of zeros by length.
    pub write_zeroes: OpStats,
    /// Of all these: with FUA.
    pub fua: u64,
    /// Of all these: answered with an error. Also counts writes that got no memory, and writes whose old blocks snapshots had no
    /// room to keep.
    pub refused: u64,
    /// In flight now.
    pub in_flight: u64,
}

/// What the medium was asked. Users see all counters of its groups side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediumStats {
    /// Bytes written, all together.
    pub written_bytes: u64,
    /// Bytes written, by cause.
    #[serde(flatten)]
    pub by_cause: WrittenStats,
    /// Bytes read, by who needs them.
    #[serde(flatten)]
    pub read: ReadStats,
    /// How blocks are compared.
    #[serde(flatten)]
    pub compared: CompareStats,
    /// Write operations.
    pub writes: u64,
    /// Of these: durable by themselves, so that they need no sync.
    pub durable_writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Discards.
    pub discards: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations in flight now.
    pub in_flight: u64,
}

/// What was written to the medium, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenStats {
    /// Clients' data.
    pub data_bytes: u64,
    /// Chunk headers.
    pub header_bytes: u64,
    /// Data that the collector moved.
    pub moved_bytes: u64,
    /// Segment summaries.
    pub summary_bytes: u64,
    /// Map checkpoints; on the layout `shadow`, the roots.
    pub map_bytes: u64,
    /// The map of `ordered` and `shadow`.
    pub link_bytes: u64,
    /// Their counts of each page's owners.
    pub count_bytes: u64,
    /// Their fingerprints.
    pub fingerprint_bytes: u64,
    /// The editions of the map's blocks of `ordered`.
    pub edition_bytes: u64,
    /// The directory of the tables of `shadow`.
    pub directory_bytes: u64,
}

/// What was read from the medium, by who needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadStats {
    /// Bytes read for clients.
    pub read_client_bytes: u64,
    /// Bytes read by the collector.
    pub read_collector_bytes: u64,
    /// Bytes of metadata read.
    pub read_metadata_bytes: u64,
    /// Bytes read by a fold, to be stored anew.
    pub read_fold_bytes: u64,
    /// Bytes read to compare a block with a copy that is stored.
    pub read_compare_bytes: u64,
}

/// How blocks are compared with copies that are stored, and what that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompareStats {
    /// Read operations to compare blocks.
    pub compare_reads: u64,
    /// Comparisons without a read: the copy was still in memory after it was written.
    pub compare_kept: u64,
    /// Time spent comparing, without the reads.
    pub compare_micros: u64,
    /// Time spent computing fingerprints.
    pub fingerprint_micros: u64,
}

/// Buffers in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Frames for writes.
    pub write_frames: u64,
    /// Of these: free.
    pub write_frames_free: u64,
    /// Frames for reads.
    pub read_frames: u64,
    /// Of these: free.
    pub read_frames_free: u64,
}

/// How full it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoomStats {
    /// For a thin volume: ample; from 80 per cent on filling, from 90 high, from 95 critical.
    pub level: String,
    /// Whether clients see more than there is.
    pub thin: bool,
    /// Bytes of data in use.
    pub used_bytes: u64,
    /// Bytes of data that may be in use at once.
    pub capacity_bytes: u64,
    /// How much of that is in use.
    pub used_percent: u64,
}

impl RoomStats {
    pub(crate) fn new(level: Level, room: Room) -> Self {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        Self {
            level: level.name().to_owned(),
            thin: room.is_thin(),
            used_bytes: bytes(room.live),
            capacity_bytes: bytes(room.capacity),
            used_percent: room.percent(),
        }
    }
}

/// What clients have stored, and what that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceStats {
    /// Bytes that clients can address.
    pub logical_bytes: u64,
    /// Of these: with something stored. Zeros, discarded blocks and blocks never written store nothing.
    pub mapped_bytes: u64,
    /// Of the mapped ones: in pages with one owner.
    pub unique_bytes: u64,
    /// Of the mapped ones: in pages with several owners.
    pub shared_bytes: u64,
    /// Of the mapped ones: in parts of pages.
    pub packed_bytes: u64,
    /// The pages of all these.
    pub stored_bytes: u64,
    /// The mapped bytes less the stored ones.
    pub saved_bytes: u64,
}

impl SpaceStats {
    pub(crate) fn new(blocks: u64, core: &Stats) -> Self {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let unique = core
            .live_blocks
            .saturating_sub(core.shared_pages + core.packed_pages);
        let mapped = unique + core.shared_owners + core.packed_owners;
        Self {
            logical_bytes: bytes(blocks),
            mapped_bytes: bytes(mapped),
            unique_bytes: bytes(unique),
            shared_bytes: bytes(core.shared_owners),
            packed_bytes: bytes(core.packed_owners),
            stored_bytes: bytes(core.live_blocks),
            // Deltas may need pages that have no owner any more.
            saved_bytes: bytes(mapped.saturating_sub(core.live_blocks)),
        }
    }
}

/// How well deduplication works. The core counts more about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedupStats {
    /// How full the index of contents is; absent without one.
    pub index_percent: Option<f64>,
    /// How many per cent of the blocks looked up there were shared; absent before the first lookup.
    pub hit_percent: Option<f64>,
    /// For how many per cent of the blocks looked up there it was wrong; absent before the first lookup.
    pub false_hint_percent: Option<f64>,
}

impl DedupStats {
    pub(crate) fn new(core: &Stats) -> Self {
        let percent = |part: u64, of: u64| (of > 0).then(|| 100.0 * part as f64 / of as f64);
        Self {
            index_percent: percent(core.index_entries, core.index_capacity),
            hit_percent: percent(core.dedup_blocks, core.dedup_lookups),
            false_hint_percent: percent(core.dedup_false_hints, core.dedup_lookups),
        }
    }
}

/// What became of blocks that could be deltas: blocks other than zeros that replaced something while deltas were on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaStats {
    /// How many there were.
    pub asked_blocks: u64,
    /// Of these: no delta may be made against the block that they replaced.
    pub unfit_blocks: u64,
    /// Of these: a delta may be made, but the base's bytes were not in memory.
    pub base_misses: u64,
    /// Of these: a delta may be made, and the base's bytes were in memory.
    pub base_hits: u64,
    /// Of those with a base: the delta was more than half as long as the base, so the block was stored by itself.
    pub long_blocks: u64,
    /// Of those with a base: the base changed while the delta was made.
    pub stale_blocks: u64,
    /// Stored as deltas. The rest was stored already, absorbed, or found no place.
    pub stored_blocks: u64,
    /// Bytes of these before they were encoded.
    pub whole_bytes: u64,
    /// Bytes of these as they are stored.
    pub stored_bytes: u64,
    /// Deltas that clients read from the medium.
    pub read_blocks: u64,
    /// Pages read because a delta needed them.
    pub base_reads: u64,
}

impl DeltaStats {
    pub(crate) fn new(counted: &DeltaCounters, core: &Stats) -> Self {
        let &DeltaCounters {
            unfit,
            misses,
            hits,
            long,
            stale,
        } = counted;
        Self {
            asked_blocks: unfit + misses + hits,
            unfit_blocks: unfit,
            base_misses: misses,
            base_hits: hits,
            long_blocks: long,
            stale_blocks: stale,
            stored_blocks: core.delta_blocks,
            whole_bytes: core.delta_blocks * BLOCK_BYTES as u64,
            stored_bytes: core.delta_bytes,
            read_blocks: core.delta_reads,
            base_reads: core.base_reads,
        }
    }
}

/// What opening took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStats {
    /// Time of recovery, in microseconds.
    pub micros: u64,
    /// Chunks of the log replayed.
    pub chunks: u64,
    /// Data blocks verified in the part of the log that was not known to be durable.
    pub verified_blocks: u64,
    /// Leaves of the map loaded.
    pub leaves: u64,
    /// Blocks read.
    pub read_blocks: u64,
    /// Whether one superblock mirror was damaged or old.
    pub mirror_lost: bool,
    /// Damaged blocks of metadata whose contents a copy supplied.
    #[serde(default)]
    pub from_copies: u64,
}

impl RecoveryStats {
    pub(crate) fn of(began: Instant, replayed: Replayed, read_blocks: u64) -> Self {
        Self {
            micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
            chunks: replayed.chunks,
            verified_blocks: replayed.verified,
            leaves: replayed.leaves,
            read_blocks,
            mirror_lost: replayed.mirror_lost,
            from_copies: replayed.from_copies,
        }
    }
}

/// What became of flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushStats {
    /// From clients.
    pub received: u64,
    /// Of these: answered at once, because nothing was unsynced.
    pub free: u64,
    /// Answered by a sync that another flush had requested.
    pub merged: u64,
    /// Answered by a sync, or a durable write, of their own.
    pub passed_on: u64,
    /// How long their clients waited, in the volume.
    pub waited: WaitStats,
}

impl FlushStats {
    pub(crate) fn new(core: &Stats, waited: WaitStats) -> Self {
        let (received, free, merged) = (core.flushes, core.flushes_free, core.flushes_merged);
        Self {
            received,
            free,
            merged,
            passed_on: received.saturating_sub(free + merged),
            waited,
        }
    }
}

/// What write-once journaling works with; what it does is counted by the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOnceStats {
    /// The rule in force: off, on, paper or descriptor.
    pub policy: String,
    /// The hash in force.
    pub hash: String,
    /// Commit blocks written into the journals below.
    pub commits: u64,
    /// How often the scout looked for journals.
    pub scans: u64,
    /// Journals set by hand.
    pub set_journals: Vec<Extent>,
    /// What was found, in use or not.
    pub file_systems: Vec<FileSystemStats>,
    /// What is wrong with the partition tables.
    pub table_faults: Vec<String>,
}

/// What became of commit blocks of journals that are followed: each waits for what it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStats {
    /// Commit blocks handed to the core after everything that they commit.
    pub complete: u64,
    /// How often a commit block arrived too early, and waited. Superblocks that waited for the scout are counted too.
    pub waited: u64,
    /// Commit blocks handed to the core although it is not known what they commit: the first of a journal that is followed from its
    /// middle on.
    pub unjudged: u64,
    /// Commit blocks that waited in vain, and were answered with an error.
    pub refused: u64,
    /// Commit blocks that wait now.
    pub waiting: u64,
    /// Whether a write that the scout has not looked at yet may have made a new journal.
    pub looking: bool,
}

/// A file system whose freed blocks are dropped, or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreedFileSystem {
    /// Its partition's first byte.
    pub start: u64,
    /// Why they are not dropped; absent if they are.
    pub not_followed: Option<String>,
}

/// What became of blocks that mounted file systems gave up without a discard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreedStats {
    /// Whether such blocks are dropped.
    pub on: bool,
    /// The file systems; none before the first scan.
    pub file_systems: Vec<FreedFileSystem>,
    /// Transactions whose commit was seen.
    pub commits: u64,
    /// Copies of block bitmaps in them.
    pub bitmap_copies: u64,
    /// Block bitmaps that came home as their last committed copy.
    pub bitmaps_home: u64,
    /// Block bitmaps written home otherwise: their groups were forgotten.
    pub bitmaps_foreign: u64,
    /// Copies of bitmaps that mark blocks as free that cannot be.
    pub bitmaps_refused: u64,
    /// Groups that were left out because too many were under way.
    pub groups_left_out: u64,
    /// Blocks that were about to be dropped when they were written again.
    pub cancelled_blocks: u64,
    /// Blocks that a committed bitmap marks as free. They wait until that bitmap is home and durable. Most have nothing stored.
    pub waiting_blocks: u64,
    /// Discards of our own.
    pub discards: u64,
    /// Blocks that had something stored and were dropped.
    pub dropped_blocks: u64,
}

/// Scheduled snapshots, and what all snapshots keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryStats {
    /// The schedule's interval in seconds; 0: there is no schedule.
    pub every_seconds: u64,
    /// Scheduled snapshots that were taken.
    pub taken: u64,
    /// Scheduled snapshots that were deleted because no rule keeps them.
    pub deleted: u64,
    /// Scheduled snapshots that were deleted because there was no room.
    pub deleted_for_room: u64,
    /// How often a scheduled snapshot could not be taken or deleted.
    pub failed: u64,
    /// Blocks that snapshots and clones keep.
    pub kept_blocks: u64,
    /// The most blocks that they can keep.
    pub most_blocks: u64,
}

/// All that a volume counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStats {
    /// Time since it was opened, in milliseconds.
    pub uptime_ms: u64,
    /// Whether a failed write or sync has poisoned it, or damage of its map.
    pub poisoned: bool,
    /// Which block of the map is damaged, and what to do, if that has poisoned it.
    pub poisoned_by: Option<String>,
    /// How often the volume's thread has woken; it does not grow while the volume is idle.
    pub wakeups: u64,
    /// Blocks that failed their checksum.
    pub checksum_failures: u64,
    /// Bytes written to the medium for each byte that clients wrote; absent before the first.
    pub write_amplification: Option<f64>,
    /// What clients asked.
    pub clients: ClientStats,
    /// What the medium was asked.
    pub medium: MediumStats,
    /// Buffers in use.
    pub memory: MemoryStats,
    /// How full it is.
    pub room: RoomStats,
    /// What clients have stored, and what that takes.
    pub space: SpaceStats,
    /// How well deduplication works.
    pub dedup: DedupStats,
    /// What became of blocks that could be deltas.
    pub deltas: DeltaStats,
    /// What opening took.
    pub recovery: RecoveryStats,
    /// What became of flushes.
    pub flushes: FlushStats,
    /// What write-once journaling works with.
    pub write_once: WriteOnceStats,
    /// What became of commit blocks.
    pub commits: CommitStats,
    /// What became of freed blocks.
    pub freed: FreedStats,
    /// Scheduled snapshots, and what all snapshots keep.
    #[serde(default)]
    pub history: HistoryStats,
    /// The core's own counters, by name; in blocks of 4 KiB where they count data.
    pub core: BTreeMap<String, u64>,
}

/// Counts blocks that replace something: by whether there was a base, and why the deltas of some were not stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeltaCounters {
    pub unfit: u64,
    pub misses: u64,
    pub hits: u64,
    pub long: u64,
    pub stale: u64,
}

/// What the device counts itself, under the volume's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub clients: ClientStats,
    pub refused: u64,
    pub writes: u64,
    pub durable_writes: u64,
    pub written_blocks: u64,
    pub read_blocks_clients: u64,
    pub read_blocks_collector: u64,
    pub read_blocks_metadata: u64,
    pub read_blocks_fold: u64,
    pub read_blocks_compare: u64,
    pub reads_compare: u64,
    pub compares_kept: u64,
    pub deltas: DeltaCounters,
    pub compare_nanos: u64,
    pub fingerprint_nanos: u64,
    pub syncs: u64,
    pub discards: u64,
    pub errors: u64,
    pub wakeups: u64,
}

impl Counters {
    pub fn medium(&self, core: &Stats, in_flight: usize) -> MediumStats {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        MediumStats {
            written_bytes: bytes(self.written_blocks),
            by_cause: WrittenStats {
                data_bytes: bytes(core.medium_data),
                header_bytes: bytes(core.medium_headers),
                moved_bytes: bytes(core.medium_moved),
                summary_bytes: bytes(core.medium_summaries),
                map_bytes: bytes(core.medium_map),
                link_bytes: bytes(core.medium_links),
                count_bytes: bytes(core.medium_counts),
                fingerprint_bytes: bytes(core.medium_fingerprints),
                edition_bytes: bytes(core.medium_editions),
                directory_bytes: bytes(core.medium_directory),
            },
            read: ReadStats {
                read_client_bytes: bytes(self.read_blocks_clients),
                read_collector_bytes: bytes(self.read_blocks_collector),
                read_metadata_bytes: bytes(self.read_blocks_metadata),
                read_fold_bytes: bytes(self.read_blocks_fold),
                read_compare_bytes: bytes(self.read_blocks_compare),
            },
            compared: CompareStats {
                compare_reads: self.reads_compare,
                compare_kept: self.compares_kept,
                compare_micros: self.compare_nanos / 1000,
                fingerprint_micros: self.fingerprint_nanos / 1000,
            },
            writes: self.writes,
            durable_writes: self.durable_writes,
            syncs: self.syncs,
            discards: self.discards,
            errors: self.errors,
            in_flight: in_flight as u64,
        }
    }
}
