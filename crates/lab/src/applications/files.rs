//! Files that come, grow, are read and go, after two of filebench's personalities (workloads/varmail.f and fileserver.f).
//!
//! A file has a slot of its own, with room to grow. There are as many files as half of the slots, where filebench has 1,000 and
//! 10,000: so a volume is in use whatever its size. The first of them are made by the load itself, for a new disk has none, and
//! nothing is deleted until they are there.

use super::Steps;
use super::spread::gamma_of_three_halves;
use crate::rng::Rng;
use crate::trace::Op;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How a new file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFile {
    /// By an append to nothing.
    Appended,
    /// As a whole: filebench's gamma distribution, of shape 1.5.
    Whole {
        /// Its mean.
        mean_bytes: u64,
    },
}

/// What is done each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Personality {
    /// What is made.
    pub new: NewFile,
    /// An append's bytes, at most: any number up to that (`appendfilerand`).
    pub append_bytes_max: u64,
    /// Whether what is appended to is read before.
    pub read_first: bool,
    /// Whether each file that was written is flushed.
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

/// Files on a disk.
pub struct Files {
    personality: Personality,
    slot_blocks: u64,
    /// What each slot holds, in bytes.
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
        // A small volume has smaller files, not fewer than some.
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

    pub fn round(&mut self, rng: &mut Rng, steps: &mut Steps) {
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

    /// The block that a file ends in is written again when it grows.
    fn append(&mut self, slot: u32, bytes: u64, steps: &mut Steps) {
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

    fn whole(&self, op: Op, slot: u32, steps: &mut Steps) {
        let held = u64::from(self.held[slot as usize]);
        steps.pieces(op, u64::from(slot) * self.slot_blocks, held.div_ceil(BLOCK));
    }

    fn delete(&mut self, rng: &mut Rng, steps: &mut Steps) {
        let at = rng.below(self.full.len() as u64) as usize;
        let slot = self.full.swap_remove(at);
        self.whole(Op::Discard, slot, steps);
        self.held[slot as usize] = 0;
        self.empty.push_back(slot);
    }
}
