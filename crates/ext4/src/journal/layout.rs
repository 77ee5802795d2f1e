//! Maps journal blocks to bytes of the volume and back.

use super::format::JournalBlock;
use crate::span::Span;
use core::ops::Range;
use std::sync::Arc;

/// A journal's extents, for lookups in both directions. All clones share their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    block_bytes: u64,
    /// The byte of the journal where each extent begins, and the extent, in the journal's order.
    forward: Arc<[(u64, Span)]>,
    /// The same in the volume's order.
    backward: Arc<[(u64, Span)]>,
}

impl Layout {
    /// Takes the extents in the journal's order. None may overlap another.
    #[must_use]
    pub fn new(extents: &[Span], block_bytes: u32) -> Self {
        let mut at = 0u64;
        let mut forward = Vec::with_capacity(extents.len());
        for extent in extents {
            forward.push((at, *extent));
            at = at.saturating_add(extent.bytes);
        }
        let mut backward = forward.clone();
        backward.sort_unstable_by_key(|(_, span)| span.start);
        Self {
            block_bytes: u64::from(block_bytes).max(1),
            forward: forward.into(),
            backward: backward.into(),
        }
    }

    /// The number of whole blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let end = self.forward.last();
        end.map_or(0, |(at, span)| {
            at.saturating_add(span.bytes) / self.block_bytes
        })
    }

    /// The byte of the volume where a block begins; `None` if the journal is shorter.
    #[must_use]
    pub fn place_of(&self, block: JournalBlock) -> Option<u64> {
        let byte = u64::from(block.0) * self.block_bytes;
        let after = self.forward.partition_point(|(at, _)| *at <= byte);
        let (at, span) = *self.forward.get(after.checked_sub(1)?)?;
        (byte - at < span.bytes).then(|| span.start + (byte - at))
    }

    /// The byte where the first block after a byte of the volume begins, if there is one.
    #[must_use]
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        let after = self
            .backward
            .partition_point(|(_, span)| span.start <= offset);
        let here = after.checked_sub(1).and_then(|i| self.backward.get(i));
        if let Some((_, span)) = here {
            let within = ((offset - span.start) / self.block_bytes + 1) * self.block_bytes;
            if within < span.bytes {
                return Some(span.start + within);
            }
        }
        self.backward.get(after).map(|(_, span)| span.start)
    }

    /// The whole blocks inside a range of the volume, as runs.
    pub fn runs(&self, span: Span) -> impl Iterator<Item = Range<u32>> + '_ {
        let near = self
            .backward
            .partition_point(|(_, extent)| extent.end() <= span.start);
        let here = self.backward[near..].iter();
        here.take_while(move |(_, extent)| extent.start < span.end())
            .map(move |(at, extent)| {
                let from = at + span.start.saturating_sub(extent.start);
                let to = at + span.end().min(extent.end()) - extent.start;
                let number = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
                number(from.div_ceil(self.block_bytes))..number(to / self.block_bytes)
            })
    }

    /// Its extents, in the volume's order.
    pub fn extents(&self) -> impl Iterator<Item = Span> + '_ {
        self.backward.iter().map(|(_, extent)| *extent)
    }

    /// The block that begins at a byte of the volume; `None` if no block does.
    #[must_use]
    pub fn block_at(&self, offset: u64) -> Option<JournalBlock> {
        let after = self
            .backward
            .partition_point(|(_, span)| span.start <= offset);
        let (at, span) = *self.backward.get(after.checked_sub(1)?)?;
        let within = offset - span.start;
        let byte = at.checked_add(within)?;
        (within < span.bytes && byte.is_multiple_of(self.block_bytes))
            .then(|| u32::try_from(byte / self.block_bytes).ok())?
            .map(JournalBlock)
    }
}
