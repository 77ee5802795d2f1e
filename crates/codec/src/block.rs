//! A block.

use vellum_core::addr::BLOCK_BYTES;

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES];
