//! From a block to fewer bytes.

use crate::lz4::Lz4;
use crate::probe::{is_flat, is_like};
use crate::zstd::Compressor;
use crate::{Block, Encoding, runs};
use vellum_core::addr::BLOCK_BYTES;

/// How far zstd goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u8);

impl Level {
    /// The lowest: the fastest.
    pub const MIN: Self = Self(1);
    /// The highest. zstd has more, which find nothing more in 4 KiB.
    pub const MAX: Self = Self(9);

    /// What the measurement recommends: the next ones take longer than they save.
    pub const DEFAULT: Self = Self::MIN;

    /// `None` when there is no such level.
    #[must_use]
    pub fn new(level: u8) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0)
            .contains(&level)
            .then_some(Self(level))
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

/// What may be tried. LZ4 and zstd come after [`runs`], which are cheaper, and for some blocks better.
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

/// What came of it: the first `length` bytes of the room that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// What a decoder must be told.
    pub encoding: Encoding,
    /// Its bytes. None for a delta when the block is its base.
    pub length: usize,
}

/// Makes blocks smaller. It holds memory to work in and nothing else: keep one for each thread.
pub struct Encoder {
    whole: Method,
    delta: Method,
    difference: Box<Block>,
    lz4: Option<Lz4>,
    zstd: Option<Compressor>,
}

/// Runs up to here are taken at once: what another encoding could save is not worth its time.
const RUNS_TAKEN: usize = 64;
/// Runs are not followed further if something else may be tried: what has more of them is better as that.
const RUNS_TRIED: usize = 2048;

impl Encoder {
    /// One that tries `whole` on blocks by themselves, and `delta` on blocks that have a base.
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

    /// From now on tries these.
    pub fn set(&mut self, whole: Method, delta: Method) {
        (self.whole, self.delta) = (whole, delta);
    }

    /// Stores the block in fewer bytes, by itself. The room is the limit (or a block, if that is less): `None`
    /// when nothing that may be tried fits in it. What the room holds behind the result, or after `None`, is
    /// undefined.
    pub fn compress(&mut self, block: &Block, room: &mut [u8]) -> Option<Encoded> {
        self.best(self.whole, block, None, room)
    }

    /// Stores the block as its difference to `base`. The room is the limit, as in [`Encoder::compress`]. What
    /// is in the block twice is found too: where there is a base, [`Encoder::compress`] need not be asked.
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
        // More than a block is never an encoding: it would not be decoded.
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
            // Where an entropy coder has nothing to do zstd finds no more than LZ4, in several times its time.
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
