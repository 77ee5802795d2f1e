//! One request of a trace, whatever format it is read from.

use crate::content::Content;
use crate::sizes::MeasuredSizes;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_trace::Committed;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read blocks.
    Read,
    /// Write blocks.
    Write {
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Give blocks up: they read as zeros.
    Discard {
        /// Because the client has written zeros; otherwise it no longer needs the contents.
        zero: bool,
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Make all that was written durable.
    Flush,
}

impl Op {
    /// A discard as most traces have it.
    pub const DISCARD: Self = Self::Discard {
        zero: false,
        fua: false,
    };
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When, since an arbitrary origin.
    pub at: Nanos,
    /// The disk, of those in the trace.
    pub disk: u32,
    /// What it does.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; 0 only for a flush.
    pub bytes: u64,
    /// The content of each block, if the trace has it: one for each block, or none.
    pub contents: Vec<Content>,
    /// The sizes that each block can be stored in, if the trace has them: one for each block.
    pub sizes: MeasuredSizes,
    /// For a write that completes a journal's transaction, if the trace says so: the blocks that the transaction puts
    /// home.
    pub committed: Vec<Committed>,
}

impl Traced {
    /// A request of which nothing else is known yet.
    #[must_use]
    pub fn of(op: Op) -> Self {
        Self {
            at: Nanos(0),
            disk: 0,
            op,
            offset: 0,
            bytes: 0,
            contents: Vec::new(),
            sizes: None,
            committed: Vec::new(),
        }
    }

    /// The first block it touches.
    #[must_use]
    pub fn first_block(&self) -> u64 {
        self.offset / BLOCK_BYTES as u64
    }

    /// How many blocks it touches. A request for parts of blocks becomes one for whole blocks, as in the device.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        (self.offset + self.bytes).div_ceil(BLOCK_BYTES as u64) - self.first_block()
    }
}
