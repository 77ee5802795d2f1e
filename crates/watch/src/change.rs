//! A client's change to blocks of its volume.

use crate::ranges::BLOCK;
use vellum_ext4::Span;

/// The bytes of consecutive blocks, wherever the caller keeps them.
pub trait Blocks {
    /// How many blocks there are.
    fn count(&self) -> usize;

    /// The bytes of one block: 4096.
    fn block(&self, index: usize) -> &[u8];
}

/// A write, a discard or a zeroing.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Its first block.
    pub first: u64,
    /// How many blocks it covers.
    pub blocks: u64,
    /// The data written; `None` if blocks are discarded or zeroed.
    pub written: Option<&'a dyn Blocks>,
}

impl<'a> Change<'a> {
    /// The range of the volume that it covers, in bytes.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(
            self.first.saturating_mul(BLOCK),
            self.blocks.saturating_mul(BLOCK),
        )
    }

    /// Its blocks, each with its byte offset in the volume.
    pub(crate) fn by_place(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let (first, written) = (self.first, self.written);
        written.into_iter().flat_map(move |blocks| {
            let at = move |index| (first + index as u64) * BLOCK;
            (0..blocks.count()).map(move |index| (at(index), blocks.block(index)))
        })
    }
}
