//! Carries out commits of shadowed tables.

use super::super::Tables;
use super::super::pending::Pending;
use crate::addr::Nanos;
use crate::format::root::LeafSlot;
use crate::limits;
use crate::mirrors::Ended;
use alloc::vec::Vec;

impl Tables {
    /// When all table blocks are written: the writes of the directory blocks that name them.
    pub(in crate::tables) fn take_changed_directory(&mut self) -> Vec<Pending> {
        let Some(shadow) = &mut self.shadow else {
            return Vec::new();
        };
        let changed = core::mem::take(&mut shadow.changed);
        for &block in &changed {
            let slot = &mut shadow.directory[block as usize];
            *slot = LeafSlot::at(slot.other(), 0);
        }
        let has_twins = self.superblock.has_twins();
        self.stats.medium_directory += changed.len() as u64 * (1 + u64::from(has_twins));
        let writes = changed.into_iter().flat_map(|block| {
            let twin = has_twins.then_some(Pending::DirectoryTwin(block));
            core::iter::once(Pending::Directory(block)).chain(twin)
        });
        writes.collect()
    }

    /// When the directory is durable, writes the root, which makes it count.
    pub(in crate::tables) fn start_root(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.generation.0 += 1;
        }
        self.stats.medium_map += 2 * self.superblock.shadow_root_blocks();
        self.stats.map_checkpoints += 1;
        if let Some(commit) = self.groups.commit_mut() {
            commit.begin_write();
        }
        self.start_write(Pending::Root);
    }

    /// Notes that the root is durable.
    pub(in crate::tables) fn root_written(&mut self) {
        let now = self.front.course.now();
        if let Some(shadow) = &mut self.shadow {
            shadow.durable = shadow.generation;
            shadow.unmarked_since.get_or_insert(now);
        }
    }

    /// When the superblock has to record the durable root. Until it has, recovery would take a decayed root for a torn one, and the
    /// previous root for the newest. So it is recorded soon. But it need not be recorded after each of many commits: only the second
    /// commit after a root overwrites blocks that the previous root needs.
    pub(in crate::tables) fn mark_due(&self) -> Option<Nanos> {
        let shadow = self.shadow.as_ref().filter(|shadow| !shadow.marking)?;
        let since = shadow.unmarked_since?;
        Some(match self.front.course.is_running() {
            true => Nanos(since.0 + limits::MARK_AFTER_NANOS),
            false => self.front.course.now(),
        })
    }

    pub(in crate::tables) fn mark_root(&mut self) {
        let is_due = self
            .mark_due()
            .is_some_and(|due| due <= self.front.course.now());
        if !is_due || self.front.course.is_poisoned() || self.front.outbox.holds_writes() {
            return;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.marking = true;
        }
        self.superblock.mark();
    }

    /// Begins the next write of the superblock.
    pub(in crate::tables) fn write_mirrors(&mut self) {
        if self.front.course.is_poisoned() || self.groups.are_doubling() {
            return;
        }
        if let Some(at) = self.superblock.begin_write() {
            self.stats.medium_map += 1;
            // It is durable by itself, so no commit has to take care of it.
            let id = self.front.begin(Pending::Mirror(at));
            let effect = self.write_effect(id);
            self.front.tell(effect);
        }
    }

    pub(in crate::tables) fn mirror_written(&mut self) {
        match self.superblock.on_written() {
            Ended::Mark => self.marked(),
            Ended::Properties(Some(id)) => self.front.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    fn marked(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.marking = false;
        }
    }
}
