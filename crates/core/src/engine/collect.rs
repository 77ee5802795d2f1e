//! The collector: moves the live blocks of a segment together, so that it can be erased.
//!
//! What it moves has outlived its neighbours, so it goes to a head of its own: cold apart from hot. It
//! runs ahead of need, and from a reserve that only it may use, so that it can always finish. A block is
//! looked up again at the moment of its move: what a client has overwritten meanwhile is dropped. When
//! fewer live blocks are found than the segment is known to hold, the rest is looked for in the whole
//! map: a page may leak, but is never lost (promise 5).

use super::options::Buffers;
use super::segments::locate;
use super::{Engine, Pending};
use crate::addr::{Buf, Pba, Segment};
use crate::format::chunk::{self, Record};
use crate::format::summary::{self, Owner, Tag};
use crate::format::superblock::Superblock;
use crate::limits;
use crate::log::{HEADS, Head};
use crate::seam::{Effect, Outcome};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// By which part of its blocks a segment that waits for a map checkpoint counts as fuller.
const PINNED_PENALTY: u32 = 4;

struct Move {
    buf: Buf,
    pba: Pba,
    sum: u32,
}

struct Victim {
    segment: Segment,
    tags: Vec<Tag>,
    loaded: bool,
    next: u32,
    bad: bool,
    searched: bool,
}

pub(super) struct Collector {
    first: Buf,
    /// Which of its buffers are in use, and where to look for the next free run of them.
    used: Vec<bool>,
    free: usize,
    hand: usize,
    victim: Option<Victim>,
    gathering: u32,
    moves: VecDeque<Move>,
    spare: Vec<Tag>,
    low: usize,
}

impl Collector {
    pub fn new(superblock: &Superblock, buffers: Buffers) -> Self {
        assert!(
            buffers.count >= limits::GATHER_BLOCKS,
            "the collector needs {} buffers",
            limits::GATHER_BLOCKS
        );
        Self {
            first: buffers.first,
            used: alloc::vec![false; buffers.count as usize],
            free: buffers.count as usize,
            hand: 0,
            victim: None,
            gathering: 0,
            moves: VecDeque::new(),
            spare: Vec::new(),
            low: limits::COLLECTOR_SEGMENTS + 2 + superblock.segment_count() as usize / 512,
        }
    }

    pub fn is_collecting(&self, segment: Segment) -> bool {
        self.victim
            .as_ref()
            .is_some_and(|victim| victim.segment == segment)
    }

    pub fn is_idle(&self) -> bool {
        self.victim.is_none()
    }

    /// Whether enough has been read to be moved on, or nothing more is being read: many short runs come back one by one.
    pub fn has_gathered(&self) -> bool {
        self.gathering == 0 || self.moves.len() >= limits::GATHER_BLOCKS as usize
    }

    /// A buffer that is free, unless few are.
    pub fn spare_buf(&mut self) -> Option<Buf> {
        if self.free * 2 < self.used.len() {
            return None;
        }
        let (start, run) = self.free_run(1);
        (run == 1).then(|| self.take(start, 1))
    }

    /// Whether a buffer is one of its own.
    pub fn owns(&self, buf: Buf) -> bool {
        (self.first.0..self.first.0 + self.used.len() as u32).contains(&buf.0)
    }

    /// Takes a buffer back if it is one of its own.
    pub fn take_back(&mut self, buf: Buf) -> bool {
        let Some(index) = buf.0.checked_sub(self.first.0) else {
            return false;
        };
        let Some(used) = self.used.get_mut(index as usize) else {
            return false;
        };
        debug_assert!(*used, "buffer {buf} was taken back twice");
        *used = false;
        self.free += 1;
        true
    }

    /// Free buffers in a row, at most `most`: the first and how many (0 when none is free).
    fn free_run(&mut self, most: u32) -> (usize, u32) {
        if self.free == 0 {
            return (0, 0);
        }
        let free = |used: &[bool]| used.iter().position(|used| !used);
        let hand = self.hand.min(self.used.len());
        let (before, after) = self.used.split_at(hand);
        let Some(start) = free(after).map(|i| hand + i).or_else(|| free(before)) else {
            return (0, 0);
        };
        let run = self.used[start..]
            .iter()
            .take(most as usize)
            .take_while(|used| !**used)
            .count();
        (start, run as u32)
    }

    fn take(&mut self, start: usize, blocks: u32) -> Buf {
        self.used[start..start + blocks as usize].fill(true);
        self.free -= blocks as usize;
        self.hand = start + blocks as usize;
        Buf(self.first.0 + start as u32)
    }
}

impl Engine {
    pub(super) fn collect(&mut self) {
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
    }

    fn choose_victim(&mut self) -> bool {
        if self.segments.free() + self.segments.free_soon() >= self.collector.low
            || (!self.course.is_running() && self.queue.is_empty())
        {
            return false;
        }
        let usable = self.superblock.usable_blocks();
        let limit = self.superblock.victim_limit();
        let chosen = match self.options.victim {
            super::Victim::Greedy => {
                // A segment that is newer than the durable map checkpoint is not free before the next one,
                // which writes every dirty leaf: it must be that much emptier.
                let root_seq = self.checkpoint.durable_seq;
                self.segments.best(self.state.live(), limit, |valid, info| {
                    valid + u32::from(info.last_seq > root_seq) * (usable / PINNED_PENALTY)
                })
            }
            super::Victim::CostBenefit => {
                let newest = self.log.last_seq().0;
                self.segments.best(self.state.live(), limit, |valid, info| {
                    // Benefit over cost is (1 - u) * age / (1 + u); the best has the smallest inverse.
                    let age = (newest - info.last_seq.0 + 1) as f64;
                    f64::from(usable + valid) / (f64::from(usable - valid) * age)
                })
            }
        };
        let Some(segment) = chosen else { return false };
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

    pub(super) fn tags_read(&mut self, offset: u32, outcome: Outcome<'_>) {
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
            // Behind a header that cannot be read, the next one is looked for block by block.
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

    /// All entries of the map that tell who of a victim's blocks is alive are looked at before the first is needed.
    fn look_at_owners(&self, tags: &[Tag]) {
        self.state
            .map()
            .look_ahead(tags.iter().filter_map(|tag| match tag.owner {
                Owner::Lba(lba) => Some(lba),
                Owner::None | Owner::Vba(_) => None,
            }));
    }

    /// Reads live blocks as long as there are buffers for them.
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
            let (start_buf, room) = self.collector.free_run(limits::GATHER_BLOCKS);
            if room == 0 {
                if self.collector.gathering == 0 && self.collector.moves.is_empty() {
                    // All of them wait in the unsealed chunk.
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
            let Some(first) = (victim.next..usable).find(|&offset| live(offset)) else {
                if let Some(victim) = &mut self.collector.victim {
                    victim.next = usable;
                }
                return;
            };
            let mut end = first + 1;
            while end < usable && end - first < room && live(end) {
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

    pub(super) fn gathered(&mut self, at: Pba, blocks: u32, to: Buf, outcome: Outcome<'_>) {
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

    /// Appends what was read to the cold head, as far as that takes it.
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
            // And a move after the link that it moves: that may be in the unsealed chunk of the other head.
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

    /// `true` when the victim is done with and another may be chosen.
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
            // Owners that neither the tags nor the strays name (or blocks found bad).
            victim.searched = true;
            if !victim.bad {
                victim.next = 0;
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

    /// Leaves a victim half moved; what has been moved stays so.
    pub(super) fn abandon_victim(&mut self) {
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

    /// When free segments run short, pushes on what emptied ones wait for: seals and syncs the chunks
    /// that took their blocks away, or makes a map checkpoint that needs their headers no more.
    fn press(&mut self) {
        let free = self.segments.free();
        if self.segments.emptied().is_empty() || free >= self.collector.low {
            return;
        }
        let root_seq = self.checkpoint.durable_seq;
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
        // A map checkpoint writes every dirty leaf, whatever it frees: it waits until it frees enough.
        let enough = limits::PINNED_SEGMENTS + u64::from(self.segments.count()) / 64;
        self.checkpoint.due |= pinned > 0 && (short || pinned >= enough);
    }
}
