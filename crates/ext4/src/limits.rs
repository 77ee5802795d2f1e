//! The most that a scan may cost, whatever is on the volume.

/// Reads are whole pages of this size, at multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// The most bytes that one scan reads. The largest honest need is the indirect blocks of a journal of [`JOURNAL_BLOCKS`] blocks
/// of 1 KiB: a page for each 256 of them.
pub const READ_BYTES: u64 = 256 << 20;

/// Blocks in the longest journal. It is mke2fs's limit; the kernel has none.
pub const JOURNAL_BLOCKS: u64 = 10_240_000;

/// Blocks in the shortest journal (the kernel's `JBD2_MIN_JOURNAL_BLOCKS`).
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;

/// The most extents of a journal: 1 MiB of memory. In an ext3 with blocks of 1 KiB an indirect block interrupts the journal after
/// every 256 blocks, so a journal of 16 GiB still fits.
pub const EXTENTS: usize = 65_536;

/// The most extents of all journals of a volume.
pub const ALL_EXTENTS: usize = 4 * EXTENTS;

/// The depth of an extent tree (the kernel's `EXT4_MAX_EXTENT_DEPTH`).
pub const EXTENT_DEPTH: u16 = 5;

/// The most entries of a GPT; every tool writes 128.
pub const GPT_ENTRIES: u32 = 1024;

/// The most bytes in a GPT entry; every tool writes 128.
pub const GPT_ENTRY_BYTES: u32 = 512;

/// The most logical partitions of an MBR.
pub const LOGICAL_PARTITIONS: usize = 128;

/// The most revoked blocks remembered for one running transaction.
pub const REVOKED: usize = 65_536;

/// The most block groups walked, over all file systems of a volume. By default mke2fs makes groups of eight blocks for each byte
/// of a block, so this covers 128 TiB of blocks of 4096 bytes, or 8 TiB of blocks of 1 KiB.
pub const METADATA_GROUPS: u64 = 1 << 20;

/// The most bytes of group descriptors read for that: a page for each of their blocks, as if each had 1 KiB.
pub const METADATA_READ_BYTES: u64 = 256 << 20;

/// The most bytes read by the inode walks of a volume's file systems.
pub const DYNAMIC_READ_BYTES: u64 = 256 << 20;

/// The most ranges of metadata reported for one inode.
pub const DYNAMIC_SPANS: usize = 65_536;

/// The most bytes read to find which files the blocks of one file system belong to: the inode tables and
/// directories of some ten million files.
pub const FILES_READ_BYTES: u64 = 4 << 30;

/// The most blocks whose use is recorded for one file system: 24 bytes of memory each.
pub const FILES_HITS: usize = 1 << 18;

/// The most directories searched for names: 8 bytes of memory each.
pub const FILES_DIRECTORIES: usize = 1 << 22;

/// The most names reported for one inode.
pub const FILES_NAMES: usize = 8;

/// The deepest nesting of directories.
pub const FILES_DEPTH: usize = 256;

/// The most block groups whose free space is followed, over all file systems of a volume: 8 TiB of blocks of 4096 bytes.
pub const FREED_GROUPS: u64 = 65_536;

/// The most bytes read from the journals of a volume to find where their logs end: a page for each descriptor and commit block.
pub const FREED_READ_BYTES: u64 = 64 << 20;

/// The most transactions remembered for the journals of a volume of which no superblock has said where their logs begin. 256 KiB of memory.
pub const FREED_TURNS: usize = 65_536;

/// The most groups followed at once over all file systems of a volume, for each kind of 4 KiB record of a group: written since the
/// last commit, copied by the running transaction, and (three of them) with blocks to drop. 40 MiB at most. Each file system has
/// the same share.
pub const FREED_TRACKED: usize = 2048;

/// The most descriptor, revoke and commit blocks remembered for the journals of a volume. Of this and of the next two each journal has
/// the same share.
pub const HEADS: usize = 16_384;

/// The most addresses in them, with checksums: 6 MiB of memory.
pub const COPIES: usize = 262_144;

/// The most blocks of them remembered as written, with their checksums: 32 MiB of memory.
pub const FRESH: usize = 1 << 20;

/// The most blocks of a transaction that are walked again because one of them was replaced.
pub const REWALKED: u32 = 512;

/// How often something other than the copy may be in a copy's place. That happens, rarely, with a kernel that lets a page change
/// while it is being written to the journal.
pub const FOREIGN: u32 = 3;

/// The most runs of blocks written since the last commit that are remembered for a journal: more than are ever in
/// flight at once. 128 KiB of memory.
pub const RUNS: usize = 16_384;

const _: () = assert!(READ_BYTES >= JOURNAL_BLOCKS / 256 * PAGE_BYTES as u64 * 5 / 4);
const _: () = assert!(METADATA_GROUPS * 64 / 1024 * PAGE_BYTES as u64 <= METADATA_READ_BYTES);
const _: () = assert!(FREED_GROUPS <= METADATA_GROUPS);
const _: () = assert!(GPT_ENTRIES as u64 * GPT_ENTRY_BYTES as u64 * 4 <= READ_BYTES);
