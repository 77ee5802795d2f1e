//! Leaves of the map that are not in memory: where they are read when they are needed, and which of those in memory may go.
//!
//! The core pulls them, as recovery pulls what it reads ([0002](../../../../docs/decisions/0002-the-core-pulls-recovery.md)): whoever asks
//! for an entry gets it, wherever it was, and nothing that goes by the map has to know ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//! A leaf that is damaged is told by its stripe. If that does not tell either, the map cannot be gone by any more: that
//! is noted, and the engine is poisoned before anything comes of what was asked.

use super::map::decode;
use crate::addr::{BLOCK_BYTES, Leaf, Pba};
use crate::entry::LEAF_ENTRIES;
use crate::format::Crc;
use crate::format::leaf::{self, Leaves};
use crate::format::root::LeafSlot;
use crate::format::superblock::Superblock;
use alloc::{boxed::Box, collections::VecDeque, vec, vec::Vec};
use core::cell::{Cell, RefCell};

/// Where a runtime reads leaves from: the medium as it is now, with all writes that it said are complete.
pub trait Nodes: Send {
    /// Reads a block; `false`: it cannot be read.
    fn read(&mut self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool;
}

/// How a volume's map is kept within bounds.
pub struct Paging {
    /// Where leaves are read.
    pub nodes: Box<dyn Nodes>,
    /// So many leaves stay in memory, a block each; besides, those that have changed since a map checkpoint wrote them.
    pub leaves: usize,
}

/// See the module.
pub(super) struct Shelf {
    nodes: RefCell<Box<dyn Nodes>>,
    superblock: Superblock,
    crc: Crc,
    /// What the newest root says of each leaf, parities among them.
    slots: Vec<LeafSlot>,
    most: usize,
    here: Cell<usize>,
    /// Those that came, in turn: whoever was looked at since goes behind the others. One may have gone another way.
    turns: RefCell<VecDeque<u32>>,
    /// Of each leaf whether it has a turn, and whether it was looked at since the last.
    marks: Vec<Cell<Marks>>,
    fetched: Cell<u64>,
    lost: Cell<Option<Leaf>>,
}

impl Shelf {
    pub fn new(paging: Paging, superblock: &Superblock, slots: &[LeafSlot], crc: Crc) -> Self {
        Self {
            nodes: RefCell::new(paging.nodes),
            superblock: superblock.clone(),
            crc,
            slots: slots.to_vec(),
            most: paging.leaves,
            here: Cell::new(0),
            turns: RefCell::default(),
            marks: vec![Cell::default(); superblock.map_leaves() as usize],
            fetched: Cell::new(0),
            lost: Cell::new(None),
        }
    }

    /// A leaf, to stay in memory.
    pub fn fetch(&self, leaf: Leaf) -> Option<Box<[u32; LEAF_ENTRIES]>> {
        let page = self.read(leaf)?;
        self.came(leaf.0 as usize);
        Some(page)
    }

    /// A leaf. `None`: what is on the medium does not tell it, or not as it was.
    pub fn read(&self, leaf: Leaf) -> Option<Box<[u32; LEAF_ENTRIES]>> {
        let leaves = Leaves {
            superblock: &self.superblock,
            slots: &self.slots,
            crc: self.crc,
        };
        let mut nodes = self.nodes.borrow_mut();
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| nodes.read(at, block);
        let block = match leaves.read(leaf, &mut read) {
            Ok(found) => found.map(|(_, block)| block),
            Err(_) => leaves.rebuild(leaf, &mut read),
        };
        self.fetched.set(self.fetched.get() + 1);
        if block.is_none() {
            self.lost.set(Some(leaf));
        }
        block.map(|block| decode(&block))
    }

    /// Whether the newest root leads to this leaf just as it is here.
    pub fn has(&self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) -> bool {
        match self.slots[leaf.0 as usize] {
            LeafSlot::Absent => false,
            LeafSlot::Slot0(sum) | LeafSlot::Slot1(sum) => {
                leaf::checksum(leaf, block, self.crc) == sum
            }
        }
    }

    /// The next root leads to a leaf there.
    pub fn place(&mut self, leaf: Leaf, slot: LeafSlot) {
        self.slots[leaf.0 as usize] = slot;
    }

    /// A leaf is in memory that was not.
    pub fn came(&self, leaf: usize) {
        self.here.set(self.here.get() + 1);
        let marks = self.marks[leaf].get();
        if !marks.has_turn {
            self.turns.borrow_mut().push_back(leaf as u32);
        }
        self.marks[leaf].set(Marks {
            has_turn: true,
            is_touched: true,
        });
    }

    /// One fewer is.
    pub fn went(&self) {
        self.here.set(self.here.get() - 1);
    }

    /// How many leaves are in memory, and how many there may be.
    pub fn here(&self) -> (usize, usize) {
        (self.here.get(), self.most)
    }

    /// How many leaves have been read.
    pub fn fetched(&self) -> u64 {
        self.fetched.get()
    }

    /// A leaf that could not be read, if there was one.
    pub fn lost(&self) -> Option<Leaf> {
        self.lost.get()
    }

    /// A leaf is looked at.
    pub fn touch(&self, leaf: usize) {
        let marks = self.marks[leaf].get();
        if !marks.is_touched {
            self.marks[leaf].set(Marks {
                is_touched: true,
                ..marks
            });
        }
    }

    /// The leaf whose turn it is to go, if there are more than there may be. It has no turn after this one.
    pub fn next(&mut self) -> Option<usize> {
        if self.here.get() <= self.most {
            return None;
        }
        let leaf = self.turns.get_mut().pop_front()? as usize;
        self.marks[leaf].get_mut().has_turn = false;
        Some(leaf)
    }

    /// Whether a leaf was looked at since its last turn.
    pub fn was_touched(&mut self, leaf: usize) -> bool {
        core::mem::take(&mut self.marks[leaf].get_mut().is_touched)
    }

    /// A leaf has another turn.
    pub fn stays(&mut self, leaf: usize) {
        self.marks[leaf].get_mut().has_turn = true;
        self.turns.get_mut().push_back(leaf as u32);
    }
}

#[derive(Clone, Copy, Default)]
struct Marks {
    has_turn: bool,
    is_touched: bool,
}
