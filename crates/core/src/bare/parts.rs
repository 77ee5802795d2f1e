//! The parts of a pack, and the check that lets a block into one.

use crate::addr::{BLOCK_BYTES, Pba};
use crate::recovery::Source;

/// What a pack holds of some blocks.
pub enum Part<'a> {
    /// All of them, or what may be disclosed of them.
    Whole(&'a [u8]),
    /// Nothing: this many blocks cannot be read.
    Unread(u64),
    /// Nothing: this many blocks are damaged.
    Damaged(u64),
}

/// Called with each part, by rising addresses.
pub type Put<'a> = &'a mut dyn FnMut(Pba, Part<'_>);

pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Passes on blocks that `is_whole` accepts as the volume's, and nothing where the medium is blank. Returns true if the blocks are in
/// `bytes` and whole.
pub(super) fn give(
    source: &mut dyn Source,
    at: Pba,
    bytes: &mut [u8],
    put: Put<'_>,
    is_whole: &dyn Fn(&[u8]) -> bool,
) -> bool {
    let blocks = (bytes.len() / BLOCK_BYTES) as u64;
    match source.read(at, bytes) {
        Err(_) => put(at, Part::Unread(blocks)),
        Ok(()) if is_blank(bytes) => {}
        Ok(()) if is_whole(bytes) => {
            put(at, Part::Whole(bytes));
            return true;
        }
        Ok(()) => put(at, Part::Damaged(blocks)),
    }
    false
}
