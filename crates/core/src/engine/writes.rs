//! The effects that write, and write again what found no room.

use super::{Engine, Pending};
use crate::addr::{EffectId, Leaf, Pba};
use crate::seam::Effect;

impl Engine {
    /// Starts a write of metadata.
    pub(super) fn start_write(&mut self, pending: Pending) {
        let id = self.front.begin(pending);
        let effect = self.write_effect(id, false);
        self.front.tell(effect);
    }

    /// The effect of a write. `durable`: a chunk is written durably.
    pub(super) fn write_effect(&self, id: EffectId, durable: bool) -> Effect {
        let (at, blocks, durable) = match self.front.outbox.get(id).copied() {
            Some(Pending::Chunk(chunk)) => {
                let chunk = self.log.get(chunk);
                return Effect::WriteChunk {
                    id,
                    at: chunk.opening().at,
                    blocks: chunk.blocks(),
                    durable,
                };
            }
            Some(Pending::Summary(segment)) => {
                let usable = self.superblock.usable_blocks();
                let start = self.superblock.segment_start(segment);
                let blocks = self.superblock.segment_blocks() - usable;
                (start.plus(usable.into()), blocks, false)
            }
            Some(Pending::Leaf(leaf)) => (self.leaf_target(leaf), 1, false),
            Some(Pending::Root(piece)) => (piece.at, piece.blocks, true),
            Some(Pending::Mirror(at)) => (at, 1, true),
            other => unreachable!("effect {id} ({other:?}) writes nothing"),
        };
        Effect::WriteMeta {
            id,
            at,
            blocks,
            durable,
        }
    }

    /// Starts again the writes that found no room, if it is time.
    pub(super) fn write_again(&mut self) {
        for id in self.front.outbox.held_by(self.front.course.now()) {
            if let Some(&Pending::Chunk(chunk)) = self.front.outbox.get(id) {
                self.log.on_written_again(chunk);
            }
            let effect = self.write_effect(id, false);
            self.front.tell(effect);
        }
    }

    /// Returns the slot that the durable root does not name.
    fn leaf_target(&self, leaf: Leaf) -> Pba {
        self.superblock
            .leaf_slot(leaf, self.checkpoint.target(leaf))
    }
}
