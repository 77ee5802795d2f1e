//! Where the leaves of a table are read when they are needed, and which of those in memory may go.
//!
//! The core pulls them, as recovery pulls what it reads ([0002](../../../../docs/decisions/0002-the-core-pulls-recovery.md)): whoever asks
//! for an entry gets it, wherever it was, and nothing that goes by the map has to know ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//! A leaf that is damaged is told by its stripe. If that does not tell either, the map cannot be gone by any more: that
//! is noted, and the engine is poisoned before anything comes of what was asked.

use crate::addr::{BLOCK_BYTES, Leaf, Pba};
use crate::entry::LEAF_ENTRIES;
use crate::format::Crc;
use crate::format::leaf::{self, Leaves};
use crate::format::root::LeafSlot;
use crate::format::superblock::Superblock;
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec, vec::Vec};
use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Leaves that may have changed before a map checkpoint is due for the memory that they take: as many as may stay, or this if it is
/// more (4 MiB), for each is written whole.
const LEAVES_DIRTY_MIN: usize = 1024;

/// The entries of a leaf.
pub(super) type Page = [u32; LEAF_ENTRIES];

/// Where a runtime reads leaves from: the medium as it is now, with all writes that it said are complete.
pub trait Nodes: Send + Sync {
    /// Reads a block; `false`: it cannot be read.
    fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool;
}

/// How what says where blocks are is kept within bounds.
#[derive(Clone)]
pub struct Paging {
    nodes: Arc<dyn Nodes>,
    most: usize,
    most_dirty: usize,
    here: Arc<AtomicUsize>,
}

impl Paging {
    /// So many leaves stay in memory, a block each; besides, as many that have changed since a map checkpoint wrote them, or
    /// 1024 if that is more, and those that it writes.
    #[must_use]
    pub fn new(nodes: Arc<dyn Nodes>, leaves: usize) -> Self {
        Self {
            nodes,
            most: leaves,
            most_dirty: leaves.max(LEAVES_DIRTY_MIN),
            here: Arc::default(),
        }
    }

    /// So many may have changed, and no more.
    #[must_use]
    pub fn with_dirty(self, most_dirty: usize) -> Self {
        Self { most_dirty, ..self }
    }
}

/// See the module.
pub(super) struct Shelf {
    paging: Paging,
    superblock: Superblock,
    crc: Crc,
    /// What the newest root says of each leaf of all tables, parities among them: a stripe has leaves of several.
    slots: Vec<LeafSlot>,
    /// Which of them are this table's.
    own: Range<u32>,
    /// Those that came, in turn: whoever was looked at since goes behind the others. One may have gone another way.
    turns: RefCell<VecDeque<u32>>,
    /// Of each leaf whether it has a turn, and whether it was looked at since the last.
    marks: Vec<Cell<Marks>>,
    /// Memory of leaves that went, for those that come: whichever thread asks, no more is taken than there ever were at once.
    spare: RefCell<Vec<Box<Page>>>,
    fetched: Cell<u64>,
    lost: Cell<Option<Leaf>>,
}

#[derive(Clone, Copy, Default)]
struct Marks {
    has_turn: bool,
    is_touched: bool,
}

impl Shelf {
    pub fn new(
        paging: Paging,
        superblock: &Superblock,
        slots: &[LeafSlot],
        own: Range<u32>,
        crc: Crc,
    ) -> Self {
        Self {
            paging,
            superblock: superblock.clone(),
            crc,
            slots: slots.to_vec(),
            turns: RefCell::default(),
            marks: vec![Cell::default(); own.len()],
            own,
            spare: RefCell::default(),
            fetched: Cell::new(0),
            lost: Cell::new(None),
        }
    }

    /// Among all leaves.
    fn number(&self, leaf: usize) -> Leaf {
        Leaf(self.own.start + leaf as u32)
    }

    /// Whether the newest root leads to a leaf.
    pub fn is_kept(&self, leaf: usize) -> bool {
        self.slots[self.number(leaf).0 as usize] != LeafSlot::Absent
    }

    /// A leaf. `None`: what is on the medium does not tell it.
    pub fn read(&self, leaf: usize) -> Option<Box<Page>> {
        let leaves = Leaves {
            superblock: &self.superblock,
            slots: &self.slots,
            crc: self.crc,
        };
        let leaf = self.number(leaf);
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| self.paging.nodes.read(at, block);
        let block = match leaves.read(leaf, &mut read) {
            Ok(found) => found.map(|(_, block)| block),
            Err(_) => leaves.rebuild(leaf, &mut read),
        };
        self.fetched.set(self.fetched.get() + 1);
        if block.is_none() {
            self.lost.set(Some(leaf));
        }
        let block = block?;
        let mut page = self.memory();
        decode(&block, &mut page);
        Some(page)
    }

    /// Memory for a leaf, with anything in it.
    pub fn memory(&self) -> Box<Page> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::new([0; LEAF_ENTRIES]))
    }

    /// Any leaf of all tables, or a parity, as the newest root leads to it, if it is whole.
    pub fn as_kept(&self, leaf: Leaf) -> Option<[u8; BLOCK_BYTES]> {
        let leaves = Leaves {
            superblock: &self.superblock,
            slots: &self.slots,
            crc: self.crc,
        };
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| self.paging.nodes.read(at, block);
        self.fetched.set(self.fetched.get() + 1);
        leaves.read(leaf, &mut read).ok()?.map(|(_, block)| block)
    }

    /// Whether the newest root leads to a leaf just as it is here.
    pub fn has(&self, leaf: usize, page: &Page) -> bool {
        let leaf = self.number(leaf);
        match self.slots[leaf.0 as usize] {
            LeafSlot::Absent => false,
            LeafSlot::Slot0(sum) | LeafSlot::Slot1(sum) => {
                let mut block = [0; BLOCK_BYTES];
                encode(page, &mut block);
                leaf::checksum(leaf, &block, self.crc) == sum
            }
        }
    }

    /// Where the newest root leads to a leaf.
    pub fn place_of(&self, leaf: Leaf) -> Option<Pba> {
        let slot = match self.slots[leaf.0 as usize] {
            LeafSlot::Absent => return None,
            LeafSlot::Slot0(_) => 0,
            LeafSlot::Slot1(_) => 1,
        };
        Some(self.superblock.leaf_slot(leaf, slot))
    }

    /// A leaf was read for this one, by somebody else.
    pub fn was_read(&self) {
        self.fetched.set(self.fetched.get() + 1);
    }

    /// The next root leads to a leaf there.
    pub fn place(&mut self, leaf: Leaf, slot: LeafSlot) {
        self.slots[leaf.0 as usize] = slot;
    }

    /// A leaf is in memory that was not.
    pub fn came(&self, leaf: usize) {
        self.paging.here.fetch_add(1, Ordering::Relaxed);
        let marks = self.marks[leaf].replace(Marks {
            has_turn: true,
            is_touched: true,
        });
        if !marks.has_turn {
            self.turns.borrow_mut().push_back(leaf as u32);
        }
    }

    /// It is in memory no more, and its memory serves another.
    pub fn took(&self, page: Box<Page>) {
        self.went();
        self.give_back(page);
    }

    /// Memory that serves another leaf.
    pub fn give_back(&self, page: Box<Page>) {
        self.spare.borrow_mut().push(page);
    }

    /// One fewer is.
    pub fn went(&self) {
        self.paging.here.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many leaves of all tables are in memory, and how many there may be.
    pub fn here(&self) -> (usize, usize) {
        (self.paging.here.load(Ordering::Relaxed), self.paging.most)
    }

    /// Whether so many leaves have changed that a map checkpoint is due.
    pub fn is_too_dirty(&self, dirty: u64) -> bool {
        dirty > self.paging.most_dirty as u64
    }

    /// Whether there are so many in memory that nothing more may change before the map checkpoint under way has ended.
    pub fn is_overfull(&self) -> bool {
        let (here, most) = self.here();
        here > most + 2 * self.paging.most_dirty
    }

    /// How many have a turn.
    pub fn turns(&self) -> usize {
        self.turns.borrow().len()
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
        let (here, most) = self.here();
        if here <= most {
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

/// A leaf from its block.
pub(super) fn decode(bytes: &[u8; BLOCK_BYTES], page: &mut Page) {
    for (entry, raw) in page.iter_mut().zip(bytes.chunks_exact(4)) {
        *entry = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
    }
}

/// The block of a leaf.
pub(super) fn encode(page: &Page, out: &mut [u8]) {
    for (bytes, raw) in out.chunks_exact_mut(4).zip(page) {
        bytes.copy_from_slice(&raw.to_le_bytes());
    }
}
