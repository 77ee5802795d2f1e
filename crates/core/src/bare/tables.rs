//! The structures of tables in place: the roots and the directory of `shadow`, and all whole sectors of tables.

use super::parts::{Part, Put, give, is_blank};
use crate::addr::{BLOCK_BYTES, Generation, Pba};
use crate::format::areas::Layout;
use crate::format::root::{self, LeafSlot};
use crate::format::table::{SECTOR_BYTES, Signer};
use crate::format::{Crc, superblock::Superblock};
use crate::recovery::Source;
use alloc::{vec, vec::Vec};

pub(super) fn bare(source: &mut dyn Source, superblock: &Superblock, crc: Crc, put: Put<'_>) {
    let roots = match superblock.layout() {
        Layout::Shadow => give_roots(source, superblock, crc, put),
        _ => Vec::new(),
    };
    give_directory(source, &roots, crc, put, &|block, slot| {
        Some(superblock.directory_at(block, slot))
    });
    let slots = match superblock.layout() {
        Layout::Shadow => 0..2,
        _ => 0..1,
    };
    let signer = Signer::new(superblock, crc);
    let blocks: u64 = superblock.table_blocks().iter().sum();
    let places = |number: u64| slots.clone().map(move |slot| (number, slot));
    for (number, slot) in (0..blocks).flat_map(places) {
        let at = superblock.table_at(number, slot);
        give_table(source, superblock, &signer, number, at, put);
    }
    for (number, slot) in (0..blocks).flat_map(places) {
        if let Some(at) = superblock.map_twin(number, slot) {
            give_table(source, superblock, &signer, number, at, put);
        }
    }
    give_directory(source, &roots, crc, put, &|block, slot| {
        superblock.directory_twin(block, slot)
    });
}

/// The whole sectors of a table block.
fn give_table(
    source: &mut dyn Source,
    superblock: &Superblock,
    signer: &Signer,
    number: u64,
    at: Pba,
    put: Put<'_>,
) {
    let mut block = [0; BLOCK_BYTES];
    if source.read(at, &mut block).is_err() {
        return put(at, Part::Unread(1));
    }
    let mut held = 0;
    for (sector, bytes) in (0..).zip(block.chunks_exact_mut(SECTOR_BYTES)) {
        match signer.is_whole(number, sector, bytes) {
            true => held += 1,
            false if is_blank(bytes) => {}
            false => bytes.fill(0),
        }
    }
    if held > 0 {
        put(at, Part::Whole(&block));
    } else if superblock.layout() == Layout::Ordered {
        // This block was written when the volume was made, except in `shadow`: there it may hold older bytes.
        put(at, Part::Damaged(1));
    }
}

/// Passes on the roots. Returns the slots of those that are whole.
fn give_roots(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
    put: Put<'_>,
) -> Vec<Vec<LeafSlot>> {
    let mut bytes = vec![0; superblock.shadow_root_blocks() as usize * BLOCK_BYTES];
    let blocks = superblock.directory_blocks() as u32;
    let decode = |bytes: &[u8]| root::decode(bytes, &superblock.uuid(), blocks, crc).ok();
    let mut roots: Vec<Vec<LeafSlot>> = Vec::new();
    for generation in 0..2 {
        for copy in 0..2 {
            let first = superblock.shadow_root_at(Generation(generation));
            let at = first.plus(copy * superblock.shadow_root_blocks());
            let is_whole = |bytes: &[u8]| decode(bytes).is_some();
            if give(source, at, &mut bytes, put, &is_whole) {
                roots.extend(decode(&bytes).map(|(_, slots)| slots));
            }
        }
    }
    roots
}

/// The blocks of the directory that a root names, from one of their copies.
fn give_directory(
    source: &mut dyn Source,
    roots: &[Vec<LeafSlot>],
    crc: Crc,
    put: Put<'_>,
    place: &dyn Fn(u64, u64) -> Option<Pba>,
) {
    let mut block = [0; BLOCK_BYTES];
    let blocks = roots.first().map_or(0, Vec::len);
    for number in 0..blocks {
        for slot in 0..2 {
            let named = roots.iter().map(|slots| slots[number]);
            let sums: Vec<u32> = named.filter_map(|block| block.sum_in(slot)).collect();
            let at = place(number as u64, slot.into()).filter(|_| !sums.is_empty());
            if let Some(at) = at {
                give(source, at, &mut block, put, &|bytes| {
                    sums.contains(&crc(bytes))
                });
            }
        }
    }
}
