//! What a trace may ask of its reader, and how the bounds fit together.

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;
/// Blocks that a read or a write may have: 256 MiB.
pub const REQUEST_BLOCKS_MAX: u64 = 65_536;
/// Blocks that a disk may have: 64 PiB. So every address in bytes fits in 56 bits.
pub const DISK_BLOCKS_MAX: u64 = 1 << 44;
/// Bytes of a frame behind its header.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// A writer ends a frame that has so many.
pub const PAYLOAD_BYTES_WANTED: usize = 64 << 10;
/// Journals that one entry may name.
pub const JOURNALS_MAX: usize = 64;
/// Blocks of a journal's transaction that a write may commit, as far as they are told.
pub const COMMITTED_MAX: usize = 256;
/// Places that an index names; when there are more frames, every second one, and so on.
pub const PLACES_MAX: usize = 16_384;

/// What describes one block, at most: flags, a digest, two sizes.
pub(crate) const BLOCK_ENTRY_BYTES_MAX: usize = 1 + 8 + 2 + 2;
/// What precedes an entry's blocks or journals, at most: a tag and three numbers.
pub(crate) const ENTRY_HEAD_BYTES_MAX: usize = 1 + 3 * 10;
/// What follows the blocks of a write that commits, at most: how many, and two numbers each.
pub(crate) const COMMITTED_BYTES_MAX: usize = 10 + COMMITTED_MAX * 2 * 10;
/// A place in an index.
pub(crate) const PLACE_BYTES: usize = 24;

// Every entry fits in a frame of its own.
const _: () = assert!(
    ENTRY_HEAD_BYTES_MAX
        + REQUEST_BLOCKS_MAX as usize * BLOCK_ENTRY_BYTES_MAX
        + COMMITTED_BYTES_MAX
        <= PAYLOAD_BYTES_MAX
);
const _: () = assert!(ENTRY_HEAD_BYTES_MAX + JOURNALS_MAX * 20 <= PAYLOAD_BYTES_MAX);
const _: () = assert!(PLACES_MAX * PLACE_BYTES <= PAYLOAD_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_WANTED < PAYLOAD_BYTES_MAX);
