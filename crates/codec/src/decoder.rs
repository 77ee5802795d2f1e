//! From fewer bytes to the block.

use crate::runs::RunsError;
use crate::zstd::Decompressor;
use crate::{Block, Encoding, lz4, runs};
use vellum_core::addr::BLOCK_BYTES;

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A delta, and no base was given.
    #[error("{encoding}: decoding it takes the block it was made from")]
    NoBase {
        /// How it is stored.
        encoding: Encoding,
    },
    /// More bytes than the block they should be.
    #[error(
        "{encoding}: {length} bytes, more than a block: the record that gives the length is damaged"
    )]
    TooLong {
        /// How it is stored.
        encoding: Encoding,
        /// How many bytes were given.
        length: usize,
    },
    /// Not runs.
    #[error("runs: {0}: the stored bytes are damaged")]
    Runs(RunsError),
    /// Not what its encoding makes, or more than a block.
    #[error("{encoding}: the stored bytes are damaged, or more than a block")]
    Damaged {
        /// How it is stored.
        encoding: Encoding,
    },
    /// Less than a block.
    #[error("{encoding}: {length} bytes and not a block: the stored bytes are damaged")]
    Short {
        /// How it is stored.
        encoding: Encoding,
        /// What came out.
        length: usize,
    },
    /// No memory to work in.
    #[error("{encoding}: no memory for its decoder: try again")]
    NoMemory {
        /// How it is stored.
        encoding: Encoding,
    },
}

/// Makes blocks of what an [`Encoder`](crate::Encoder) made, whatever it was allowed to try. It holds memory
/// to work in and nothing else: keep one for each thread.
#[derive(Default)]
pub struct Decoder {
    zstd: Option<Decompressor>,
}

impl Decoder {
    /// A decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `out` with the block that `bytes` are. `base` is what [`Encoding::is_delta`] asks for; others do
    /// not look at it.
    ///
    /// # Errors
    /// When the bytes are not a block's; `out` then holds nothing of use.
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
