//! Every bound of the core in one place, with the relations between them.

use crate::format::chunk::RECORD_ROOM;
use crate::format::names::NAMES_ROOM;

/// Data blocks in a chunk, at most: 1 MiB, long enough that a header is 0.4% and short enough to be one
/// write.
pub const CHUNK_DATA_BLOCKS: usize = 256;

/// Bytes of a header that parts leave to the records of what else its chunk takes: before anything is known of the load, and at
/// least (see `engine::expected`).
pub const HEADER_RESERVE: usize = 1024;

/// See [`HEADER_RESERVE`].
pub const LEAST_RESERVE: usize = 256;

/// The longest part that a runtime should offer: beside a longer one there is hardly room for another.
pub const LONGEST_PART: usize = 3 << 10;

/// Pages of buckets in a chunk with which no further bucket begins one: what comes in that goes with what is in none.
pub const PAGES_OF_BUCKETS: usize = 8;

/// Blocks in a row that are read at once to be stored anew.
pub const FOLD_BLOCKS: u32 = 16;

/// Deltas at once, at most: 28 MiB of memory.
pub const DELTAS: usize = 1 << 20;

/// Of the blocks by which a volume's capacity exceeds what clients see, one in so many may be a page that is kept because
/// deltas need it; of a thin volume, one in [`BASES_OF_THIN`] of all.
pub const BASES_OF_SPARE: u64 = 4;

/// See [`BASES_OF_SPARE`].
pub const BASES_OF_THIN: u64 = 64;

/// Of a thin volume no page is kept for that when more of its capacity than this is live, in percent (CSA-FS §3.3: its log
/// is merged back when less than a fifth is free).
pub const DELTAS_UP_TO: u64 = 80;

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

/// Leaves that share a parity.
pub const STRIPE: u32 = 16;

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

/// Strays (see `engine::restamp`) that are remembered at least: some 50 KiB of them.
pub const STRAYS: usize = 4096;

/// Journal blocks that are watched, at most, over all journals: 4 GiB of them, 6 MiB of memory, and some 24 MiB if all are
/// shared with their homes.
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

/// Runs of blocks, each within a leaf of the map, that are looked at when it is asked what is mapped: about a millisecond
/// of the volume's lock if all of these leaves are full, and microseconds if they are not there. Each is a block at least.
pub const EXTENT_LOOKS: usize = 1024;

/// Nanoseconds that an unsealed chunk may stay in memory without a flush.
pub const SEAL_AFTER_NANOS: u64 = 5_000_000_000;

/// Nanoseconds between attempts to write to a medium that was full.
pub const RETRY_FULL_AFTER_NANOS: u64 = 1_000_000_000;

/// Per cent of a thin volume's capacity at which it is filling, high, and critical (see `room`).
pub const ROOM_FILLING: u64 = 80;

/// See [`ROOM_FILLING`].
pub const ROOM_HIGH: u64 = 90;

/// See [`ROOM_FILLING`].
pub const ROOM_CRITICAL: u64 = 95;

/// Per cent by which it has to fall below a threshold before it counts as below.
pub const ROOM_RELIEF: u64 = 2;

/// Of a thin volume's capacity, one block in so many is kept for upkeep, and at most [`RESERVE_BLOCKS`] (see `reserve`).
pub const RESERVE_SHARE: u64 = 32;

/// See [`RESERVE_SHARE`]: 256 MiB.
pub const RESERVE_BLOCKS: u64 = 64 << 10;

/// Of the reserve, the last blocks are for what says which snapshots there are: a block of the list and one of rows at a time.
pub const RESERVE_BOOKS: u64 = 16;

/// Nanoseconds without a request for room after which upkeep that was refused may try again.
pub const RESERVE_QUIET_NANOS: u64 = 2_000_000_000;

/// Tables: nanoseconds for which what no answer waits for is held back (OrderMergeDedup §3: 30 s).
pub const LATER_NANOS: u64 = 30_000_000_000;

/// Tables: nanoseconds for which a commit is held back when another write is likely meanwhile (§3: 1 ms).
pub const ANTICIPATION_NANOS: u64 = 1_000_000;

/// Tables: nanoseconds after which what nobody waits for is committed (§3: 1 s).
pub const COMMIT_AFTER_NANOS: u64 = 1_000_000_000;

/// Shadowed tables: nanoseconds until the superblock says that a root is durable.
pub const MARK_AFTER_NANOS: u64 = 1_000_000_000;

/// Tables: links that change in one commit, at most: bounds memory, and the length of a commit. A discard is one step, so its
/// links come on top.
pub const LINKS_IN_A_GROUP: usize = 16 << 10;

/// Tables: their blocks that a commit writes at the same time, at most.
pub const TABLES_IN_FLIGHT: usize = 64;

/// Tables: blocks over which it is looked what is mapped, at most (16 GiB).
pub const EXTENT_BLOCKS: u64 = 4 << 20;

/// Tables: fingerprints that fill the index in one go when a volume is opened: bounds the time.
pub const PRINTS_AT_A_TIME: u32 = 16 << 10;

/// Tables: blocks of data that gather in memory before they are written.
pub const QUEUED_BLOCKS: usize = CHUNK_DATA_BLOCKS;

/// Tables: free blocks below which contents that nobody has any more are given up, and how many at a time.
pub const FREE_BLOCKS_LOW: u64 = 128;

/// See [`FREE_BLOCKS_LOW`].
pub const PRINTS_GIVEN_UP: usize = 1024;

/// Tables: references of a data block, at most: a content with more is stored once more.
pub const COUNT_MAX: u16 = u16::MAX - 1;

/// Tables on a medium that is told what is free: contents that nobody has any more are kept in one of so many blocks.
pub const UNUSED_SHARE: u64 = 32;

/// Tables: discards in flight, at most.
pub const DISCARDS_IN_FLIGHT: u32 = 8;

/// Tables: blocks of one discard (256 MiB), at most.
pub const DISCARD_BLOCKS: u32 = 64 << 10;

/// Tables: free blocks are discarded when one in so many of all has been freed since that was last done.
pub const STALE_SHARE: u32 = 256;

/// Tables: nanoseconds after which what is free is discarded, however little.
pub const DISCARD_AFTER_NANOS: u64 = 30_000_000_000;

/// Tables: runs of free blocks that are looked at in one go: bounds the time.
pub const STALE_RUNS_LOOKED_AT: u32 = 256;

/// Tables: free blocks without which nothing is discarded: what is being discarded cannot be written.
pub const FREE_BLOCKS_TO_DISCARD: u64 = 8;

/// Tables: nanoseconds until the next look, when none of these was long enough.
pub const LOOK_ON_AFTER_NANOS: u64 = 1_000_000;

/// The longest record of one block (a delta).
const LONGEST_RECORD: usize = 24;

const _: () = assert!(
    (RECORD_ROOM - NAMES_ROOM) / 12 >= CHUNK_DATA_BLOCKS,
    "a full chunk of new data fits its header"
);
const _: () = assert!(RECORD_ROOM - NAMES_ROOM >= LONGEST_RECORD * GATHER_BLOCKS as usize);
const _: () = assert!(
    ROOM_RELIEF < ROOM_FILLING
        && ROOM_FILLING + ROOM_RELIEF < ROOM_HIGH
        && ROOM_HIGH + ROOM_RELIEF < ROOM_CRITICAL
        && ROOM_CRITICAL * RESERVE_SHARE < 100 * (RESERVE_SHARE - 1),
    "a level is told before the next, and all before what is new is refused"
);
