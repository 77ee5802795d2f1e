//! Map checkpoints: leaf after leaf to the slot that the durable root does not use, then a root.
//!
//! It runs beside the requests: a leaf is written as it is at that moment, so it may already hold effects
//! of chunks sealed later than the checkpoint's `seq`. That is sound because replay from `seq` on gives
//! the same map whether or not a leaf has seen some of it, and because the root is written only when every
//! chunk that any leaf may have seen is durable.

use super::*;
use crate::addr::Leaf;
use crate::format::leaf;
use crate::format::root::{self, Cursor, LeafSlot, RootHeader};
use crate::mirrors::Ended;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Writing leaves; the next one to look at.
    Leaves(u32),
    /// Everything up to this chunk, and every leaf, must be durable before the root.
    Settle(Seq),
    /// The sync for that is on its way, or has come back.
    Synced(Seq),
    /// The root is being written, durably.
    Root,
    /// The superblock learns of it, durably, before anything that the root before needs is let go: else
    /// a root that is damaged later could not be told from one whose writing was cut short.
    Mark,
}

pub(super) struct Checkpoint {
    pub due: bool,
    /// The newest chunk that the durable root includes.
    pub durable_seq: Seq,
    /// How far the newest root says that a sweep for duplicates is.
    pub swept: u32,
    /// Whose summaries are on their way.
    pub summaries: Vec<Segment>,
    phase: Phase,
    seq: Seq,
    life: Life,
    cursors: [Cursor; 2],
    in_flight: usize,
    /// What the next root says of the leaves that this checkpoint wrote.
    staged: Vec<(u32, LeafSlot)>,
    /// Whether a sync that began after the last leaf was written has come back.
    synced: bool,
}

impl Checkpoint {
    pub fn new(durable_seq: Seq, swept: u32) -> Self {
        Self {
            due: false,
            durable_seq,
            swept,
            summaries: Vec::new(),
            phase: Phase::Idle,
            seq: Seq(0),
            life: Life(0),
            cursors: [Cursor {
                segment: Segment(0),
                offset: 0,
            }; 2],
            in_flight: 0,
            staged: Vec::new(),
            synced: false,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    pub fn synced(&mut self) {
        if matches!(self.phase, Phase::Synced(_)) {
            self.synced = true;
        }
    }
}

impl Engine {
    fn checkpoint_is_due(&self) -> bool {
        let (least, most) = limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
        self.checkpoint.due
            || self.log_chunks >= limits::CHUNKS_BETWEEN_CHECKPOINTS
            || self.log_blocks
                >= (self.map.dirty_count() * limits::LOG_BLOCKS_PER_DIRTY_LEAF).clamp(least, most)
    }

    pub(super) fn advance_checkpoint(&mut self) {
        loop {
            let before = self.checkpoint.phase;
            match before {
                Phase::Idle if self.checkpoint_is_due() => self.begin_checkpoint(),
                Phase::Leaves(from) => self.write_leaves(from),
                Phase::Settle(seq) => self.settle(seq),
                Phase::Synced(seq) if self.checkpoint.synced && self.durable >= seq => {
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
        // A clean shutdown's checkpoint includes everything, so that nothing is replayed.
        if self.mode == Mode::Stopping && !HEADS.iter().all(|&head| self.seal(head, false)) {
            return;
        }
        // Links that replay would see must not name shared pages whose numbers this checkpoint frees: the
        // page may have become plain since, which replay learns only at its end.
        // Nor may it see pledges that end now: what they concern may be absorbed from here on.
        let host = self.heads[Head::Host as usize].open;
        if host.is_some_and(|open| self.chunks.get(open).links) && !self.seal(Head::Host, false) {
            return;
        }
        self.checkpoint.due = false;
        self.checkpoint.seq = self.last_seq;
        self.checkpoint.life = self.last_life;
        self.checkpoint.cursors = HEADS.map(|h| Cursor {
            segment: self.heads[h as usize].segment,
            offset: self.heads[h as usize].offset,
        });
        self.checkpoint.phase = Phase::Leaves(0);
        self.shared.checkpoint_begins();
        debug_assert!(self.ending.is_empty(), "one map checkpoint at a time");
        self.ending = core::mem::take(&mut self.pledges);
        (self.log_blocks, self.log_chunks) = (0, 0);
        self.stats.map_checkpoints += 1;
    }

    fn write_leaves(&mut self, mut from: u32) {
        let maps = self.map.leaf_count();
        while self.checkpoint.in_flight < limits::META_IN_FLIGHT {
            let dirty = if from < maps {
                self.map.take_dirty(Leaf(from))
            } else {
                None
            };
            let leaf = match dirty {
                Some(leaf) => leaf.0,
                None => {
                    from = from.max(maps);
                    match self.take_dirty_behind_the_map(from) {
                        Some(leaf) => leaf,
                        None if self.checkpoint.in_flight > 0 => break,
                        None => {
                            for head in HEADS {
                                if !self.seal(head, false) {
                                    self.checkpoint.phase = Phase::Leaves(from);
                                    return;
                                }
                            }
                            self.checkpoint.phase = Phase::Settle(self.last_seq);
                            return;
                        }
                    }
                }
            };
            from = leaf + 1;
            if leaf < maps && !self.map.is_present(Leaf(leaf)) {
                self.checkpoint.staged.push((leaf, LeafSlot::Absent));
                continue;
            }
            self.checkpoint.in_flight += 1;
            self.stats.medium_map += 1;
            let at = self.leaf_target(leaf);
            self.effect(Pending::Leaf(leaf), |id| Effect::WriteMeta {
                id,
                at,
                blocks: 1,
                durable: false,
            });
        }
        self.checkpoint.phase = Phase::Leaves(from);
    }

    /// The next dirty leaf of the tables of shared pages and of deltas.
    fn take_dirty_behind_the_map(&mut self, from: u32) -> Option<u32> {
        let first = [
            self.map.leaf_count(),
            self.superblock.map_leaves() + self.superblock.shared_leaves(),
        ];
        let [shared, deltas] = first.map(|first| Leaf(from.saturating_sub(first)));
        if from < first[1]
            && let Some(leaf) = self.shared.take_dirty(shared)
        {
            return Some(first[0] + leaf.0);
        }
        let leaf = self.shared.deltas_mut().take_dirty(deltas)?;
        Some(first[1] + leaf.0)
    }

    /// The slot that the durable root does not name.
    pub(super) fn leaf_target(&self, leaf: u32) -> Pba {
        let slot = u32::from(matches!(self.slots[leaf as usize], LeafSlot::Slot0(_)));
        self.superblock.leaf_slot(Leaf(leaf), slot)
    }

    pub(super) fn encode_leaf(&mut self, leaf: u32, out: &mut [u8]) {
        let maps = self.map.leaf_count();
        let behind = maps + self.superblock.shared_leaves();
        if leaf < maps {
            self.map.encode_leaf(Leaf(leaf), out);
        } else if leaf < behind {
            self.shared.encode_leaf(Leaf(leaf - maps), out);
        } else {
            self.shared.deltas().encode_leaf(Leaf(leaf - behind), out);
        }
        let crc = leaf::checksum(Leaf(leaf), out, self.crc);
        let slot = match self.slots[leaf as usize] {
            LeafSlot::Slot0(_) => LeafSlot::Slot1(crc),
            LeafSlot::Absent | LeafSlot::Slot1(_) => LeafSlot::Slot0(crc),
        };
        // Encoded again when the medium was full the first time: the later one counts, being applied last.
        self.checkpoint.staged.push((leaf, slot));
    }

    pub(super) fn leaf_written(&mut self, failed: bool) {
        self.checkpoint.in_flight -= 1;
        if failed {
            self.poison();
        }
    }

    /// Before a sync is begun for those who wait for one: the one that a checkpoint needs serves them too, and would never have its
    /// turn while there is always somebody who waits.
    pub(super) fn settle_first(&mut self) {
        if let Phase::Settle(seq) = self.checkpoint.phase {
            self.settle(seq);
        }
    }

    fn settle(&mut self, seq: Seq) {
        let written = self
            .order
            .iter()
            .all(|sealed| sealed.seq > seq || sealed.written);
        // The checkpoint lets go of the headers that these repeat; what was closed since it began is replayed from its headers.
        let mut summaries = self.checkpoint.summaries.iter();
        let repeats =
            |&segment: &Segment| self.segments.get(segment).last_seq <= self.checkpoint.seq;
        if self.sync.is_some() || summaries.any(repeats) || !written {
            return;
        }
        // A sync of its own even when every chunk is durable: the leaves and summaries are not.
        self.checkpoint.synced = false;
        self.checkpoint.phase = Phase::Synced(seq);
        let through = self
            .order
            .iter()
            .take_while(|sealed| sealed.written)
            .map(|sealed| sealed.seq)
            .last();
        let through = through.unwrap_or(self.durable);
        self.sync = Some(through);
        self.stats.syncs += 1;
        self.effect(Pending::Sync { through }, |id| Effect::Sync { id });
    }

    fn write_root(&mut self) {
        self.checkpoint.phase = Phase::Root;
        self.stats.medium_map += u64::from(self.superblock.root_blocks());
        for (leaf, slot) in self.checkpoint.staged.drain(..) {
            self.slots[leaf as usize] = slot;
        }
        self.checkpoint.swept = self.swept;
        self.scrubbed.kept = self.scrubbed.now;
        let id = self.pending.add(Pending::Root);
        let effect = self.root_effect(id);
        self.effects.push_back(effect);
    }

    pub(super) fn root_effect(&self, id: EffectId) -> Effect {
        let at = self
            .superblock
            .root_place(Generation(self.root_generation.0 + 1));
        Effect::WriteMeta {
            id,
            at,
            blocks: self.superblock.root_blocks(),
            durable: true,
        }
    }

    pub(super) fn encode_root(&self, out: &mut [u8]) {
        let header = RootHeader {
            uuid: self.superblock.uuid(),
            generation: Generation(self.root_generation.0 + 1),
            seq: self.checkpoint.seq,
            life: self.checkpoint.life,
            durable: self.durable,
            cursors: self.checkpoint.cursors,
            swept: self.checkpoint.swept,
            scrubbed: self.scrubbed.kept,
        };
        root::encode(&header, &self.slots, self.crc, out);
    }

    pub(super) fn root_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        self.root_generation = Generation(self.root_generation.0 + 1);
        self.superblock.mark_root(self.root_generation);
        self.checkpoint.phase = Phase::Mark;
        self.mirrors.mark();
    }

    /// Begins what is to be written of the superblock next.
    pub(super) fn write_mirrors(&mut self) {
        if let Some(at) = self.mirrors.begin(&mut self.superblock) {
            self.stats.medium_map += 1;
            self.effect(Pending::Mirror(at), |id| mirror_effect(id, at));
        }
    }

    pub(super) fn mirror_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        match self.mirrors.written() {
            Ended::Mark => self.mark_written(),
            Ended::Properties(Some(id)) => self.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    fn mark_written(&mut self) {
        self.checkpoint.durable_seq = self.checkpoint.seq;
        self.checkpoint.phase = Phase::Idle;
        self.shared.checkpoint_durable();
        self.redeeming = false;
        self.ending.clear();
        self.shared.reserve(self.pledges.len() as u32);
        self.reclaim = true;
    }
}

pub(super) fn mirror_effect(id: EffectId, at: Pba) -> Effect {
    Effect::WriteMeta {
        id,
        at,
        blocks: 1,
        durable: true,
    }
}
