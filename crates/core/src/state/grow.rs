//! Growth of a volume: the map gets room for more blocks, and the blocks of snapshots move to its end.

use super::State;
use crate::addr::Lba;
use crate::entry::{Entry, LEAF_ENTRIES};
use crate::format::history::History;
use crate::format::superblock::Superblock;
use alloc::vec::Vec;
use core::ops::Range;

impl State {
    /// True if the blocks of snapshots fit at their new places.
    #[must_use]
    pub fn fits(&self, from: &History, to: &History) -> bool {
        from.parts().into_iter().zip(to.parts()).all(|(from, to)| {
            let room = from.start.plus(to.end.0 - to.start.0);
            self.map.next_mapped(room, from.end).is_none()
        })
    }

    /// Grows the volume from `before` to `volume`: its contents stay, and there is room for more. The result is only to be
    /// written. Owners of pages are not recounted: that is done when the volume is opened.
    pub fn grow(&mut self, before: &Superblock, volume: &Superblock) {
        self.segments = volume.segments();
        self.map_leaves = volume.map_leaves();
        self.shared_leaves = volume.shared_leaves();
        self.map.lengthen(volume.mapped_blocks());
        self.shared
            .lengthen(volume.shared_leaves(), volume.delta_leaves());
        self.live.lengthen(volume.segment_count());
        let (from, to) = (before.history(), volume.history());
        if from != to {
            debug_assert!(self.fits(&from, &to));
            // The last part first, and its last block first: so no block overwrites one that is still to be moved.
            for (from, to) in from.parts().into_iter().zip(to.parts()).rev() {
                self.shift(from, to.start);
            }
        }
    }

    /// Moves the mappings of `from` to `to`, which is a higher address.
    fn shift(&mut self, from: Range<Lba>, to: Lba) {
        debug_assert!(from.start <= to);
        let mut entries: Vec<(Lba, Entry)> = Vec::new();
        let mut end = from.end;
        while end > from.start {
            let begin = Lba(end.0.saturating_sub(LEAF_ENTRIES as u64)).max(from.start);
            let mut at = begin;
            while let Some((lba, entry)) = self.map.next_mapped(at, end) {
                entries.push((lba, entry));
                at = lba.plus(1);
            }
            for (lba, entry) in entries.drain(..).rev() {
                self.map.set(lba, Entry::Unmapped);
                self.map.set(to.plus(lba.0 - from.start.0), entry);
            }
            end = begin;
        }
    }
}
