//! The path of a write.

use super::Engine;
use super::pack::Packing;
use super::twin::Sharing;
use super::verdict::{Verdict, Waiting};
use crate::addr::{Buf, Lba, Pba};
use crate::entry::Entry;
use crate::format::chunk::Record;
use crate::format::summary::{Owner, Tag};
use crate::front::Placed;
use crate::limits;
use crate::log::Head;
use crate::policy::once::Once;
use crate::reserve::Need;
use crate::seam::{Class, Payload};
use crate::state::Origin;

impl Engine {
    /// Takes one block through the policies, in order: twin, zero, absorb, store in a part of a page, store whole.
    pub(super) fn place_block(&mut self, lba: Lba, payload: &Payload, verdict: &Verdict) -> Placed {
        if self.proposers.dedup().forgets() && !matches!(verdict, Verdict::Asked(_)) {
            self.outlive_content(lba);
        }
        match *verdict {
            Verdict::Write => {}
            Verdict::Asked(_) => return Placed::Wait,
            Verdict::Same(twin) => match self.share(lba, twin) {
                Sharing::Done => {
                    self.note(lba, payload);
                    self.release(payload.buf);
                    return Placed::Done;
                }
                Sharing::Wait => return Placed::Wait,
                Sharing::No => {}
            },
        }
        if self.placing.zero.takes(payload) {
            return self.place_zeros(lba, payload.buf);
        }
        let old = self.state.map().get(lba);
        let absorbed = match old {
            // Only a later record ends a pledge.
            _ if self.has_pledge(lba) => false,
            Entry::Plain(pba) => self.absorb(pba, payload),
            Entry::Packed(vba, slot) => self.absorb_part(vba, slot, payload),
            _ => false,
        };
        if absorbed {
            self.log.on_absorbed();
            self.note(lba, payload);
            return Placed::Done;
        }
        // Only an overwrite of a block that has a page to itself is certain to free one.
        if !matches!(old, Entry::Plain(_)) {
            let need = self.need(lba, old, payload.digest.class);
            if let Err(refused) = self.admit(need) {
                return refused;
            }
        }
        if let Some(packed) = payload.digest.packed {
            match self.place_part(lba, payload, packed) {
                Packing::Done => {
                    self.stats.stored_in_part(payload.digest.class, packed);
                    self.note(lba, payload);
                    return Placed::Done;
                }
                Packing::Wait => return Placed::Wait,
                Packing::No => {}
            }
        }
        let record = Record::Data {
            lba,
            sum: payload.digest.sum,
        };
        let Some(chunk) = self.chunk_with_room(Head::Hot, record.encoded_len(), true) else {
            return Placed::Wait;
        };
        let tag = Tag {
            owner: Owner::Lba(lba),
            sum: payload.digest.sum,
        };
        self.append(chunk, record, tag, payload.buf);
        self.stats.stored_whole(payload.digest.class);
        self.note(lba, payload);
        Placed::Done
    }

    /// Finds out whether there is room for one more block. Before a census ends, that may not be known.
    fn admit(&mut self, need: Need) -> Result<(), Placed> {
        let room = self.fullest_room();
        let (is_admitted, refused) = match self.state.is_in_census() {
            true => (room.live < room.for_anybody(), Placed::Wait),
            false => {
                let now = self.front.course.now();
                (self.placing.reserve.admits(now, need, room), Placed::Full)
            }
        };
        is_admitted.then_some(()).ok_or(refused)
    }

    /// Stores zeros, which take no room except for their record.
    fn place_zeros(&mut self, lba: Lba, buf: Buf) -> Placed {
        let pledged = self.are_zeros_pledged(lba);
        let record = Record::Zero { lba, blocks: 1 };
        if !self.add_extent(record, pledged) {
            return Placed::Wait;
        }
        self.forget_homes(lba, 1);
        self.apply(Origin::NONE, &record);
        self.release(buf);
        self.stats.zero_blocks += 1;
        Placed::Done
    }

    /// Classifies a block for the space reserve.
    fn need(&self, lba: Lba, old: Entry, class: Class) -> Need {
        if self.superblock.history().is_of_books(lba) {
            return Need::Books;
        }
        let is_new = matches!(old, Entry::Unmapped | Entry::Zero) && class == Class::Data;
        match is_new && !self.proposers.once().has(lba) {
            true => Need::New,
            false => Need::Upkeep,
        }
    }

    /// Reports a block that is in the log to the policies.
    pub(super) fn note(&mut self, lba: Lba, payload: &Payload) {
        self.proposers.note(lba, payload, &mut self.stats);
        if self.proposers.dedup().is_on() {
            self.note_content(lba, payload.digest.sum, payload.digest.class);
        }
    }

    /// Replaces a block that is still in the unsealed chunk by its overwrite. The order of writes is kept, because a chunk is atomic: no
    /// crash can show the new block without all the writes before it.
    fn absorb(&mut self, pba: Pba, payload: &Payload) -> bool {
        let open = self.log.open_mut(Head::Hot);
        let Some(old) = open.and_then(|chunk| chunk.replace(pba, payload)) else {
            return false;
        };
        self.sums.retag(pba, payload.digest.sum);
        self.release(old);
        self.stats.absorbed_blocks += 1;
        true
    }

    /// True if all writes and discards received have taken effect, or were refused. They do so in the order in which they
    /// arrived.
    #[must_use]
    pub fn nothing_waits(&self) -> bool {
        self.front.queue.is_empty()
    }

    /// Prefetches index entries of contents that were compared. The answers arrive long after the first look-up, when the entries have
    /// left the CPU caches.
    pub(super) fn look_ahead_answered(&self, waiting: &Waiting) {
        if let Waiting::Write(write) = waiting
            && write.placed == 0
            && !write.verdicts.is_empty()
        {
            let sums = write.blocks.iter().map(|payload| payload.digest.sum);
            self.dedup().look_ahead(sums);
        }
    }

    pub(crate) fn once_mut(&mut self) -> &mut Once {
        self.proposers.once_mut()
    }

    /// See [`Core::may_answer`](crate::layout::Core::may_answer). The free segments must already exist: if some are quarantined, the
    /// collector may gain none (`pump`). A block may have a chunk to itself, and so need a header too.
    #[must_use]
    pub fn may_answer(&self, buffers: u64) -> bool {
        let usable = u64::from(self.superblock.usable_blocks());
        let room = self.fullest_room();
        let segments = limits::COLLECTOR_SEGMENTS as u64 + 2 + 2 * buffers / usable;
        self.refuses_writes().is_none()
            && self.segments.free() as u64 >= segments
            && room.live + buffers < room.for_anybody()
    }
}
