//! Carries out the steps of map checkpoints, beside requests. [`Checkpoint`](crate::log::Checkpoint) decides which is next.

use super::{Engine, Pending};
use crate::addr::Leaf;
use crate::log::checkpoint::{Now, Step};
use crate::log::{Chunk, HEADS, Head};
use crate::mirrors::Ended;

impl Engine {
    pub(super) fn advance_checkpoint(&mut self) {
        let host = self.log.open(Head::Hot);
        // Taken once: a step changes some of it, but nothing that a later step of this loop depends on.
        let now = Now {
            dirty: self.state.dirty_leaves(),
            // Only between checkpoints: what one has written counts as changed, and is no longer dirty.
            is_too_dirty: self.checkpoint.is_idle() && self.state.is_too_dirty(),
            is_behind: self.residency.is_behind(self.checkpoint.generation()),
            is_stopping: self.front.course.is_stopping(),
            links: host.is_some_and(Chunk::links),
            durable: self.log.durability().durable(),
        };
        while let Some(step) = self.checkpoint.poll(&now) {
            if !self.checkpoint_step(step) {
                return;
            }
        }
    }

    /// Starts a checkpoint's sync before a sync for waiting requests. The checkpoint's sync serves those requests too. If it came second,
    /// it would never get its turn while requests keep arriving.
    pub(super) fn settle_first(&mut self) {
        if let Some(step) = self.checkpoint.poll_sync() {
            self.checkpoint_step(step);
        }
    }

    /// Carries out a step; false if that is not possible yet.
    fn checkpoint_step(&mut self, step: Step) -> bool {
        match step {
            Step::Begin(heads) => {
                if !self.seal_all(heads) {
                    return false;
                }
                let (seq, life) = (self.log.last_seq(), self.log.last_life());
                self.checkpoint.on_begun(seq, life, self.log.cursors());
                self.state.checkpoint_begins();
                self.stats.map_checkpoints += 1;
            }
            Step::Void => self.checkpoint.on_void_begun(&self.superblock),
            Step::Stripe(stripe) => {
                if !self.is_read_for(stripe) {
                    return false;
                }
                self.write_stripe(stripe);
                self.checkpoint.on_stripe_begun(stripe);
            }
            Step::Seal => {
                if !self.seal_all(&HEADS) {
                    return false;
                }
                self.checkpoint.on_heads_sealed(self.log.last_seq());
            }
            Step::Sync(seq) => {
                let Some(through) = self.log.durability_mut().poll_sync_of_checkpoint(seq) else {
                    return false;
                };
                let crc = self.superblock.crc();
                self.checkpoint
                    .on_sync_begun(&self.superblock, &self.sums, crc);
                self.sync(through);
            }
            Step::Root => self.begin_root(),
            Step::Piece => return self.write_piece(),
        }
        true
    }

    fn seal_all(&mut self, heads: &[Head]) -> bool {
        heads.iter().all(|&head| self.seal(head, false))
    }

    pub(super) fn leaf_written(&mut self, leaf: Leaf, failed: bool) {
        self.checkpoint.on_leaf_written(leaf, failed);
        if failed {
            self.poison();
        }
    }

    fn begin_root(&mut self) {
        if self.front.course.is_stopping() {
            // A volume at rest may lie for long, and its newest root should not hold what has gone bad unnoticed.
            self.checkpoint.write_whole_roots();
        }
        let (state, durable) = (&mut self.state, self.log.durability().durable());
        self.segments.list_free(self.checkpoint.free_mut());
        let (crc, piece) = (self.superblock.crc(), self.options.root_piece);
        self.checkpoint
            .on_root_begun(&self.superblock, crc, durable, piece, |leaf| {
                state.on_leaf_rooted(leaf);
            });
    }

    /// Writes the next piece of the root; false if there is none.
    fn write_piece(&mut self) -> bool {
        let Some(piece) = self.checkpoint.next_piece() else {
            return false;
        };
        let blocks = u64::from(piece.blocks);
        self.stats.medium_map += blocks;
        self.stats.medium_copies += blocks * u64::from(piece.is_twin);
        self.start_write(Pending::Root(piece));
        true
    }

    pub(super) fn root_written(&mut self, failed: bool) {
        if failed {
            self.poison();
        }
        if let Some(generation) = self.checkpoint.on_root_written(failed) {
            self.superblock.mark_root(generation);
        }
    }

    /// Starts the next write of the superblock.
    pub(super) fn write_mirrors(&mut self) {
        if let Some(at) = self.superblock.begin_write() {
            self.stats.medium_map += 1;
            self.start_write(Pending::Mirror(at));
        }
    }

    pub(super) fn mirror_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        match self.superblock.on_written() {
            Ended::Mark => self.mark_written(),
            Ended::Properties(Some(id)) => self.front.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    fn mark_written(&mut self) {
        self.checkpoint.on_marked();
        self.state.checkpoint_durable();
        self.state.trim_long();
        self.segments.look_again();
    }
}
