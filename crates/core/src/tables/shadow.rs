//! Shadowed tables: a changed table block goes to its other slot, and so does the directory block that names it. Then the root makes all
//! of the changes count at once (Dmdedup; OrderMergeDedup §4 compares itself with it).

mod bytes;
mod run;

use super::recover::Recovered;
use crate::addr::{BLOCK_BYTES, Generation, Nanos};
use crate::format::areas::Layout;
use crate::format::root::LeafSlot;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Entries of a directory block.
const ENTRIES: usize = crate::format::areas::DIRECTORY_ENTRIES as usize;

/// Which slots count.
pub(super) struct Shadow {
    generation: Generation,
    /// The newest durable root, and since when the superblock does not record it.
    durable: Generation,
    unmarked_since: Option<Nanos>,
    marking: bool,
    slots: Vec<LeafSlot>,
    directory: Vec<LeafSlot>,
    /// Directory blocks that the current commit has changed.
    changed: BTreeSet<u32>,
}

impl Shadow {
    /// The slots as they were found, if tables are shadowed.
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

    /// The newest durable root.
    pub fn newest_durable(&self) -> Generation {
        self.durable
    }

    /// Moves a table block to its other slot; its checksum is set once its bytes are known.
    pub fn touch(&mut self, number: u64) {
        let slot = &mut self.slots[number as usize];
        *slot = LeafSlot::at(slot.other(), 0);
        self.changed.insert((number / ENTRIES as u64) as u32);
    }
}

/// The slot that counts.
fn slot_of(slot: LeafSlot) -> u32 {
    1 - slot.other()
}

const _: () = assert!(ENTRIES * 8 == BLOCK_BYTES);
