//! Who is mapped where, and what is live because of it: each change of the map goes through here, so that
//! counts and map cannot part (the engine's invariants 1 and 2).

use super::*;
use crate::refs::Left;

/// Where a block is stored: at a physical address, or in a part of the page there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub pba: Pba,
    pub slot: Option<u8>,
}

impl Engine {
    /// Looks at the map's entries of blocks that are to be asked for soon: that is faster for many together than for each
    /// in its turn. Changes nothing.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = Lba>) {
        self.map.look_ahead(lbas);
    }

    /// The physical block that an entry names as a whole, if it does.
    pub(super) fn physical(&self, entry: Entry) -> Option<Pba> {
        match entry {
            Entry::Unmapped | Entry::Zero | Entry::Packed(..) => None,
            Entry::Plain(pba) => Some(pba),
            Entry::Shared(vba) => Some(self.shared.pba(vba)),
        }
    }

    /// Where what an entry names is stored, if it is.
    pub(super) fn place_of(&self, entry: Entry) -> Option<Place> {
        match entry {
            Entry::Packed(vba, slot) => Some(Place {
                pba: self.shared.pba(vba),
                slot: Some(slot),
            }),
            other => self.physical(other).map(|pba| Place { pba, slot: None }),
        }
    }

    /// Maps `lba` anew and lets go of what it was mapped to.
    pub(super) fn remap(&mut self, lba: Lba, entry: Entry) {
        self.folding.remapped(lba);
        match self.map.set(lba, entry) {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(pba) => self.died(pba),
            Entry::Shared(vba) => self.leave(vba, lba),
            Entry::Packed(vba, _) => self.leave_part(vba),
        }
    }

    pub(super) fn leave(&mut self, vba: Vba, lba: Lba) {
        let hash = self.shared.hash(vba);
        if let Left::One(owner, pba) = self.shared.remove(vba, lba) {
            // Data has gone on, and only its copy in the journal is left.
            if self.dedup.forgets() && self.once.has(owner) {
                self.dedup.forget(hash);
            } else {
                self.dedup.unshared(hash, owner);
            }
            self.map.set(owner, Entry::Plain(pba));
            self.strays.insert(pba, owner);
        }
    }

    pub(super) fn died(&mut self, pba: Pba) {
        if !self.strays.is_empty() {
            self.strays.remove(pba);
        }
        let (segment, _) = locate(&self.superblock, pba);
        if self.segments.died(segment) {
            self.emptied(segment);
        }
    }

    /// A closed segment has no live block left.
    pub(super) fn emptied(&mut self, segment: Segment) {
        let marks = HEADS.map(|head| self.heads[head as usize].opened);
        self.segments.empty(segment, marks);
        self.reclaim = true;
        if !self.collector.is_collecting(segment) {
            self.stats.emptied_segments += 1;
        }
    }
}
