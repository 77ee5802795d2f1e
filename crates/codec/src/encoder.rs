//! Encodes a block in fewer bytes.

use crate::block::Block;
use crate::encoding::Encoding;
use crate::level::Level;
use crate::lz4::Lz4;
use crate::probe::{is_flat, is_like};
use crate::runs;
use crate::zstd::Compressor;
use vellum_core::addr::BLOCK_BYTES;

/// The encodings to try. LZ4 and zstd are tried after [`runs`], which is cheaper, and better for some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Nothing: every block is stored whole.
    Off,
    /// [`runs`].
    Runs,
    /// LZ4.
    #[default]
    Lz4,
    /// zstd.
    Zstd(Level),
}

/// The result: the first `length` bytes of the room that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The encoding, which the decoder needs.
    pub encoding: Encoding,
    /// The number of bytes; zero for a delta if the block equals its base.
    pub length: usize,
}

/// Encodes blocks in fewer bytes. It holds only working memory: keep one for each thread.
pub struct Encoder {
    whole: Method,
    delta: Method,
    difference: Box<Block>,
    lz4: Option<Lz4>,
    zstd: Option<Compressor>,
}

/// Runs up to this length are taken at once: another encoding could not save enough to be worth its time.
const RUNS_TAKEN: usize = 64;
/// Runs are abandoned beyond this length if another method may be tried: a block with this much in runs is
/// better stored by the other method.
const RUNS_TRIED: usize = 2048;

impl Encoder {
    /// Makes an encoder that tries `whole` on blocks by themselves, and `delta` on blocks that have a base.
    #[must_use]
    pub fn new(whole: Method, delta: Method) -> Self {
        Self {
            whole,
            delta,
            difference: Box::new([0; BLOCK_BYTES]),
            lz4: None,
            zstd: None,
        }
    }

    /// Changes the methods to try.
    pub fn set(&mut self, whole: Method, delta: Method) {
        (self.whole, self.delta) = (whole, delta);
    }

    /// Encodes the block by itself. The limit is the length of `room`, or a block if that is less. Returns `None` if no method's
    /// result fits. The bytes of `room` after the result, or all of them after `None`, are undefined.
    pub fn compress(&mut self, block: &Block, room: &mut [u8]) -> Option<Encoded> {
        self.best(self.whole, block, None, room)
    }

    /// Encodes the block as its difference to `base`, with the same limit as [`Encoder::compress`]. It also finds repetitions
    /// within the block, so a block with a base does not need [`Encoder::compress`] as well.
    pub fn delta(&mut self, block: &Block, base: &Block, room: &mut [u8]) -> Option<Encoded> {
        self.best(self.delta, block, Some(base), room)
    }

    fn best(
        &mut self,
        method: Method,
        block: &Block,
        base: Option<&Block>,
        room: &mut [u8],
    ) -> Option<Encoded> {
        // An encoding of more than a block would not be decoded.
        let most = room.len().min(BLOCK_BYTES);
        let room = &mut room[..most];
        let tried = match method {
            Method::Off => return None,
            Method::Runs => room.len(),
            Method::Lz4 | Method::Zstd(_) => room.len().min(RUNS_TRIED),
        };
        let (runs, lz4, zstd) = match base {
            None => (Encoding::Runs, Encoding::Lz4, Encoding::Zstd),
            Some(base) => {
                for ((to, new), old) in self.difference.iter_mut().zip(block).zip(base) {
                    *to = new ^ old;
                }
                (Encoding::DeltaRuns, Encoding::DeltaLz4, Encoding::DeltaZstd)
            }
        };
        let mostly_zeros = base.map_or(block, |_| &self.difference);
        let found = runs::encode(mostly_zeros, &mut room[..tried]).map(|length| Encoded {
            encoding: runs,
            length,
        });
        let limit = match found {
            Some(found) if found.length <= RUNS_TAKEN => return Some(found),
            Some(found) => found.length - 1,
            None => room.len(),
        };
        if found.is_none() && base.is_some_and(|base| !is_like(block, base)) {
            return None;
        }
        let method = match method {
            // If the block has nothing for an entropy coder, zstd finds no more than LZ4 does, and takes several times as long.
            Method::Zstd(_) if is_flat(block) => Method::Lz4,
            method => method,
        };
        let (encoding, bytes) = match method {
            Method::Off | Method::Runs => return found,
            Method::Lz4 => {
                let by = self.lz4.get_or_insert_with(Lz4::new);
                (lz4, by.encode(block, base))
            }
            Method::Zstd(level) => {
                if self.zstd.as_ref().is_none_or(|made| made.level() != level) {
                    self.zstd = Compressor::new(level);
                }
                let by = self.zstd.as_mut();
                (zstd, by.and_then(|by| by.encode(block, base)))
            }
        };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() <= limit) else {
            return found;
        };
        let length = bytes.len();
        room[..length].copy_from_slice(bytes);
        Some(Encoded { encoding, length })
    }
}
