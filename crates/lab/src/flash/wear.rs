//! How often each erase block was erased, and statistics of that.

use super::shape::{Die, EraseBlock, Shape};

/// Erase counts.
#[derive(Clone, Debug)]
pub struct Wear {
    erase_blocks: u32,
    counts: Vec<u32>,
}

impl Wear {
    /// Starts with all counts 0.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        Self {
            erase_blocks: shape.erase_blocks,
            counts: vec![0; shape.dies as usize * shape.erase_blocks as usize],
        }
    }

    /// Counts an erasure of a block.
    pub fn erased(&mut self, die: Die, block: EraseBlock) {
        self.counts[(die.0 * self.erase_blocks + block.0) as usize] += 1;
    }

    /// Counts an erasure of a block, by its place in the table.
    pub(super) fn erased_at(&mut self, place: usize) {
        self.counts[place] += 1;
    }

    /// Returns the erasures of a block, by its place.
    pub(super) fn count(&self, place: usize) -> u32 {
        self.counts[place]
    }

    /// Returns the place of a die's block, if none was replaced.
    pub(super) fn place(&self, die: Die, block: EraseBlock) -> usize {
        (die.0 * self.erase_blocks + block.0) as usize
    }

    /// Adds a spare block. Returns its place.
    pub(super) fn add(&mut self) -> u32 {
        self.counts.push(0);
        self.counts.len() as u32 - 1
    }

    /// Clears the counts: preconditioning is not part of a run.
    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    /// Returns the sum of all erasures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Returns the number of erase blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Returns the erasures of the most erased block.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Returns the standard deviation of the blocks' erasures.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let blocks = self.blocks().max(1) as f64;
        let mean = self.total() as f64 / blocks;
        let squares = self.counts.iter().map(|&c| (f64::from(c) - mean).powi(2));
        (squares.sum::<f64>() / blocks).sqrt()
    }

    /// Returns a histogram of the blocks' erasures, in ten classes from the least to the most: each class's first count, and its
    /// blocks.
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
