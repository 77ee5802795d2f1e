//! Carries out map checkpoints, beside requests.

use super::super::{Engine, Pending};
use super::{Phase, Written, mirror_effect};
use crate::addr::{BLOCK_BYTES, EffectId, Leaf, Pba, Segment, Seq};
use crate::format::root::{self, RootHeader};
use crate::limits;
use crate::log::{HEADS, Head};
use crate::mirrors::Ended;
use crate::seam::Effect;

impl Engine {
    pub(in crate::engine) fn advance_checkpoint(&mut self) {
        loop {
            let before = self.checkpoint.phase;
            match before {
                Phase::Idle
                    if self.checkpoint.is_due(self.state.dirty_leaves())
                        || self.state.is_too_dirty() =>
                {
                    self.begin_checkpoint()
                }
                Phase::Leaves(from) => self.write_leaves(from),
                Phase::Settle(seq) => self.settle(seq),
                Phase::Synced(seq)
                    if self.checkpoint.synced && self.log.durability().durable() >= seq =>
                {
                    self.write_root()
                }
                Phase::Idle | Phase::Synced(_) | Phase::Root | Phase::Mark => {}
            }
            if self.checkpoint.phase == before {
                return;
            }
        }
    }

    fn begin_checkpoint(&mut self) {
        if self.queue.fetches.is_behind(self.checkpoint.generation) {
            return;
        }
        // A clean shutdown's checkpoint includes everything, so that nothing is replayed.
        if self.course.is_stopping() && !HEADS.iter().all(|&head| self.seal(head, false)) {
            return;
        }
        // Seals the open chunk, so that replay from this checkpoint on sees neither of two things. A link to a shared page whose number
        // this checkpoint frees: the page may have become plain since, and replay learns that only at its end. A pledge that ends now:
        // its blocks may be absorbed from here on.
        let host = self.log.open(Head::Host);
        if host.is_some_and(|chunk| chunk.links) && !self.seal(Head::Host, false) {
            return;
        }
        self.checkpoint.due = false;
        self.checkpoint.seq = self.log.last_seq();
        self.checkpoint.life = self.log.last_life();
        self.checkpoint.cursors = self.log.cursors();
        self.checkpoint.phase = Phase::Leaves(0);
        self.checkpoint.ahead.begin();
        self.state.checkpoint_begins();
        self.checkpoint.log = Written::default();
        self.stats.map_checkpoints += 1;
    }

    fn write_leaves(&mut self, from: u32) {
        for stripe in from..self.superblock.stripes() {
            if self.checkpoint.in_flight >= limits::META_IN_FLIGHT || !self.is_read_for(stripe) {
                self.checkpoint.phase = Phase::Leaves(stripe);
                return;
            }
            self.write_stripe(stripe);
        }
        self.checkpoint.phase = Phase::Leaves(self.superblock.stripes());
        if self.checkpoint.in_flight == 0 && HEADS.iter().all(|&head| self.seal(head, false)) {
            self.checkpoint.phase = Phase::Settle(self.log.last_seq());
        }
    }

    pub(in crate::engine) fn leaf_written(&mut self, leaf: Leaf, failed: bool) {
        self.checkpoint.in_flight -= 1;
        self.checkpoint.blocks.written(leaf);
        if failed {
            self.poison();
        }
    }

    /// Starts a checkpoint's sync before a sync for waiting requests. The checkpoint's sync serves those requests too. If it came second,
    /// it would never get its turn while requests keep arriving.
    pub(in crate::engine) fn settle_first(&mut self) {
        if let Phase::Settle(seq) = self.checkpoint.phase {
            self.settle(seq);
        }
    }

    fn settle(&mut self, seq: Seq) {
        // The checkpoint frees the headers that these summaries repeat; segments closed since it began are replayed from their
        // headers.
        let mut summaries = self.checkpoint.summaries.iter();
        let repeats =
            |&segment: &Segment| self.segments.get(segment).last_seq <= self.checkpoint.seq;
        if summaries.any(repeats) {
            return;
        }
        let Some(through) = self.log.durability_mut().poll_sync_of_checkpoint(seq) else {
            return;
        };
        self.checkpoint
            .keep_open_summaries(&self.superblock, &self.sums, self.superblock.crc());
        self.checkpoint.synced = false;
        self.checkpoint.phase = Phase::Synced(seq);
        self.sync(through);
    }

    fn write_root(&mut self) {
        self.checkpoint.phase = Phase::Root;
        for (leaf, slot) in self.checkpoint.staged.drain(..) {
            self.checkpoint.slots[leaf.0 as usize] = slot;
            self.state.place_leaf(leaf, slot);
        }
        self.checkpoint.durable = self.log.durability().durable();
        for progress in [&mut self.checkpoint.swept, &mut self.checkpoint.scrubbed] {
            progress.kept = progress.now;
        }
        for at in self
            .superblock
            .root_copies(self.checkpoint.next_generation())
        {
            let blocks = u64::from(self.root_length(at));
            self.stats.medium_map += blocks;
            self.stats.medium_copies += blocks * u64::from(self.checkpoint.in_flight > 0);
            self.checkpoint.in_flight += 1;
            let id = self.outbox.begin(Pending::Root(at));
            let effect = self.root_effect(id, at);
            self.outbox.tell(effect);
        }
    }

    pub(in crate::engine) fn root_effect(&self, id: EffectId, at: Pba) -> Effect {
        Effect::WriteMeta {
            id,
            at,
            blocks: self.root_length(at),
            durable: true,
        }
    }

    /// The length of a copy of the next root, with what follows it.
    fn root_length(&self, at: Pba) -> u32 {
        match self.superblock.root_twin(self.checkpoint.next_generation()) == Some(at) {
            true => self.superblock.twin_blocks() as u32,
            false => self.superblock.root_blocks(),
        }
    }

    pub(in crate::engine) fn encode_root(&self, at: Pba, out: &mut [u8]) {
        let header = RootHeader {
            uuid: self.superblock.uuid(),
            generation: self.checkpoint.next_generation(),
            seq: self.checkpoint.seq,
            life: self.checkpoint.life,
            durable: self.checkpoint.durable,
            cursors: self.checkpoint.cursors,
            swept: self.checkpoint.swept.kept,
            scrubbed: self.checkpoint.scrubbed.kept,
        };
        let (root, behind) = out.split_at_mut(self.superblock.root_blocks() as usize * BLOCK_BYTES);
        root::encode(&header, &self.checkpoint.slots, self.superblock.crc(), root);
        debug_assert_eq!(
            behind.len() / BLOCK_BYTES,
            (self.root_length(at) - self.superblock.root_blocks()) as usize
        );
        if !behind.is_empty() {
            behind.copy_from_slice(self.checkpoint.open.bytes());
        }
    }

    pub(in crate::engine) fn root_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        self.checkpoint.in_flight -= 1;
        if self.checkpoint.in_flight == 0 {
            self.superblock.mark_root(self.checkpoint.next_generation());
            self.checkpoint.phase = Phase::Mark;
        }
    }

    /// Starts the next write of the superblock.
    pub(in crate::engine) fn write_mirrors(&mut self) {
        if let Some(at) = self.superblock.begin_write() {
            self.stats.medium_map += 1;
            self.outbox
                .ask(Pending::Mirror(at), |id| mirror_effect(id, at));
        }
    }

    pub(in crate::engine) fn mirror_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        match self.superblock.on_written() {
            Ended::Mark => self.mark_written(),
            Ended::Properties(Some(id)) => self.outbox.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    /// Chunks name this root only from now on: until it is marked, recovery may use the previous one.
    fn mark_written(&mut self) {
        self.checkpoint.generation = self.checkpoint.next_generation();
        self.checkpoint.durable_seq = self.checkpoint.seq;
        self.checkpoint.phase = Phase::Idle;
        self.state.checkpoint_durable();
        self.state.trim_long();
        self.segments.look_again();
    }
}
