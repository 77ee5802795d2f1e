//! The rows of kept blocks: each says which block of which snapshot or clone a kept block is.

use super::sorted::Sorted;
use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::history::{BLOCK_ROWS, History, Number, Row, RowForm};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

/// A block of rows, and how many of them are used.
#[derive(Debug)]
struct Block {
    raw: Box<[u64; BLOCK_ROWS]>,
    used: u16,
}

/// A place for a row. Rows of all snapshots and clones share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(pub(super) u32);

/// Rows of a block that do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Rows of no snapshot or clone in the list. A crash may leave them.
    pub of_nobody: u64,
    /// Rows for a block that clients do not see, or that another row is for.
    pub wrong: u64,
    /// The first of these.
    pub first: Option<Row>,
}

/// The kind of a row's owner.
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
    /// How many blocks of rows there can be.
    most: u32,
    /// How a row is encoded. Encoded rows are in the order of the rows.
    form: RowForm,
    /// The rows by slot, up to the last block written. A row is here from the moment its slot is taken.
    blocks: Vec<Option<Block>>,
    /// The slots of rows that count, ordered by row.
    slots: Sorted,
    /// The same for clones, one after the other. A clone's blocks are used by no other snapshot.
    clones: Sorted,
    /// Blocks with a free slot. Slots are taken there first, the lowest first, so that few blocks of rows change.
    open: BTreeSet<u32>,
    taken: u64,
    /// Blocks of rows whose contents on the medium have rows that do not count, or may differ from memory.
    stale: BTreeSet<u64>,
}

/// The raw row in a slot; 0 if the slot is not used.
fn row_in(blocks: &[Option<Block>], slot: u32) -> u64 {
    let block = blocks.get(slot as usize / BLOCK_ROWS);
    let block = block.and_then(Option::as_ref);
    block.map_or(0, |block| block.raw[slot as usize % BLOCK_ROWS])
}

impl Rows {
    pub fn new(history: History) -> Self {
        Self {
            logical: history.first().0,
            kept: history.kept(),
            most: history.row_blocks() as u32,
            form: history.row_form(),
            blocks: Vec::new(),
            slots: Sorted::default(),
            clones: Sorted::default(),
            open: BTreeSet::new(),
            taken: 0,
            stale: BTreeSet::new(),
        }
    }

    /// How many slots are taken.
    pub fn len(&self) -> u64 {
        self.taken
    }

    pub fn has(&self, row: Row) -> bool {
        let key_of = |slot| row_in(&self.blocks, slot);
        self.slots.get(self.form.raw(row), key_of).is_some()
    }

    /// All rows of snapshots from this one on, in order.
    pub fn from(&self, row: Row) -> impl Iterator<Item = (Row, u32)> {
        let slots = self
            .slots
            .from(self.form.raw(row), |slot| row_in(&self.blocks, slot));
        slots.filter_map(|slot| Some((self.form.row(row_in(&self.blocks, slot))?, slot)))
    }

    /// All rows of snapshots for blocks from this one on.
    pub fn behind(&self, end: Lba) -> impl Iterator<Item = (Row, u32)> {
        self.from(Row {
            lba: end,
            number: Number(0),
        })
    }

    /// The slot of the block's oldest row that is not older than this one.
    pub fn at(&self, row: Row) -> Option<u32> {
        let (found, slot) = self.from(row).next()?;
        (found.lba == row.lba).then_some(slot)
    }

    pub fn stale(&self) -> impl Iterator<Item = u64> {
        self.stale.iter().copied()
    }

    /// Notes that it is not known what these blocks hold on the medium.
    pub fn owe(&mut self, blocks: &[u64]) {
        self.stale.extend(blocks);
    }

    pub fn cleaned(&mut self) {
        self.stale.clear();
    }

    /// All rows of a snapshot or clone that count, from a slot on, by slot. This reads the blocks of rows one after the other: a
    /// thousand snapshots may have a row each of the same block, so in the order of blocks it would visit all of them far apart.
    pub fn of(&self, number: Number, from: Slot) -> impl Iterator<Item = (Row, u32)> {
        let of_it = self
            .by_slot(from)
            .filter(move |(row, _)| row.number == number);
        of_it.filter(|&(row, slot)| self.counts(row, slot))
    }

    /// All rows that count, from a slot on, by slot.
    pub fn all(&self, from: Slot) -> impl Iterator<Item = (Row, u32)> {
        self.by_slot(from)
            .filter(|&(row, slot)| self.counts(row, slot))
    }

    /// All rows from a slot on, by slot.
    fn by_slot(&self, from: Slot) -> impl Iterator<Item = (Row, u32)> {
        let first = from.0 as usize / BLOCK_ROWS;
        let blocks = self.blocks.get(first..).unwrap_or_default();
        let blocks = blocks.iter().zip(first as u32..);
        let slots = blocks.flat_map(|(block, number)| {
            let raw = block.iter().flat_map(|block| block.raw.iter());
            raw.zip(number * BLOCK_ROWS as u32..)
        });
        let slots = slots.filter(move |(_, slot)| *slot >= from.0);
        slots.filter_map(|(&raw, slot)| Some((self.form.row(raw)?, slot)))
    }

    /// True if a row was inserted, and not only given this slot.
    fn counts(&self, row: Row, slot: u32) -> bool {
        let key_of = |slot| row_in(&self.blocks, slot);
        self.slots.get(self.form.raw(row), key_of) == Some(slot) || self.at_clone(row) == Some(slot)
    }

    pub fn next_changed(
        &self,
        range: Range<Lba>,
        since: Number,
        until: Option<Number>,
    ) -> Option<Lba> {
        let first = Row {
            lba: range.start,
            number: since,
        };
        let is_between =
            |row: &Row| row.number >= since && until.is_none_or(|until| row.number < until);
        // The newest snapshot may have no row here, while millions of rows of older ones follow.
        let rows = self.from(first).map(|(row, _)| row);
        let mut rows = rows.take_while(|row| row.lba < range.end);
        rows.find(is_between).map(|row| row.lba)
    }

    fn slots_of(&self, block: u32) -> usize {
        let before = u64::from(block) * BLOCK_ROWS as u64;
        (self.kept - before).min(BLOCK_ROWS as u64) as usize
    }

    /// Makes room in memory for blocks up to this one. A slot that is not used, or was never loaded, is free.
    fn make(&mut self, number: u32) {
        for number in self.blocks.len() as u32..=number {
            self.blocks.push(None);
            self.open.insert(number);
        }
    }

    /// Takes a free slot, and gives it this row, which does not count before it is inserted.
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
        block.raw[index] = self.form.raw(row);
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

    /// Runs of slots that are not taken.
    pub fn free(&self) -> impl Iterator<Item = (u32, u64)> {
        let first_of = |number: u32| u64::from(number) * BLOCK_ROWS as u64;
        let within = self.open.iter().flat_map(move |&number| {
            let room = self.slots_of(number);
            let is_free = move |index: usize| {
                row_in(&self.blocks, first_of(number) as u32 + index as u32) == 0
            };
            let mut at = 0;
            core::iter::from_fn(move || {
                let first = (at..room).find(|&index| is_free(index))?;
                at = (first..room).find(|&index| !is_free(index)).unwrap_or(room);
                Some((first_of(number) as u32 + first as u32, (at - first) as u64))
            })
        });
        let never_used = first_of(self.blocks.len() as u32);
        let rest = self.kept.checked_sub(never_used).filter(|&slots| slots > 0);
        within.chain(rest.map(|slots| (never_used as u32, slots)))
    }

    /// Makes the row of a taken slot count.
    pub fn insert(&mut self, slot: u32) {
        let is_new = self.slots.insert(slot, |slot| row_in(&self.blocks, slot));
        debug_assert!(is_new, "a block is kept once for a snapshot");
    }

    pub fn rename(&mut self, row: Row, to: Row, slot: u32) {
        self.forget(row);
        if let Some(Some(block)) = self.blocks.get_mut(slot as usize / BLOCK_ROWS) {
            block.raw[slot as usize % BLOCK_ROWS] = self.form.raw(to);
        }
        self.insert(slot);
    }

    pub fn remove(&mut self, row: Row, slot: u32) {
        self.forget(row);
        self.give_back(slot);
    }

    fn forget(&mut self, row: Row) {
        self.slots
            .remove(self.form.raw(row), |slot| row_in(&self.blocks, slot));
    }

    /// Loads a block of rows. Rows are ignored if `owner` knows no owner of them, if they name no block that clients see, or if
    /// they are there already.
    pub fn load(
        &mut self,
        number: u64,
        bytes: &[u8; BLOCK_BYTES],
        owner: impl Fn(Row) -> Option<Owner>,
    ) -> Ignored {
        let room = self.slots_of(number as u32);
        self.make(number as u32);
        // A row has to be in its block before it is inserted, because the order reads its key there.
        self.blocks[number as usize] = Some(Block {
            raw: Box::new([0; BLOCK_ROWS]),
            used: 0,
        });
        let (mut used, mut ignored) = (0, Ignored::default());
        let (rows, _) = bytes.as_chunks::<8>();
        for (index, bytes) in rows.iter().enumerate().take(room) {
            let Some(row) = self.form.row(u64::from_le_bytes(*bytes)) else {
                continue;
            };
            let slot = (number as usize * BLOCK_ROWS + index) as u32;
            let Some(owner) = owner(row) else {
                self.stale.insert(number);
                ignored.of_nobody += 1;
                continue;
            };
            let is_new = match owner {
                Owner::Snapshot => !self.has(row),
                Owner::Clone => self.at_clone(row).is_none(),
            };
            if !is_new || row.lba.0 >= self.logical {
                self.stale.insert(number);
                ignored.wrong += 1;
                ignored.first = ignored.first.or(Some(row));
                continue;
            }
            used += 1;
            if let Some(Some(block)) = self.blocks.get_mut(number as usize) {
                (block.raw[index], block.used) = (self.form.raw(row), used);
            }
            match owner {
                Owner::Clone => self.insert_clone(slot),
                Owner::Snapshot => self.insert(slot),
            }
        }
        self.taken += u64::from(used);
        if usize::from(used) == room {
            self.open.remove(&(number as u32));
        }
        ignored
    }

    /// Where a clone has a block, if it has one of its own.
    pub fn at_clone(&self, row: Row) -> Option<u32> {
        let key_of = |slot| self.form.turned(row_in(&self.blocks, slot));
        self.clones
            .get(self.form.turned(self.form.raw(row)), key_of)
    }

    /// The blocks that a clone has of its own, from block `from` on.
    pub fn of_clone(&self, number: Number, from: Lba) -> impl Iterator<Item = (Row, u32)> {
        let first = Row { lba: from, number };
        let key_of = |slot| self.form.turned(row_in(&self.blocks, slot));
        let slots = self
            .clones
            .from(self.form.turned(self.form.raw(first)), key_of);
        let rows =
            slots.filter_map(|slot| Some((self.form.row(row_in(&self.blocks, slot))?, slot)));
        rows.take_while(move |(row, _)| row.number == number)
    }

    /// How many blocks all clones have of their own.
    pub fn of_clones(&self) -> u64 {
        self.clones.len()
    }

    /// Like [`insert`](Self::insert), for a clone.
    pub fn insert_clone(&mut self, slot: u32) {
        let key_of = |slot| self.form.turned(row_in(&self.blocks, slot));
        let is_new = self.clones.insert(slot, key_of);
        debug_assert!(is_new, "a clone has a block once");
    }

    pub fn remove_clone(&mut self, row: Row, slot: u32) {
        let key_of = |slot| self.form.turned(row_in(&self.blocks, slot));
        self.clones
            .remove(self.form.turned(self.form.raw(row)), key_of);
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
