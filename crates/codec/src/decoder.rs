//! Decodes stored bytes into a block.

use crate::block::Block;
use crate::encoding::Encoding;
use crate::error::DecodeError;
use crate::zstd::Decompressor;
use crate::{lz4, runs};
use vellum_core::addr::BLOCK_BYTES;

/// Decodes what an [`Encoder`](crate::Encoder) stored, whatever its methods. It holds only working memory: keep one for each thread.
#[derive(Default)]
pub struct Decoder {
    zstd: Option<Decompressor>,
}

impl Decoder {
    /// Makes a decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `bytes` into `out`. `base` is needed if [`Encoding::is_delta`]; other encodings ignore it.
    ///
    /// # Errors
    /// If the bytes do not decode to a block. The contents of `out` are then undefined.
    pub fn decode(
        &mut self,
        encoding: Encoding,
        bytes: &[u8],
        base: Option<&Block>,
        out: &mut Block,
    ) -> Result<(), DecodeError> {
        if bytes.len() > BLOCK_BYTES {
            let length = bytes.len();
            return Err(DecodeError::TooLong { encoding, length });
        }
        let base = match base {
            Some(base) if encoding.is_delta() => Some(base),
            None if encoding.is_delta() => return Err(DecodeError::NoBase { encoding }),
            _ => None,
        };
        match encoding {
            Encoding::Runs | Encoding::DeltaRuns => {
                *out = *base.unwrap_or(&[0; BLOCK_BYTES]);
                Ok(runs::apply(bytes, out)?)
            }
            Encoding::Lz4 | Encoding::DeltaLz4 => lz4::decode(encoding, bytes, base, out),
            Encoding::Zstd | Encoding::DeltaZstd => {
                if self.zstd.is_none() {
                    self.zstd = Decompressor::new();
                }
                self.zstd
                    .as_mut()
                    .ok_or(DecodeError::NoMemory { encoding })?
                    .decode(encoding, bytes, base, out)
            }
        }
    }
}
