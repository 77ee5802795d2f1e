//! Compression. The thread that brings a block encodes it while it is hot in the cache, into the space beside its frame. From
//! there it is copied into the page that the core finds for it. It is decoded when it is read.

use crate::compression::Alone;
pub use crate::compression::Compression;
use crate::digest::crc32c;
use crate::frames::Frames;
use std::cell::RefCell;
use std::num::NonZeroU16;
pub use vellum_codec::Level;
use vellum_codec::{Block as Bytes, Decoder, Encoded, Encoder, Encoding, Method};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::entry::PartId;
use vellum_core::format::{BlockSum, pack};
use vellum_core::limits::LONGEST_PART;
use vellum_core::seam::Packed;

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new(Method::Off, Method::Off));
}

/// Encodes block `index` of a write into the space beside its frame, if that saves enough.
pub(crate) fn pack(frames: &mut Frames, index: usize, how: Alone) -> Option<Packed> {
    if !how.is_any() {
        return None;
    }
    encode(frames, index, LONGEST_PART, None, |encoder, block, room| {
        encoder.set(how.method(), Method::Off);
        encoder.compress(block, room)
    })
}

/// Like [`pack`], but encodes the difference to a base, in at most `most` bytes.
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
        // A block equal to its base needs no bytes, but a part must have some: they encode a run of one zero.
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

/// Returns the bytes that a block would take in a page, its entry in the page's directory included.
#[must_use]
pub fn part_bytes(block: &[u8; BLOCK_BYTES], how: Compression) -> usize {
    let mut room = [0; LONGEST_PART];
    let encoded = ENCODER.with_borrow_mut(|encoder| {
        encoder.set(how.method(), Method::Off);
        encoder.compress(block, &mut room)
    });
    encoded.map_or(BLOCK_BYTES, |encoded| of_a_page(encoded.length))
}

/// The same for a block that replaces `base` and may be stored as its difference to it.
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
        // As on a volume: the base is a part itself, and a delta is less than half as long.
        let most = encoder.compress(base, &mut room)?.length / 2;
        encoder.delta(block, base, &mut room[..most])
    });
    delta.map_or(alone, |delta| of_a_page(delta.length).min(alone))
}

fn of_a_page(length: usize) -> usize {
    ((length + pack::OVERHEAD) * BLOCK_BYTES).div_ceil(pack::ROOM)
}

/// Decodes parts of pages.
pub(crate) struct Unpacker {
    decoder: Decoder,
    /// The sum of a block, by the volume's own key if it has one.
    pub sum: BlockSum,
}

impl Unpacker {
    pub fn new(sum: BlockSum) -> Self {
        Self {
            decoder: Decoder::new(),
            sum,
        }
    }

    /// Decodes a part into `out`. Returns true if it is the block that was stored.
    pub fn unpack(&mut self, page: &[u8], slot: u8, base: Option<&Bytes>, out: &mut Bytes) -> bool {
        let Ok((_, part, bytes)) = pack::find(page, slot, crc32c) else {
            return false;
        };
        let Ok(encoding) = Encoding::try_from(part.encoding) else {
            return false;
        };
        let decoded = self.decoder.decode(encoding, bytes, base, out);
        decoded.is_ok() && self.sum.of(out) == part.sum
    }
}
