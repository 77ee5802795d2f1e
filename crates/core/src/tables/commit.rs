//! How facts become durable: in groups, each carried to the medium stage by stage.
//!
//! ```text
//! ordered:  data, counts up, fingerprints given up | sync | links | sync | (later) counts down, fingerprints
//! shadow:   data, table blocks into their other slots | directory | sync | root, durable
//! ```
//!
//! A group takes what clients do until its commit begins: when somebody waits for it, at the latest after a
//! second (OrderMergeDedup §3). Whatever falls into one table block is one write. What no answer waits for is
//! held back for 30 s after it may be written, to ride along with what must be. When single writes wait for
//! it, and they come so fast that another is likely within a millisecond, it is held back that long (§2.2).

use super::order::{Stage, Step};
use super::table::Table;
use super::{Pending, Tables, twin};
use crate::addr::{Buf, Nanos, Pba};
use crate::format::table::{Kind, Link};
use crate::limits;
use crate::seam::Effect;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The number of a commit of what was found. What clients change has a higher one.
const FOUND: u64 = 0;

/// What clients have changed since the last commit began.
pub(super) struct Group {
    pub number: u64,
    /// Where LBAs lead.
    pub links: BTreeMap<u32, Link>,
    /// Table blocks that must be on the medium before its links.
    ground: BTreeSet<(Kind, u32)>,
    /// Fingerprints of blocks that it has stored.
    pub prints: BTreeMap<u32, u32>,
    /// Blocks whose fingerprint was given up.
    pub unprinted: Vec<u32>,
    /// Such blocks were looked for.
    gave_up: bool,
    /// Writes of data that have not ended.
    writes: usize,
    pub requests: u32,
    pub began: Nanos,
    /// Somebody waits for it.
    pub wanted: bool,
    /// Nothing goes on without it.
    pub urgent: bool,
    /// Until when more writes are awaited.
    held_until: Nanos,
}

impl Group {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            links: BTreeMap::new(),
            ground: BTreeSet::new(),
            prints: BTreeMap::new(),
            unprinted: Vec::new(),
            gave_up: false,
            writes: 0,
            requests: 0,
            began: Nanos(0),
            wanted: false,
            urgent: false,
            held_until: Nanos(0),
        }
    }

    /// Contents that nobody has may be looked for once more.
    pub fn give_up_again(&mut self) {
        self.gave_up = false;
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.unprinted.is_empty()
    }
}

/// Where a commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Ground,
    GroundSync,
    Links,
    LinksSync,
    Directory,
    DirectorySync,
    Root,
}

/// A group on its way.
pub(super) struct Commit {
    pub group: Group,
    at: At,
    /// Writes that have not ended, those in the queue included.
    under_way: usize,
    /// Blocks of tables that wait for their turn to be written.
    queue: VecDeque<Pending>,
    /// Blocks that links of the medium led to, and do not any more.
    unlinked: Vec<u32>,
}

impl Tables {
    /// Notes that a step has changed a table block.
    pub(super) fn mark(&mut self, step: Step, block: u32) {
        let kind = match step {
            Step::CountUp | Step::CountDown => Kind::Counts,
            Step::Print | Step::Unprint => Kind::Prints,
            Step::Link | Step::Data => unreachable!("these are marked by the commit itself"),
        };
        match step.stage() {
            Stage::Later => self.mark_later(kind, block),
            _ => {
                self.running.ground.insert((kind, block));
            }
        }
    }

    pub(super) fn mark_later(&mut self, kind: Kind, block: u32) {
        let now = self.course.now();
        let key = (kind, block);
        if let alloc::collections::btree_map::Entry::Vacant(entry) = self.later.entry(key) {
            entry.insert(now);
            self.later_order.push_back((now, key));
        }
    }

    /// When what was held back is due.
    pub(super) fn later_due(&self) -> Option<Nanos> {
        if !self.anew.is_empty() {
            return Some(self.course.now());
        }
        let (since, _) = self.later_order.front()?;
        match self.course.is_running() {
            true => Some(Nanos(since.0 + self.options.later_nanos)),
            false => Some(self.course.now()),
        }
    }

    /// When the running group is due.
    pub(super) fn group_due(&self) -> Option<Nanos> {
        let group = &self.running;
        let ends = !self.course.is_running() && self.unsynced;
        if group.is_empty() && !ends {
            return None;
        }
        let often = self.options.commit_requests;
        let at_once = !self.course.is_running()
            || group.urgent
            || self.group_is_full()
            || often > 0 && group.requests >= often;
        Some(if at_once {
            self.course.now()
        } else if group.wanted {
            group.held_until.max(self.course.now())
        } else {
            Nanos(group.began.0 + limits::COMMIT_AFTER_NANOS)
        })
    }

    /// Somebody waits for the running group. Who flushes has nothing more to write until that is answered: only of single
    /// writes more are awaited.
    pub(super) fn want_group(&mut self, flush: bool) {
        let group = &mut self.running;
        if flush {
            group.held_until = self.course.now();
        }
        if !group.wanted {
            group.wanted = true;
            group.held_until = self.course.now();
            if !flush && self.gap < self.options.anticipation_nanos {
                self.running.held_until.0 += self.options.anticipation_nanos;
                self.stats.anticipated_commits += 1;
            }
        }
    }

    /// Begins a commit that is due, or takes the next step of one.
    pub(super) fn advance_commit(&mut self) {
        loop {
            let Some(commit) = &self.committing else {
                let due = |at: Option<Nanos>| at.is_some_and(|at| at <= self.course.now());
                let is_due = due(self.group_due()) || due(self.later_due());
                if !is_due || self.outbox.holds_writes() {
                    return;
                }
                self.begin_commit();
                continue;
            };
            if commit.under_way > 0 {
                return;
            }
            match commit.at {
                At::Ground if self.shadow.is_some() => self.write_directory(),
                At::Ground => self.end_ground(),
                At::Links => self.sync_then(At::LinksSync),
                At::Directory => self.sync_then(At::DirectorySync),
                At::GroundSync | At::LinksSync | At::DirectorySync => return,
                At::Root => {
                    self.root_written();
                    self.finish_commit();
                }
            }
        }
    }

    fn begin_commit(&mut self) {
        let next = Group::new(self.running.number + 1);
        let mut group = core::mem::replace(&mut self.running, next);
        let mut blocks = core::mem::take(&mut group.ground);
        self.stats.commits += 1;
        self.committing = Some(Commit {
            at: At::Ground,
            under_way: group.writes,
            queue: VecDeque::new(),
            unlinked: Vec::new(),
            group,
        });
        self.write_queued();
        self.take_anew(self.shadow.is_some(), &mut blocks);
        self.take_later(&mut blocks);
        if self.shadow.is_some() {
            // The root decides what counts: all goes out together.
            self.apply_links(&mut blocks);
            self.apply_prints();
            self.take_later(&mut blocks);
        }
        self.write_tables(blocks);
    }

    /// What was found in one copy alone gets its second one, as a commit of its own before all others: a root, or blocks of the map
    /// in place. Whoever loses the one copy has what was there before, and until there are two again nothing that this needs is
    /// written over: no data goes out meanwhile, no discard, and the superblock says nothing new.
    pub(super) fn double(&mut self, root: Option<Pba>) {
        let is_in_place = self.shadow.is_none() && !self.anew.is_empty();
        if root.is_none() && !is_in_place {
            return;
        }
        self.committing = Some(Commit {
            group: Group::new(FOUND),
            at: if is_in_place { At::Links } else { At::Root },
            under_way: usize::from(root.is_some()),
            queue: VecDeque::new(),
            unlinked: Vec::new(),
        });
        if let Some(at) = root {
            self.stats.medium_map += self.superblock.shadow_root_blocks();
            self.start_write(Pending::RootCopy(at));
            self.unsynced = false;
        } else {
            let blocks = core::mem::take(&mut self.anew);
            self.write_tables(blocks);
        }
    }

    /// Whether that is under way.
    pub(super) fn is_doubling(&self) -> bool {
        let commit = self.committing.as_ref();
        commit.is_some_and(|commit| commit.group.number == FOUND)
    }

    /// What was held back and is due, or is to be written anyway.
    fn take_later(&mut self, blocks: &mut BTreeSet<(Kind, u32)>) {
        for block in blocks.iter() {
            self.later.remove(block);
        }
        let (all, after) = match self.course.is_running() {
            true => (self.shadow.is_some(), self.options.later_nanos),
            false => (true, 0),
        };
        while let Some(&(since, key)) = self.later_order.front() {
            let is_there = self.later.get(&key) == Some(&since);
            if is_there && !all && since.0 + after > self.course.now().0 {
                break;
            }
            self.later_order.pop_front();
            if is_there {
                self.later.remove(&key);
                blocks.insert(key);
            }
        }
    }

    /// Whether these blocks are of the stage that the commit is in; under a root there is one.
    fn are_in_order(&self, blocks: &BTreeSet<(Kind, u32)>) -> bool {
        let stage = match self.committing.as_ref().map(|commit| commit.at) {
            Some(At::Links) => Stage::Links,
            _ => Stage::Ground,
        };
        let are_links = stage == Step::Link.stage();
        let mut kinds = blocks.iter().map(|(kind, _)| *kind);
        self.shadow.is_some() || kinds.all(|kind| (kind == Kind::Map) == are_links)
    }

    fn write_tables(&mut self, blocks: BTreeSet<(Kind, u32)>) {
        debug_assert!(self.are_in_order(&blocks), "links with what they lead to");
        let copies = 1 + u64::from(self.superblock.has_twins());
        for (kind, _) in &blocks {
            let (written, blocks) = match kind {
                Kind::Map => (&mut self.stats.medium_links, copies),
                Kind::Counts => (&mut self.stats.medium_counts, 1),
                Kind::Prints => (&mut self.stats.medium_fingerprints, 1),
                Kind::Editions => (&mut self.stats.medium_editions, 1),
            };
            *written += blocks;
        }
        for (_, block) in blocks.iter().filter(|(kind, _)| *kind == Kind::Map) {
            self.editions.next(*block);
        }
        if let Some(shadow) = &mut self.shadow {
            for &(kind, block) in &blocks {
                shadow.touch(self.superblock.table_number(kind, block));
            }
        }
        let has_twins = self.superblock.has_twins();
        self.queue_writes(blocks.into_iter().flat_map(|(kind, block)| {
            let twin = (has_twins && kind == Kind::Map).then_some(Pending::MapTwin(block));
            core::iter::once(Pending::Table(kind, block)).chain(twin)
        }));
    }

    /// Blocks of tables are to be written in this step of the commit, a few at a time.
    pub(super) fn queue_writes(&mut self, writes: impl Iterator<Item = Pending>) {
        if let Some(commit) = &mut self.committing {
            let queued = commit.queue.len();
            commit.queue.extend(writes);
            commit.under_way += commit.queue.len() - queued;
        }
        for _ in 0..limits::TABLES_IN_FLIGHT {
            self.write_next();
        }
    }

    fn write_next(&mut self) {
        let next = self.committing.as_mut().and_then(|c| c.queue.pop_front());
        if let Some(pending) = next {
            self.start_write(pending);
        }
    }

    /// A write of the commit is about to be asked for.
    pub(super) fn step_begins(&mut self) {
        if let Some(commit) = &mut self.committing {
            commit.under_way += 1;
        }
    }

    pub(super) fn step_ended(&mut self) {
        if let Some(commit) = &mut self.committing {
            commit.under_way -= 1;
        }
        self.write_next();
    }

    /// Data and what leads nowhere yet is on its way to the medium: all of it, in runs.
    pub(super) fn write_queued(&mut self) {
        let queued = core::mem::take(&mut self.queued);
        let group = match &self.committing {
            Some(commit) if commit.at == At::Ground => commit.group.number,
            _ => self.running.number,
        };
        let mut run: Vec<Buf> = Vec::new();
        let mut first = 0;
        for index in queued {
            let follows = index == first + run.len() as u32;
            if !run.is_empty() && (!follows || run.len() == limits::CHUNK_DATA_BLOCKS) {
                self.write_data(first, core::mem::take(&mut run), group);
            }
            if run.is_empty() {
                first = index;
            }
            run.push(self.held[&index]);
        }
        if !run.is_empty() {
            self.write_data(first, run, group);
        }
    }

    fn write_data(&mut self, first: u32, bufs: Vec<Buf>, group: u64) {
        for index in first..first + bufs.len() as u32 {
            self.pin(index);
        }
        self.stats.medium_data += bufs.len() as u64;
        match &mut self.committing {
            Some(commit) if commit.group.number == group => commit.under_way += 1,
            _ => self.running.writes += 1,
        }
        self.on_their_way += bufs.len() as u32;
        self.start_write(Pending::Data { first, bufs, group });
    }

    pub(super) fn data_written(&mut self, first: u32, bufs: &[Buf], group: u64) {
        self.on_their_way -= bufs.len() as u32;
        for (index, buf) in (first..).zip(bufs) {
            self.held.remove(&index);
            self.release(*buf);
            self.unpin(index);
        }
        match &mut self.committing {
            Some(commit) if commit.group.number == group => commit.under_way -= 1,
            _ => self.running.writes -= 1,
        }
    }

    /// All that links will lead to is written: it must be durable, if there are any.
    fn end_ground(&mut self) {
        let Some(commit) = &self.committing else {
            return;
        };
        let nobody = commit.group.is_empty() && self.waiters.is_empty() && self.anew.is_empty();
        if nobody && self.course.is_running() {
            return self.finish_commit();
        }
        self.sync_then(At::GroundSync);
    }

    fn sync_then(&mut self, at: At) {
        if let Some(commit) = &mut self.committing {
            commit.at = at;
        }
        // What goes out for the next group meanwhile is not reached by it for certain.
        self.unsynced = self.running.writes > 0;
        self.stats.syncs += 1;
        let id = self.outbox.begin(Pending::Sync);
        self.outbox.tell(Effect::Sync { id });
    }

    pub(super) fn synced(&mut self) {
        match self.committing.as_ref().map(|commit| commit.at) {
            Some(At::GroundSync) => self.write_links(),
            Some(At::DirectorySync) => self.write_root(),
            _ => self.finish_commit(),
        }
    }

    fn write_directory(&mut self) {
        if !self.write_changed_directory() {
            return self.finish_commit();
        }
        if let Some(commit) = &mut self.committing {
            commit.at = At::Directory;
        }
    }

    fn write_root(&mut self) {
        if let Some(commit) = &mut self.committing {
            commit.at = At::Root;
        }
        self.start_root();
        // It is durable when it is done.
        self.unsynced = self.running.writes > 0;
    }

    fn write_links(&mut self) {
        let mut blocks = BTreeSet::new();
        self.apply_links(&mut blocks);
        self.apply_prints();
        self.take_anew(true, &mut blocks);
        if blocks.is_empty() {
            return self.finish_commit();
        }
        if let Some(commit) = &mut self.committing {
            commit.at = At::Links;
        }
        self.write_tables(blocks);
    }

    /// The image of the map follows the group; which of its blocks have changed.
    fn apply_links(&mut self, blocks: &mut BTreeSet<(Kind, u32)>) {
        let Some(commit) = &mut self.committing else {
            return;
        };
        for (&key, &link) in &commit.group.links {
            let old = self.map.get(key);
            if old != link {
                self.map.set(key, link);
                blocks.insert((Kind::Map, Table::<Link>::block_of(key)));
            }
            commit.unlinked.extend(old.index());
        }
    }

    fn apply_prints(&mut self) {
        let Some(commit) = &mut self.committing else {
            return;
        };
        for (index, sum) in core::mem::take(&mut commit.group.prints) {
            self.prints.set(index, twin::print_of(sum));
            self.mark(Step::Print, Table::<u32>::block_of(index));
        }
    }

    /// Everything of the group is durable: what it has replaced may go.
    pub(super) fn finish_commit(&mut self) {
        let Some(commit) = self.committing.take() else {
            return;
        };
        self.durable = commit.group.number;
        for block in self.editions.are_durable() {
            self.mark_later(Kind::Editions, block);
        }
        for index in commit.unlinked.into_iter().chain(commit.group.unprinted) {
            self.lower(index);
        }
        let mut answered = 0;
        while let Some(waiter) = self.waiters.front()
            && waiter.group <= self.durable
        {
            let (request, flush) = (waiter.request, waiter.flush);
            self.waiters.pop_front();
            if flush {
                answered += 1;
                self.stats.flushes_merged += u64::from(answered > 1);
            }
            self.outbox.reply(request, Ok(()));
        }
    }

    /// Free blocks are short: contents that nobody has any more are given up, fingerprint first.
    pub(super) fn give_up_prints(&mut self) {
        if core::mem::replace(&mut self.running.gave_up, true) {
            return;
        }
        let end = self.superblock.areas().data_blocks() as u32;
        let mut from = self.give_up_from;
        let mut wrapped = false;
        while self.running.unprinted.len() < limits::PRINTS_GIVEN_UP {
            let Some((index, _)) = self.prints.next(from, end) else {
                if wrapped {
                    break;
                }
                (from, wrapped) = (0, true);
                continue;
            };
            from = index + 1;
            let unused = self.counts.get(index) == 1 && self.refs.get(index) == 0;
            if unused && !self.pins.contains_key(&index) {
                self.prints.set(index, 0);
                self.mark(Step::Unprint, Table::<u32>::block_of(index));
                if self.running.is_empty() {
                    self.running.began = self.course.now();
                }
                self.running.unprinted.push(index);
            }
        }
        self.give_up_from = from;
    }
}
