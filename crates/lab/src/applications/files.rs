//! Files that are made, grow, are read and deleted, after two of filebench's personalities (workloads/varmail.f and
//! fileserver.f).
//!
//! Each file has a slot with room to grow. There are half as many files as slots, where filebench has 1,000 and 10,000
//! files, so that a volume is in use whatever its size. The load makes the first files itself, because a new disk has
//! none, and nothing is deleted until they exist.

use super::spread::gamma_of_three_halves;
use super::steps::NextRequests;
use crate::rng::Rng;
use crate::trace::Op;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How a new file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFile {
    /// By an append to an empty file.
    Appended,
    /// As a whole, with sizes of filebench's gamma distribution, shape 1.5.
    Whole {
        /// The mean size.
        mean_bytes: u64,
    },
}

/// What is done in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Personality {
    /// How new files are made.
    pub new: NewFile,
    /// The most bytes of an append: any number up to that (`appendfilerand`).
    pub append_bytes_max: u64,
    /// True if a file is read before an append to it.
    pub read_first: bool,
    /// True if each written file is flushed.
    pub fsync: bool,
}

/// filebench's mail server.
pub const VARMAIL: Personality = Personality {
    new: NewFile::Appended,
    append_bytes_max: 16 << 10,
    read_first: true,
    fsync: true,
};

/// filebench's file server.
pub const FILESERVER: Personality = Personality {
    new: NewFile::Whole {
        mean_bytes: 128 << 10,
    },
    append_bytes_max: 16 << 10,
    read_first: false,
    fsync: false,
};

/// The files on a disk.
pub struct Files {
    personality: Personality,
    slot_blocks: u64,
    /// Bytes in each slot.
    held: Vec<u32>,
    full: Vec<u32>,
    empty: VecDeque<u32>,
}

impl Files {
    pub fn new(personality: Personality, blocks: u64) -> Self {
        let file = match personality.new {
            NewFile::Appended => personality.append_bytes_max,
            NewFile::Whole { mean_bytes } => mean_bytes,
        };
        let wanted = 4 * (file + personality.append_bytes_max) / BLOCK;
        // A small volume has smaller files, rather than too few.
        let slot_blocks = wanted.min(blocks / 16).max(1);
        let slots = u32::try_from(blocks / slot_blocks).unwrap_or(u32::MAX);
        Self {
            personality,
            slot_blocks,
            held: vec![0; slots as usize],
            full: Vec::new(),
            empty: (0..slots).collect(),
        }
    }

    #[cfg(test)]
    pub fn slot_blocks(&self) -> u64 {
        self.slot_blocks
    }

    pub fn round(&mut self, rng: &mut Rng, steps: &mut NextRequests) {
        if self.full.len() * 2 > self.held.len() {
            self.delete(rng, steps);
        }
        if let Some(slot) = self.empty.pop_front() {
            self.full.push(slot);
            let bytes = match self.personality.new {
                NewFile::Appended => self.append_bytes(rng),
                NewFile::Whole { mean_bytes } => {
                    gamma_of_three_halves(rng, mean_bytes as f64).ceil() as u64
                }
            };
            self.append(slot, bytes.max(1), steps);
        }
        if let Some(slot) = self.any(rng) {
            if self.personality.read_first {
                self.whole(Op::Read, slot, steps);
            }
            let bytes = self.append_bytes(rng);
            self.append(slot, bytes, steps);
        }
        if let Some(slot) = self.any(rng) {
            self.whole(Op::Read, slot, steps);
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<u32> {
        let at = rng.below(self.full.len() as u64) as usize;
        self.full.get(at).copied()
    }

    fn append_bytes(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(self.personality.append_bytes_max)
    }

    /// Appends to a file. The block that the file ends in is written again.
    fn append(&mut self, slot: u32, bytes: u64, steps: &mut NextRequests) {
        let held = u64::from(self.held[slot as usize]);
        let end = (held + bytes).min(self.slot_blocks * BLOCK);
        self.held[slot as usize] = end as u32;
        let first = held / BLOCK;
        let at = u64::from(slot) * self.slot_blocks + first;
        steps.write(at, end.div_ceil(BLOCK) - first);
        if self.personality.fsync {
            steps.flush();
        }
    }

    fn whole(&self, op: Op, slot: u32, steps: &mut NextRequests) {
        let held = u64::from(self.held[slot as usize]);
        steps.pieces(op, u64::from(slot) * self.slot_blocks, held.div_ceil(BLOCK));
    }

    fn delete(&mut self, rng: &mut Rng, steps: &mut NextRequests) {
        let at = rng.below(self.full.len() as u64) as usize;
        let slot = self.full.swap_remove(at);
        self.whole(Op::DISCARD, slot, steps);
        self.held[slot as usize] = 0;
        self.empty.push_back(slot);
    }
}
