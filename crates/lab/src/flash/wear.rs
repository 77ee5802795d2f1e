//! How often each erase block was erased, and how long it lasts at that rate.

use super::{Die, EraseBlock, Shape};

/// Erase counts.
#[derive(Clone, Debug)]
pub struct Wear {
    erase_blocks: u32,
    counts: Vec<u32>,
}

impl Wear {
    /// None yet.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        Self {
            erase_blocks: shape.erase_blocks,
            counts: vec![0; shape.dies as usize * shape.erase_blocks as usize],
        }
    }

    /// One more.
    pub fn erased(&mut self, die: Die, block: EraseBlock) {
        self.counts[(die.0 * self.erase_blocks + block.0) as usize] += 1;
    }

    /// One more, of a block by its place in the table.
    pub(super) fn erased_at(&mut self, place: usize) {
        self.counts[place] += 1;
    }

    /// Erasures of a block by its place.
    pub(super) fn count(&self, place: usize) -> u32 {
        self.counts[place]
    }

    /// A block of a die by its place, where none was replaced.
    pub(super) fn place(&self, die: Die, block: EraseBlock) -> usize {
        (die.0 * self.erase_blocks + block.0) as usize
    }

    /// A spare block comes into use; its place.
    pub(super) fn add(&mut self) -> u32 {
        self.counts.push(0);
        self.counts.len() as u32 - 1
    }

    /// Forgets what was: preconditioning is not part of a run.
    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    /// All erasures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Erase blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Erasures of the block that was erased the most.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// The standard deviation of the blocks' erasures.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let blocks = self.blocks().max(1) as f64;
        let mean = self.total() as f64 / blocks;
        let squares = self.counts.iter().map(|&c| (f64::from(c) - mean).powi(2));
        (squares.sum::<f64>() / blocks).sqrt()
    }

    /// How many blocks were erased how often, in ten classes from the least to the most: the class's first
    /// count, and its blocks.
    #[must_use]
    pub fn histogram(&self) -> Vec<(u32, u64)> {
        let least = self.counts.iter().copied().min().unwrap_or(0);
        let width = ((self.most() - least) / 10 + 1).max(1);
        let mut classes = vec![0; 10];
        for &count in &self.counts {
            classes[((count - least) / width) as usize] += 1;
        }
        let last = classes.iter().rposition(|&blocks| blocks > 0).unwrap_or(0);
        classes
            .into_iter()
            .take(last + 1)
            .enumerate()
            .map(|(i, blocks)| (least + i as u32 * width, blocks))
            .collect()
    }
}
