//! Folding: what is left in sparse pages of parts is stored anew, and so these are given up (CSA-FS §3.3 merges its log back
//! when less than a fifth is free).
//!
//! A fold is a write of the bytes that are there already. Whoever finds such pages, reads their blocks and encodes them again is
//! the runtime; in the log it is a write like any other, so recovery, order and the old part's end are those of a write, and a
//! crash finds the same bytes either way. Three things make it one that nobody asked for:
//! 1. It is of what is there now. From before a block is read until it is stored anew its entry has not been written: then nothing
//!    else has come to be there, and its page has not been given up, so that its number is no other page's. A write or a discard
//!    that came between has won, and one that waits comes behind it.
//! 2. It takes no room from anybody: what would have to wait is put off, and so is all while the collector is at work, or what a
//!    page's parts may need until it is given up is not free.
//! 3. Blocks that something else keeps where they are stay there: what deltas need, what is in a journal that is watched, what is
//!    pledged. A delta is stored anew as the runtime offers it: against what it was against, or by itself, which is merging it back.

use super::Engine;
use super::pack::Packing;
use crate::addr::{Lba, Pba, RequestId, Vba};
use crate::entry::{Entry, PartId};
use crate::limits;
use crate::seam::{Payload, Refusal};
use alloc::vec::Vec;

// So many are watched at once.
const _: () = assert!(limits::FOLD_BLOCKS <= u32::BITS);
// A sparse page has no more owners: each may need a page of its own before the last one leaves.
const _: () = assert!(crate::entry::MAX_PARTS as u32 / 2 <= limits::FOLD_BLOCKS);

impl Engine {
    /// Reads blocks that may be folded.
    pub(super) fn read_to_fold(&mut self, id: RequestId, lba: Lba, blocks: u32) {
        if !self.in_range(lba, u64::from(blocks)) {
            return self.outbox.reply(id, Err(Refusal::OutOfRange));
        }
        let may_be_folded = |index: &u32| self.may_fold(lba.plus(u64::from(*index))).is_some();
        let foldable = (0..blocks.min(limits::FOLD_BLOCKS)).filter(may_be_folded);
        let intact = foldable.fold(0, |intact, index| intact | 1 << index);
        self.state.watch(lba, intact);
        self.read_behind_writes(id, lba, blocks);
    }

    /// The page that a block would leave.
    fn may_fold(&self, lba: Lba) -> Option<Vba> {
        let Entry::Packed(page, _) = self.state.map().get(lba) else {
            return None;
        };
        let stays = self.state.shared().is_base(page)
            || self.is_in_open_chunk(page)
            || self.proposers.once().has(lba)
            || self.has_pledge(lba);
        (!stays).then_some(page)
    }

    /// What the block at `lba` is a delta against, if it is one.
    #[must_use]
    pub fn base_at(&self, lba: Lba) -> Option<PartId> {
        match self.state.map().get(lba) {
            Entry::Packed(page, slot) => {
                self.state.shared().deltas().base_of(PartId { page, slot })
            }
            _ => None,
        }
    }

    /// Whether nobody waits, and there is room that nobody needs.
    #[must_use]
    pub fn has_room_to_fold(&self) -> bool {
        self.course.is_running()
            && self.refuses_writes().is_none()
            && !self.state.is_redeeming()
            && self.queue.is_empty()
            && self.log.may_write()
            && self.collector.is_idle()
            && self.segments.free() > limits::COLLECTOR_SEGMENTS
            && self.state.live().total() + u64::from(limits::FOLD_BLOCKS)
                < self.room().for_anybody()
    }

    /// Blocks have been read, by [`Engine::read_to_fold`], and encoded.
    pub(super) fn fold(&mut self, lba: Lba, blocks: &[Payload]) {
        self.outbox.took(blocks.len());
        for (index, payload) in (0..).zip(blocks) {
            if !self.fold_one(lba.plus(index), payload) {
                self.stats.folds_put_off += 1;
                self.release(payload.buf);
            }
        }
    }

    /// Whether it is stored anew.
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

    /// The page of parts at `at`, if it was made with so many and has so few owners left that it is worth folding; and how many
    /// these are.
    #[must_use]
    pub fn sparse_page(&self, at: Pba, made_with: usize) -> Option<(Vba, u32)> {
        let vba = self.state.shared().find(at)?;
        let owners = self.state.shared().owners(vba);
        let is_sparse = self.state.shared().has_parts(vba)
            && !self.state.shared().is_base(vba)
            && owners as usize * 2 <= made_with;
        is_sparse.then_some((vba, owners))
    }

    /// Which of the LBAs in `range` have parts of pages that `wanted` names, and can be folded.
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
