//! Where table blocks, directory blocks and roots go, and their bytes.

use super::super::Tables;
use super::{ENTRIES, slot_of};
use crate::addr::{BLOCK_BYTES, Generation, Pba};
use crate::format::root;
use crate::format::root::LeafSlot;
use crate::format::table::{Kind, encode_directory, shadow_root, sum_of_sectors};

impl Tables {
    /// Where to write a table block.
    pub(in crate::tables) fn table_place(&self, kind: Kind, block: u32) -> Pba {
        let number = self.superblock.table_number(kind, block);
        self.superblock.table_at(number, self.table_slot(number))
    }

    fn table_slot(&self, number: u64) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.slots[number as usize]).into(),
            None => 0,
        }
    }

    pub(in crate::tables) fn map_twin_place(&self, block: u32) -> Pba {
        let number = self.superblock.table_number(Kind::Map, block);
        let twin = self.superblock.map_twin(number, self.table_slot(number));
        twin.unwrap_or_else(|| unreachable!("block {block} of the map has no twin to be written"))
    }

    pub(in crate::tables) fn directory_place(&self, block: u32) -> Pba {
        self.superblock
            .directory_at(block.into(), self.directory_slot(block))
    }

    fn directory_slot(&self, block: u32) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.directory[block as usize]).into(),
            None => 0,
        }
    }

    pub(in crate::tables) fn directory_twin_place(&self, block: u32) -> Pba {
        let twin = self
            .superblock
            .directory_twin(block.into(), self.directory_slot(block));
        twin.unwrap_or_else(|| unreachable!("directory block {block} has no twin to be written"))
    }

    pub(in crate::tables) fn root_place(&self) -> Pba {
        let generation = self.shadow.as_ref().map_or(0, |shadow| shadow.generation.0);
        self.superblock.shadow_root_at(Generation(generation))
    }

    /// Notes the checksum of a table block whose bytes are about to be written.
    pub(in crate::tables) fn note_table(&mut self, kind: Kind, block: u32, bytes: &[u8]) {
        let number = self.superblock.table_number(kind, block) as usize;
        let sum = sum_of_sectors(bytes, self.superblock.crc());
        if let Some(shadow) = &mut self.shadow {
            shadow.slots[number] = LeafSlot::at(slot_of(shadow.slots[number]), sum);
        }
    }

    pub(in crate::tables) fn encode_directory(&mut self, block: u32, out: &mut [u8]) {
        let crc = self.superblock.crc();
        if let Some(shadow) = &mut self.shadow {
            let from = block as usize * ENTRIES;
            let to = (from + ENTRIES).min(shadow.slots.len());
            encode_directory(&shadow.slots[from..to], out);
            let slot = &mut shadow.directory[block as usize];
            *slot = LeafSlot::at(slot_of(*slot), crc(out));
        }
    }

    /// Encodes as many copies of the root as there is room for.
    pub(in crate::tables) fn encode_root(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &self.shadow {
            let header = shadow_root(&self.superblock, shadow.generation);
            let copy = self.superblock.shadow_root_blocks() as usize * BLOCK_BYTES;
            for out in out.chunks_exact_mut(copy) {
                root::encode(&header, &shadow.directory, self.superblock.crc(), out);
            }
        }
    }

    pub(in crate::tables) fn encode_mirror(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &mut self.shadow {
            shadow.unmarked_since = None;
            self.superblock.set_root(shadow.durable);
        }
        self.superblock.encode(out);
    }
}
