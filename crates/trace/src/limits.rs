//! What a trace may demand of its reader, and how the bounds fit together.

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;
/// The most blocks of a read or a write: 256 MiB.
pub const REQUEST_BLOCKS_MAX: u64 = 65_536;
/// The most blocks of a disk: 64 PiB. So every byte address fits in 56 bits.
pub const DISK_BLOCKS_MAX: u64 = 1 << 44;
/// The most bytes of a frame after its header.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// A writer ends a frame that has reached this many bytes.
pub const PAYLOAD_BYTES_WANTED: usize = 64 << 10;
/// The most journals that one entry may name.
pub const JOURNALS_MAX: usize = 64;
/// The most blocks of a journal's transaction that a write may record as committed.
pub const COMMITTED_MAX: usize = 256;
/// The most places an index names. When there are more frames, it names every second one, and so on.
pub const PLACES_MAX: usize = 16_384;

/// The most bytes that describe one block: flags, a digest, two sizes.
pub(crate) const BLOCK_ENTRY_BYTES_MAX: usize = 1 + 8 + 2 + 2;
/// The most bytes before an entry's blocks or journals: a tag and three numbers.
pub(crate) const ENTRY_HEAD_BYTES_MAX: usize = 1 + 3 * 10;
/// The most bytes after the blocks of a write that commits: a count, and two numbers each.
pub(crate) const COMMITTED_BYTES_MAX: usize = 10 + COMMITTED_MAX * 2 * 10;
/// Bytes of a place in an index.
pub(crate) const PLACE_BYTES: usize = 24;

// Every entry fits in one frame.
const _: () = assert!(
    ENTRY_HEAD_BYTES_MAX
        + REQUEST_BLOCKS_MAX as usize * BLOCK_ENTRY_BYTES_MAX
        + COMMITTED_BYTES_MAX
        <= PAYLOAD_BYTES_MAX
);
const _: () = assert!(ENTRY_HEAD_BYTES_MAX + JOURNALS_MAX * 20 <= PAYLOAD_BYTES_MAX);
const _: () = assert!(PLACES_MAX * PLACE_BYTES <= PAYLOAD_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_WANTED < PAYLOAD_BYTES_MAX);
