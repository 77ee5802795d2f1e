//! Why bytes do not decode to a block.

use crate::encoding::Encoding;
use crate::runs::RunsError;

/// Why bytes do not decode to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are a delta, and no base was given.
    #[error("{encoding}: decoding it takes the block it was made from")]
    NoBase {
        /// The block's encoding.
        encoding: Encoding,
    },
    /// There are more bytes than in a block.
    #[error(
        "{encoding}: {length} bytes, more than a block: the record that gives the length is damaged"
    )]
    TooLong {
        /// The block's encoding.
        encoding: Encoding,
        /// How many bytes were given.
        length: usize,
    },
    /// The bytes are not valid runs.
    #[error("runs: {0}: the stored bytes are damaged")]
    Runs(RunsError),
    /// The bytes are not valid in their encoding, or decode to more than a block.
    #[error("{encoding}: the stored bytes are damaged, or more than a block")]
    Damaged {
        /// The block's encoding.
        encoding: Encoding,
    },
    /// The bytes decode to less than a block.
    #[error("{encoding}: {length} bytes and not a block: the stored bytes are damaged")]
    Short {
        /// The block's encoding.
        encoding: Encoding,
        /// How many bytes they decode to.
        length: usize,
    },
    /// There is no working memory.
    #[error("{encoding}: no memory for its decoder: try again")]
    NoMemory {
        /// The block's encoding.
        encoding: Encoding,
    },
}

impl From<RunsError> for DecodeError {
    fn from(error: RunsError) -> Self {
        Self::Runs(error)
    }
}
