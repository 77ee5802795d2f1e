//! Blocks stored as their difference to another: which parts may be a base, and where a delta's base is.
//!
//! The runtime has the bytes of bases, and makes the deltas; the core decides what may be a base, and what becomes of it. Three
//! rules keep what is stored for deltas bounded, and let it always be given up:
//! 1. A base is no delta, so a block is never more than one read away from its base.
//! 2. A base is in a sealed chunk. So its bytes no longer change, and a page needs only older pages: there are no cycles.
//! 3. The number of pages needed as bases is limited, and no more are added when the volume is nearly full: a page that is kept
//!    only for deltas takes room that no client knows of.

use super::Engine;
use super::earlier::Earlier;
use super::verdict::Twin;
use crate::addr::{Buf, Lba, Pba, Vba};
use crate::entry::{Entry, PartId};
use crate::front::Write;
use crate::limits;
use crate::log::{Held, locate};
use crate::seam::{Base, Effect, Page};

impl Engine {
    /// Turns the making of new deltas on or off. Existing ones stay.
    pub(super) fn set_deltas(&mut self, on: bool) {
        if self.options.deltas && !on {
            self.front
                .queue
                .writes_mut()
                .for_each(|write| drop_deltas(write, |_| true));
        }
        self.options.deltas = on;
    }

    /// Returns the base for a delta of a block at `lba`: the part that is there now, or that part's base.
    #[must_use]
    pub fn earlier(&self, lba: Lba) -> Earlier {
        if lba.0 >= self.state.map().blocks() {
            return Earlier::Nothing;
        }
        if self.state.is_entry_away(lba) {
            return Earlier::Away;
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
        self.options.deltas
            && self.state.shared().deltas().has_room()
            && self.state.shared().is_owned_or_needed(base.page)
            && self.state.shared().deltas().base_of(base).is_none()
            && (self.state.shared().is_base(base.page) || self.has_room_for_base())
            && !self.is_in_open_chunk(base.page)
    }

    /// Implements rule 3. A volume that is not thin promises its clients all blocks they see. So bases that are kept beyond those blocks
    /// use the over-provisioning. If it has shrunk, it may become as large again, and then it needs the same room, unless it was thin.
    fn has_room_for_base(&self) -> bool {
        let (bases, _) = self.state.shared().bases();
        let capacity = self.capacity();
        // Losing blocks to damage does not make a volume thin: it only has less to spare.
        let has_room = |blocks: &u64| self.superblock.capacity_blocks() >= *blocks;
        let (before, now) = (
            self.superblock.addressed_blocks(),
            self.superblock.logical_blocks(),
        );
        if let Some(promised) = [before, now].into_iter().find(has_room) {
            bases < capacity.saturating_sub(promised) / limits::BASES_OF_SPARE
        } else {
            let live = self.state.live().total() * 100;
            bases < capacity / limits::BASES_OF_THIN && live < capacity * limits::DELTAS_UP_TO
        }
    }

    /// Returns where a part's base is, if the part is a delta, and the block of the medium that has to be read for it.
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

    /// Notes that a base is about to be read.
    pub(super) fn begin_base(&mut self, at: Pba) {
        self.stats.base_reads += 1;
        self.segments.begin_reader(locate(&self.superblock, at).0);
    }

    /// Notes that the read of a base has ended, if there was one.
    pub(super) fn end_base(&mut self, at: Option<Pba>) {
        if let Some(at) = at {
            self.segments.end_reader(locate(&self.superblock, at).0);
        }
    }

    pub(super) fn tell_stored(&mut self, buf: Buf, part: PartId) {
        if self.options.deltas {
            self.front.tell(Effect::Stored { buf, part });
        }
    }

    pub(super) fn tell_given_up(&mut self, page: Vba) {
        if self.options.deltas {
            self.front.tell(Effect::GivenUp { page });
            // The number may name another page before these waiting deltas are placed.
            for write in self.front.queue.writes_mut() {
                drop_deltas(write, |base| base.page == page);
            }
        }
    }

    /// As [`drop_deltas`], for a write that is about to enter the queue. While the write was being placed it was not in the queue,
    /// and its later blocks may need bases that its first blocks gave up. No number can name another page yet. While no deltas are made,
    /// none may wait, because pages given up are not reported then.
    pub(super) fn drop_lost_bases(&self, write: &mut Write<'static, Twin>) {
        drop_deltas(write, |base| {
            !self.options.deltas || !self.state.shared().is_owned_or_needed(base.page)
        });
    }
}

/// Drops deltas whose base is gone: their blocks are stored whole.
fn drop_deltas(write: &mut Write<'static, Twin>, is_gone: impl Fn(PartId) -> bool) {
    for payload in write.blocks.to_mut() {
        let base = payload.digest.packed.and_then(|packed| packed.base);
        if base.is_some_and(&is_gone) {
            payload.digest.packed = None;
        }
    }
}
