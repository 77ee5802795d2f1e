//! Blocks stored as their difference to another: where a delta's base is, and what the runtime is told of bases. What may be a base is
//! asked of [`Delta`](crate::policy::delta::Delta).

use super::Engine;
use super::verdict::Twin;
use crate::addr::{Buf, Lba, Pba, Vba};
use crate::entry::{Earlier, Entry, PartId};
use crate::front::Write;
use crate::log::{Held, locate};
use crate::policy::delta::{Candidate, Spare, drop_deltas};
use crate::seam::{BasePlace, Effect, PagePlace};

impl Engine {
    /// Turns the making of new deltas on or off. Existing ones stay.
    pub(super) fn set_deltas(&mut self, on: bool) {
        if self.placing.delta.set(on) {
            for write in self.front.queue.writes_mut() {
                drop_deltas(write.blocks.to_mut(), |_| true);
            }
        }
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

    /// True if a delta may be made against this part.
    pub(super) fn is_fit_for_base(&self, base: PartId) -> bool {
        let shared = self.state.shared();
        let candidate = Candidate {
            is_kept: shared.is_owned_or_needed(base.page),
            is_delta: shared.deltas().base_of(base).is_some(),
            is_needed: shared.is_base(base.page),
            is_open: self.placing.pack.is_open(base.page),
        };
        let spare = || Spare {
            bases: shared.bases().0,
            live: self.state.live().total(),
            capacity: self.capacity(),
            undamaged: self.superblock.capacity_blocks(),
            promised: [
                self.superblock.addressed_blocks(),
                self.superblock.logical_blocks(),
            ],
        };
        shared.deltas().has_room() && self.placing.delta.takes(candidate, spare)
    }

    /// Returns where a part's base is, if the part is a delta, and the block of the medium that has to be read for it.
    pub(super) fn base_of(&self, part: PartId) -> (Option<BasePlace>, Option<Pba>) {
        let Some(base) = self.state.shared().deltas().base_of(part) else {
            return (None, None);
        };
        let pba = self.state.shared().pba(base.page);
        let held = self.log.held(pba, Some(base.slot));
        match held {
            Some(Held::Block(buf)) => (Some(BasePlace::Block(buf)), None),
            Some(Held::Page(buf)) => (
                Some(BasePlace::Part(PagePlace::Buffer(buf), base.slot)),
                None,
            ),
            None => (
                Some(BasePlace::Part(PagePlace::Medium(pba), base.slot)),
                Some(pba),
            ),
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
        if self.placing.delta.is_on() {
            self.front.tell(Effect::Stored { buf, part });
        }
    }

    pub(super) fn tell_given_up(&mut self, page: Vba) {
        if self.placing.delta.is_on() {
            self.front.tell(Effect::GivenUp { page });
            // The number may name another page before these waiting deltas are placed.
            for write in self.front.queue.writes_mut() {
                drop_deltas(write.blocks.to_mut(), |base| base.page == page);
            }
        }
    }

    /// As [`drop_deltas`], for a write that is about to enter the queue. While the write was being placed it was not in the queue,
    /// and its later blocks may need bases that its first blocks gave up. No number can name another page yet. While no deltas are made,
    /// none may wait, because pages given up are not reported then.
    pub(super) fn drop_lost_bases(&self, write: &mut Write<'static, Twin>) {
        drop_deltas(write.blocks.to_mut(), |base| {
            !self.placing.delta.is_on() || !self.state.shared().is_owned_or_needed(base.page)
        });
    }
}
