//! Where things are on an encrypted medium.

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 4096;

/// Where the header's copies are. What is lost at the head of a medium (a partition table that somebody writes) is less than
/// half a megabyte.
pub const COPIES: [u64; 2] = [0, 128];

/// Blocks in front of the volume: 1 MiB, so that what is aligned on it is aligned on the drive.
pub const START: u64 = 256;
