//! What a pack has of some blocks, and what proves that.

use crate::addr::{BLOCK_BYTES, Pba};
use crate::recovery::Source;

/// What a pack has of some blocks.
pub enum Part<'a> {
    /// All of them, or what may be told of them.
    Whole(&'a [u8]),
    /// Nothing: they cannot be read. So many.
    Unread(u64),
    /// Nothing: they are damaged. So many.
    Damaged(u64),
}

/// Is given each part, by rising addresses.
pub type Put<'a> = &'a mut dyn FnMut(Pba, Part<'_>);

pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Gives blocks that `is_whole` says are of the volume; nothing where nothing is. Whether they are in `bytes`, whole.
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
