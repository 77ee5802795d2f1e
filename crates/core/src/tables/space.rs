//! Free data blocks, as one bit each.

use super::stale::Stale;
use alloc::{vec, vec::Vec};

/// See the module.
pub struct Space {
    /// Bit set: free.
    words: Vec<u64>,
    blocks: u32,
    free: u32,
    next: u32,
    /// How many runs of blocks are being discarded.
    discards: u32,
    /// Only if free blocks are discarded on the medium.
    stale: Option<Stale>,
}

impl Space {
    /// No block is free.
    pub fn new(blocks: u32) -> Self {
        Self {
            words: vec![0; blocks.div_ceil(64) as usize],
            blocks,
            free: 0,
            next: 0,
            discards: 0,
            stale: None,
        }
    }

    /// From now on tracks the free blocks that the medium takes for used. At first these are all free blocks.
    pub fn keep_stale(&mut self, least: u32) {
        let mut stale = Stale::new(self.blocks, least);
        (0..self.blocks)
            .filter(|&index| self.is_free(index))
            .for_each(|index| stale.add(index));
        self.stale = Some(stale);
    }

    /// What the medium takes for used, if that is tracked.
    pub fn known_stale(&self) -> Option<&Stale> {
        self.stale.as_ref()
    }

    /// The same, for changing it.
    pub fn stale(&mut self) -> Option<&mut Stale> {
        self.stale.as_mut()
    }

    /// How many blocks are free.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    pub fn is_free(&self, index: u32) -> bool {
        index < self.blocks && self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Frees a block.
    pub fn free(&mut self, index: u32) {
        assert!(!self.is_free(index), "data block {index} is freed twice");
        self.words[index as usize / 64] |= 1 << (index % 64);
        self.free += 1;
        if let Some(stale) = &mut self.stale {
            stale.add(index);
        }
    }

    /// Takes a run of free blocks that the medium takes for used, to discard them. Takes only a part of the free blocks, because
    /// a write does not wait for a discard.
    pub fn take_stale(&mut self, most: u32) -> Option<(u32, u32)> {
        let most = most.min(self.free / 4);
        if most == 0 {
            return None;
        }
        let (first, blocks) = self.stale.as_mut()?.next_run(most)?;
        for index in first..first + blocks {
            self.remove(index);
        }
        self.discards += 1;
        Some((first, blocks))
    }

    /// How many runs have been taken and not freed again.
    pub fn discards(&self) -> u32 {
        self.discards
    }

    /// Frees a run whose discard has ended.
    pub fn discarded(&mut self, first: u32, blocks: u32) {
        self.discards -= 1;
        for index in first..first + blocks {
            self.words[index as usize / 64] |= 1 << (index % 64);
        }
        self.free += blocks;
    }

    /// Takes the block after `before` if it is free, so that blocks written in order lie in order. Otherwise takes the next free block
    /// after the one found last.
    pub fn take(&mut self, before: Option<u32>) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        if let Some(index) = before.map(|before| before + 1)
            && self.is_free(index)
        {
            return Some(self.remove(index));
        }
        let words = self.words.len();
        let (first, bit) = (self.next as usize / 64, self.next % 64);
        for step in 0..=words {
            let at = (first + step) % words;
            let mut word = self.words[at];
            if step == 0 {
                word &= u64::MAX << bit;
            }
            if word != 0 {
                let index = (at * 64) as u32 + word.trailing_zeros();
                self.next = index + 1;
                if self.next >= self.blocks {
                    self.next = 0;
                }
                return Some(self.remove(index));
            }
        }
        None
    }

    fn remove(&mut self, index: u32) -> u32 {
        self.words[index as usize / 64] &= !(1 << (index % 64));
        self.free -= 1;
        if let Some(stale) = &mut self.stale {
            stale.remove(index);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Nanos;

    #[test]
    fn a_block_is_taken_behind_the_one_before_or_else_the_next_free_one() {
        let mut space = Space::new(130);
        (0..130).for_each(|index| space.free(index));
        assert_eq!(space.take(None), Some(0));
        assert_eq!(space.take(Some(63)), Some(64));
        assert_eq!(space.take(Some(64)), Some(65));
        assert_eq!(space.take(None), Some(1));
        assert_eq!(space.take(Some(129)), Some(2), "nothing follows the last");
        let mut rest: Vec<_> = core::iter::from_fn(|| space.take(None)).collect();
        rest.sort_unstable();
        assert_eq!(rest.len(), 125);
        rest.dedup();
        assert_eq!(rest.len(), 125);
        assert_eq!(space.free_blocks(), 0);
        space.free(77);
        assert_eq!(space.take(Some(5)), Some(77));
    }

    #[test]
    fn a_block_that_is_being_discarded_is_not_taken() {
        let mut space = Space::new(64);
        (0..64).for_each(|index| space.free(index));
        space.keep_stale(1);
        assert!(space.stale().is_some_and(|stale| stale.is_due(Nanos(1))));
        assert_eq!(space.take_stale(100), Some((0, 16)), "a fourth of them");
        assert_eq!(space.free_blocks(), 48);
        assert_eq!(space.take(None), Some(16));
        assert_eq!(space.take_stale(5), Some((17, 5)));
        assert_eq!(space.discards(), 2);
        space.discarded(0, 16);
        space.discarded(17, 5);
        assert_eq!(space.free_blocks(), 63);
        assert_eq!(space.take(Some(3)), Some(4));
    }
}
