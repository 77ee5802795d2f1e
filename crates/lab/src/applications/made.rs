//! Files that are made one after the other, and nothing else: a copy of a tree, a checkout. Each has a slot; when no
//! slot is left, the oldest file is deleted.

use super::spread::exponential;
use super::steps::NextRequests;
use crate::rng::Rng;
use crate::trace::Op;

/// The files on a disk.
pub struct Made {
    mean_blocks: u64,
    slot_blocks: u64,
    /// Blocks in each slot.
    held: Vec<u32>,
    next: usize,
}

impl Made {
    pub fn new(mean_blocks: u64, blocks: u64) -> Self {
        // A small volume has smaller files, rather than too few.
        let slot_blocks = (4 * (mean_blocks + 1)).min(blocks / 16).max(1);
        let slots = u32::try_from(blocks / slot_blocks).unwrap_or(u32::MAX);
        Self {
            mean_blocks,
            slot_blocks,
            held: vec![0; slots.max(1) as usize],
            next: 0,
        }
    }

    pub fn file(&mut self, rng: &mut Rng, steps: &mut NextRequests) {
        let at = self.next as u64 * self.slot_blocks;
        let held = &mut self.held[self.next];
        steps.pieces(Op::DISCARD, at, u64::from(*held));
        let blocks = (exponential(rng) * self.mean_blocks as f64)
            .ceil()
            .clamp(1.0, self.slot_blocks as f64) as u64;
        steps.write(at, blocks);
        *held = blocks as u32;
        self.next = (self.next + 1) % self.held.len();
    }
}
