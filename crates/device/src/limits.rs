//! Every bound of the device in one place, with the relations between them.

use std::num::NonZeroUsize;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::limits::{CHUNK_DATA_BLOCKS, EXTENT_BLOCKS, EXTENT_LOOKS, GATHER_BLOCKS};
use vellum_core::service::pace;

/// Frames for writes unless told otherwise: 32 MiB, the volatile write cache.
pub const WRITE_FRAMES: u32 = frames(32);
/// Frames for reads in flight unless told otherwise: 16 MiB.
pub const READ_FRAMES: u32 = frames(16);
/// Frames for the collector unless told otherwise: 16 MiB. With the others, a volume's 64 MiB.
pub const COLLECTOR_FRAMES: u32 = frames(16);

/// The fewest frames for writes: a chunk that fills while two are on their way, so that a client which
/// waits for a frame always waits for something that ends.
pub const WRITE_FRAMES_MIN: u32 = 4 * CHUNK_DATA_BLOCKS as u32;
/// The fewest frames for reads: the longest request that front ends make (1 MiB).
pub const READ_FRAMES_MIN: u32 = frames(1);
/// The fewest frames for the collector: two of its reads.
pub const COLLECTOR_FRAMES_MIN: u32 = 2 * GATHER_BLOCKS;
/// The most frames of each kind (4 GiB).
pub const FRAMES_MAX: u32 = frames(4096);

/// Blocks that start-up reads ahead, at most (1 MiB), once it is seen to read in sequence.
pub const READ_AHEAD_BLOCKS_MAX: usize = 256;
/// Blocks that it reads ahead at first.
pub const READ_AHEAD_BLOCKS_MIN: usize = 4;
/// Places that it goes forward from in turn: two heads of the log, the map, and one more.
pub const READ_AHEAD_WINDOWS: usize = 4;
/// Blocks that it rather reads through than beginning anew: about what one more read costs.
pub const READ_AHEAD_GAP: u64 = 32;

/// Metadata buffers of each length that are kept for use again.
pub const SPARE_BUFFERS: usize = 64;
/// The longest metadata buffers that are kept.
pub const SPARE_BUFFER_BLOCKS: usize = 4;

/// Blocks that are read back in one operation to be compared, and comparisons with them: the longest request that is usual
/// (256 KiB), and what may lie between its blocks.
pub const COMPARE_READ_BLOCKS: usize = 96;
/// Blocks that are rather read through than beginning anew: less than what one more read costs.
pub const COMPARE_READ_GAP: u64 = 8;
/// Blocks that are read through at once, in all such operations (4 MiB of memory). Beyond that, reads begin anew.
pub const COMPARE_READ_THROUGH: u64 = 1024;
/// Such operations that failed lately, and are remembered.
pub const COMPARE_READS_BROKEN: usize = 16;
/// Blocks of memory of such operations that are kept for use again (8 MiB). While more is read at once, there is more:
/// never more blocks than wait for their comparison, which are in the write buffer, and are read through.
pub const COMPARE_SPARE_BLOCKS: usize = 2048;

/// Blocks that are discarded at once of what was found empty when a volume was opened (256 MiB): a large one is through in
/// a second or two, and what clients write behind such a discard does not wait long.
pub const ERASE_BLOCKS_MAX: u32 = frames(256);

/// Written blocks that are kept in memory for each comparison: they are all kept where one in so many has a copy.
pub const KEPT_BLOCKS: usize = 64;
/// For as many after the last one, at most; and so many at first, until it is known whether contents come again.
pub const KEPT_BLOCKS_MAX: usize = 1024;

/// How often a volume that stops looks whether it waits for room on its medium.
pub const STOP_LOOKS: Duration = Duration::from_millis(100);
/// How often it says that it does.
pub const STOP_TELLS: Duration = Duration::from_secs(60);

/// Kinds of events that a volume remembers.
pub const EVENTS: usize = 64;

/// Extents of journals that are watched, over all of a volume: each block written is held against them.
pub const JOURNAL_EXTENTS: usize = 64;
/// Blocks between two extents of a journal that are taken for its own: two levels of indirect blocks.
pub const JOURNAL_GAP_BLOCKS: u64 = 2;
/// Home addresses that are taken from the journal blocks of one batch of requests.
pub const PAIRS: usize = 16_384;

/// Blocks of a transaction that is pledged to its homes, at most: after a longer one, a flush that is saved is nothing
/// beside what was written.
pub const COMMITTED_PAIRS: usize = 256;
/// How long a commit block waits after the last block came that it may commit. jbd2 waits for those too, so nobody is kept waiting
/// who would not wait anyway; and a connection that has lost a packet or a path that is switched is back by then.
pub const COMMIT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a commit block waits before it is answered all the same: longer than what is in flight with it takes, and too short to be
/// noticed.
pub const COMMIT_SILENCE: Duration = Duration::from_millis(5);
/// How long a superblock of a journal that is not known waits for the scout.
pub const SCOUT_PATIENCE: Duration = Duration::from_secs(5);
/// Journals whose commit blocks wait, and extents of all of them: a few MiB of memory.
pub const COMMIT_JOURNALS: usize = 64;
/// See [`COMMIT_JOURNALS`].
pub const COMMIT_EXTENTS: usize = 65_536;
/// How long what a scan depends on must have been left alone before there is a new one.
pub const SCAN_QUIET: Duration = Duration::from_millis(50);
/// How long after the first change there is one in any case.
pub const SCAN_LATEST: Duration = Duration::from_secs(1);
/// Blocks that a scan reads at once.
pub const SCAN_READ_BLOCKS: usize = 16;
/// Ranges that are never shared by their content: file systems' copies of what they cannot do without. One for each group of
/// 8 TiB of blocks of 4096 bytes without `sparse_super`, which else has them in a few; 1 MiB.
pub const CRITICAL_RANGES: usize = 65_536;
/// Ranges of metadata that are known of a volume: each block written is looked up in them. 256 KiB.
pub const METADATA_RANGES: usize = 16_384;
/// Bytes of the index of contents for each block of the volume, at most: what has been overwritten stays in it for eight times
/// as many writes as the volume has blocks.
pub const INDEX_BLOCK_BYTES: u64 = 64;
/// The smallest index of contents that is of use.
pub const INDEX_BYTES_MIN: u64 = 64 << 10;
/// Blocks a second that it reads unless told otherwise.
pub const SWEEP_RATE: u32 = pace::RATE;
/// How long one that was asked for waits for a moment without a client's request before it goes on by one pair.
pub const SWEEP_PATIENCE: Duration = Duration::from_nanos(pace::PATIENCE.0);
/// Blocks that clients must have written since the last sweep for another of its own accord.
pub const SWEEP_WRITES: u64 = pace::NEWS;
/// How long clients must have been quiet for it.
pub const SWEEP_QUIET: Duration = Duration::from_nanos(pace::QUIET.0);
/// How often the map checkpoint says how far a scrub is.
pub const SCRUB_KEEP: Duration = Duration::from_secs(60);
/// Blocks a second that a scrub reads beside clients, unless told otherwise: 32 MiB.
pub const SCRUB_RATE: u32 = 8 << 10;
/// What a scrub has found is listed up to so much of it (some 300 bytes each), and counted up to so much: 20 MiB of memory.
pub const SCRUB_FINDINGS: usize = 256;
/// See [`SCRUB_FINDINGS`].
pub const SCRUB_FINDINGS_KEPT: usize = 64 << 10;
/// Files of one block that it names.
pub const SCRUB_FILES: usize = 4;
/// How often it looks for a moment in which no map checkpoint, or commit of tables, is being written, with a millisecond between.
pub const SCRUB_TRIES: usize = 200;
/// How long it waits for a map checkpoint, or a commit of tables, that it has ordered.
pub const SCRUB_PATIENCE: Duration = Duration::from_secs(10);
/// Blocks of one of ext4's groups, of 128 MiB: a bucket of the log of deltas (CSA-FS §3.3).
pub const GROUP_BLOCKS: u64 = 32 << 10;
/// How often it is looked whether they have written so much.
pub const SWEEP_CHECK: Duration = Duration::from_secs(60);
/// Blocks of a run of freed blocks that is dropped at once.
pub const FREED_RUN_BLOCKS: u64 = 1024;
/// Runs that are dropped at once, under the volume's lock.
pub const FREED_RUNS: usize = 32;
/// Writes that end while a scan runs and are remembered, so that none is missed; if there are more, it is done
/// again.
pub const SCAN_WRITES: usize = 4096;

const fn frames(mebibytes: u32) -> u32 {
    mebibytes * ((1 << 20) / BLOCK_BYTES as u32)
}

/// Blocks from the first on that must be zero where a volume is made: file systems, partition tables, RAIDs and the like begin there.
pub const BLANK_BLOCKS: u64 = 256;

const _: () = assert!(WRITE_FRAMES_MIN <= WRITE_FRAMES && WRITE_FRAMES <= FRAMES_MAX);
const _: () = assert!(READ_FRAMES_MIN <= READ_FRAMES && READ_FRAMES <= FRAMES_MAX);
const _: () = assert!(COLLECTOR_FRAMES_MIN <= COLLECTOR_FRAMES && COLLECTOR_FRAMES <= FRAMES_MAX);
const _: () = assert!(READ_AHEAD_BLOCKS_MIN <= READ_AHEAD_BLOCKS_MAX);
const _: () = assert!(
    (4 * FRAMES_MAX as u64) < u32::MAX as u64,
    "a frame's number fits"
);
const _: () = assert!(
    FREED_RUN_BLOCKS <= EXTENT_LOOKS as u64 && FREED_RUN_BLOCKS <= EXTENT_BLOCKS,
    "one look at the map tells all of a run that is dropped"
);
const _: () = assert!(SCAN_READ_BLOCKS as u32 <= READ_FRAMES_MIN);
const _: () = assert!(SCAN_QUIET.as_millis() <= SCAN_LATEST.as_millis());

/// Blocks that are kept in memory because others may be stored as deltas against them: 16 MiB.
pub(crate) const BASES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// Copies in journals whose homes are known, at most: a transaction has fewer.
pub(crate) const COPIES_KNOWN: usize = 32 << 10;

/// How long a snapshot waits for writes that wait before the volume.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// How often it looks, a millisecond each, while it keeps others waiting.
pub const SNAPSHOT_WAITS: u32 = 30;

/// How long it takes at most until a volume that takes snapshots by itself looks at the clock again, or tries again what has failed.
pub const SCHEDULE_PATIENCE: Duration = Duration::from_secs(60);

/// A clock that is so much further than it can be has leapt.
pub const CLOCK_LEAP: Duration = Duration::from_secs(3600);

/// How long a volume may have been away, by its newest snapshot, without a doubt that the clock is right.
pub const CLOCK_GAP: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long after a boot the clock may be set, as far as a volume may have been away.
pub const CLOCK_SET: Duration = Duration::from_secs(3600);

/// How long one that has leapt is in doubt: no snapshot is deleted for its age until then.
pub const CLOCK_DOUBT: Duration = Duration::from_secs(24 * 3600);

/// Snapshots that go for each one that a volume takes by itself, at most: two rules may let one go at once.
pub const SCHEDULE_DELETES: usize = 2;

/// Blocks that a snapshot which is deleted gives up at a time.
pub const SNAPSHOT_ROWS: usize = 512;

/// Blocks that are written to a snapshot and kept in memory, at most: a journal that is replayed is rarely longer.
pub const SNAPSHOT_MEMORY: usize = (256 << 20) / vellum_core::addr::BLOCK_BYTES;
