//! The extents that a trace touches, packed.

use super::error::{EXTENTS_MAX, ReplayError};
use crate::trace::{Op, Traced};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use vellum_core::addr::BLOCK_BYTES;

/// Blocks of an extent.
pub const EXTENT_BLOCKS: u64 = 256;

/// Gives the extents of a read or a write a place. A discard gets none: it may be as long as a disk.
pub fn make_room(extents: &mut BTreeMap<(u32, u64), u64>, traced: &Traced) {
    if matches!(traced.op, Op::Discard { .. }) {
        return;
    }
    for extent in extents_of(traced) {
        let next = extents.len() as u64;
        extents.entry((traced.disk, extent)).or_insert(next);
    }
}

/// A journal's first block and its length, from bytes: at its address in a trace that is replayed in place, else in
/// the first extents.
pub fn blocks_of((offset, bytes): (u64, u64), in_place: bool) -> (u64, u64) {
    let first = offset / BLOCK_BYTES as u64;
    let end = offset.saturating_add(bytes) / BLOCK_BYTES as u64;
    let moved = match in_place {
        true => first,
        false => first % EXTENT_BLOCKS,
    };
    (moved, end - first)
}

/// The extents that a request touches.
pub fn extents_of(traced: &Traced) -> RangeInclusive<u64> {
    let last = traced.first_block() + traced.blocks() - 1;
    traced.first_block() / EXTENT_BLOCKS..=last / EXTENT_BLOCKS
}

/// The extents that a journal of these bytes lies in.
pub fn journal_extents(journal: Option<(u64, u64)>) -> Range<u64> {
    let extent = EXTENT_BLOCKS * BLOCK_BYTES as u64;
    let (offset, bytes) = journal.unwrap_or((0, 0));
    offset / extent..offset.saturating_add(bytes).div_ceil(extent)
}

/// Puts every extent of a disk at its own address.
pub fn in_place(
    touched: &BTreeMap<(u32, u64), u64>,
    disk_blocks: Option<u64>,
    path: impl Fn() -> String,
) -> Result<BTreeMap<(u32, u64), u64>, ReplayError> {
    let mut disks = touched.keys().map(|&(disk, _)| disk);
    let disk = disks.next().unwrap_or_default();
    if disks.any(|other| other != disk) {
        return Err(ReplayError::Disks { path: path() });
    }
    let told = disk_blocks.map(|blocks| blocks.div_ceil(EXTENT_BLOCKS));
    let touched = touched.keys().map(|&(_, extent)| extent.saturating_add(1));
    let extents = touched.chain(told).max().unwrap_or(0);
    match extents <= EXTENTS_MAX as u64 {
        true => Ok((0..extents).map(|n| ((disk, n), n)).collect()),
        false => Err(ReplayError::Large {
            path: path(),
            extents,
        }),
    }
}
