//! Free data blocks: a bit each.

use super::stale::Stale;
use alloc::{vec, vec::Vec};

/// See the module.
pub struct Space {
    /// Set: free.
    words: Vec<u64>,
    blocks: u32,
    free: u32,
    next: u32,
    /// Of volumes whose medium is told what is free.
    stale: Option<Stale>,
}

impl Space {
    /// None is free.
    pub fn new(blocks: u32) -> Self {
        Self {
            words: vec![0; blocks.div_ceil(64) as usize],
            blocks,
            free: 0,
            next: 0,
            stale: None,
        }
    }

    /// From now on it is known which free blocks the medium takes for used: at first all of them.
    pub fn keep_stale(&mut self, least: u32) {
        let mut stale = Stale::new(self.blocks, least);
        (0..self.blocks)
            .filter(|&index| self.is_free(index))
            .for_each(|index| stale.add(index));
        self.stale = Some(stale);
    }

    /// What the medium takes for used, if it is told what is.
    pub fn known_stale(&self) -> Option<&Stale> {
        self.stale.as_ref()
    }

    /// The same, to go on with it.
    pub fn stale(&mut self) -> Option<&mut Stale> {
        self.stale.as_mut()
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    pub fn is_free(&self, index: u32) -> bool {
        index < self.blocks && self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Gives a block back.
    pub fn free(&mut self, index: u32) {
        assert!(!self.is_free(index), "data block {index} is freed twice");
        self.words[index as usize / 64] |= 1 << (index % 64);
        self.free += 1;
        if let Some(stale) = &mut self.stale {
            stale.add(index);
        }
    }

    /// Takes a run of free blocks that the medium takes for used, to discard them: at most a part of those that are free, for
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
        Some((first, blocks))
    }

    /// Gives back what was taken for a discard.
    pub fn discarded(&mut self, first: u32, blocks: u32) {
        for index in first..first + blocks {
            self.words[index as usize / 64] |= 1 << (index % 64);
        }
        self.free += blocks;
    }

    /// Takes the block after `before` if that is free, so that what is written in order lies in order; else the
    /// next free one from where the last was found.
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
    fn takes_what_follows_and_then_what_is_next() {
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
    fn what_is_being_discarded_is_not_taken() {
        let mut space = Space::new(64);
        (0..64).for_each(|index| space.free(index));
        space.keep_stale(1);
        assert!(space.stale().is_some_and(|stale| stale.is_due(Nanos(1))));
        assert_eq!(space.take_stale(100), Some((0, 16)), "a fourth of them");
        assert_eq!(space.free_blocks(), 48);
        assert_eq!(space.take(None), Some(16));
        assert_eq!(space.take_stale(5), Some((17, 5)));
        space.discarded(0, 16);
        space.discarded(17, 5);
        assert_eq!(space.free_blocks(), 63);
        assert_eq!(space.take(Some(3)), Some(4));
    }
}
