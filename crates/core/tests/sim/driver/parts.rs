//! Blocks in fewer bytes, as this simulation stores them: a token, and filling that depends on it.

use super::{Driver, Flight};
use crate::sim::medium::{Cell, Medium, Tokens};
use std::num::NonZeroU16;
use vellum_core::addr::{Buf, EffectId, Lba};
use vellum_core::entry::{Earlier, PartId};
use vellum_core::format::pack::{self, PartTag};
use vellum_core::seam::{BasePlace, Bucket, ChunkBlock, Packed, PagePlace};

const TOKEN: usize = 4;

/// The number of bytes that a token is stored in, and its encoding: few, some or nearly all of a block's bytes.
pub fn packed(token: u32) -> Packed {
    let mixed = token.wrapping_mul(0x9e37_79b1) >> 8;
    let most = [100, 100, 400, 2000, 3500][mixed as usize % 5];
    let len = TOKEN as u32 + mixed / 5 % most;
    Packed {
        len: NonZeroU16::new(len as u16).unwrap_or(NonZeroU16::MIN),
        encoding: (token % 5) as u8,
        base: None,
        bucket: None,
    }
}

/// What is added to a delta's encoding.
const DELTA: u8 = 5;

/// Like [`packed`], but as a delta, which is shorter.
pub fn delta(token: u32, base: PartId) -> Packed {
    let alone = packed(token);
    let len = (alone.len.get() / 4).max(TOKEN as u16);
    Packed {
        len: NonZeroU16::new(len).unwrap_or(NonZeroU16::MIN),
        encoding: alone.encoding + DELTA,
        base: Some(base),
        bucket: None,
    }
}

/// A token as its difference from its base.
fn difference(token: u32, base: u32) -> u32 {
    token ^ base.rotate_left(7) ^ 0x5bd1_e995
}

fn filling(token: u32) -> u8 {
    token as u8 | 1
}

fn store(token: u32, base: Option<u32>, encoding: u8, out: &mut [u8]) {
    let alone = packed(token);
    let (stored, kind) = match base {
        None => (token, alone.encoding),
        Some(base) => (difference(token, base), alone.encoding + DELTA),
    };
    assert_eq!(encoding, kind, "stored as it was offered");
    out[..TOKEN].copy_from_slice(&stored.to_le_bytes());
    out[TOKEN..].fill(filling(stored));
}

/// The token in a part of a page, if the part is whole and, for a delta, `base` is its base.
pub fn find(tokens: Tokens, page: &Cell, slot: u8, base: Option<u32>) -> Option<u32> {
    let mut bytes = vec![0; super::super::medium::BLOCK];
    page.fill(tokens, &mut bytes);
    let (_, part, held) = pack::find(&bytes, slot, crc32c::crc32c).ok()?;
    let stored = u32::from_le_bytes(held.get(..TOKEN)?.try_into().ok()?);
    let token = match (part.encoding >= DELTA, base) {
        (false, _) => stored,
        (true, Some(base)) => difference(stored, base),
        (true, None) => return None,
    };
    let expected = match part.encoding >= DELTA {
        false => packed(token),
        true => delta(token, PartId::from_raw(0)),
    };
    let filled = held[TOKEN..].iter().all(|&byte| byte == filling(stored));
    let whole = filled
        && part.encoding == expected.encoding
        && held.len() == usize::from(expected.len.get())
        && part.sum == tokens.sum(token);
    whole.then_some(token)
}

/// The directory of a page; empty if the block is not a page of parts.
pub fn directory(medium: &Medium, at: u64) -> Vec<PartTag> {
    let mut bytes = vec![0; super::super::medium::BLOCK];
    medium.read_into(at, &mut bytes);
    let mut told = Vec::new();
    let _ = pack::directory(&bytes, crc32c::crc32c, &mut told);
    told
}

impl Driver {
    /// The blocks of a chunk, including its header.
    pub(super) fn chunk_cells(&mut self, id: EffectId, blocks: u32) -> Vec<Cell> {
        let cells = &self.cells;
        let token = |buf: Buf| cells[buf.0 as usize].token();
        let against = &self.against;
        let base = |buf: Buf| against[buf.0 as usize];
        let mut block = vec![0; super::super::medium::BLOCK];
        let mut data = vec![Cell::Blank];
        for index in 0..blocks as usize - 1 {
            data.push(match self.core.chunk_block(id, index) {
                ChunkBlock::Whole(buf) => cells[buf.0 as usize].clone(),
                ChunkBlock::Page => {
                    let mut store = |buf, encoding, out: &mut [u8]| {
                        store(token(buf), base(buf), encoding, out);
                    };
                    self.core.encode_page(id, index, &mut block, &mut store);
                    Cell::Meta(block.as_slice().into())
                }
            });
        }
        let mut store = |buf, encoding, out: &mut [u8]| store(token(buf), base(buf), encoding, out);
        self.core.encode_header(id, &mut block, &mut store);
        data[0] = Cell::Meta(block.as_slice().into());
        data
    }

    /// The base that a delta needs, if it is in memory.
    pub(super) fn base_in_memory(&self, base: Option<BasePlace>) -> Option<u32> {
        match base? {
            BasePlace::Block(buf) => Some(self.token(buf)),
            BasePlace::Part(PagePlace::Buffer(page), slot) => {
                find(self.medium.tokens, &self.cells[page.0 as usize], slot, None)
            }
            BasePlace::Part(PagePlace::Medium(_), _) => None,
        }
    }

    /// The base that a delta needs, read if necessary.
    pub(super) fn base_of(&mut self, flight: &Flight, base: Option<BasePlace>) -> Option<u32> {
        let Some(BasePlace::Part(PagePlace::Medium(at), slot)) = base else {
            return flight.base;
        };
        if self.read_fails(at.0, 1) {
            return None;
        }
        if self.medium.is_rotten(at.0) {
            self.suspects.insert(at.0);
        }
        find(self.medium.tokens, &self.medium.read(at.0), slot, None)
    }

    /// How a block is offered: alone, or as a delta against its old contents, or against any other possible base.
    pub(super) fn in_fewer_bytes(&mut self, lba: u64, buf: u32, token: u32) -> Packed {
        let Some((base, known)) = self.forced_base.or_else(|| self.known_base(lba)) else {
            self.against[buf as usize] = None;
            return packed(token);
        };
        self.against[buf as usize] = Some(known);
        let bucket = lba.checked_rem(self.buckets);
        Packed {
            bucket: bucket.map(|bucket| Bucket(bucket as u32)),
            ..delta(token, base)
        }
    }

    /// With this driver's chance, a base that is the block's old contents or another block's possible base, and its token.
    fn known_base(&mut self, lba: u64) -> Option<(PartId, u32)> {
        if !self.rng.percent(self.deltas) {
            return None;
        }
        let of = match self.rng.percent(70) {
            true => lba,
            false => self.rng.below(lba + 20),
        };
        let Earlier::Base(base) = self.core.earlier(Lba(of)) else {
            return None;
        };
        let known = self.known.get(&(base.page.0, base.slot));
        known.map(|&known| (base, known))
    }
}
