//! Carries out commits, stage by stage.

use super::super::Tables;
use super::super::map::Map;
use super::super::order::{Stage, Step};
use super::super::pending::Pending;
use super::super::table::Table;
use super::{At, Commit};
use crate::addr::{Buf, Nanos, Pba};
use crate::format::table::Kind;
use crate::limits;
use crate::seam::Effect;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Tables {
    /// When what was held back is due.
    pub(in crate::tables) fn later_due(&self) -> Option<Nanos> {
        let hold = self.front.course.is_running();
        let hold = hold.then_some(self.options.later_nanos);
        self.backlog.due(self.front.course.now(), hold)
    }

    /// When the running group is due.
    pub(in crate::tables) fn group_due(&self) -> Option<Nanos> {
        let course = &self.front.course;
        let runs = course.is_running();
        self.groups.due(course.now(), runs, &self.options)
    }

    /// Notes that a request waits for the running group.
    pub(in crate::tables) fn want_group(&mut self, flush: bool) {
        let anticipation = self.options.anticipation_nanos;
        let is_held = self
            .groups
            .want(flush, self.front.course.now(), anticipation);
        self.stats.anticipated_commits += u64::from(is_held);
    }

    /// Begins a commit that is due, or takes the next step of one.
    pub(in crate::tables) fn advance_commit(&mut self) {
        loop {
            let Some(commit) = self.groups.commit() else {
                let due = |at: Option<Nanos>| at.is_some_and(|at| at <= self.front.course.now());
                let is_due = due(self.group_due()) || due(self.later_due());
                if !is_due || self.front.outbox.holds_writes() {
                    return;
                }
                self.begin_commit();
                continue;
            };
            if !commit.is_over() {
                return;
            }
            match commit.at() {
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
        let mut blocks = self.groups.begin_commit();
        self.stats.commits += 1;
        let committing = self.groups.running().number() - 1;
        self.write_queued(committing);
        self.take_anew(self.shadow.is_some(), &mut blocks);
        self.take_later(&mut blocks);
        if self.shadow.is_some() {
            // The root decides what counts, so everything is written together.
            self.apply_links(&mut blocks);
            self.apply_prints();
            self.take_later(&mut blocks);
        }
        self.write_tables(blocks);
    }

    /// If recovery found a root, or blocks of the map in place, in one copy only, writes the second copy. This is a separate commit
    /// before all others. If the single copy were lost, the previous version would count. So until there are two copies, nothing that the
    /// previous version needs is overwritten: no data is written, nothing is discarded, and the superblock records nothing new.
    ///
    /// The same commit makes copies in `void` unreadable: the rest of a root whose write the power cut off. The next root has the same
    /// number and place. If the power failed during that write as well, the blocks that arrived could complete the older root. That root
    /// names blocks that are overwritten by then.
    pub(in crate::tables) fn double(&mut self, root: Option<Pba>, void: Vec<Pba>) {
        if self.shadow.is_none() && self.backlog.has_anew() {
            self.groups.begin(Commit::of_found(At::Links));
            let blocks = self.backlog.take_all_anew();
            return self.write_tables(blocks);
        }
        if root.is_none() && void.is_empty() {
            return;
        }
        self.groups.begin(Commit::of_found(At::Root));
        self.stats.medium_map += root.map_or(0, |_| self.superblock.shadow_root_blocks());
        self.stats.medium_map += void.len() as u64;
        let void = void.into_iter().map(Pending::VoidRoot);
        self.queue_writes(root.map(Pending::RootCopy).into_iter().chain(void));
        // These writes are durable by themselves.
        self.groups.on_sync();
    }

    /// Takes the blocks that were held back, if they are due or are written anyway.
    fn take_later(&mut self, blocks: &mut BTreeSet<(Kind, u32)>) {
        let all = self.shadow.is_some() || !self.front.course.is_running();
        let (now, hold) = (self.front.course.now(), self.options.later_nanos);
        let is_due = |since: Nanos| all || since.0 + hold <= now.0;
        self.backlog.take_due(blocks, is_due);
    }

    /// Takes the blocks that have to be written anew. Where stages matter, blocks of the map are taken only in the stage of the links.
    fn take_anew(&mut self, links: bool, blocks: &mut BTreeSet<(Kind, u32)>) {
        let any = self.shadow.is_some();
        self.backlog
            .take_anew(blocks, |kind| any || (kind == Kind::Map) == links);
    }

    /// True if these blocks belong to the commit's current stage; under a root there is only one.
    fn are_in_order(&self, blocks: &BTreeSet<(Kind, u32)>) -> bool {
        let stage = match self.groups.commit().map(Commit::at) {
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
            self.map.begin_block(*block);
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

    /// Queues table blocks that are to be written in this step of the commit, a few at a time.
    pub(in crate::tables) fn queue_writes(&mut self, writes: impl Iterator<Item = Pending>) {
        if let Some(commit) = self.groups.commit_mut() {
            commit.queue(writes);
        }
        for _ in 0..limits::TABLES_IN_FLIGHT {
            self.write_next();
        }
    }

    fn write_next(&mut self) {
        let next = self.groups.commit_mut().and_then(Commit::next_write);
        if let Some(pending) = next {
            self.start_write(pending);
        }
    }

    pub(in crate::tables) fn step_ended(&mut self) {
        if let Some(commit) = self.groups.commit_mut() {
            commit.end_write();
        }
        self.write_next();
    }

    /// Writes all data that nothing durable leads to yet, in runs. The commit of the data's own group waits for it. A commit does not
    /// wait for later data, because then it would not end while clients write.
    pub(in crate::tables) fn write_queued(&mut self, group: u64) {
        while let Some((first, run)) = self.buffers.begin_run(limits::CHUNK_DATA_BLOCKS) {
            self.write_data(first, run, group);
        }
    }

    fn write_data(&mut self, first: u32, bufs: Vec<Buf>, group: u64) {
        for index in first..first + bufs.len() as u32 {
            self.blocks.pin(index);
        }
        self.stats.medium_data += bufs.len() as u64;
        self.groups.begin_data(group);
        self.start_write(Pending::Data { first, bufs, group });
    }

    pub(in crate::tables) fn data_written(&mut self, first: u32, bufs: &[Buf], group: u64) {
        for (index, buf) in (first..).zip(bufs) {
            self.buffers.on_written(index);
            self.release(*buf);
            self.unpin(index);
        }
        self.groups.end_data(group);
    }

    /// All blocks that the links will lead to are written. If there are links, these blocks must be made durable first.
    fn end_ground(&mut self) {
        let Some(commit) = self.groups.commit() else {
            return;
        };
        let has_news = !commit.group().is_empty() || self.backlog.has_anew();
        let nobody = !has_news && self.groups.waiters().is_empty();
        if nobody && self.front.course.is_running() {
            return self.finish_commit();
        }
        self.sync_then(At::GroundSync);
    }

    fn sync_then(&mut self, at: At) {
        if let Some(commit) = self.groups.commit_mut() {
            commit.go_to(at);
        }
        self.groups.on_sync();
        self.stats.syncs += 1;
        let id = self.front.begin(Pending::Sync);
        self.front.tell(Effect::Sync { id });
    }

    pub(in crate::tables) fn synced(&mut self) {
        match self.groups.commit().map(Commit::at) {
            Some(At::GroundSync) => self.write_links(),
            Some(At::DirectorySync) => self.write_root(),
            _ => self.finish_commit(),
        }
    }

    fn write_directory(&mut self) {
        let writes = self.take_changed_directory();
        if writes.is_empty() {
            return self.finish_commit();
        }
        self.queue_writes(writes.into_iter());
        if let Some(commit) = self.groups.commit_mut() {
            commit.go_to(At::Directory);
        }
    }

    fn write_root(&mut self) {
        if let Some(commit) = self.groups.commit_mut() {
            commit.go_to(At::Root);
        }
        self.start_root();
        // The root's write is durable by itself.
        self.groups.on_sync();
    }

    fn write_links(&mut self) {
        let mut blocks = BTreeSet::new();
        self.apply_links(&mut blocks);
        self.apply_prints();
        self.take_anew(true, &mut blocks);
        if blocks.is_empty() {
            return self.finish_commit();
        }
        if let Some(commit) = self.groups.commit_mut() {
            commit.go_to(At::Links);
        }
        self.write_tables(blocks);
    }

    /// Applies the group's links to the image of the map, and adds the blocks that have changed to `blocks`.
    fn apply_links(&mut self, blocks: &mut BTreeSet<(Kind, u32)>) {
        let Some(commit) = self.groups.commit_mut() else {
            return;
        };
        let map = &mut self.map;
        commit.apply_links(|key, link| {
            let before = map.replace(key, link);
            if before != link {
                blocks.insert((Kind::Map, Map::block_of(key)));
            }
            before
        });
    }

    fn apply_prints(&mut self) {
        let Some(commit) = self.groups.commit_mut() else {
            return;
        };
        for (index, sum) in commit.take_prints() {
            self.prints.set(index, sum);
            self.mark(Step::Print, Table::<u32>::block_of(index));
        }
    }

    /// Ends a commit, when everything in the group is durable: what it has replaced may be freed.
    pub(in crate::tables) fn finish_commit(&mut self) {
        let Some(commit) = self.groups.end_commit() else {
            return;
        };
        let durable = commit.group().number();
        for block in self.map.on_durable() {
            self.mark_later(Kind::Editions, block);
        }
        for index in commit.into_lost() {
            self.lower(index);
        }
        let answered = core::iter::from_fn(|| self.groups.waiters_mut().pop_by(durable));
        self.stats.flushes_merged += self.front.outbox.reply_durable(answered);
    }

    /// When free blocks are short, gives up contents that no LBA has any more, their fingerprints first.
    pub(in crate::tables) fn give_up_prints(&mut self) {
        let most = self.groups.running_mut().begin_to_give_up();
        let end = self.superblock.areas().data_blocks() as u32;
        let blocks = &self.blocks;
        let is_unused = |index| blocks.is_unused(index);
        for index in self.prints.give_up(most, end, is_unused) {
            self.mark(Step::Unprint, Table::<u32>::block_of(index));
            let running = self.groups.running_mut();
            running.give_up(index, self.front.course.now());
        }
    }
}
