//! The links in a damaged block of tables.

use super::medium::{BLOCK, Medium};
use std::collections::BTreeSet;
use vellum_core::addr::Pba;
use vellum_core::format::areas::{DIRECTORY_ENTRIES, Layout};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::{Kind, SECTOR_BYTES};
use vellum_core::layout::Recovered;

/// The number of the table block at an address, if there is one.
fn number(superblock: &Superblock, at: u64) -> Option<u64> {
    let of_each = match superblock.layout() {
        Layout::Log => return None,
        Layout::Ordered => 1,
        Layout::Shadow => 2,
    };
    let number = at.checked_sub(superblock.table_at(0, 0).0)? / of_each;
    let all: u64 = superblock.table_blocks().iter().sum();
    (number < all).then_some(number)
}

/// True if a block of the map is at an address.
pub fn is_map(superblock: &Superblock, at: u64) -> bool {
    let blocks = superblock.table_blocks()[Kind::Map as usize];
    number(superblock, at).is_some_and(|number| number < blocks)
}

/// The LBAs whose links are in the damaged part of a block, or, for a directory, in the blocks that it names; none if there are
/// twins.
pub fn links(whole: &Recovered, before: &Medium, after: &Medium, at: u64) -> BTreeSet<u64> {
    let superblock = whole.superblock();
    let (layout, of_block) = (superblock.layout(), Kind::Map.entries() as u64);
    if layout == Layout::Log || superblock.has_twins() {
        return BTreeSet::new();
    }
    let lbas = |first: u64, blocks: u64| {
        let end = (first + blocks).min(superblock.logical_blocks());
        first..end
    };
    if layout == Layout::Shadow
        && let Some(block) = at.checked_sub(superblock.directory_at(0, 0).0)
        && block / 2 < superblock.directory_blocks()
    {
        let blocks = DIRECTORY_ENTRIES * of_block;
        return lbas(block / 2 * blocks, blocks).collect();
    }
    if !is_map(superblock, at) {
        return BTreeSet::new();
    }
    let first = number(superblock, at).map_or(0, |number| number * of_block);
    if layout == Layout::Shadow {
        return lbas(first, of_block).collect();
    }
    let (mut old, mut new) = ([0; BLOCK], [0; BLOCK]);
    before.read_into(at, &mut old);
    after.read_into(at, &mut new);
    let sectors = old.chunks(SECTOR_BYTES).zip(new.chunks(SECTOR_BYTES));
    let hit = (0..).zip(sectors).filter(|(_, (old, new))| old != new);
    let of_sector = Kind::Map.sector_entries() as u64;
    hit.flat_map(|(sector, _)| lbas(first + sector * of_sector, of_sector))
        .collect()
}

/// The data blocks whose counts were found too low: all of them, even where the report of a volume's damage is cut off.
pub fn too_low(found: &Recovered) -> BTreeSet<Pba> {
    match found {
        Recovered::Log(_) => BTreeSet::new(),
        Recovered::Tables(tables) => tables.too_low.iter().map(|(at, ..)| *at).collect(),
    }
}

/// The LBAs of the map's blocks from which a link leads to a block with too low a count. If the damaged block is of the map, it
/// may have such a link from before.
pub fn doubtful(whole: &Recovered, too_low: &BTreeSet<Pba>, at: u64) -> BTreeSet<u64> {
    let Recovered::Tables(tables) = whole else {
        return BTreeSet::new();
    };
    let of_block = Kind::Map.entries() as u64;
    let leads = tables.links().filter(|(_, at, _)| too_low.contains(at));
    let blocks = leads.map(|(lba, ..)| u64::from(lba) / of_block);
    let itself = number(&tables.superblock, at).filter(|_| is_map(&tables.superblock, at));
    let blocks: BTreeSet<u64> = blocks.chain(itself).collect();
    let lbas = blocks.into_iter().map(|block| block * of_block);
    lbas.flat_map(|first| first..first + of_block).collect()
}
