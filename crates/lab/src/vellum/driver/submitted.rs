//! A request to the engine.

use crate::admission::Admitted;
use crate::content::Contents;
use crate::flash::Stream;
use crate::sizes::MeasuredSizes;
use crate::trace::Op;
use crate::workload::{Bytes, Committed};

/// One request.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// Its number, never 0. It can be used again once the request is answered.
    pub id: u32,
    /// What it does.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many blocks.
    pub blocks: u32,
    /// What a write writes.
    pub contents: Contents,
    /// The bytes of metadata that a file system writes.
    pub bytes: Bytes,
    /// The sizes its blocks can be stored in, if measured.
    pub sizes: MeasuredSizes,
    /// For a write that completes a journal's transaction: the blocks that the transaction puts home.
    pub committed: Committed,
    /// What the write may use.
    pub admitted: Admitted,
    /// Where a write belongs, on a drive with placement handles.
    pub stream: Stream,
}

impl Submitted {
    /// Its first block, and how many.
    pub(super) fn run(&self) -> (u64, u64) {
        (self.lba, self.blocks.into())
    }
}
