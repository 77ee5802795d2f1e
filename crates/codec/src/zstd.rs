//! zstd, with contexts that are kept between calls. A base is zstd's dictionary for one frame.

use crate::block::Block;
use crate::encoding::Encoding;
use crate::error::DecodeError;
use crate::level::Level;
use vellum_core::addr::BLOCK_BYTES;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, MAGICNUMBER, compress_bound};

pub(crate) struct Compressor {
    context: CCtx<'static>,
    level: Level,
    room: Vec<u8>,
}

impl Compressor {
    /// Returns `None` if there is no memory for it.
    pub(crate) fn new(level: Level) -> Option<Self> {
        let mut context = CCtx::try_create()?;
        // A record has its own length and checksum, so those in the frame would be redundant.
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

    pub(crate) fn encode(&mut self, block: &Block, base: Option<&Block>) -> Option<&[u8]> {
        let Some(base) = base else {
            let length = self.context.compress2(&mut self.room[..], block).ok()?;
            return self.room.get(..length);
        };
        // This way of passing a base, which keeps no reference to it, only supports frames with a magic number.
        let level = i32::from(self.level.get());
        let length = self
            .context
            .compress_using_dict(&mut self.room[..], block, base, level)
            .ok()?;
        self.room
            .get(..length)?
            .strip_prefix(&MAGICNUMBER.to_le_bytes())
    }
}

pub(crate) struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    /// Returns `None` if there is no memory for it.
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
        base: Option<&Block>,
        out: &mut Block,
    ) -> Result<(), DecodeError> {
        let found = match base {
            None => self.context.decompress(&mut out[..], bytes),
            Some(base) => self
                .context
                .decompress_using_dict(&mut out[..], bytes, base),
        };
        match found {
            Ok(BLOCK_BYTES) => Ok(()),
            Ok(length) => Err(DecodeError::Short { encoding, length }),
            Err(_) => Err(DecodeError::Damaged { encoding }),
        }
    }
}
