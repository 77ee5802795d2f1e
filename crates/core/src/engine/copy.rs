//! Copies without data: a block becomes another owner of the page that another block has.
//!
//! A copy is the remap of write-once journaling (WOJ §3), but a client requests it. No policy proposes it, so no bytes are compared. A
//! copy has its place in the order of writes, so a later write cannot change what it copies.

use super::Engine;
use super::twin::Sharing;
use super::verdict::{Twin, Waiting};
use crate::addr::{Lba, RequestId};
use crate::format::chunk::Record;
use crate::index::Holder;
use crate::policy::Proposer;
use crate::seam::{Copy, Refusal};
use crate::state::Origin;

impl Engine {
    pub(super) fn copy(&mut self, id: RequestId, copy: Copy) {
        let Copy { from, to, blocks } = copy;
        let fits = self.in_range(from, blocks) && self.in_range(to, blocks);
        if let Some(refusal) = self.front.refuses_change(fits) {
            return self.front.reply(id, Err(refusal));
        }
        let mut placed = 0;
        let may_go = self.front.queue.is_empty() && self.may_change_map();
        if !may_go || !self.place_copy(id, copy, &mut placed) {
            self.front.queue.push(Waiting::Copy { id, copy, placed });
        }
    }

    /// Links the blocks from number `placed` on; true if the request has been answered.
    pub(super) fn place_copy(
        &mut self,
        id: RequestId,
        Copy { from, to, blocks }: Copy,
        placed: &mut u64,
    ) -> bool {
        while *placed < blocks {
            match self.link(from.plus(*placed), to.plus(*placed)) {
                Sharing::Done => *placed += 1,
                Sharing::Wait => return false,
                Sharing::No => {
                    self.front.reply(id, Err(Refusal::Unlinkable));
                    return true;
                }
            }
        }
        self.stats.copied_blocks += blocks;
        self.front.reply(id, Ok(()));
        true
    }

    fn link(&mut self, from: Lba, to: Lba) -> Sharing {
        if self.proposers.dedup().forgets() {
            self.outlive_content(to);
        }
        let entry = self.state.map().get(from);
        let place = self.state.place_of(entry);
        if self.state.lost_leaf().is_some() {
            // The leaf cannot be read, so it is not known what is mapped here.
            return Sharing::No;
        }
        let Some(place) = place else {
            return self.copy_nothing(to);
        };
        let done = self.share(
            to,
            Twin {
                by: Proposer::Pair,
                of: Holder::Lba(from),
                place,
                uses: self.uses_at(place.pba),
                absorptions: None,
                print: None,
            },
        );
        if matches!(done, Sharing::Done) {
            self.forget_homes(to, 1);
        }
        done
    }

    /// Copies a block that reads as zeros, which takes no page.
    fn copy_nothing(&mut self, to: Lba) -> Sharing {
        let is_nothing = self.state.place_of(self.state.map().get(to)).is_none();
        // Only a record ends a pledge.
        if is_nothing && self.next_pledged(to, to.plus(1)).is_none() {
            return Sharing::Done;
        }
        let record = Record::Discard { lba: to, blocks: 1 };
        if !self.add_extent(record, false) {
            return Sharing::Wait;
        }
        self.forget_homes(to, 1);
        self.apply(Origin::NONE, &record);
        Sharing::Done
    }
}
