//! What a scan may cost at most, whatever the volume says.

/// Reads are whole pages of this size, at multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// Bytes that one scan asks for at most. The largest honest need is the indirect blocks of a journal of
/// [`JOURNAL_BLOCKS`] blocks of 1 KiB: a page for each 256 of them.
pub const READ_BYTES: u64 = 256 << 20;

/// Blocks of the longest journal. It is mke2fs's own limit; the kernel has none.
pub const JOURNAL_BLOCKS: u64 = 10_240_000;

/// Blocks of the shortest journal (the kernel's `JBD2_MIN_JOURNAL_BLOCKS`).
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;

/// Extents of a journal: 1 MiB of memory. An indirect block lies between each 256 blocks of the journal of an
/// ext3 with blocks of 1 KiB, so that 16 GiB of it still fit.
pub const EXTENTS: usize = 65_536;

/// Depth of an extent tree (the kernel's `EXT4_MAX_EXTENT_DEPTH`).
pub const EXTENT_DEPTH: u16 = 5;

/// Entries of a GPT; 128 is what every tool writes.
pub const GPT_ENTRIES: u32 = 1024;

/// Bytes of a GPT entry; 128 is what every tool writes.
pub const GPT_ENTRY_BYTES: u32 = 512;

/// Logical partitions of an MBR.
pub const LOGICAL_PARTITIONS: usize = 128;

/// Revoked blocks that are remembered of one running transaction.
pub const REVOKED: usize = 65_536;

/// Block groups that are walked, over all file systems of a volume. mke2fs makes groups of eight blocks for each byte of a
/// block unless told otherwise: 128 TiB of blocks of 4096 bytes, 8 TiB of blocks of 1 KiB.
pub const METADATA_GROUPS: u64 = 1 << 20;

/// Bytes of group descriptors that are read for it at most: a page for each of their blocks, as if each had 1 KiB.
pub const METADATA_READ_BYTES: u64 = 256 << 20;

/// Bytes that the walks of the inodes of a volume's file systems ask for at most.
pub const DYNAMIC_READ_BYTES: u64 = 256 << 20;

/// Ranges of metadata of one inode that are told.
pub const DYNAMIC_SPANS: usize = 65_536;

/// Bytes that are read at most to find out which files blocks of one file system belong to: the inode tables and directories of some
/// ten million files.
pub const FILES_READ_BYTES: u64 = 4 << 30;

/// What blocks are, of one file system: 24 bytes of memory each.
pub const FILES_HITS: usize = 1 << 18;

/// Directories that are looked through for names: 8 bytes of memory each.
pub const FILES_DIRECTORIES: usize = 1 << 22;

/// Names of one inode that are told.
pub const FILES_NAMES: usize = 8;

/// Directories within each other.
pub const FILES_DEPTH: usize = 256;

/// Block groups whose free space is followed, over all file systems of a volume: 8 TiB of blocks of 4096 bytes.
pub const FREED_GROUPS: u64 = 65_536;

/// Groups that are followed at once, of each kind of 4 KiB that is kept of one: written since the last commit,
/// copied by the running transaction, and (three of them) with blocks to drop. 40 MiB at most.
pub const FREED_TRACKED: usize = 2048;

/// Descriptor, revoke and commit blocks that are remembered of a journal.
pub const HEADS: usize = 16_384;

/// Addresses in them, with checksums: 6 MiB of memory.
pub const COPIES: usize = 262_144;

/// Blocks that are remembered as written, with their checksums: 32 MiB of memory.
pub const FRESH: usize = 1 << 20;

/// So often something else may lie in a copy's place. A kernel that lets a page be changed while it writes that to the journal does it,
/// and that is rare.
pub const FOREIGN: u32 = 3;

/// Runs of blocks written since the last commit that are remembered of a journal: more than requests that are in flight at once.
/// 128 KiB of memory.
pub const RUNS: usize = 16_384;

const _: () = assert!(READ_BYTES >= JOURNAL_BLOCKS / 256 * PAGE_BYTES as u64 * 5 / 4);
const _: () = assert!(METADATA_GROUPS * 64 / 1024 * PAGE_BYTES as u64 <= METADATA_READ_BYTES);
const _: () = assert!(FREED_GROUPS <= METADATA_GROUPS);
const _: () = assert!(GPT_ENTRIES as u64 * GPT_ENTRY_BYTES as u64 * 4 <= READ_BYTES);
