//! From a block to fewer bytes.

use crate::lz4::Lz4;
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

/// What may be tried. Each tries what is before it too: that is cheaper, and for some blocks better.
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

impl Encoder {
    /// One that tries `whole` on blocks by themselves, and `delta` on differences.
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

    /// Stores the block in fewer bytes, by itself. The room is the limit: `None` when nothing that may be
    /// tried fits in it. What the room holds behind the result, or after `None`, is undefined.
    pub fn compress(&mut self, block: &Block, room: &mut [u8]) -> Option<Encoded> {
        let (lz4, zstd) = (&mut self.lz4, &mut self.zstd);
        best(
            lz4,
            zstd,
            self.whole,
            block,
            [Encoding::Runs, Encoding::Lz4, Encoding::Zstd],
            room,
        )
    }

    /// Stores the block as its difference to `base`. The room is the limit, as in [`Encoder::compress`].
    pub fn delta(&mut self, block: &Block, base: &Block, room: &mut [u8]) -> Option<Encoded> {
        if self.delta == Method::Off {
            return None;
        }
        for ((difference, new), old) in self.difference.iter_mut().zip(block).zip(base) {
            *difference = new ^ old;
        }
        best(
            &mut self.lz4,
            &mut self.zstd,
            self.delta,
            &self.difference,
            [Encoding::DeltaRuns, Encoding::DeltaLz4, Encoding::DeltaZstd],
            room,
        )
    }
}

/// Runs shorter than this are taken at once: what another encoding could save is not worth its time.
const SHORT: usize = 64;

fn best(
    lz4: &mut Option<Lz4>,
    zstd: &mut Option<Compressor>,
    method: Method,
    block: &Block,
    [as_runs, as_lz4, as_zstd]: [Encoding; 3],
    room: &mut [u8],
) -> Option<Encoded> {
    if method == Method::Off {
        return None;
    }
    let with_runs = runs::encode(block, room).map(|length| Encoded {
        encoding: as_runs,
        length,
    });
    let limit = with_runs.map_or(room.len() + 1, |found| found.length);
    if limit <= SHORT {
        return with_runs;
    }
    let (encoding, bytes) = match method {
        Method::Off | Method::Runs => return with_runs,
        Method::Lz4 => (as_lz4, lz4.get_or_insert_with(Lz4::new).encode(block)),
        Method::Zstd(level) => {
            if zstd.as_ref().is_none_or(|made| made.level() != level) {
                *zstd = Compressor::new(level);
            }
            let bytes = zstd.as_mut().and_then(|zstd| zstd.encode(block));
            (as_zstd, bytes)
        }
    };
    match bytes {
        Some(bytes) if bytes.len() < limit => {
            room[..bytes.len()].copy_from_slice(bytes);
            Some(Encoded {
                encoding,
                length: bytes.len(),
            })
        }
        _ => with_runs,
    }
}
