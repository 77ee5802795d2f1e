//! Blocks as their difference to another: which parts may be a base, and where a delta's base is.
//!
//! The runtime has the bytes of bases, and makes the deltas; the core says what may be one, and what becomes of
//! it. Three rules, so that what is kept for deltas is bounded and can always be given up:
//! 1. A base is no delta, so a block is never more than one read away from its base.
//! 2. It is in a chunk that is sealed. So its bytes do not change any more, and a page needs older pages alone: there are no
//!    circles.
//! 3. So many pages are needed at most, and none more when the volume is nearly full: a page that is kept for deltas alone
//!    takes room that no client knows of.

use super::Engine;
use super::segments::locate;
use crate::addr::{Buf, Lba, Pba, Vba};
use crate::entry::{Entry, PartId};
use crate::limits;
use crate::log::Held;
use crate::seam::{Base, Effect, Page, Payload};

/// What is stored where a block is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nothing, or zeros.
    Nothing,
    /// Something that no delta may be made against.
    Unfit,
    /// This, or a delta against it.
    Base(PartId),
}

impl Engine {
    /// From now on, or no longer, new deltas are made. Those that there are stay.
    pub(super) fn set_deltas(&mut self, on: bool) {
        if self.makes_deltas && !on {
            self.queue.drop_deltas(|_| true);
        }
        self.makes_deltas = on;
    }

    /// What a delta for a block at `lba` may be made against: what is there now, or what that is a delta against.
    #[must_use]
    pub fn earlier(&self, lba: Lba) -> Earlier {
        if lba.0 >= self.state.map().blocks() {
            return Earlier::Nothing;
        }
        match self.state.map().get(lba) {
            Entry::Unmapped | Entry::Zero => Earlier::Nothing,
            Entry::Plain(_) | Entry::Shared(_) => Earlier::Unfit,
            Entry::Packed(page, slot) => {
                let part = PartId { page, slot };
                let base = self.state.shared().deltas().base_of(part).unwrap_or(part);
                match self.is_fit_for_base(base) {
                    true => Earlier::Base(base),
                    false => Earlier::Unfit,
                }
            }
        }
    }

    pub(super) fn is_fit_for_base(&self, base: PartId) -> bool {
        self.makes_deltas
            && self.state.shared().deltas().has_room()
            && self.state.shared().is_owned_or_needed(base.page)
            && self.state.shared().deltas().base_of(base).is_none()
            && (self.state.shared().is_base(base.page) || self.has_room_for_base())
            && !self.is_in_open_chunk(base.page)
    }

    /// Rule 3. Clients of a volume that is not thin are promised all blocks that they see: what is kept beside those comes
    /// out of the over-provisioning.
    fn has_room_for_base(&self) -> bool {
        let (bases, _) = self.state.shared().bases();
        let (capacity, promised) = (self.capacity(), self.superblock.logical_blocks());
        // One that has lost blocks to damage is not thin for that: it has the less to spare.
        if self.superblock.capacity_blocks() >= promised {
            bases < capacity.saturating_sub(promised) / limits::BASES_OF_SPARE
        } else {
            let live = self.state.live().total() * 100;
            bases < capacity / limits::BASES_OF_THIN && live < capacity * limits::DELTAS_UP_TO
        }
    }

    /// Where what a part needs to be decoded is, if it is a delta; and the block of the medium that has to be read for it.
    pub(super) fn base_of(&self, part: PartId) -> (Option<Base>, Option<Pba>) {
        let Some(base) = self.state.shared().deltas().base_of(part) else {
            return (None, None);
        };
        let pba = self.state.shared().pba(base.page);
        let held = self.log.held(pba, Some(base.slot));
        match held {
            Some(Held::Block(buf)) => (Some(Base::Block(buf)), None),
            Some(Held::Page(buf)) => (Some(Base::Part(Page::Buffer(buf), base.slot)), None),
            None => (Some(Base::Part(Page::Medium(pba), base.slot)), Some(pba)),
        }
    }

    /// What a delta is against is about to be read.
    pub(super) fn begin_base(&mut self, at: Pba) {
        self.stats.base_reads += 1;
        self.segments.begin_reader(locate(&self.superblock, at).0);
    }

    /// It has been, if it had to be.
    pub(super) fn end_base(&mut self, at: Option<Pba>) {
        if let Some(at) = at {
            self.segments.end_reader(locate(&self.superblock, at).0);
        }
    }

    pub(super) fn tell_stored(&mut self, buf: Buf, part: PartId) {
        if self.makes_deltas {
            self.outbox.tell(Effect::Stored { buf, part });
        }
    }

    pub(super) fn tell_given_up(&mut self, page: Vba) {
        if self.makes_deltas {
            self.outbox.tell(Effect::GivenUp { page });
            // The number may stand for another page before they are placed.
            self.queue.drop_deltas(|base| base.page == page);
        }
    }

    /// As [`Queue::drop_deltas`], of a write that goes into the queue: while it was being placed it was not there, and what its
    /// own first blocks have given up its later ones may need. No number can stand for another page yet. While no deltas are
    /// made none waits: nobody would be told what is given up.
    pub(super) fn drop_lost_bases(&self, blocks: &mut [Payload]) {
        for payload in blocks {
            let base = payload.digest.packed.and_then(|packed| packed.base);
            let is_lost = |base: PartId| {
                !self.makes_deltas || !self.state.shared().is_owned_or_needed(base.page)
            };
            if base.is_some_and(is_lost) {
                payload.digest.packed = None;
            }
        }
    }
}
