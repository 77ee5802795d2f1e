//! What is written to a snapshot, and kept in memory for as long as it is served.

use crate::block::BlockError;
use crate::limits::SNAPSHOT_MEMORY;
use std::collections::BTreeMap;
use vellum_core::addr::BLOCK_BYTES;

/// See the module. Blocks are given by number, and runs of them by the first one and the one behind the last.
#[derive(Default)]
pub(super) struct Written {
    blocks: BTreeMap<u64, Box<[u8; BLOCK_BYTES]>>,
    /// Runs that read as zeros, but for what is in `blocks`: the end of each by its first block. No two overlap or touch.
    zeros: BTreeMap<u64, u64>,
}

impl Written {
    /// Keeps a block.
    pub fn put(&mut self, lba: u64, content: &[u8]) -> Result<(), BlockError> {
        // What is there already takes no more memory.
        if self.is_full() && !self.blocks.contains_key(&lba) {
            return Err(BlockError::Full);
        }
        let mut block = Box::new([0; BLOCK_BYTES]);
        block.copy_from_slice(content);
        self.blocks.insert(lba, block);
        Ok(())
    }

    /// Makes a run read as zeros.
    pub fn clear(&mut self, first: u64, end: u64) -> Result<(), BlockError> {
        if first == end {
            return Ok(());
        }
        let gone: Vec<u64> = self.blocks.range(first..end).map(|(&lba, _)| lba).collect();
        let joined: Vec<(u64, u64)> = self.runs_to(first, end).collect();
        if self.is_full() && gone.is_empty() && joined.is_empty() {
            return Err(BlockError::Full);
        }
        for lba in gone {
            self.blocks.remove(&lba);
        }
        let mut run = (first, end);
        for (start, stop) in joined {
            self.zeros.remove(&start);
            run = (run.0.min(start), run.1.max(stop));
        }
        self.zeros.insert(run.0, run.1);
        Ok(())
    }

    /// True if something in a run was written.
    pub fn is_any(&self, first: u64, end: u64) -> bool {
        let mut zeros = self.runs_to(first, end);
        self.blocks.range(first..end).next().is_some()
            || zeros.any(|(start, stop)| start < end && stop > first)
    }

    /// Gives each block of a run that was written to `lay`, with its content.
    pub fn lay_over(&self, first: u64, end: u64, mut lay: impl FnMut(u64, &[u8; BLOCK_BYTES])) {
        for (start, stop) in self.runs_to(first, end) {
            (start.max(first)..stop.min(end)).for_each(|lba| lay(lba, &[0; BLOCK_BYTES]));
        }
        for (&lba, block) in self.blocks.range(first..end) {
            lay(lba, block);
        }
    }

    /// The runs of zeros that overlap or touch a run, the last one first.
    fn runs_to(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before_end = self.zeros.range(..=end).rev();
        before_end
            .map(|(&start, &stop)| (start, stop))
            .take_while(move |&(_, stop)| stop >= first)
    }

    /// A run of zeros counts like a block, so that there are not too many of them either.
    fn is_full(&self) -> bool {
        self.blocks.len() + self.zeros.len() >= SNAPSHOT_MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What blocks 0 to 20 read as, over a snapshot of sevens.
    fn read(written: &Written) -> Vec<u8> {
        let mut read = vec![7; 20];
        written.lay_over(0, 20, |lba, block| read[lba as usize] = block[0]);
        read
    }

    #[test]
    fn each_block_reads_as_it_was_last_written_or_cleared() {
        let (mut written, mut model) = (Written::default(), vec![7; 20]);
        let mut random: u64 = 1;
        for step in 0..2000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let first = random >> 33 & 15;
            let end = first + (random >> 40 & 3);
            if random >> 50 & 1 == 0 {
                written.clear(first, end).unwrap();
                model[first as usize..end as usize].fill(0);
            } else {
                // Neither zero nor the snapshot's.
                let content = step as u8 | 0x80;
                written.put(first, &[content; BLOCK_BYTES]).unwrap();
                model[first as usize] = content;
            }
            assert_eq!(read(&written), model, "step {step}");
            let is_any = (0..20).map(|lba| written.is_any(lba, lba + 1));
            let is_seven = model.iter().map(|&byte| byte != 7);
            assert!(is_any.eq(is_seven), "step {step}: {model:?}");
            if step % 50 == 49 {
                (written, model) = (Written::default(), vec![7; 20]);
            }
        }
    }

    #[test]
    fn zeros_in_a_row_take_the_memory_of_one_run() {
        let mut written = Written::default();
        for lba in [4, 6, 5, 0, 1, 2, 3] {
            written.clear(lba, lba + 1).unwrap();
        }
        assert_eq!(written.zeros, BTreeMap::from([(0, 7)]));
        written.put(3, &[1; BLOCK_BYTES]).unwrap();
        written.clear(0, u64::MAX).unwrap();
        assert_eq!(written.zeros, BTreeMap::from([(0, u64::MAX)]));
        assert!(written.blocks.is_empty());
    }

    #[test]
    fn runs_of_zeros_are_bounded_too() {
        let mut written = Written::default();
        for run in 0..SNAPSHOT_MEMORY as u64 {
            written.clear(2 * run, 2 * run + 1).unwrap();
        }
        let next = 2 * SNAPSHOT_MEMORY as u64;
        let cleared = written.clear(next, next + 1);
        assert!(matches!(cleared, Err(BlockError::Full)));
        let put = written.put(next, &[1; BLOCK_BYTES]);
        assert!(matches!(put, Err(BlockError::Full)));
        // Two runs become one.
        written.clear(1, 2).unwrap();
        written.clear(next, next + 1).unwrap();
    }
}
