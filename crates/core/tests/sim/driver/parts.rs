//! Blocks in fewer bytes, as this simulation stores them: a token, and filling that depends on it.

use super::Driver;
use crate::sim::medium::{Cell, token_crc};
use std::num::NonZeroU16;
use vellum_core::addr::{Buf, EffectId};
use vellum_core::format::pack::{self, PartTag};
use vellum_core::seam::{Block, Packed};

const TOKEN: usize = 4;

/// In how many bytes a token is stored, and how: few, some or nearly all of a block's.
pub fn packed(token: u32) -> Packed {
    let mixed = token.wrapping_mul(0x9e37_79b1) >> 8;
    let most = [100, 100, 400, 2000, 3500][mixed as usize % 5];
    let len = TOKEN as u32 + mixed / 5 % most;
    Packed {
        len: NonZeroU16::new(len as u16).unwrap_or(NonZeroU16::MIN),
        encoding: (token % 5) as u8,
    }
}

fn filling(token: u32) -> u8 {
    token as u8 | 1
}

fn store(token: u32, encoding: u8, out: &mut [u8]) {
    assert_eq!(encoding, packed(token).encoding, "stored as it was offered");
    assert_eq!(out.len(), usize::from(packed(token).len.get()));
    out[..TOKEN].copy_from_slice(&token.to_le_bytes());
    out[TOKEN..].fill(filling(token));
}

/// The token in a part of a page, if it is whole.
pub fn find(page: &Cell, slot: u8) -> Option<u32> {
    let mut bytes = vec![0; super::super::medium::BLOCK];
    page.fill(&mut bytes);
    let (_, part, stored) = pack::find(&bytes, slot, crc32c::crc32c).ok()?;
    let token = u32::from_le_bytes(stored.get(..TOKEN)?.try_into().ok()?);
    let filled = stored[TOKEN..].iter().all(|&byte| byte == filling(token));
    let whole = filled
        && part.encoding == packed(token).encoding
        && stored.len() == usize::from(packed(token).len.get())
        && part.crc == token_crc(token);
    whole.then_some(token)
}

/// What a page tells of its parts; nothing, if it is none.
pub fn directory(page: &Cell) -> Vec<PartTag> {
    let mut bytes = vec![0; super::super::medium::BLOCK];
    page.fill(&mut bytes);
    let mut told = Vec::new();
    let _ = pack::directory(&bytes, crc32c::crc32c, &mut told);
    told
}

impl Driver {
    /// The blocks of a chunk, header and all.
    pub(super) fn chunk_cells(&mut self, id: EffectId, blocks: u32) -> Vec<Cell> {
        let cells = &self.cells;
        let token = |buf: Buf| cells[buf.0 as usize].token();
        let mut block = vec![0; super::super::medium::BLOCK];
        let mut data = vec![Cell::Blank];
        for index in 0..blocks as usize - 1 {
            data.push(match self.engine.chunk_block(id, index) {
                Block::Whole(buf) => cells[buf.0 as usize].clone(),
                Block::Page => {
                    let mut store =
                        |buf, encoding, out: &mut [u8]| store(token(buf), encoding, out);
                    self.engine.encode_page(id, index, &mut block, &mut store);
                    Cell::Meta(block.as_slice().into())
                }
            });
        }
        let mut store = |buf, encoding, out: &mut [u8]| store(token(buf), encoding, out);
        self.engine.encode_header(id, &mut block, &mut store);
        data[0] = Cell::Meta(block.as_slice().into());
        data
    }
}
