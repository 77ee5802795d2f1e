//! Every bound of the core in one place, with the relations between them.

use crate::format::chunk::RECORD_ROOM;

/// Data blocks in a chunk, at most: 1 MiB, long enough that a header is 0.4% and short enough to be one
/// write.
pub const CHUNK_DATA_BLOCKS: usize = 256;

/// Bytes of a header that parts leave to the records of what else its chunk takes.
pub const HEADER_RESERVE: usize = 1024;

/// The longest part that a runtime should offer: beside a longer one there is hardly room for another.
pub const LONGEST_PART: usize = 3 << 10;

/// Chunk writes in flight, at most.
pub const CHUNKS_IN_FLIGHT: usize = 32;

/// Segments that only the collector may take: one to move into, one to go on in, and one in case a
/// victim's survivors straddle.
pub const COLLECTOR_SEGMENTS: usize = 3;

/// Emptied segments that wait for nothing but a map checkpoint before one is made for their sake, and a 64th
/// of all segments; one is enough when free ones are short.
pub const PINNED_SEGMENTS: u64 = 4;

/// Blocks of one collector read.
pub const GATHER_BLOCKS: u32 = 32;

/// Map leaves and summaries written at the same time by a map checkpoint.
pub const META_IN_FLIGHT: usize = 16;

/// Chunks of the log after which a map checkpoint is due, whatever their size: bounds recovery.
pub const CHUNKS_BETWEEN_CHECKPOINTS: u64 = 8192;

/// Blocks of the log after which a map checkpoint is due, at least and at most (128 MiB, 1 GiB).
pub const LOG_BLOCKS_BETWEEN_CHECKPOINTS: (u64, u64) = (32 << 10, 256 << 10);

/// Log blocks per dirty leaf before a map checkpoint is due: keeps its share of the writes under 1/64.
pub const LOG_BLOCKS_PER_DIRTY_LEAF: u64 = 64;

/// Erasures in flight, at most: a large volume has hundreds of thousands of free segments when it is opened.
pub const ERASURES_IN_FLIGHT: u32 = 16;

/// Segments whose checksums are kept in memory (4 KiB each at 1024 blocks a segment: 16 MiB).
pub const CACHED_SUMS: usize = 4096;

/// Strays (see `engine::restamp`) that are remembered at least: 48 KiB of them.
pub const STRAYS: usize = 4096;

/// Journal blocks that are watched, at most, over all journals: 4 GiB of them, 12 MiB of memory.
pub const POOL_BLOCKS: u64 = 1 << 20;

/// Of the write buffer, in percent: in-line deduplication goes on again when so much or less is full, and
/// leaves off when so much is (CAFTL §3.4.3).
pub const DEDUP_SWITCH: (u64, u64) = (50, 95);

/// Pledges in force, at most: 1 MiB of memory.
pub const PLEDGES: usize = 16 << 10;

/// Comparisons with journal copies after which is judged whether they pay.
pub const COMPARES_IN_A_TRIAL: u32 = 1024;

/// Home blocks that are written without asking when they do not: at first, and at most.
pub const PAUSE_BLOCKS: (u32, u32) = (16 << 10, 1 << 20);

/// Nanoseconds that an unsealed chunk may stay in memory without a flush.
pub const SEAL_AFTER_NANOS: u64 = 5_000_000_000;

/// Nanoseconds between attempts to write to a medium that was full.
pub const RETRY_FULL_AFTER_NANOS: u64 = 1_000_000_000;

/// Tables: nanoseconds for which what no answer waits for is held back (OrderMergeDedup §3: 30 s).
pub const LATER_NANOS: u64 = 30_000_000_000;

/// Tables: nanoseconds for which a commit is held back when another write is likely meanwhile (§3: 1 ms).
pub const ANTICIPATION_NANOS: u64 = 1_000_000;

/// Tables: nanoseconds after which what nobody waits for is committed (§3: 1 s).
pub const COMMIT_AFTER_NANOS: u64 = 1_000_000_000;

/// Tables: links that change in one commit, at most: bounds memory, and the length of a commit.
pub const LINKS_IN_A_GROUP: usize = 16 << 10;

/// Tables: blocks of data that gather in memory before they are written.
pub const QUEUED_BLOCKS: usize = CHUNK_DATA_BLOCKS;

/// Tables: free blocks below which contents that nobody has any more are given up, and how many at a time.
pub const FREE_BLOCKS_LOW: u64 = 128;

/// See [`FREE_BLOCKS_LOW`].
pub const PRINTS_GIVEN_UP: usize = 1024;

/// Tables: references of a data block, at most: a content with more is stored once more.
pub const COUNT_MAX: u16 = u16::MAX - 1;

/// The longest record of one block (a move).
const LONGEST_RECORD: usize = 24;

const _: () = assert!(
    RECORD_ROOM / 12 >= CHUNK_DATA_BLOCKS,
    "a full chunk of new data fits its header"
);
const _: () = assert!(RECORD_ROOM >= LONGEST_RECORD * GATHER_BLOCKS as usize);
