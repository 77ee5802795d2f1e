//! The path of a read. A block comes from the write buffer, is zeros without any data, or comes from the medium and is checked against
//! its checksum.

use super::parked::{Fault, Unchecked};
use super::residency::Needs;
use super::{Engine, Pending};
use crate::addr::{BLOCK_BYTES, Buf, Lba, Leaf, Pba, RequestId};
use crate::entry::{Entry, PartId};
use crate::front;
use crate::log::{Held, Judged, locate};
use crate::seam::{Effect, Outcome, PagePlace, Refusal};
use crate::state::Place;
use alloc::vec::Vec;

/// What a read requests.
#[derive(Clone, Copy)]
struct Wanted {
    id: RequestId,
    lba: Lba,
    blocks: u32,
}

impl Engine {
    /// Returns what is mapped from `lba` on: runs of blocks with data on the medium, or without. Returns at least one extent, at most
    /// `max`. They cover `blocks` blocks, or only the first of them, because to look at all could take long. A caller that wants the rest
    /// calls again.
    #[must_use]
    pub fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<(u64, bool)> {
        let end = Lba(lba.0.saturating_add(blocks).min(self.state.map().blocks()));
        let extents = front::extents(lba..end, max, |at| self.state.map().run(at, end));
        // If a leaf is lost, its blocks count as data: a program that copies the data must not leave them out.
        match self.state.lost_leaf() {
            Some(_) => alloc::vec![(end.0 - lba.0, true)],
            None => extents,
        }
    }

    /// Reads blocks, for a read that has waited for leaves `tries` times.
    pub(super) fn begin_read(&mut self, id: RequestId, lba: Lba, blocks: u32, tries: u8) {
        if self.front.queue.is_lost(lba, u64::from(blocks)) {
            return self.front.reply(id, Err(Refusal::Poisoned));
        }
        if self.state.has_away() {
            match self.read_needs(id, lba, blocks, tries) {
                Needs::Nothing => {}
                Needs::Coming(_) => return,
                Needs::Pull if self.state.bring(lba, blocks) => {}
                Needs::Pull => return self.front.reply(id, Err(Refusal::Poisoned)),
            }
        }
        let wanted = Wanted { id, lba, blocks };
        let mut parts = 0;
        let mut index = 0;
        while index < blocks {
            let (run, reads) = self.read_run(wanted, index);
            index += run;
            parts += u32::from(reads);
        }
        self.front.outbox.reply_in_parts(id, parts);
    }

    /// Starts to read blocks that are adjacent on the medium, from block `index` of a request on. Returns how many, and whether they
    /// arrive later.
    fn read_run(&mut self, wanted: Wanted, index: u32) -> (u32, bool) {
        let request = wanted.id;
        let entry = self.entry_at(wanted, index);
        let Some(Place { pba, slot }) = self.state.place_of(entry) else {
            let mut rest = index..wanted.blocks;
            let is_placed = |at| self.state.place_of(self.entry_at(wanted, at)).is_some();
            let end = rest.find(|at| is_placed(*at)).unwrap_or(wanted.blocks);
            self.front.tell(Effect::ZeroOut {
                request,
                first: index,
                blocks: end - index,
            });
            return (end - index, false);
        };
        let held = self.log.held(pba, slot);
        match (held, entry) {
            (Some(Held::Block(from)), _) => {
                self.front.tell(Effect::CopyOut {
                    from,
                    request,
                    index,
                });
                self.stats.buffer_hits += 1;
                (1, false)
            }
            (Some(Held::Page(buf)), Entry::Packed(page, slot)) => {
                let part = PartId { page, slot };
                (self.read_parts(wanted, index, part, pba, Some(buf)), true)
            }
            (_, Entry::Packed(page, slot)) => {
                let part = PartId { page, slot };
                (self.read_parts(wanted, index, part, pba, None), true)
            }
            _ => (self.read_whole(wanted, index, pba), true),
        }
    }

    fn entry_at(&self, wanted: Wanted, index: u32) -> Entry {
        let lba = wanted.lba.plus(u64::from(index));
        self.state.map().get(lba)
    }

    /// Starts to read parts of one page, which is in `buf` or on the medium. Returns how many.
    fn read_parts(
        &mut self,
        wanted: Wanted,
        first: u32,
        part: PartId,
        pba: Pba,
        buf: Option<Buf>,
    ) -> u32 {
        let count = self.parts_in_a_row(wanted, first, part);
        let (base, base_at) = self.base_of(part);
        self.stats.packed_reads += 1;
        self.stats.packed_blocks_read += u64::from(count);
        self.stats.delta_reads += u64::from(base.is_some());
        if let Some(at) = base_at {
            self.begin_base(at);
        }
        if buf.is_none() {
            let (segment, _) = locate(&self.superblock, pba);
            self.segments.begin_reader(segment);
            self.want_sums(segment);
        }
        let pending = Pending::ReadParts {
            request: wanted.id,
            at: pba,
            reads: buf.is_none(),
            base: base_at,
        };
        self.front.ask(pending, |id| Effect::ReadParts {
            id,
            page: buf.map_or(PagePlace::Medium(pba), PagePlace::Buffer),
            slot: part.slot,
            count,
            base,
            request: wanted.id,
            first,
        });
        count.into()
    }

    /// Counts the blocks from `first` on that are parts of one page in the order in which they lie there; most are. A delta is
    /// read by itself.
    fn parts_in_a_row(&self, wanted: Wanted, first: u32, part: PartId) -> u8 {
        let deltas = self.state.shared().deltas();
        let is_delta = |slot| deltas.base_of(PartId { slot, ..part }).is_some();
        if is_delta(part.slot) {
            return 1;
        }
        let follows = |more: u8| {
            let slot = part.slot.saturating_add(more);
            let index = first + u32::from(more);
            index < wanted.blocks
                && self.entry_at(wanted, index) == Entry::Packed(part.page, slot)
                && !is_delta(slot)
        };
        (1..u8::MAX).find(|more| !follows(*more)).unwrap_or(u8::MAX)
    }

    /// Starts to read whole blocks that lie in a row on the medium. Returns how many.
    fn read_whole(&mut self, wanted: Wanted, first: u32, pba: Pba) -> u32 {
        let (segment, offset) = locate(&self.superblock, pba);
        let left = self.superblock.usable_blocks() - offset;
        let follows = |run: u32| {
            let at = pba.plus(run.into());
            first + run < wanted.blocks
                && self.state.physical(self.entry_at(wanted, first + run)) == Some(at)
                && run < left
                && !self.log.holds(at)
        };
        let run = (1..left).find(|run| !follows(*run)).unwrap_or(left);
        self.segments.begin_reader(segment);
        let pending = Pending::Read {
            request: wanted.id,
            at: pba,
            blocks: run,
        };
        self.front.ask(pending, |id| Effect::Read {
            id,
            at: pba,
            blocks: run,
            request: wanted.id,
            first,
        });
        self.want_sums(segment);
        run
    }

    pub(super) fn parts_read(
        &mut self,
        request: RequestId,
        at: Pba,
        reads: bool,
        base_at: Option<Pba>,
        outcome: Outcome<'_>,
    ) {
        // The page may be as it was written, but its base is not.
        if let (Outcome::Parts { base: false, .. }, Some(damaged)) = (outcome, base_at) {
            self.stats.corrupt_blocks += 1;
            self.distrust(damaged);
            if reads {
                self.segments.end_reader(locate(&self.superblock, at).0);
            }
            return self
                .front
                .outbox
                .end_part(request, Some(Refusal::Corrupt(damaged)));
        }
        let fault = |whole: bool| (!whole).then(|| base_at.unwrap_or(at));
        match outcome {
            Outcome::Parts { sum, whole, .. } if reads => {
                self.check_sums(request, at, &[sum], fault(whole));
            }
            // The page is in memory, and the collector has verified its checksum. Only decoding can verify the parts in it.
            Outcome::Parts { whole, .. } => {
                let refusal = self.refuse_fault(fault(whole));
                self.front.outbox.end_part(request, refusal);
            }
            _ => {
                self.stats.unreadable_blocks += 1;
                self.end_part(request, at, Some(Refusal::Unreadable(at)));
            }
        }
    }

    pub(super) fn data_read(
        &mut self,
        request: RequestId,
        at: Pba,
        blocks: u32,
        outcome: Outcome<'_>,
    ) {
        match outcome {
            Outcome::Sums(sums) => {
                assert_eq!(
                    sums.len(),
                    blocks as usize,
                    "a read answers with one sum a block"
                );
                self.check_sums(request, at, sums, None);
            }
            _ => {
                self.stats.unreadable_blocks += 1;
                self.end_part(request, at, Some(Refusal::Unreadable(at)));
            }
        }
    }

    /// Calls `finish_part` as soon as the checksums are known.
    fn check_sums(&mut self, request: RequestId, at: Pba, sums: &[u32], fault: Fault) {
        let (segment, _) = locate(&self.superblock, at);
        self.want_sums(segment);
        if !self.sums.is_loading(segment) {
            return self.finish_part(request, at, sums, fault);
        }
        let unchecked = Unchecked {
            request,
            at,
            sums: sums.to_vec(),
            fault,
        };
        self.parked.reads.park(segment, unchecked);
    }

    /// Verifies the checksums of the blocks that were read (promise 6), and the result of decoding.
    pub(super) fn finish_part(&mut self, request: RequestId, at: Pba, sums: &[u32], fault: Fault) {
        let (segment, offset) = locate(&self.superblock, at);
        let mut refusal = None;
        for (index, found) in sums.iter().enumerate() {
            let pba = at.plus(index as u64);
            match self.sums.judge(segment, offset + index as u32, *found) {
                Judged::Right => continue,
                Judged::Doubted => {
                    self.segments.begin_reader(segment);
                    self.load_sums(segment, Some(0));
                    return self.check_sums(request, at, sums, fault);
                }
                Judged::Wrong => {
                    self.stats.corrupt_blocks += 1;
                    self.distrust(pba);
                    refusal = Some(Refusal::Corrupt(pba));
                }
                Judged::Unknown => {
                    self.stats.unreadable_blocks += 1;
                    refusal = Some(Refusal::Unreadable(pba));
                }
            }
            break;
        }
        let refusal = refusal.or_else(|| self.refuse_fault(fault));
        self.end_part(request, at, refusal);
    }

    fn refuse_fault(&mut self, fault: Fault) -> Option<Refusal> {
        let damaged = fault?;
        self.stats.corrupt_blocks += 1;
        self.distrust(damaged);
        Some(Refusal::Corrupt(damaged))
    }

    fn end_part(&mut self, request: RequestId, at: Pba, refusal: Option<Refusal>) {
        self.segments.end_reader(locate(&self.superblock, at).0);
        self.front.outbox.end_part(request, refusal);
    }

    /// Takes a leaf that was read, and ignores it if the newest root does not lead to it.
    pub(super) fn leaf_read(&mut self, leaf: Leaf, outcome: Outcome<'_>) {
        self.residency.end_fetch(leaf);
        if let Outcome::Bytes(bytes) = outcome
            && let Ok(block) = <&[u8; BLOCK_BYTES]>::try_from(bytes)
        {
            self.state.take_leaf(leaf, block);
        }
        for waits in self.residency.take_waiting() {
            match waits.leaf == leaf {
                true => self.begin_read(waits.id, waits.lba, waits.blocks, waits.tries),
                false => self.residency.wait(waits),
            }
        }
    }
}
