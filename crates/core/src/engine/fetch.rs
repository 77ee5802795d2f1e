//! Reads wait here for leaves that are not in memory: they are read from the medium beside each other, and nobody else waits for them
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//!
//! A leaf that comes may have gone again when the read is tried anew, and one may be damaged. So a read is tried a few times, and then
//! pulls what it still needs.

use super::fetches::{AT_ONCE, TRIES, Waits};
use super::{Engine, Pending};
use crate::addr::{BLOCK_BYTES, Lba, Leaf, RequestId};
use crate::seam::{Effect, Outcome};

impl Engine {
    /// Whether a read has to wait for leaves; then they are asked for.
    pub(super) fn waits_for_leaves(
        &mut self,
        id: RequestId,
        lba: Lba,
        blocks: u32,
        tries: u8,
    ) -> bool {
        if tries >= TRIES || self.course.is_poisoned() {
            return false;
        }
        let mut missing = core::mem::take(&mut self.queue.fetches.missing);
        missing.clear();
        self.state.missing(lba, blocks, &mut missing);
        missing.iter().for_each(|leaf| self.ask_for_leaf(*leaf));
        let under_way = &self.queue.fetches.under_way;
        let is_under_way = |leaf: &Leaf| under_way.iter().any(|(of, _)| of == leaf);
        let awaited = missing.iter().copied().find(is_under_way);
        self.queue.fetches.missing = missing;
        if let Some(leaf) = awaited {
            self.queue.fetches.waiting.push(Waits {
                leaf,
                id,
                lba,
                blocks,
                tries: tries + 1,
            });
        }
        awaited.is_some()
    }

    fn ask_for_leaf(&mut self, leaf: Leaf) {
        let under_way = &mut self.queue.fetches.under_way;
        if under_way.len() >= AT_ONCE || under_way.iter().any(|(of, _)| *of == leaf) {
            return;
        }
        let Some(at) = self.state.place_of_leaf(leaf) else {
            return;
        };
        under_way.push((leaf, self.checkpoint.generation));
        self.outbox
            .ask(Pending::Fetch(leaf), |id| Effect::ReadMeta {
                id,
                at,
                blocks: 1,
            });
    }

    /// A leaf has come; one that is not what the newest root leads to is not taken.
    pub(super) fn leaf_read(&mut self, leaf: Leaf, outcome: Outcome<'_>) {
        let fetches = &mut self.queue.fetches;
        fetches.under_way.retain(|(of, _)| *of != leaf);
        if let Outcome::Bytes(bytes) = outcome
            && let Ok(block) = <&[u8; BLOCK_BYTES]>::try_from(bytes)
        {
            self.state.take_leaf(leaf, block);
        }
        let waiting = core::mem::take(&mut self.queue.fetches.waiting);
        for waits in waiting {
            match waits.leaf == leaf {
                true => self.begin_read(waits.id, waits.lba, waits.blocks, waits.tries),
                false => self.queue.fetches.waiting.push(waits),
            }
        }
    }
}
