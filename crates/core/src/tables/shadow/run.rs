//! Carries out commits of shadowed tables.

use super::super::Tables;
use super::super::pending::Pending;
use super::{ENTRIES, in_slot, other, slot_of};
use crate::addr::{BLOCK_BYTES, Generation, Nanos, Pba};
use crate::format::root::{self};
use crate::format::table::{Kind, encode_directory, shadow_root, sum_of_sectors};
use crate::limits;
use crate::mirrors::Ended;

impl Tables {
    /// Where to write a table block.
    pub(in crate::tables) fn table_place(&self, kind: Kind, block: u32) -> Pba {
        let number = self.superblock.table_number(kind, block);
        self.superblock.table_at(number, self.table_slot(number))
    }

    fn table_slot(&self, number: u64) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.slots[number as usize]),
            None => 0,
        }
    }

    pub(in crate::tables) fn map_twin_place(&self, block: u32) -> Pba {
        let number = self.superblock.table_number(Kind::Map, block);
        let twin = self.superblock.map_twin(number, self.table_slot(number));
        twin.unwrap_or_else(|| unreachable!("block {block} of the map has no twin to be written"))
    }

    pub(in crate::tables) fn directory_place(&self, block: u32) -> Pba {
        self.superblock
            .directory_at(block.into(), self.directory_slot(block))
    }

    fn directory_slot(&self, block: u32) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.directory[block as usize]),
            None => 0,
        }
    }

    pub(in crate::tables) fn directory_twin_place(&self, block: u32) -> Pba {
        let twin = self
            .superblock
            .directory_twin(block.into(), self.directory_slot(block));
        twin.unwrap_or_else(|| unreachable!("directory block {block} has no twin to be written"))
    }

    pub(in crate::tables) fn root_place(&self) -> Pba {
        let generation = self.shadow.as_ref().map_or(0, |shadow| shadow.generation.0);
        self.superblock.shadow_root_at(Generation(generation))
    }

    /// Notes the checksum of a table block whose bytes are about to be written.
    pub(in crate::tables) fn note_table(&mut self, kind: Kind, block: u32, bytes: &[u8]) {
        let number = self.superblock.table_number(kind, block) as usize;
        let sum = sum_of_sectors(bytes, self.superblock.crc());
        if let Some(shadow) = &mut self.shadow {
            shadow.slots[number] = in_slot(slot_of(shadow.slots[number]), sum);
        }
    }

    pub(in crate::tables) fn encode_directory(&mut self, block: u32, out: &mut [u8]) {
        let crc = self.superblock.crc();
        if let Some(shadow) = &mut self.shadow {
            let from = block as usize * ENTRIES;
            let to = (from + ENTRIES).min(shadow.slots.len());
            encode_directory(&shadow.slots[from..to], out);
            let slot = &mut shadow.directory[block as usize];
            *slot = in_slot(slot_of(*slot), crc(out));
        }
    }

    /// Encodes as many copies of the root as there is room for.
    pub(in crate::tables) fn encode_root(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &self.shadow {
            let header = shadow_root(&self.superblock, shadow.generation);
            let copy = self.superblock.shadow_root_blocks() as usize * BLOCK_BYTES;
            for out in out.chunks_exact_mut(copy) {
                root::encode(&header, &shadow.directory, self.superblock.crc(), out);
            }
        }
    }

    /// When all table blocks are written, writes the directory blocks that name them.
    pub(in crate::tables) fn write_changed_directory(&mut self) -> bool {
        let Some(shadow) = &mut self.shadow else {
            return false;
        };
        let changed = core::mem::take(&mut shadow.changed);
        for &block in &changed {
            let slot = &mut shadow.directory[block as usize];
            *slot = in_slot(other(*slot), 0);
        }
        let any = !changed.is_empty();
        let has_twins = self.superblock.has_twins();
        self.stats.medium_directory += changed.len() as u64 * (1 + u64::from(has_twins));
        self.queue_writes(changed.into_iter().flat_map(|block| {
            let twin = has_twins.then_some(Pending::DirectoryTwin(block));
            core::iter::once(Pending::Directory(block)).chain(twin)
        }));
        any
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

    pub(in crate::tables) fn encode_mirror(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &mut self.shadow {
            shadow.unmarked_since = None;
            self.superblock.set_root(shadow.durable);
        }
        self.superblock.encode(out);
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
