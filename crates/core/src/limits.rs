//! Every bound of the core in one place, with the relations between them.

/// The most data blocks in a chunk: 1 MiB, long enough that a header is 0.4% and short enough to be one write.
pub const CHUNK_DATA_BLOCKS: usize = 256;

/// The bytes of a header that parts leave free for records still to come, before anything is known of the load (see `log::expected`).
pub const HEADER_RESERVE: usize = 1024;

/// The least that parts leave free, whatever is known of the load.
pub const LEAST_RESERVE: usize = 256;

/// The longest part that a runtime should offer: next to a longer one there is hardly room for another.
pub const LONGEST_PART: usize = 3 << 10;

/// The most pages of buckets in a chunk. At this number no further bucket begins a page: its parts go to pages of no bucket.
pub const PAGES_OF_BUCKETS: usize = 8;

/// Consecutive blocks read at once to be folded.
pub const FOLD_BLOCKS: u32 = 16;

/// The most deltas at once: 28 MiB of memory.
pub const DELTAS: usize = 1 << 20;

/// The share of pages that may be kept because deltas need them: one in this many of the blocks by which a volume's capacity exceeds what
/// clients see. In a thin volume it is one in [`BASES_OF_THIN`] of all blocks.
pub const BASES_OF_SPARE: u64 = 4;

/// See [`BASES_OF_SPARE`].
pub const BASES_OF_THIN: u64 = 64;

/// A thin volume keeps no further page for deltas when more than this percentage of its capacity is live (CSA-FS §3.3: its log is merged
/// back when less than a fifth is free).
pub const DELTAS_UP_TO: u64 = 80;

/// The most chunk writes in flight.
pub const CHUNKS_IN_FLIGHT: usize = 32;

/// Segments that only the collector may take: one to move into, one to continue in, and one in case a victim's live blocks do not fit in
/// what is left.
pub const COLLECTOR_SEGMENTS: usize = 3;

/// If more emptied segments than these, plus a 64th of all segments, wait only for a map checkpoint, one is made for them. When free
/// segments are short, one waiting segment is enough.
pub const PINNED_SEGMENTS: u64 = 4;

/// Blocks of one collector read.
pub const GATHER_BLOCKS: u32 = 32;

/// The most leaves that a census counts or settles in one step, besides those that are read for it: some milliseconds.
pub const CENSUS_STEP: usize = 16;

/// How long it rests after a step, so that requests have their turn.
pub const CENSUS_REST_NANOS: u64 = 1_000_000;

/// Leaves that share a parity.
pub const STRIPE: u32 = 16;

/// Map leaves and summaries that a map checkpoint writes at once.
pub const META_IN_FLIGHT: usize = 16;

/// Blocks of a root in one write: 128 KiB.
pub const ROOT_PIECE: u32 = 32;

/// How many of these writes are in flight: each is durable, which some media do one by one.
pub const ROOT_PIECES_IN_FLIGHT: usize = 4;

/// Each root writes this share of its table again, changed or not. So a copy that a drive did not write is whole again in the end.
pub const ROOT_SHARE_ANEW: u64 = 64;

/// The most leaves and parities a map checkpoint reads at once, and the most stripes it holds them for.
pub const PARITY_READS: usize = 64;

/// Chunks of the log after which a map checkpoint is due, whatever their size: bounds recovery.
pub const CHUNKS_BETWEEN_CHECKPOINTS: u64 = 8192;

/// The least and the most blocks of the log after which a map checkpoint is due (128 MiB, 4 GiB).
pub const LOG_BLOCKS_BETWEEN_CHECKPOINTS: (u64, u64) = (32 << 10, 1 << 20);

/// Log blocks per dirty leaf before a map checkpoint is due. A checkpoint writes the leaf, and a 16th of a parity: 1.5% of the log.
pub const LOG_BLOCKS_PER_DIRTY_LEAF: u64 = 72;

/// The most erases in flight: a large volume has hundreds of thousands of free segments when it is opened.
pub const ERASURES_IN_FLIGHT: u32 = 16;

/// Segments whose checksums are kept in memory (4 KiB each at 1024 blocks a segment: 16 MiB).
pub const CACHED_SUMS: usize = 4096;

/// This many strays (see `log::restamp`) are always remembered: some 50 KiB of them.
pub const STRAYS: usize = 4096;

/// The most journal blocks watched, over all journals: 4 GiB of them, 6 MiB of memory, and some 24 MiB if all are shared with
/// their homes.
pub const POOL_BLOCKS: u64 = 1 << 20;

/// In-line deduplication resumes when at most the first percentage of the write buffer is full, and pauses when the second is full (CAFTL
/// §3.4.3).
pub const DEDUP_SWITCH: (u64, u64) = (50, 95);

/// The most pledges in force: 1 MiB of memory.
pub const PLEDGES: usize = 16 << 10;

/// After so many comparisons with journal copies it is decided whether they pay off.
pub const COMPARES_IN_A_TRIAL: u32 = 1024;

/// Home blocks written without a comparison after comparisons did not pay off: at first, and at most.
pub const PAUSE_BLOCKS: (u32, u32) = (16 << 10, 1 << 20);

/// The most runs of blocks, each within a leaf of the map, that one query of what is mapped examines. It holds the volume's lock for
/// about a millisecond if all of these leaves are full, and for microseconds if they do not exist. Each run is at least a block.
pub const EXTENT_LOOKS: usize = 1024;

/// Nanoseconds that an unsealed chunk may stay in memory without a flush.
pub const SEAL_AFTER_NANOS: u64 = 5_000_000_000;

/// Nanoseconds between attempts to write to a full medium.
pub const RETRY_FULL_AFTER_NANOS: u64 = 1_000_000_000;

/// Percentages of a thin volume's capacity at which it is filling, high, and critical (see `room`).
pub const ROOM_FILLING: u64 = 80;

/// See [`ROOM_FILLING`].
pub const ROOM_HIGH: u64 = 90;

/// See [`ROOM_FILLING`].
pub const ROOM_CRITICAL: u64 = 95;

/// Percentage points that the use has to fall below a threshold before it counts as below.
pub const ROOM_RELIEF: u64 = 2;

/// Of a thin volume's capacity, one block in this many is reserved for upkeep, and at most [`RESERVE_BLOCKS`] (see `reserve`).
pub const RESERVE_SHARE: u64 = 32;

/// See [`RESERVE_SHARE`]: 256 MiB.
pub const RESERVE_BLOCKS: u64 = 64 << 10;

/// The last blocks of the reserve are only for the records of snapshots, which need a block of the list and one of rows at a time.
pub const RESERVE_BOOKS: u64 = 16;

/// Upkeep that was refused may try again after so many nanoseconds without a request for room.
pub const RESERVE_QUIET_NANOS: u64 = 2_000_000_000;

/// Tables: nanoseconds for which changes that no answer waits for are held back (OrderMergeDedup §3: 30 s).
pub const LATER_NANOS: u64 = 30_000_000_000;

/// Tables: nanoseconds for which a commit is held back when another write is likely meanwhile (§3: 1 ms).
pub const ANTICIPATION_NANOS: u64 = 1_000_000;

/// Tables: nanoseconds after which changes that nothing waits for are committed (§3: 1 s).
pub const COMMIT_AFTER_NANOS: u64 = 1_000_000_000;

/// Shadowed tables: nanoseconds until the superblock says that a root is durable.
pub const MARK_AFTER_NANOS: u64 = 1_000_000_000;

/// Tables: the most links that change in one commit. This bounds memory, and the length of a commit. A discard is one step, so its links
/// come on top.
pub const LINKS_IN_A_GROUP: usize = 16 << 10;

/// Tables: the most blocks of tables that a commit writes at once.
pub const TABLES_IN_FLIGHT: usize = 64;

/// Tables: the most blocks examined for one query of what is mapped (16 GiB).
pub const EXTENT_BLOCKS: u64 = 4 << 20;

/// Tables: fingerprints that are added to the index in one step when a volume is opened: bounds the time.
pub const PRINTS_AT_A_TIME: u32 = 16 << 10;

/// Tables: blocks of data that gather in memory before they are written.
pub const QUEUED_BLOCKS: usize = CHUNK_DATA_BLOCKS;

/// The most blocks that clients may see: 64 TiB. More would take a root with several levels: it names each leaf.
pub const MAX_LOGICAL_BLOCKS: u64 = 1 << 34;

/// The most blocks that a log maps: those that clients see, and those of snapshots.
pub const MAX_MAPPED_BLOCKS: u64 = 1 << 35;

/// The most blocks that clients may see if LBAs have 32 bits. One of the numbers stands for "none". All tables in place have such LBAs.
pub const MAX_NARROW_BLOCKS: u64 = u32::MAX as u64;

/// Tables: free blocks below which contents without owners are given up, and how many at a time.
pub const FREE_BLOCKS_LOW: u64 = 128;

/// See [`FREE_BLOCKS_LOW`].
pub const PRINTS_GIVEN_UP: usize = 1024;

/// Tables: the most references of a data block: a content with more is stored once more.
pub const COUNT_MAX: u16 = u16::MAX - 1;

/// Tables on a medium that gets discards: contents without owners are kept in one block of this many.
pub const UNUSED_SHARE: u64 = 32;

/// Tables: the most discards in flight.
pub const DISCARDS_IN_FLIGHT: u32 = 8;

/// Tables: the most blocks of one discard (256 MiB).
pub const DISCARD_BLOCKS: u32 = 64 << 10;

/// Tables: free blocks are discarded when one in this many of all has been freed since the last time.
pub const STALE_SHARE: u32 = 256;

/// Tables: nanoseconds after which free blocks are discarded, however few.
pub const DISCARD_AFTER_NANOS: u64 = 30_000_000_000;

/// Tables: runs of free blocks examined in one step: bounds the time.
pub const STALE_RUNS_LOOKED_AT: u32 = 256;

/// Tables: with fewer free blocks than this nothing is discarded, because a block cannot be written while it is being discarded.
pub const FREE_BLOCKS_TO_DISCARD: u64 = 8;

/// Tables: nanoseconds until the next look at runs of free blocks, when none of those was long enough.
pub const LOOK_ON_AFTER_NANOS: u64 = 1_000_000;

const _: () = assert!(
    ROOM_RELIEF < ROOM_FILLING
        && ROOM_FILLING + ROOM_RELIEF < ROOM_HIGH
        && ROOM_HIGH + ROOM_RELIEF < ROOM_CRITICAL
        && ROOM_CRITICAL * RESERVE_SHARE < 100 * (RESERVE_SHARE - 1),
    "a level is told before the next, and all before what is new is refused"
);
