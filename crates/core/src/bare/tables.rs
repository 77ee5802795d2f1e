//! Of tables in place: the roots and the directory of `shadow`, and all sectors of tables that are whole.

use super::parts::{Part, Put, give, is_blank};
use crate::addr::{BLOCK_BYTES, Generation};
use crate::format::areas::Layout;
use crate::format::root::{self, LeafSlot};
use crate::format::table::{SECTOR_BYTES, Signer};
use crate::format::{Crc, superblock::Superblock};
use crate::recovery::Source;
use alloc::{vec, vec::Vec};

pub(super) fn bare(source: &mut dyn Source, superblock: &Superblock, crc: Crc, put: Put<'_>) {
    let copies = match superblock.layout() {
        Layout::Shadow => {
            give_directory(source, superblock, crc, put);
            2
        }
        _ => 1,
    };
    let signer = Signer::new(superblock, crc);
    let mut block = [0; BLOCK_BYTES];
    let blocks: u64 = superblock.table_blocks().iter().sum();
    for number in 0..blocks {
        for slot in 0..copies {
            let at = superblock.table_at(number, slot);
            if source.read(at, &mut block).is_err() {
                put(at, Part::Unread(1));
                continue;
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
                // Written when the volume was made. Of `shadow`, this may be what was there before.
                put(at, Part::Damaged(1));
            }
        }
    }
}

/// Roots, and the blocks of the directory that one of them names.
fn give_directory(source: &mut dyn Source, superblock: &Superblock, crc: Crc, put: Put<'_>) {
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
    let mut block = [0; BLOCK_BYTES];
    for number in 0..blocks {
        for slot in 0..2 {
            let named = roots.iter().map(|slots| slots[number as usize]);
            let sums: Vec<u32> = named.filter_map(|block| block.sum_in(slot)).collect();
            if !sums.is_empty() {
                let at = superblock.directory_at(number.into(), slot.into());
                give(source, at, &mut block, put, &|bytes| {
                    sums.contains(&crc(bytes))
                });
            }
        }
    }
}
