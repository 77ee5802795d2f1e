//! Carries out the collector: chooses victims, and moves what is live in them.

use super::super::fetches::{AT_ONCE, Patience};
use super::super::options;
use super::super::{Engine, Pending};
use super::{Move, PINNED_PENALTY, Victim};
use crate::addr::{Buf, Pba, Segment};
use crate::format::chunk::{self, Record};
use crate::format::summary::{self, Owner, Tag};
use crate::limits;
use crate::log::{HEADS, Head, locate};
use crate::seam::{Effect, Outcome};

impl Engine {
    pub(in crate::engine) fn collect(&mut self) {
        if self.state.is_redeeming() {
            return;
        }
        loop {
            self.place_moves();
            if self.collector.victim.is_none() && !self.choose_victim() {
                break;
            }
            self.gather();
            if !self.finish_victim() {
                break;
            }
        }
        self.press();
        self.forget_places();
    }

    fn choose_victim(&mut self) -> bool {
        if !self.course.is_running() && self.queue.is_empty() {
            return false;
        }
        let is_short = self.segments.free() + self.segments.free_soon() < self.collector.low;
        let chosen = match is_short {
            true => self.worst_filled(),
            false => None,
        };
        let chosen = chosen.or_else(|| self.segments.to_vacate(self.state.live()));
        let Some(segment) = chosen else { return false };
        self.begin_victim(segment)
    }

    /// The segment by which most is gained.
    fn worst_filled(&self) -> Option<Segment> {
        let usable = self.superblock.usable_blocks();
        let limit = self.superblock.victim_limit();
        match self.options.victim {
            options::Victim::Greedy => {
                // A segment that is newer than the durable map checkpoint is not free before the next one, which writes every
                // dirty leaf: it must be that much emptier.
                let root_seq = self.checkpoint.durable_seq();
                self.segments.best(self.state.live(), limit, |valid, info| {
                    valid + u32::from(info.last_seq > root_seq) * (usable / PINNED_PENALTY)
                })
            }
            options::Victim::CostBenefit => {
                let newest = self.log.last_seq().0;
                self.segments.best(self.state.live(), limit, |valid, info| {
                    // Benefit over cost is (1 - u) * age / (1 + u); the best has the smallest inverse.
                    let age = (newest - info.last_seq.0 + 1) as f64;
                    f64::from(usable + valid) / (f64::from(usable - valid) * age)
                })
            }
        }
    }

    fn begin_victim(&mut self, segment: Segment) -> bool {
        if self.sums.rewrites(segment) {
            return false;
        }
        let mut tags = core::mem::take(&mut self.collector.spare);
        tags.clear();
        let loaded = match self.sums.tags(segment) {
            Some(known) => {
                tags.extend_from_slice(known);
                true
            }
            None => false,
        };
        self.stats.collections += 1;
        self.segments.begin_reader(segment);
        self.collector.victim = Some(Victim {
            segment,
            tags,
            loaded,
            next: 0,
            bad: false,
            searched: false,
            known: 0,
            patience: Patience::default(),
        });
        if !loaded {
            self.load_tags(segment, u32::MAX);
        }
        true
    }

    fn load_tags(&mut self, segment: Segment, offset: u32) {
        let start = self.superblock.segment_start(segment);
        let usable = self.superblock.usable_blocks();
        let (at, blocks) = if offset == u32::MAX {
            (
                start.plus(u64::from(usable)),
                self.superblock.segment_blocks() - usable,
            )
        } else {
            (start.plus(u64::from(offset)), 1)
        };
        self.outbox
            .ask(Pending::Tags(offset), |id| Effect::ReadMeta {
                id,
                at,
                blocks,
            });
    }

    pub(in crate::engine) fn tags_read(&mut self, offset: u32, outcome: Outcome<'_>) {
        let usable = self.superblock.usable_blocks();
        let Some(victim) = &mut self.collector.victim else {
            return;
        };
        let segment = victim.segment;
        let bytes = match outcome {
            Outcome::Bytes(bytes) => bytes,
            _ => &[],
        };
        let signature = self.superblock.signature();
        let next = if offset == u32::MAX {
            let tags = &mut victim.tags;
            match summary::decode_into(
                &signature,
                segment,
                usable as usize,
                bytes,
                self.superblock.crc(),
                tags,
            ) {
                Ok(()) => None,
                Err(_) => {
                    victim.tags.clear();
                    victim.tags.resize(
                        usable as usize,
                        Tag {
                            owner: Owner::None,
                            sum: 0,
                        },
                    );
                    Some(0)
                }
            }
        } else {
            let at = self
                .superblock
                .segment_start(segment)
                .plus(u64::from(offset));
            // After a header that cannot be read, the next one is searched for block by block.
            chunk::try_tags(
                bytes,
                &self.superblock,
                at,
                self.superblock.crc(),
                offset,
                &mut victim.tags,
            )
            .unwrap_or(Some(offset + 1))
            .filter(|&next| next < usable - 1)
        };
        match next {
            Some(next) => self.load_tags(segment, next),
            None => victim.loaded = true,
        }
    }

    /// Prefetches all map entries that say which of a victim's blocks are live, before the first is needed.
    fn look_at_owners(&self, tags: &[Tag]) {
        self.state
            .map()
            .look_ahead(tags.iter().filter_map(|tag| match tag.owner {
                Owner::Lba(lba) => Some(lba),
                Owner::None | Owner::Vba(_) => None,
            }));
    }

    /// Returns up to where the victim's live blocks can be determined without pulling leaves, from the next one on. `None`:
    /// leaves needed first are being read.
    fn know_owners(&mut self, usable: u32) -> Option<u32> {
        if !self.state.has_away() {
            return Some(usable);
        }
        let mut victim = self.collector.victim.take()?;
        if victim.next >= victim.known {
            let known = usable.min(victim.next + AT_ONCE as u32);
            let tags = &victim.tags[victim.next as usize..known as usize];
            if !self.victim_waits_for_leaves(&mut victim.patience, tags) {
                victim.known = known;
                victim.patience = Patience::default();
            }
        }
        let known = victim.known;
        let is_known = victim.next < known;
        self.collector.victim = Some(victim);
        is_known.then_some(known)
    }

    /// Reads live blocks as long as buffers are free.
    fn gather(&mut self) {
        let usable = self.superblock.usable_blocks();
        while let Some(victim) = &self.collector.victim {
            if !victim.loaded
                || victim.next >= usable
                || self.state.live().valid(victim.segment) == 0
            {
                return;
            }
            if victim.next == 0 {
                self.look_at_owners(&victim.tags);
            }
            let Some(known) = self.know_owners(usable) else {
                return;
            };
            let (start_buf, room) = self.collector.free_run(limits::GATHER_BLOCKS);
            if room == 0 {
                if self.collector.gathering == 0 && self.collector.moves.is_empty() {
                    // All buffers wait in the unsealed chunk.
                    self.seal(Head::Cold, false);
                }
                return;
            }
            let Some(victim) = &self.collector.victim else {
                return;
            };
            let start = self.superblock.segment_start(victim.segment);
            let live = |offset: u32| {
                let tag = victim.tags[offset as usize].owner;
                self.state
                    .owner_of(start.plus(u64::from(offset)), tag)
                    .is_some()
            };
            let Some(first) = (victim.next..known).find(|&offset| live(offset)) else {
                if let Some(victim) = &mut self.collector.victim {
                    victim.next = known;
                }
                continue;
            };
            let mut end = first + 1;
            while end < known && end - first < room && live(end) {
                end += 1;
            }
            let blocks = end - first;
            let at = start.plus(u64::from(first));
            if let Some(victim) = &mut self.collector.victim {
                victim.next = end;
            }
            self.collector.gathering += 1;
            self.stats.collector_reads += u64::from(blocks);
            let to = self.collector.take(start_buf, blocks);
            self.outbox
                .ask(Pending::Gather { at, blocks, to }, |id| Effect::Gather {
                    id,
                    at,
                    blocks,
                    to,
                });
        }
    }

    pub(in crate::engine) fn gathered(
        &mut self,
        at: Pba,
        blocks: u32,
        to: Buf,
        outcome: Outcome<'_>,
    ) {
        self.collector.gathering -= 1;
        let (_, offset) = locate(&self.superblock, at);
        for index in 0..blocks {
            let buf = Buf(to.0 + index);
            let Some(victim) = &mut self.collector.victim else {
                unreachable!("a victim waits for its reads")
            };
            let sum = victim.tags[(offset + index) as usize].sum;
            let whole =
                matches!(outcome, Outcome::Sums(sums) if sums.get(index as usize) == Some(&sum));
            if whole {
                self.collector.moves.push_back(Move {
                    buf,
                    pba: at.plus(u64::from(index)),
                    sum,
                });
            } else {
                victim.bad = true;
                match outcome {
                    Outcome::Sums(_) => self.stats.corrupt_blocks += 1,
                    _ => self.stats.unreadable_blocks += 1,
                }
                self.release(buf);
            }
        }
    }

    /// Appends what was read to the cold head, as far as there is room.
    fn place_moves(&mut self) {
        while let Some(Move { buf, pba, sum }) = self.collector.moves.pop_front() {
            let (_, offset) = locate(&self.superblock, pba);
            let tag = self
                .collector
                .victim
                .as_ref()
                .map_or(Owner::None, |v| v.tags[offset as usize].owner);
            let Some(owner) = self.state.owner_of(pba, tag) else {
                self.release(buf);
                continue;
            };
            let record = match owner {
                Owner::Lba(lba) => Record::Move {
                    lba,
                    sum,
                    from: pba,
                },
                Owner::Vba(vba) => Record::MoveShared {
                    vba,
                    sum,
                    from: pba,
                },
                Owner::None => unreachable!("an owner that is one"),
            };
            // A move must follow the link that it moves, which may be in the other head's unsealed chunk.
            if self.is_linked_unsealed(pba) && !self.seal(Head::Host, false) {
                self.collector.moves.push_front(Move { buf, pba, sum });
                return;
            }
            let Some(chunk) = self.chunk_with_room(Head::Cold, record.encoded_len(), true) else {
                self.collector.moves.push_front(Move { buf, pba, sum });
                return;
            };
            self.append(chunk, record, Tag { owner, sum }, buf);
        }
    }

    fn is_linked_unsealed(&self, at: Pba) -> bool {
        self.log.open(Head::Host).is_some_and(|chunk| {
            chunk.links
                && chunk
                    .records
                    .iter()
                    .any(|record| matches!(record, Record::Share { pba, .. } if *pba == at))
        })
    }

    /// True if the victim is finished and another may be chosen.
    fn finish_victim(&mut self) -> bool {
        let usable = self.superblock.usable_blocks();
        let Some(victim) = &mut self.collector.victim else {
            return false;
        };
        let segment = victim.segment;
        let left = self.state.live().valid(segment);
        let scanned = victim.loaded && (victim.next >= usable || left == 0);
        if !scanned || self.collector.gathering > 0 || !self.collector.moves.is_empty() {
            return false;
        }
        if left > 0 && !victim.searched {
            // Neither the tags nor the strays name these owners (or blocks are bad).
            victim.searched = true;
            if !victim.bad {
                victim.next = 0;
                victim.known = 0;
                self.state.find_strays(segment, left);
                return true;
            }
        }
        if left > 0 {
            self.segments.quarantine(segment);
        }
        if let Some(victim) = self.collector.victim.take() {
            self.collector.spare = victim.tags;
        }
        self.leave_victim(segment);
        true
    }

    /// Leaves a victim half moved; moved blocks stay moved.
    pub(in crate::engine) fn abandon_victim(&mut self) {
        while let Some(Move { buf, .. }) = self.collector.moves.pop_front() {
            self.release(buf);
        }
        if let Some(victim) = self.collector.victim.take() {
            self.leave_victim(victim.segment);
        }
    }

    fn leave_victim(&mut self, segment: Segment) {
        self.segments.end_reader(segment);
        self.segments.look_again();
    }

    /// If free segments run short, frees emptied segments sooner. It seals and syncs the chunks that their blocks moved to, or requests a
    /// map checkpoint, after which replay does not need their headers.
    fn press(&mut self) {
        let free = self.segments.free();
        if self.segments.emptied().is_empty() || free >= self.collector.low {
            return;
        }
        let root_seq = self.checkpoint.durable_seq();
        let mut unsealed = [false; 2];
        let mut unsynced = false;
        let mut pinned = 0;
        for &segment in self.segments.emptied() {
            let info = self.segments.get(segment);
            pinned += u64::from(info.last_seq > root_seq);
            unsynced |= !self.log.are_durable(info.marks);
            for head in HEADS {
                unsealed[head as usize] |= self.log.is_in_open(head, info.marks);
            }
        }
        let short = free <= limits::COLLECTOR_SEGMENTS + 1;
        if short && unsynced {
            for head in HEADS {
                if unsealed[head as usize] {
                    self.seal(head, false);
                }
            }
        }
        if unsynced && !self.log.durability().is_all_durable() {
            self.log.want_all_durable();
        }
        // A map checkpoint writes every dirty leaf, however little it frees: it waits until it frees enough.
        let enough = limits::PINNED_SEGMENTS + u64::from(self.segments.count()) / 64;
        self.checkpoint
            .due_if(pinned > 0 && (short || pinned >= enough));
    }
}
