//! Every bound of the device, with the relations between them.

use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::limits::{CHUNK_DATA_BLOCKS, EXTENT_BLOCKS, EXTENT_LOOKS, GATHER_BLOCKS};
use vellum_core::service::pace;
use vellum_watch::limits::FREED_RUN_BLOCKS;

pub use vellum_watch::limits::COMMITTED_PAIRS;

/// Default number of frames for writes: 32 MiB, the volatile write cache.
pub const WRITE_FRAMES: u32 = frames(32);
/// Default number of frames for reads in flight: 16 MiB.
pub const READ_FRAMES: u32 = frames(16);
/// Default number of frames for the collector: 16 MiB. With the others, a volume's 64 MiB.
pub const COLLECTOR_FRAMES: u32 = frames(16);

/// The fewest frames for writes: enough for one chunk that fills while two are being written. Then a client that waits for a frame always
/// waits for a write that will end.
pub const WRITE_FRAMES_MIN: u32 = 4 * CHUNK_DATA_BLOCKS as u32;
/// The fewest frames for reads: the longest request that front ends make (1 MiB).
pub const READ_FRAMES_MIN: u32 = frames(1);
/// The fewest frames for the collector: two of its reads.
pub const COLLECTOR_FRAMES_MIN: u32 = 2 * GATHER_BLOCKS;
/// The most frames of each kind (4 GiB).
pub const FRAMES_MAX: u32 = frames(4096);

/// Leaves of a log's map that are in memory while a check reads what snapshots keep (16 MiB).
pub const CHECK_LEAVES: usize = frames(16) as usize;

/// The most blocks that start-up reads ahead (1 MiB), once it is seen to read in sequence.
pub const READ_AHEAD_BLOCKS_MAX: usize = 256;
/// Blocks that it reads ahead at first.
pub const READ_AHEAD_BLOCKS_MIN: usize = 4;
/// Sequences that it follows in turn: two heads of the log, the map, and one more.
pub const READ_AHEAD_WINDOWS: usize = 4;
/// The widest gap that it reads through instead of beginning a new read: about what one more read costs.
pub const READ_AHEAD_GAP: u64 = 32;

/// Metadata buffers of each length that are kept for reuse.
pub const SPARE_BUFFERS: usize = 64;
/// The longest metadata buffers that are kept.
pub const SPARE_BUFFER_BLOCKS: usize = 4;

/// The most blocks that one operation reads back for comparisons, and the most comparisons that it serves: the longest usual
/// request (256 KiB), and gaps between its blocks.
pub const COMPARE_READ_BLOCKS: usize = 96;
/// The widest gap that such an operation reads through: it costs less than one more read.
pub const COMPARE_READ_GAP: u64 = 8;
/// The most blocks in gaps that all such operations read at a time (4 MiB of memory). Beyond that, a gap ends the read.
pub const COMPARE_READ_THROUGH: u64 = 1024;
/// Failed operations of this kind that are remembered.
pub const COMPARE_READS_BROKEN: usize = 16;
/// Blocks of memory of such operations that are kept for reuse (8 MiB). More are in use while more is read at once: at most one for
/// each block in the write buffer that waits for a comparison, and those in gaps.
pub const COMPARE_SPARE_BLOCKS: usize = 2048;

/// The most blocks in one discard of space that was found empty at an opening (256 MiB): a large volume is done in a second or two,
/// and clients' writes do not wait long behind such a discard.
pub const ERASE_BLOCKS_MAX: u32 = frames(256);

/// Written blocks that are kept in memory for each comparison: all are kept where one in this many has a copy.
pub const KEPT_BLOCKS: usize = 64;
/// The most that are kept after the last comparison; also how many are kept at first, until it is known whether contents are
/// repeated.
pub const KEPT_BLOCKS_MAX: usize = 1024;

/// How often a volume that stops checks whether it waits for room on its medium.
pub const STOP_LOOKS: Duration = Duration::from_millis(100);
/// How often it reports that it does.
pub const STOP_TELLS: Duration = Duration::from_secs(60);

/// Kinds of events that a volume remembers.
pub const EVENTS: usize = 64;

/// The most bytes of the index of contents for each block of the volume. An index of that size remembers overwritten contents for
/// eight times as many writes as the volume has blocks.
pub const INDEX_BLOCK_BYTES: u64 = 64;
/// The smallest index of contents that is of use.
pub const INDEX_BYTES_MIN: u64 = 64 << 10;
/// Default number of blocks a second that a sweep reads.
pub const SWEEP_RATE: u32 = pace::RATE;
/// How long a requested sweep waits for a moment without client requests before it goes on by one pair.
pub const SWEEP_PATIENCE: Duration = Duration::from_nanos(pace::PATIENCE.0);
/// Blocks that clients must have written since the last sweep before the volume starts another by itself.
pub const SWEEP_WRITES: u64 = pace::NEWS;
/// How long clients must have been quiet for that.
pub const SWEEP_QUIET: Duration = Duration::from_nanos(pace::QUIET.0);
/// How often a scrub's progress is kept in a map checkpoint.
pub const SCRUB_KEEP: Duration = Duration::from_secs(60);
/// Default number of blocks a second that a scrub reads beside clients: 32 MiB.
pub const SCRUB_RATE: u32 = 8 << 10;
/// The most findings of a scrub that are listed (some 300 bytes each); [`SCRUB_FINDINGS_KEPT`] is the most that are counted: 20
/// MiB of memory.
pub const SCRUB_FINDINGS: usize = 256;
/// See [`SCRUB_FINDINGS`].
pub const SCRUB_FINDINGS_KEPT: usize = 64 << 10;
/// Files that a scrub names for one block.
pub const SCRUB_FILES: usize = 4;
/// How often a scrub looks for a moment in which no map checkpoint, or commit of tables, is being written. It waits a millisecond
/// between looks.
pub const SCRUB_TRIES: usize = 200;
/// How long a scrub waits for a map checkpoint, or a commit of tables, that it has requested.
pub const SCRUB_PATIENCE: Duration = Duration::from_secs(10);
/// How often a volume checks whether clients have written [`SWEEP_WRITES`] blocks.
pub const SWEEP_CHECK: Duration = Duration::from_secs(60);
/// Blocks that a scan reads at once.
pub const SCAN_READ_BLOCKS: usize = 16;
/// Runs that are dropped at once, under the volume's lock.
pub const FREED_RUNS: usize = 32;

const fn frames(mebibytes: u32) -> u32 {
    mebibytes * ((1 << 20) / BLOCK_BYTES as u32)
}

/// Blocks at the start of a medium that must be zero where a volume is made: file systems, partition tables, RAIDs and the like
/// begin there.
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

/// How long a snapshot waits for writes that are held up before the volume.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is checked whether requests still wait, a millisecond apart, while new ones are held up: for a snapshot, or another size.
pub const HELD_UP_WAITS: u32 = 30;

/// How long a volume that is to grow or shrink waits for a moment at which no request waits for another one.
pub const RESIZE_PATIENCE: Duration = Duration::from_secs(10);

/// The longest time until a volume that takes snapshots by itself looks at the clock again, or retries what has failed.
pub const SCHEDULE_PATIENCE: Duration = Duration::from_secs(60);

/// A clock has leapt if it is ahead of the latest possible time by more than this.
pub const CLOCK_LEAP: Duration = Duration::from_secs(3600);

/// How long a volume may have been away, judged by its newest snapshot, before the clock is doubted.
pub const CLOCK_GAP: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long after a boot the clock may still be set. Until then, a time within [`CLOCK_GAP`] of the newest snapshot is not doubted.
pub const CLOCK_SET: Duration = Duration::from_secs(3600);

/// How long a clock that has leapt is in doubt: until then no snapshot is deleted for its age.
pub const CLOCK_DOUBT: Duration = Duration::from_secs(24 * 3600);

/// The most snapshots that are deleted for each one that a volume takes by itself: two rules may let one go at once.
pub const SCHEDULE_DELETES: usize = 2;

/// Blocks of rows that an opening reads at once.
pub const ROWS_READ_BLOCKS: u64 = 128;

/// Blocks that a snapshot gives up at a time while it is deleted.
pub const SNAPSHOT_ROWS: usize = 512;

/// The most blocks that are written to a snapshot and kept in memory: a journal that is replayed is rarely longer.
pub const SNAPSHOT_MEMORY: usize = (256 << 20) / vellum_core::addr::BLOCK_BYTES;
