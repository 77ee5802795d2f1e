//! Folding: the blocks left in sparse pages of parts are rewritten, so that these pages are given up (CSA-FS §3.3 merges its log
//! back when less than a fifth is free).
//!
//! A fold writes bytes that are already there. The runtime finds such pages, reads their blocks and encodes them again. In the log a fold
//! is a write like any other, so the rules of recovery, of order and of the old part's end hold as for any write. A crash finds the same
//! bytes either way. But no client requested a fold, so three rules apply:
//! 1. It rewrites a block only if the block is still what was read. Its map entry is watched from before the read until the rewrite. If
//!    the entry was not written, nothing else was stored there, and the page was not given up, so its number does not stand for another
//!    page. If a write or a discard comes in between, the fold leaves the block alone. A write that still waits takes effect after the
//!    fold.
//! 2. It takes no room from clients. A fold that would have to wait is put off. All folds are put off while the collector is at work, and
//!    while there is too little free room: until a page is given up, its parts are stored twice.
//! 3. Blocks that something else keeps in place stay there: bases of deltas, blocks in a watched journal, pledged blocks. A delta
//!    is rewritten as the runtime offers it: against the same base, or by itself, which merges it back.

use super::Engine;
use super::pack::Packing;
use crate::addr::{Lba, Pba, RequestId, Vba};
use crate::entry::{Entry, PartId};
use crate::front::admit;
use crate::limits;
use crate::seam::{Payload, Refusal};
use alloc::vec::Vec;

// A watch has one bit for each block.
const _: () = assert!(limits::FOLD_BLOCKS <= u32::BITS);
// A sparse page has at most this many owners, and each may need a separate page before the last one leaves.
const _: () = assert!(crate::entry::MAX_PARTS as u32 / 2 <= limits::FOLD_BLOCKS);

impl Engine {
    /// Reads blocks that may be folded.
    pub(super) fn read_to_fold(&mut self, id: RequestId, lba: Lba, blocks: u32) {
        if !self.in_range(lba, u64::from(blocks)) {
            return self.front.reply(id, Err(Refusal::OutOfRange));
        }
        let may_be_folded = |index: &u32| self.may_fold(lba.plus(u64::from(*index))).is_some();
        let foldable = (0..blocks.min(limits::FOLD_BLOCKS)).filter(may_be_folded);
        let intact = foldable.fold(0, |intact, index| intact | 1 << index);
        self.state.watch(lba, intact);
        admit::read_in_turn(self, id, lba, blocks);
    }

    /// Returns the page of parts that a block would leave, if it may be folded.
    fn may_fold(&self, lba: Lba) -> Option<Vba> {
        let Entry::Packed(page, _) = self.state.map().get(lba) else {
            return None;
        };
        let stays = self.state.shared().is_base(page)
            || self.placing.pack.is_open(page)
            || self.proposers.once().has(lba)
            || self.has_pledge(lba);
        (!stays).then_some(page)
    }

    /// Returns the base of the block at `lba`, if it is a delta.
    #[must_use]
    pub fn base_at(&self, lba: Lba) -> Option<PartId> {
        match self.state.map().get(lba) {
            Entry::Packed(page, slot) => {
                self.state.shared().deltas().base_of(PartId { page, slot })
            }
            _ => None,
        }
    }

    /// True if no request waits, and there is room to spare.
    #[must_use]
    pub fn has_room_to_fold(&self) -> bool {
        self.front.course.is_running()
            && self.refuses_writes().is_none()
            && !self.state.is_redeeming()
            && !self.state.is_in_census()
            && self.front.queue.is_empty()
            && self.log.may_write()
            && self.collector.is_idle()
            && self.segments.free() > limits::COLLECTOR_SEGMENTS
            && self.state.live().total() + u64::from(limits::FOLD_BLOCKS)
                < self.room().for_anybody()
    }

    /// Rewrites blocks that [`Engine::read_to_fold`] read and the runtime encoded.
    pub(super) fn fold(&mut self, lba: Lba, blocks: &[Payload]) {
        self.front.outbox.took(blocks.len());
        for (index, payload) in (0..).zip(blocks) {
            if !self.fold_one(lba.plus(index), payload) {
                self.stats.folds_put_off += 1;
                self.release(payload.buf);
            }
        }
    }

    /// Rewrites one block; true if it did.
    fn fold_one(&mut self, lba: Lba, payload: &Payload) -> bool {
        let Some(packed) = payload.digest.packed else {
            return false;
        };
        if !self.state.is_intact(lba) || !self.has_room_to_fold() {
            return false;
        }
        let Some(page) = self.may_fold(lba) else {
            return false;
        };
        if !matches!(self.place_part(lba, payload, packed), Packing::Done) {
            return false;
        }
        self.stats.folded_blocks += 1;
        self.stats.folded_bytes += u64::from(packed.len.get());
        self.stats.folds += u64::from(!self.state.shared().is_owned_or_needed(page));
        true
    }

    /// Returns how many owners the page of parts `vba` at `at` has, if it is worth folding: few are left of the `made_with` parts it was
    /// made with.
    #[must_use]
    pub fn sparse_page(&self, vba: Vba, at: Pba, made_with: usize) -> Option<u32> {
        let shared = self.state.shared();
        let owners = shared.owners(vba);
        let is_sparse = shared.is_owned_or_needed(vba)
            && !shared.is_base(vba)
            && owners as usize * 2 <= made_with
            && shared.is_at(vba, at);
        is_sparse.then_some(owners)
    }

    /// Returns the LBAs in `range` that can be folded, and whose parts are in pages that `wanted` accepts.
    pub fn foldable_in(
        &self,
        range: core::ops::Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(PartId, Lba)>,
    ) {
        let lbas = (range.start..range.end.min(self.state.map().blocks())).map(Lba);
        out.extend(lbas.filter_map(|lba| match self.state.map().get(lba) {
            Entry::Packed(page, slot) if wanted(page) => {
                self.may_fold(lba)?;
                Some((PartId { page, slot }, lba))
            }
            _ => None,
        }));
    }
}
