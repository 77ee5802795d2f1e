//! The rows of kept blocks: of each, which block of which snapshot or clone it is.

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::history::{BLOCK_ROWS, History, Number, Row};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A block of rows, and how many of them say something.
#[derive(Debug)]
struct Block {
    raw: Box<[u64; BLOCK_ROWS]>,
    used: u16,
}

/// Whose a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Snapshot,
    Clone,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rows {
    /// Blocks that clients see.
    logical: u64,
    kept: u64,
    /// How many blocks there can be.
    most: u32,
    /// By slot, up to the last that was written to. A row is here from when its slot is taken.
    blocks: Vec<Option<Block>>,
    /// Rows that count: the slot of each.
    slots: BTreeMap<Row, u32>,
    /// The same of clones, one after the other. What a clone has is nobody's else.
    clones: BTreeMap<(Number, Lba), u32>,
    /// Blocks with a free slot: slots are taken there first, the lowest first, so that few blocks of rows change.
    open: BTreeSet<u32>,
    taken: u64,
    /// Blocks that say more than what counts.
    stale: BTreeSet<u64>,
}

impl Rows {
    pub fn new(history: History) -> Self {
        Self {
            logical: history.first().0,
            kept: history.kept(),
            most: history.row_blocks() as u32,
            blocks: Vec::new(),
            slots: BTreeMap::new(),
            clones: BTreeMap::new(),
            open: BTreeSet::new(),
            taken: 0,
            stale: BTreeSet::new(),
        }
    }

    /// Slots that are taken.
    pub fn len(&self) -> u64 {
        self.taken
    }

    pub fn has(&self, row: Row) -> bool {
        self.slots.contains_key(&row)
    }

    /// The slot of the oldest row of that block that is not older.
    pub fn at(&self, row: Row) -> Option<u32> {
        let (found, slot) = self.slots.range(row..).next()?;
        (found.lba == row.lba).then_some(*slot)
    }

    pub fn stale(&self) -> impl Iterator<Item = u64> {
        self.stale.iter().copied()
    }

    pub fn cleaned(&mut self) {
        self.stale.clear();
    }

    /// All rows of a snapshot from block `from` on. They are sorted by block, so this looks at each row there is.
    pub fn of(&self, number: Number, from: Lba) -> impl Iterator<Item = (Row, u32)> {
        let first = Row {
            lba: from,
            number: Number(0),
        };
        let rows = self.slots.range(first..);
        rows.filter(move |(row, _)| row.number == number)
            .map(|(row, slot)| (*row, *slot))
    }

    pub fn next_changed(&self, from: Lba, since: Number, until: Option<Number>) -> Option<Lba> {
        let first = Row {
            lba: from,
            number: since,
        };
        let is_between =
            |row: &&Row| row.number >= since && until.is_none_or(|until| row.number < until);
        let mut rows = self.slots.range(first..).map(|(row, _)| row);
        rows.find(is_between).map(|row| row.lba)
    }

    fn slots_of(&self, block: u32) -> usize {
        let before = u64::from(block) * BLOCK_ROWS as u64;
        (self.kept - before).min(BLOCK_ROWS as u64) as usize
    }

    /// Makes blocks up to this one: what says nothing, or was never loaded, is free.
    fn make(&mut self, number: u32) {
        for number in self.blocks.len() as u32..=number {
            self.blocks.push(None);
            self.open.insert(number);
        }
    }

    /// A free slot, which has this row from now on; it does not count before it is inserted.
    pub fn take(&mut self, row: Row) -> Option<u32> {
        let number = match self.open.first() {
            Some(&number) => number,
            None if (self.blocks.len() as u32) < self.most => {
                let number = self.blocks.len() as u32;
                self.make(number);
                number
            }
            None => return None,
        };
        let room = self.slots_of(number);
        let block = self.blocks[number as usize].get_or_insert_with(|| Block {
            raw: Box::new([0; BLOCK_ROWS]),
            used: 0,
        });
        let Some(index) = block.raw[..room].iter().position(|&raw| raw == 0) else {
            unreachable!("block {number} of rows has a free slot")
        };
        block.raw[index] = row.raw();
        block.used += 1;
        match usize::from(block.used) < room {
            true => self.open.insert(number),
            false => self.open.remove(&number),
        };
        self.taken += 1;
        Some(number * BLOCK_ROWS as u32 + index as u32)
    }

    pub fn give_back(&mut self, slot: u32) {
        let (number, index) = (slot / BLOCK_ROWS as u32, slot as usize % BLOCK_ROWS);
        let Some(Some(block)) = self.blocks.get_mut(number as usize) else {
            unreachable!("slot {slot} was taken")
        };
        debug_assert_ne!(block.raw[index], 0);
        block.raw[index] = 0;
        block.used -= 1;
        self.taken -= 1;
        self.open.insert(number);
    }

    pub fn insert(&mut self, row: Row, slot: u32) {
        let before = self.slots.insert(row, slot);
        debug_assert_eq!(before, None, "a block is kept once for a snapshot");
    }

    pub fn rename(&mut self, row: Row, to: Row, slot: u32) {
        self.slots.remove(&row);
        self.insert(to, slot);
        if let Some(Some(block)) = self.blocks.get_mut(slot as usize / BLOCK_ROWS) {
            block.raw[slot as usize % BLOCK_ROWS] = to.raw();
        }
    }

    pub fn remove(&mut self, row: Row, slot: u32) {
        self.slots.remove(&row);
        self.give_back(slot);
    }

    /// Rows of nobody whom `owner` knows, that name no block which clients see, or that are there already, say nothing.
    pub fn load(
        &mut self,
        number: u64,
        bytes: &[u8; BLOCK_BYTES],
        owner: impl Fn(Row) -> Option<Owner>,
    ) {
        let room = self.slots_of(number as u32);
        let mut raw = Box::new([0; BLOCK_ROWS]);
        let mut used = 0;
        let (rows, _) = bytes.as_chunks::<8>();
        for (index, bytes) in rows.iter().enumerate().take(room) {
            let Some(row) = Row::of_raw(u64::from_le_bytes(*bytes)) else {
                continue;
            };
            let slot = (number as usize * BLOCK_ROWS + index) as u32;
            let owner = owner(row).filter(|_| row.lba.0 < self.logical);
            let is_new = match owner {
                Some(Owner::Snapshot) if !self.has(row) => {
                    self.insert(row, slot);
                    true
                }
                Some(Owner::Clone) if self.at_clone(row).is_none() => {
                    self.insert_clone(row, slot);
                    true
                }
                _ => false,
            };
            if is_new {
                raw[index] = row.raw();
                used += 1;
            } else {
                self.stale.insert(number);
            }
        }
        self.taken += u64::from(used);
        self.make(number as u32);
        self.blocks[number as usize] = Some(Block { raw, used });
        if usize::from(used) == room {
            self.open.remove(&(number as u32));
        }
    }

    /// Where a clone has a block, if it has one of its own.
    pub fn at_clone(&self, row: Row) -> Option<u32> {
        self.clones.get(&(row.number, row.lba)).copied()
    }

    /// The blocks that a clone has of its own, from block `from` on.
    pub fn of_clone(&self, number: Number, from: Lba) -> impl Iterator<Item = (Row, u32)> {
        let all = (number, from)..=(number, Lba(u64::MAX));
        self.clones
            .range(all)
            .map(|(&(number, lba), &slot)| (Row { lba, number }, slot))
    }

    /// Blocks that all clones have of their own.
    pub fn of_clones(&self) -> u64 {
        self.clones.len() as u64
    }

    pub fn insert_clone(&mut self, row: Row, slot: u32) {
        let before = self.clones.insert((row.number, row.lba), slot);
        debug_assert_eq!(before, None, "a clone has a block once");
    }

    pub fn remove_clone(&mut self, row: Row, slot: u32) {
        self.clones.remove(&(row.number, row.lba));
        self.give_back(slot);
    }

    pub fn encode(&self, number: u64, out: &mut [u8]) {
        let (rows, _) = out.as_chunks_mut::<8>();
        match self.blocks.get(number as usize) {
            Some(Some(block)) => {
                for (bytes, raw) in rows.iter_mut().zip(block.raw.iter()) {
                    *bytes = raw.to_le_bytes();
                }
            }
            _ => out.fill(0),
        }
    }
}
