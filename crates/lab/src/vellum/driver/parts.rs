//! Effects on blocks that share pages, and comparisons.

use super::Vellum;
use super::bases::on_medium;
use super::flight::{Flight, Then};
use crate::base::Io;
use crate::content::Content;
use std::collections::BTreeMap;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba};
use vellum_core::driver::{Parts, To};
use vellum_core::format::pack;
use vellum_core::seam::{Against, ChunkBlock, PagePlace};

impl Vellum {
    /// Encodes a chunk in which blocks may share pages, for the checksums of those pages.
    pub(super) fn write_parts(&mut self, id: EffectId, at: Pba, blocks: u32) {
        let mut parts: BTreeMap<Pba, Vec<Content>> = BTreeMap::new();
        for (buf, place, slot) in self.core.chunk_places(id) {
            if slot.is_some() {
                let content = self.bufs[buf.0 as usize];
                parts.entry(place).or_default().push(content);
            }
        }
        self.bytes.resize(BLOCK_BYTES, 0);
        for index in 0..blocks as usize - 1 {
            let place = at.plus(index as u64 + 1);
            let content = match self.core.chunk_block(id, index) {
                ChunkBlock::Whole(buf) => {
                    let content = self.bufs[buf.0 as usize];
                    self.pages.copied(content);
                    content
                }
                ChunkBlock::Page => {
                    // Nothing reads what would be stored.
                    let store = &mut |_, _, _: &mut [u8]| {};
                    self.core.encode_page(id, index, &mut self.bytes, store);
                    self.make_page(parts.remove(&place).unwrap_or_default())
                }
            };
            self.medium[place.0 as usize] = content;
        }
        if let Some(parts) = parts.remove(&at) {
            let store = &mut |_, _, _: &mut [u8]| {};
            self.core.encode_header(id, &mut self.bytes, store);
            self.medium[at.0 as usize] = self.make_page(parts);
        }
    }

    /// Adds a page with these parts, which has been encoded.
    fn make_page(&mut self, parts: Vec<Content>) -> Content {
        let sum = self.superblock().sum(crc32c::crc32c).of(&self.bytes);
        let mut directory = Vec::new();
        if self.services.are_on() {
            let told = pack::directory(&self.bytes, crc32c::crc32c, &mut directory);
            debug_assert!(told.is_ok());
        }
        self.pages.make(sum, parts, &directory)
    }

    /// Forgets the pages of the segment at `at`, which is erased.
    pub(super) fn forget_pages(&mut self, at: Pba) {
        if self.pages.is_empty() {
            return;
        }
        let first = at.0 as usize;
        let blocks = self.superblock().segment_blocks() as usize;
        for content in &mut self.medium[first..first + blocks] {
            self.pages.erased(std::mem::take(content));
        }
    }

    pub(super) fn is_same(&self, buf: Buf, with: Content, slot: Option<u8>) -> bool {
        let with = match slot {
            Some(slot) => self.pages.part(with, slot),
            None => Some(with),
        };
        with == Some(self.bufs[buf.0 as usize])
    }

    pub(super) fn start_parts(&mut self, io: &mut Io<'_>, id: EffectId, parts: Parts, to: To) {
        let Parts {
            page,
            slot,
            count,
            base,
        } = parts;
        match page {
            PagePlace::Medium(at) if let Some(base) = on_medium(base) => {
                let parts = (slot, count);
                self.read_base(io, id, base, Then::Read { at, parts, to });
            }
            PagePlace::Medium(at) => {
                let parts = Flight::Parts {
                    at,
                    slot,
                    count,
                    to,
                };
                let tag = self.fly(id, parts);
                self.backing.read(io, tag, at, 1);
            }
            PagePlace::Buffer(buf) => {
                let page = self.bufs[buf.0 as usize];
                let whole = self.give_parts(page, (slot, count), to);
                if let Some(base) = on_medium(base) {
                    return self.read_base(io, id, base, Then::Shown(whole));
                }
                let tag = self.fly(id, Flight::PartsShown(whole));
                io.time.done(tag);
            }
        }
    }

    pub(super) fn start_compare(&mut self, io: &mut Io<'_>, id: EffectId, buf: Buf, with: Against) {
        let base = match with {
            Against::Part(.., base) => on_medium(base),
            _ => None,
        };
        let (other, slot) = match with {
            Against::Part(PagePlace::Medium(at), slot, _) if let Some(base) = base => {
                return self.read_base(io, id, base, Then::Compare { buf, at, slot });
            }
            Against::Medium(at) | Against::Part(PagePlace::Medium(at), ..) => {
                let slot = match with {
                    Against::Part(_, slot, _) => Some(slot),
                    _ => None,
                };
                let tag = self.fly(id, Flight::Compare { buf, at, slot });
                return self.backing.read(io, tag, at, 1);
            }
            Against::Buffer(other) => (other, None),
            Against::Part(PagePlace::Buffer(other), slot, _) => (other, Some(slot)),
        };
        // Compared now: the next effect may release it.
        let same = self.is_same(buf, self.bufs[other.0 as usize], slot);
        if let Some(base) = base {
            return self.read_base(io, id, base, Then::Compared(same));
        }
        let tag = self.fly(id, Flight::Compared(same));
        io.time.done(tag);
    }

    /// Takes parts of a page that was read: the first and how many. Returns true if all of them were there.
    pub(super) fn give_parts(&mut self, page: Content, (slot, count): (u8, u8), to: To) -> bool {
        let mut whole = true;
        for i in 0..count {
            match self.pages.part(page, slot + i) {
                Some(content) => self.give(to, u32::from(i), content),
                None => whole = false,
            }
        }
        whole
    }
}
