//! Blocks in fewer bytes: encoded by whoever brings them, while they are hot in the cache, into the space beside
//! their frame; from there copied into the page that the core finds for them; decoded when they are read.

use crate::digest::crc32c;
use crate::drive::{Batch, Cause, Inner};
use crate::frames::Frames;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use vellum_codec::{Block as Bytes, Decoder, Encoder, Encoding, Level, Method};
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba, RequestId};
use vellum_core::format::pack;
use vellum_core::limits::LONGEST_PART;
use vellum_core::seam::{Block, Outcome, Packed, Page};
use vellum_medium::Kind;

/// How blocks are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    Off,
    /// LZ4: little time.
    Lz4,
    /// zstd, level 1: fewer bytes, more time.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lz4, Self::Zstd];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Off => Method::Off,
            Self::Lz4 => Method::Lz4,
            Self::Zstd => Method::Zstd(Level::MIN),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = crate::policy::UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|compression| compression.name() == name)
            .ok_or(crate::policy::UnknownName)
    }
}

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new(Method::Off, Method::Off));
}

/// Encodes block `index` of a write into the space beside its frame, if that saves enough.
pub(crate) fn pack(frames: &mut Frames, index: usize, how: Compression) -> Option<Packed> {
    if how == Compression::Off {
        return None;
    }
    let (block, side) = frames.with_side(index);
    let block: &Bytes = block.try_into().ok()?;
    let room = side.get_mut(..LONGEST_PART)?;
    let encoded = ENCODER.with_borrow_mut(|encoder| {
        encoder.set(how.method(), Method::Off);
        encoder.compress(block, room)
    })?;
    Some(Packed {
        len: NonZeroU16::new(u16::try_from(encoded.length).ok()?)?,
        encoding: encoded.encoding.number(),
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
    encoded.map_or(BLOCK_BYTES, |encoded| {
        let taken = (encoded.length + pack::OVERHEAD) * BLOCK_BYTES;
        taken.div_ceil(pack::ROOM)
    })
}

/// A read of parts that the medium has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartsRead {
    slot: u8,
    count: u8,
    to: Decoded,
}

/// Where parts are decoded to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decoded {
    /// The frames of a request, from this one on.
    Request(RequestId, u32),
    /// One of the collector's frames.
    Collector(Buf),
}

/// What is done at once, and told to the core when it has given out all that it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    Same(bool),
    Parts(bool),
}

impl Told {
    pub fn outcome(self) -> Outcome<'static> {
        match self {
            Self::Same(same) => Outcome::Same(same),
            Self::Parts(whole) => Outcome::Parts { crc: 0, whole },
        }
    }
}

/// Decodes a part into `out`; whether it is the block that was stored.
pub(crate) fn unpack(decoder: &mut Decoder, page: &[u8], slot: u8, out: &mut Bytes) -> bool {
    let Ok((_, part, bytes)) = pack::find(page, slot, crc32c) else {
        return false;
    };
    let Ok(encoding) = Encoding::try_from(part.encoding) else {
        return false;
    };
    decoder.decode(encoding, bytes, None, out).is_ok() && crc32c(out) == part.crc
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

    /// Parts of a page: decoded at once if it is in memory, read otherwise.
    pub(crate) fn read_parts(
        &mut self,
        id: EffectId,
        page: Page,
        read: PartsRead,
        batch: &mut Batch,
    ) {
        match page {
            Page::Buffer(buf) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page = unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                let whole = self.unpack_to(page, read);
                self.told.push((id, Told::Parts(whole)));
            }
            Page::Medium(at) => {
                match read.to {
                    Decoded::Request(..) => self.counters.read_blocks_clients += 1,
                    Decoded::Collector(_) => self.counters.read_blocks_collector += 1,
                }
                let mut io = self.io(Cause::Parts, id, Kind::Read, at);
                let buffer = self.buffers.take(1);
                self.keep(id, buffer, &mut io);
                let index = id.0 as usize;
                if self.parts.len() <= index {
                    self.parts.resize(index + 1, None);
                }
                self.parts[index] = Some(read);
                batch.ios.push(io);
            }
        }
    }

    /// What the core is told of a page that was read for its parts.
    pub(crate) fn parts_read(&mut self, id: EffectId, page: &[u8]) -> Outcome<'static> {
        let whole = match self.parts[id.0 as usize].take() {
            Some(read) => self.unpack_to(page, read),
            None => false,
        };
        Outcome::Parts {
            crc: crc32c(page),
            whole,
        }
    }

    fn unpack_to(&mut self, page: &[u8], read: PartsRead) -> bool {
        (0..read.count).all(|index| {
            let to = match read.to {
                Decoded::Request(request, first) => {
                    let frames = &self.requests.get(request).request.frames;
                    frames.ptr((first + u32::from(index)) as usize)
                }
                Decoded::Collector(buf) => self.frames.ptr(buf),
            };
            // SAFETY: a frame of the request's, or of the collector's, which nobody else reaches while it is in flight.
            let out = unsafe { &mut *to.cast::<Bytes>() };
            unpack(&mut self.decoder, page, read.slot + index, out)
        })
    }
}

impl PartsRead {
    pub fn new(slot: u8, count: u8, to: Decoded) -> Self {
        Self { slot, count, to }
    }
}
