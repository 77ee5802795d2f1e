//! The layout of an encrypted medium.

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 4096;

/// The blocks of the header's copies. Damage at the start of a medium (such as a partition table written over it) is assumed to
/// be less than half a megabyte.
pub const COPIES: [u64; 2] = [0, 128];

/// Blocks before the volume: 1 MiB, so that what is aligned in the volume is aligned on the drive.
pub const START: u64 = 256;
