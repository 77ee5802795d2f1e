//! Blocks in fewer bytes: encoded by whoever brings them, while they are hot in the cache, into the space beside
//! their frame; from there copied into the page that the core finds for them; decoded when they are read.

use crate::digest::crc32c;
use crate::drive::{Batch, Cause, Ended, Inner};
use crate::frames::Frames;
use crate::memory::Buffer;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
pub use vellum_codec::Level;
use vellum_codec::{Block as Bytes, Decoder, Encoded, Encoder, Encoding, Method};
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba, RequestId};
use vellum_core::entry::PartId;
use vellum_core::format::{BlockSum, pack};
use vellum_core::limits::LONGEST_PART;
use vellum_core::seam::{Base, Block, Outcome, Packed, Page};
use vellum_medium::Kind;

/// How blocks are made smaller. As text, level 1 is `zstd` alone, and another one `zstd:6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Compression {
    /// Not at all.
    Off,
    /// LZ4: little time.
    Lz4,
    /// zstd: fewer bytes, more time; the higher the level, the more so.
    Zstd(Level),
}

impl Compression {
    /// zstd at the level that takes the least time.
    pub const ZSTD: Self = Self::Zstd(Level::DEFAULT);

    /// One of each.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lz4, Self::ZSTD];

    fn method(self) -> Method {
        match self {
            Self::Off => Method::Off,
            Self::Lz4 => Method::Lz4,
            Self::Zstd(level) => Method::Zstd(level),
        }
    }

    /// As a number, of which [`from_number`](Self::from_number) makes it again.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Lz4 => LZ4,
            Self::Zstd(level) => LZ4 + level.get(),
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        match number.checked_sub(LZ4).map(Level::new) {
            None => Self::Off,
            Some(None) => Self::Lz4,
            Some(Some(level)) => Self::Zstd(level),
        }
    }
}

const LZ4: u8 = 1;

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(Level::DEFAULT) => f.write_str("zstd"),
            Self::Zstd(level) => write!(f, "zstd:{}", level.get()),
        }
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> Self {
        compression.to_string()
    }
}

impl TryFrom<String> for Compression {
    type Error = crate::policy::UnknownName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl FromStr for Compression {
    type Err = crate::policy::UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let level = |number: &str| Level::new(number.parse().ok()?);
        match name {
            "off" => Some(Self::Off),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::ZSTD),
            _ => name.strip_prefix("zstd:").and_then(level).map(Self::Zstd),
        }
        .ok_or(crate::policy::UnknownName)
    }
}

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new(Method::Off, Method::Off));
}

/// What is tried on a block by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone(Method);

impl Alone {
    /// Without compression a block has to be made of a few runs to be a base that is stored in fewer bytes.
    pub fn new(how: Compression, with_deltas: bool) -> Self {
        Self(match how.method() {
            Method::Off if with_deltas => Method::Runs,
            method => method,
        })
    }

    /// Whether anything is tried.
    pub fn is_any(self) -> bool {
        self.0 != Method::Off
    }
}

/// Encodes block `index` of a write into the space beside its frame, if that saves enough.
pub(crate) fn pack(frames: &mut Frames, index: usize, how: Alone) -> Option<Packed> {
    if !how.is_any() {
        return None;
    }
    encode(frames, index, LONGEST_PART, None, |encoder, block, room| {
        encoder.set(how.0, Method::Off);
        encoder.compress(block, room)
    })
}

/// As [`pack`], as the difference to a base, in `most` bytes.
pub(crate) fn pack_against(
    frames: &mut Frames,
    index: usize,
    how: Compression,
    base: &Bytes,
    part: PartId,
    most: usize,
) -> Option<Packed> {
    let most = most.min(LONGEST_PART);
    encode(frames, index, most, Some(part), |encoder, block, room| {
        let method = match how.method() {
            Method::Off => Method::Lz4,
            method => method,
        };
        encoder.set(Method::Off, method);
        encoder.delta(block, base, room)
    })
}

fn encode(
    frames: &mut Frames,
    index: usize,
    most: usize,
    base: Option<PartId>,
    by: impl FnOnce(&mut Encoder, &Bytes, &mut [u8]) -> Option<Encoded>,
) -> Option<Packed> {
    let (block, side) = frames.with_side(index);
    let block: &Bytes = block.try_into().ok()?;
    let room = side.get_mut(..most)?;
    let encoded = ENCODER.with_borrow_mut(|encoder| by(encoder, block, room))?;
    let mut length = encoded.length;
    if length == 0 && base.is_some() {
        // A block that is its base is no bytes, and a part has some: a run of one zero.
        length = 2;
        room.get_mut(..length)?.fill(0);
    }
    Some(Packed {
        len: NonZeroU16::new(u16::try_from(length).ok()?)?,
        encoding: encoded.encoding.number(),
        base,
        bucket: None,
    })
}

/// The bytes of a page that a block would take, its place in the page's directory included.
#[must_use]
pub fn part_bytes(block: &[u8; BLOCK_BYTES], how: Compression) -> usize {
    let mut room = [0; LONGEST_PART];
    let encoded = ENCODER.with_borrow_mut(|encoder| {
        encoder.set(how.method(), Method::Off);
        encoder.compress(block, &mut room)
    });
    encoded.map_or(BLOCK_BYTES, |encoded| of_a_page(encoded.length))
}

/// The same of a block that replaces `base` and may be stored as its difference to that.
#[must_use]
pub fn part_bytes_after(
    block: &[u8; BLOCK_BYTES],
    base: &[u8; BLOCK_BYTES],
    how: Compression,
) -> usize {
    let alone = part_bytes(block, how);
    let mut room = [0; LONGEST_PART];
    let delta = ENCODER.with_borrow_mut(|encoder| {
        encoder.set(how.method(), how.method());
        // As for a volume: a base is a part itself, and a delta is less than half as long.
        let most = encoder.compress(base, &mut room)?.length / 2;
        encoder.delta(block, base, &mut room[..most])
    });
    delta.map_or(alone, |delta| of_a_page(delta.length).min(alone))
}

fn of_a_page(length: usize) -> usize {
    ((length + pack::OVERHEAD) * BLOCK_BYTES).div_ceil(pack::ROOM)
}

/// A read of parts that the medium has not answered yet: of their page, of the page of what they are a difference to, or of both at a
/// time.
pub(crate) struct PartsRead {
    slot: u8,
    count: u8,
    to: Decoded,
    base: Needs,
    page: Came,
}

/// What parts need beside their page.
enum Needs {
    Nothing,
    /// A part of a page that is being read into this buffer.
    Part(u8, Buffer),
    Block(Box<Bytes>),
    /// What cannot be had.
    Lost,
}

/// The page that parts are in, while they wait for what they need.
enum Came {
    NotYet,
    /// It was in memory, in a frame that may be another's when the base has come.
    Copied(Box<Bytes>),
    /// It has been read into the effect's buffer, or could not be.
    Read {
        failed: bool,
    },
}

/// Where parts are decoded to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decoded {
    /// The frames of a request, from this one on.
    Request(RequestId, u32),
    /// One of the collector's frames.
    Collector(Buf),
    /// Nowhere: it is held against what is in this frame.
    Compared(Buf),
}

/// What is done at once, and told to the core when it has given out all that it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    Same(bool),
    Parts { whole: bool, base: bool },
}

impl Told {
    pub fn outcome(self) -> Outcome<'static> {
        match self {
            Self::Same(same) => Outcome::Same(same),
            Self::Parts { whole, base } => Outcome::Parts {
                sum: 0,
                whole,
                base,
            },
        }
    }
}

/// Decodes a part into `out`; whether it is the block that was stored.
pub(crate) fn unpack(
    decoder: &mut Decoder,
    sum: BlockSum,
    page: &[u8],
    slot: u8,
    base: Option<&Bytes>,
    out: &mut Bytes,
) -> bool {
    let Ok((_, part, bytes)) = pack::find(page, slot, crc32c) else {
        return false;
    };
    let Ok(encoding) = Encoding::try_from(part.encoding) else {
        return false;
    };
    decoder.decode(encoding, bytes, base, out).is_ok() && sum.of(out) == part.sum
}

impl Inner {
    /// A chunk: the header and the pages of parts in one buffer, all other blocks from their frames.
    pub(crate) fn write_chunk(
        &mut self,
        id: EffectId,
        at: Pba,
        blocks: u32,
        durable: bool,
        batch: &mut Batch,
    ) {
        let data = 0..blocks as usize - 1;
        let is_page = |index: &usize| self.engine.chunk_block(id, *index) == Block::Page;
        let pages = data.clone().filter(is_page).count();
        let mut buffer = self.buffers.take(1 + pages);
        let mut io = self.io(Cause::Chunk, id, Kind::Write { durable }, at);
        let frames = &self.frames;
        let mut store = |buf: Buf, _, out: &mut [u8]| {
            // SAFETY: the core holds this frame, and what is beside it, unchanged until it releases it.
            let side = unsafe { std::slice::from_raw_parts(frames.side(buf), out.len()) };
            out.copy_from_slice(side);
        };
        let (header, mut rest) = buffer.bytes_mut().split_at_mut(BLOCK_BYTES);
        // SAFETY: the buffer is put away untouched until the operation is back.
        unsafe { io.push(header.as_mut_ptr(), BLOCK_BYTES) };
        for index in data {
            match self.engine.chunk_block(id, index) {
                // SAFETY: the core holds these frames, unchanged, until this write has come back.
                Block::Whole(buf) => unsafe { io.push(frames.ptr(buf), BLOCK_BYTES) },
                Block::Page => {
                    let (page, others) = rest.split_at_mut(BLOCK_BYTES);
                    rest = others;
                    self.engine.encode_page(id, index, page, &mut store);
                    // SAFETY: as the header's.
                    unsafe { io.push(page.as_mut_ptr(), BLOCK_BYTES) };
                }
            }
        }
        self.engine.encode_header(id, header, &mut store);
        self.put_away(id, buffer);
        assert_eq!(
            io.len(),
            blocks as usize * BLOCK_BYTES,
            "chunk {id} is as long as the core says"
        );
        self.frames.forget(at, blocks);
        self.count_write(blocks, durable);
        batch.ios.push(io);
    }

    /// Parts of a page: decoded at once if all that takes is in memory. Page and base are read together: a block then takes as long as
    /// one that is whole.
    pub(crate) fn read_parts(
        &mut self,
        id: EffectId,
        page: Page,
        base: Option<Base>,
        mut read: PartsRead,
        batch: &mut Batch,
    ) {
        match base {
            None => {}
            Some(Base::Block(buf)) => read.base = Needs::block(self.frame(buf)),
            Some(Base::Part(Page::Buffer(buf), slot)) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page = unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                read.base = Needs::part(&mut self.decoder, self.sum, page, slot);
            }
            Some(Base::Part(Page::Medium(at), slot)) => {
                self.count_parts_read(read.to);
                let mut io = self.io(Cause::Base, id, Kind::Read, at);
                let buffer = self.buffers.take(1);
                // SAFETY: the buffer lies untouched in the read until `base_came` takes it when the operation is back.
                unsafe { io.push(buffer.ptr(), buffer.len()) };
                batch.ios.push(io);
                read.base = Needs::Part(slot, buffer);
            }
        }
        match page {
            Page::Buffer(buf) if read.waits_for_base() => {
                let page = <&Bytes>::try_from(self.frame(buf)).map(|page| Box::new(*page));
                read.page = page.map_or(Came::Read { failed: true }, Came::Copied);
                self.keep_parts(id, read);
            }
            Page::Buffer(buf) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page = unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                let told = self.told_of(page, &read);
                self.told.push((id, told));
            }
            Page::Medium(at) => {
                self.count_parts_read(read.to);
                let mut io = self.io(Cause::Parts, id, Kind::Read, at);
                let buffer = self.buffers.take(1);
                self.keep(id, buffer, &mut io);
                batch.ios.push(io);
                self.keep_parts(id, read);
            }
        }
    }

    pub fn count_read(&mut self, request: RequestId, blocks: u64) {
        let own = self.requests.get(request).own;
        let counters = &mut self.counters;
        let count = match own {
            true => &mut counters.read_blocks_fold,
            false => &mut counters.read_blocks_clients,
        };
        *count += blocks;
    }

    fn count_parts_read(&mut self, to: Decoded) {
        match to {
            Decoded::Request(request, _) => self.count_read(request, 1),
            Decoded::Collector(_) => self.counters.read_blocks_collector += 1,
            Decoded::Compared(_) => self.counters.read_blocks_compare += 1,
        }
    }

    fn keep_parts(&mut self, id: EffectId, read: PartsRead) {
        let index = id.0 as usize;
        if self.parts.len() <= index {
            self.parts.resize_with(index + 1, || None);
        }
        self.parts[index] = Some(read);
    }

    /// A page of parts has come, or cannot be had; whether what they need is still to come.
    pub(crate) fn waits_for_base(&mut self, id: EffectId, failed: bool) -> bool {
        let Some(read) = &mut self.parts[id.0 as usize] else {
            unreachable!("effect {id} reads parts")
        };
        let waits = read.waits_for_base();
        if waits {
            read.page = Came::Read { failed };
        }
        waits
    }

    /// A base has come, or cannot be had. If the page was read before it: how that ended, for the core is told now.
    pub(crate) fn base_came(&mut self, id: EffectId, failed: bool) -> Option<Ended<'static>> {
        let Some(mut read) = self.parts[id.0 as usize].take() else {
            unreachable!("effect {id} reads a base for parts")
        };
        let Needs::Part(slot, buffer) = std::mem::replace(&mut read.base, Needs::Lost) else {
            unreachable!("effect {id} waits for a base")
        };
        if !failed {
            read.base = Needs::part(&mut self.decoder, self.sum, buffer.bytes(), slot);
        }
        self.buffers.give_back(buffer);
        let ended = match &read.page {
            Came::NotYet => None,
            Came::Copied(page) => {
                let told = self.told_of(&page[..], &read);
                self.told.push((id, told));
                return None;
            }
            Came::Read { failed: true } => Some(Ended::Failed),
            Came::Read { failed: false } => Some(Ended::Metadata),
        };
        self.parts[id.0 as usize] = Some(read);
        ended
    }

    /// What the core is told of a page that was read for its parts.
    pub(crate) fn parts_read(&mut self, id: EffectId, page: &[u8]) -> Outcome<'static> {
        let Some(read) = self.parts[id.0 as usize].take() else {
            unreachable!("effect {id} reads parts")
        };
        Outcome::Parts {
            sum: self.sum.of(page),
            whole: self.unpack_to(page, &read),
            base: read.has_base(),
        }
    }

    /// Of a page in memory.
    fn told_of(&mut self, page: &[u8], read: &PartsRead) -> Told {
        let whole = self.unpack_to(page, read);
        match read.to {
            Decoded::Compared(_) => Told::Same(whole),
            Decoded::Request(..) | Decoded::Collector(_) => Told::Parts {
                whole,
                base: read.has_base(),
            },
        }
    }

    fn unpack_to(&mut self, page: &[u8], read: &PartsRead) -> bool {
        let base = match &read.base {
            Needs::Block(block) => Some(&**block),
            Needs::Nothing => None,
            Needs::Part(..) | Needs::Lost => return false,
        };
        (0..read.count).all(|index| {
            let slot = read.slot + index;
            let to = match read.to {
                Decoded::Request(request, first) => {
                    let frames = &self.requests.get(request).request.frames;
                    frames.ptr((first + u32::from(index)) as usize)
                }
                Decoded::Collector(buf) => self.frames.ptr(buf),
                Decoded::Compared(buf) => return self.part_is(page, slot, base, buf),
            };
            // SAFETY: a frame of the request's, or of the collector's, which nobody else reaches while it is in flight.
            let out = unsafe { &mut *to.cast::<Bytes>() };
            unpack(&mut self.decoder, self.sum, page, slot, base, out)
        })
    }
}

impl PartsRead {
    pub fn new(slot: u8, count: u8, to: Decoded) -> Self {
        Self {
            slot,
            count,
            to,
            base: Needs::Nothing,
            page: Came::NotYet,
        }
    }

    fn waits_for_base(&self) -> bool {
        matches!(self.base, Needs::Part(..))
    }

    fn has_base(&self) -> bool {
        !matches!(self.base, Needs::Lost)
    }
}

impl Needs {
    fn block(block: &[u8]) -> Self {
        <&Bytes>::try_from(block).map_or(Self::Lost, |block| Self::Block(Box::new(*block)))
    }

    fn part(decoder: &mut Decoder, sum: BlockSum, page: &[u8], slot: u8) -> Self {
        let mut block = Box::new([0; BLOCK_BYTES]);
        match unpack(decoder, sum, page, slot, None, &mut block) {
            true => Self::Block(block),
            false => Self::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_and_a_number_of_its_own() {
        let levels = (1..=Level::MAX.get()).filter_map(Level::new);
        let all: Vec<_> = [Compression::Off, Compression::Lz4]
            .into_iter()
            .chain(levels.map(Compression::Zstd))
            .collect();
        assert_eq!(all.len(), 11);
        for how in all {
            assert_eq!(how.to_string().parse(), Ok(how));
            assert_eq!(Compression::from_number(how.number()), how);
        }
        assert_eq!("zstd:1".parse(), Ok(Compression::ZSTD));
        for wrong in ["zstd:0", "zstd:10", "zstd:", "zstd:-1", "lz4:1", "gzip", ""] {
            assert!(wrong.parse::<Compression>().is_err(), "{wrong}");
        }
    }
}
