//! Copies without data: a block becomes another owner of the page that another block has.
//!
//! A copy is the remap of write-once journaling (WOJ §3), but a client requests it. No policy proposes it, so no bytes are compared. A
//! copy has its place in the order of writes, so a later write cannot change what it copies.

use super::Engine;
use super::twin::Sharing;
use super::verdict::Twin;
use crate::addr::Lba;
use crate::format::chunk::Record;
use crate::front::Ended;
use crate::index::Holder;
use crate::policy::Proposer;
use crate::seam::{CopyBlocks, Refusal};
use crate::state::Origin;

impl Engine {
    /// Links the blocks from number `placed` on; `None` if one has to wait.
    pub(super) fn place_copy(
        &mut self,
        CopyBlocks { from, to, blocks }: CopyBlocks,
        placed: &mut u64,
    ) -> Option<Ended> {
        while *placed < blocks {
            match self.link(from.plus(*placed), to.plus(*placed)) {
                Sharing::Done => *placed += 1,
                Sharing::Wait => return None,
                Sharing::No => return Some(Err(Refusal::Unlinkable)),
            }
        }
        Some(Ok(()))
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
