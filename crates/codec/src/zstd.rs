//! zstd, through contexts that are kept.

use crate::{Block, DecodeError, Encoding, Level};
use vellum_core::addr::BLOCK_BYTES;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, compress_bound};

pub(crate) struct Compressor {
    context: CCtx<'static>,
    level: Level,
    room: Vec<u8>,
}

impl Compressor {
    /// `None` when there is no memory for it.
    pub(crate) fn new(level: Level) -> Option<Self> {
        let mut context = CCtx::try_create()?;
        // A record has its own length and checksum: what a frame says of them is twice.
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
            CParameter::CompressionLevel(i32::from(level.get())),
        ] {
            context.set_parameter(parameter).ok()?;
        }
        Some(Self {
            context,
            level,
            room: vec![0; compress_bound(BLOCK_BYTES)],
        })
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn encode(&mut self, block: &Block) -> Option<&[u8]> {
        let length = self.context.compress2(&mut self.room[..], block).ok()?;
        self.room.get(..length)
    }
}

pub(crate) struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    /// `None` when there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .ok()?;
        Some(Self { context })
    }

    pub(crate) fn decode(
        &mut self,
        encoding: Encoding,
        bytes: &[u8],
        out: &mut Block,
    ) -> Result<(), DecodeError> {
        match self.context.decompress(&mut out[..], bytes) {
            Ok(BLOCK_BYTES) => Ok(()),
            Ok(length) => Err(DecodeError::Short { encoding, length }),
            Err(_) => Err(DecodeError::Damaged { encoding }),
        }
    }
}
