//! Segments whose discard is known to have been done, so that each opening does not do it again.
//!
//! A volume that is stopped has discarded all that it freed. So where nothing was to be replayed, whatever is
//! free now was discarded then. A crash right after a map checkpoint looks the same, and may have come before
//! the discards that it allowed: those are lost, until their segments have been used once more. That costs
//! the drive some wear, and nothing else.

use vellum_core::addr::{Pba, Segment, Seq};
use vellum_core::recovery::Recovered;

/// See the module.
pub(crate) struct Discarded {
    first: Pba,
    segment_blocks: u64,
    /// Of each segment, until it is written to.
    known: Vec<bool>,
}

impl Discarded {
    /// What is known of a volume that has just been found.
    pub fn of(recovered: &Recovered) -> Self {
        let superblock = &recovered.superblock;
        // Of a new volume nothing is known: its medium may be full of something else.
        let stopped = recovered.replayed.chunks == 0 && recovered.root_seq > Seq(0);
        Self {
            first: superblock.segment_start(Segment(0)),
            segment_blocks: u64::from(superblock.segment_blocks()),
            known: recovered
                .segments
                .iter()
                .map(|segment| stopped && segment.valid == 0)
                .collect(),
        }
    }

    /// Whether the segment that begins at `at` needs no discard.
    pub fn holds(&self, at: Pba) -> bool {
        self.index(at)
            .and_then(|index| self.known.get(index))
            .is_some_and(|known| *known)
    }

    /// Something is written there.
    pub fn written(&mut self, at: Pba) {
        if let Some(known) = self.index(at).and_then(|index| self.known.get_mut(index)) {
            *known = false;
        }
    }

    fn index(&self, at: Pba) -> Option<usize> {
        let within = at.0.checked_sub(self.first.0)?;
        Some((within / self.segment_blocks) as usize)
    }
}
