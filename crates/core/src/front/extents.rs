//! What is mapped, as clients ask for it.

use crate::addr::Lba;
use crate::limits;
use alloc::vec::Vec;
use core::ops::Range;

/// Joins the runs of `range`, at most `max`. `run` has how many blocks from an LBA on are alike, and whether they are mapped. Stops
/// early where looking at all could take long.
pub(crate) fn extents(
    range: Range<Lba>,
    max: usize,
    mut run: impl FnMut(Lba) -> (u64, bool),
) -> Vec<(u64, bool)> {
    let mut extents: Vec<(u64, bool)> = Vec::new();
    let mut at = range.start;
    for _ in 0..limits::EXTENT_LOOKS {
        if at >= range.end {
            break;
        }
        let (blocks, mapped) = run(at);
        let count = extents.len();
        match extents.last_mut() {
            Some(last) if last.1 == mapped => last.0 += blocks,
            Some(_) if count == max => break,
            _ => extents.push((blocks, mapped)),
        }
        at = at.plus(blocks);
    }
    extents
}
