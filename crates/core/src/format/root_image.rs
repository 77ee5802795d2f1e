//! A root block by block. The root of a TiB has seven MiB: it is written in pieces, and never in memory as a whole.

use super::crc;
use super::field::Crc;
use super::root::{self, FreeSegments, RootHeader, SLOTS_IN_BLOCK};
use super::slots::Slots;
use crate::addr::BLOCK_BYTES;

/// What the blocks of a root say.
#[derive(Clone, Copy)]
pub struct RootImage<'a> {
    /// The first block says this.
    pub header: &'a RootHeader,
    /// The blocks after it.
    pub slots: &'a Slots,
    /// The blocks after those.
    pub free: &'a FreeSegments,
    /// How to check them.
    pub crc: Crc,
}

impl RootImage<'_> {
    /// The CRC of all blocks but the first, of a root of so many blocks.
    #[must_use]
    pub fn table_sum(&self, blocks: u32) -> u32 {
        let mut block = [0; BLOCK_BYTES];
        (1..blocks).fold(0, |sum, index| {
            self.encode_table(index, &mut block);
            crc::with_block(sum, (self.crc)(&block))
        })
    }

    /// Writes the blocks from `first` on, as many as `out` has.
    pub fn encode(&self, first: u32, table_sum: u32, out: &mut [u8]) {
        let leaves = self.slots.count() as u32;
        for (index, block) in (first..).zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            match index {
                0 => root::encode_head(self.header, leaves, table_sum, self.crc, block),
                _ => self.encode_table(index, block),
            }
        }
    }

    fn encode_table(&self, index: u32, out: &mut [u8]) {
        let end = root::blocks(self.slots.count() as u32);
        match index < end {
            true => root::encode_slots(
                self.slots.all_from((index as usize - 1) * SLOTS_IN_BLOCK),
                out,
            ),
            false => self.free.encode(index - end, out),
        }
    }
}
