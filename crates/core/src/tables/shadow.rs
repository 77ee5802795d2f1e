//! Shadowed tables: a changed table block goes to its other slot, the directory that names it as well, and the
//! root says that all of it counts, or none (Dmdedup; OrderMergeDedup §4 measures itself against it).

use super::recover::Recovered;
use super::{Pending, Tables};
use crate::addr::{BLOCK_BYTES, Generation, Nanos, Pba};
use crate::format::areas::Layout;
use crate::format::root::{self, LeafSlot};
use crate::format::table::{Kind, encode_directory, shadow_root, sum_of_sectors};
use crate::limits;
use crate::mirrors::Ended;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Entries of a directory block.
const ENTRIES: usize = crate::format::areas::DIRECTORY_ENTRIES as usize;

/// Which slots count.
pub(super) struct Shadow {
    generation: Generation,
    /// The newest that is durable; and since when the superblock does not say so.
    durable: Generation,
    unmarked_since: Option<Nanos>,
    marking: bool,
    slots: Vec<LeafSlot>,
    directory: Vec<LeafSlot>,
    /// Of the commit that is under way: directory blocks that have changed.
    changed: BTreeSet<u32>,
}

/// The slot that does not count.
fn other(slot: LeafSlot) -> u64 {
    u64::from(matches!(slot, LeafSlot::Slot0(_)))
}

/// A slot and its block's checksum.
fn in_slot(slot: u64, crc: u32) -> LeafSlot {
    match slot {
        0 => LeafSlot::Slot0(crc),
        _ => LeafSlot::Slot1(crc),
    }
}

impl Shadow {
    /// As they were found, if there are any.
    pub fn of(found: &mut Recovered) -> Option<Self> {
        (found.superblock.layout() == Layout::Shadow).then(|| Self {
            generation: found.generation,
            durable: found.generation,
            unmarked_since: (!found.is_rest).then_some(Nanos(0)),
            marking: false,
            slots: core::mem::take(&mut found.slots),
            directory: core::mem::take(&mut found.directory),
            changed: BTreeSet::new(),
        })
    }

    /// The newest that is durable.
    pub fn newest_durable(&self) -> Generation {
        self.durable
    }

    /// A table block goes to its other slot; its checksum is known when its bytes are.
    pub fn touch(&mut self, number: u64) {
        let slot = &mut self.slots[number as usize];
        *slot = in_slot(other(*slot), 0);
        self.changed.insert((number / ENTRIES as u64) as u32);
    }
}

fn slot_of(slot: LeafSlot) -> u64 {
    1 - other(slot)
}

impl Tables {
    /// Where a table block is to be written.
    pub(super) fn table_place(&self, kind: Kind, block: u32) -> Pba {
        let number = self.superblock.table_number(kind, block);
        self.superblock.table_at(number, self.table_slot(number))
    }

    fn table_slot(&self, number: u64) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.slots[number as usize]),
            None => 0,
        }
    }

    pub(super) fn map_twin_place(&self, block: u32) -> Pba {
        let number = self.superblock.table_number(Kind::Map, block);
        let twin = self.superblock.map_twin(number, self.table_slot(number));
        twin.unwrap_or_else(|| unreachable!("block {block} of the map has no twin to be written"))
    }

    pub(super) fn directory_place(&self, block: u32) -> Pba {
        self.superblock
            .directory_at(block.into(), self.directory_slot(block))
    }

    fn directory_slot(&self, block: u32) -> u64 {
        match &self.shadow {
            Some(shadow) => slot_of(shadow.directory[block as usize]),
            None => 0,
        }
    }

    pub(super) fn directory_twin_place(&self, block: u32) -> Pba {
        let twin = self
            .superblock
            .directory_twin(block.into(), self.directory_slot(block));
        twin.unwrap_or_else(|| unreachable!("directory block {block} has no twin to be written"))
    }

    pub(super) fn root_place(&self) -> Pba {
        let generation = self.shadow.as_ref().map_or(0, |shadow| shadow.generation.0);
        self.superblock.shadow_root_at(Generation(generation))
    }

    /// The checksum of a table block whose bytes leave for the medium.
    pub(super) fn note_table(&mut self, kind: Kind, block: u32, bytes: &[u8]) {
        let number = self.superblock.table_number(kind, block) as usize;
        let sum = sum_of_sectors(bytes, self.superblock.crc());
        if let Some(shadow) = &mut self.shadow {
            shadow.slots[number] = in_slot(slot_of(shadow.slots[number]), sum);
        }
    }

    pub(super) fn encode_directory(&mut self, block: u32, out: &mut [u8]) {
        let crc = self.superblock.crc();
        if let Some(shadow) = &mut self.shadow {
            let from = block as usize * ENTRIES;
            let to = (from + ENTRIES).min(shadow.slots.len());
            encode_directory(&shadow.slots[from..to], out);
            let slot = &mut shadow.directory[block as usize];
            *slot = in_slot(slot_of(*slot), crc(out));
        }
    }

    /// As many copies of the root as there is room for.
    pub(super) fn encode_root(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &self.shadow {
            let header = shadow_root(&self.superblock, shadow.generation);
            let copy = self.superblock.shadow_root_blocks() as usize * BLOCK_BYTES;
            for out in out.chunks_exact_mut(copy) {
                root::encode(&header, &shadow.directory, self.superblock.crc(), out);
            }
        }
    }

    /// All table blocks are written: now what names them.
    pub(super) fn write_changed_directory(&mut self) -> bool {
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

    /// The directory is durable: the root makes it count.
    pub(super) fn start_root(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.generation.0 += 1;
        }
        self.stats.medium_map += 2 * self.superblock.shadow_root_blocks();
        self.stats.map_checkpoints += 1;
        self.step_begins();
        self.start_write(Pending::Root);
    }

    /// The root is durable.
    pub(super) fn root_written(&mut self) {
        let now = self.course.now();
        if let Some(shadow) = &mut self.shadow {
            shadow.durable = shadow.generation;
            shadow.unmarked_since.get_or_insert(now);
        }
    }

    /// When the superblock is to say which root was durable once. Until then recovery takes one that has rotted for one that
    /// was torn, and the one before it for the newest; so it is said soon, but not after each of many commits: the second
    /// after a root writes over what the one before it needs.
    pub(super) fn mark_due(&self) -> Option<Nanos> {
        let shadow = self.shadow.as_ref().filter(|shadow| !shadow.marking)?;
        let since = shadow.unmarked_since?;
        Some(match self.course.is_running() {
            true => Nanos(since.0 + limits::MARK_AFTER_NANOS),
            false => self.course.now(),
        })
    }

    pub(super) fn mark_root(&mut self) {
        let is_due = self.mark_due().is_some_and(|due| due <= self.course.now());
        if !is_due || self.course.is_poisoned() || self.outbox.holds_writes() {
            return;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.marking = true;
        }
        self.superblock.mark();
    }

    /// Begins what is to be written of the superblock next.
    pub(super) fn write_mirrors(&mut self) {
        if self.course.is_poisoned() || self.is_doubling() {
            return;
        }
        if let Some(at) = self.superblock.begin_write() {
            self.stats.medium_map += 1;
            // Durable by itself: no commit has to care for it.
            let id = self.outbox.begin(Pending::Mirror(at));
            let effect = self.write_effect(id);
            self.outbox.tell(effect);
        }
    }

    pub(super) fn encode_mirror(&mut self, out: &mut [u8]) {
        if let Some(shadow) = &mut self.shadow {
            shadow.unmarked_since = None;
            self.superblock.set_root(shadow.durable);
        }
        self.superblock.encode(out);
    }

    pub(super) fn mirror_written(&mut self) {
        match self.superblock.on_written() {
            Ended::Mark => self.marked(),
            Ended::Properties(Some(id)) => self.outbox.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    fn marked(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.marking = false;
        }
    }
}

const _: () = assert!(ENTRIES * 8 == BLOCK_BYTES);
