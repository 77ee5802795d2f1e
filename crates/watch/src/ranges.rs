//! Ranges of a volume's blocks.

use vellum_core::addr::BLOCK_BYTES;
use vellum_ext4::Span;

/// Bytes in a block of the volume.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// The first block, and the one after the last.
pub(crate) type Range = (u64, u64);

/// The blocks of the volume that a range touches.
pub(crate) fn blocks_of(span: Span) -> Range {
    (span.start / BLOCK, span.end().div_ceil(BLOCK))
}

/// Sorts ranges, and joins those that touch.
pub(crate) fn join(ranges: &mut Vec<Range>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}
