//! The reads of a map checkpoint: old contents of leaves that it is about to write, and the parities of their stripes.
//!
//! If all leaves of a stripe are in memory, its parity is their sum. If some are not, the checkpoint reads the parity from the medium,
//! and updates it by the difference of the written leaves. It also reads the old contents of those leaves, where memory does not hold
//! them, and the leaves that were evicted with changes ([0058](../../../../../docs/decisions/0058-a-map-within-bounds.md)). A map
//! checkpoint writes stripe after stripe. At the same time it reads for many stripes ahead of the one it writes.

use super::leaf_blocks::{Block, LeafBlocks};
use crate::addr::BLOCK_BYTES;
use crate::format::leaf;
use crate::limits::PARITY_READS;
use alloc::vec::Vec;

/// A set of blocks of a stripe: one bit for each leaf, and one for the parity.
pub(crate) type Mask = u32;

/// The bit of the parity.
pub(crate) const PARITY: Mask = 1 << 31;

/// The blocks read for a stripe.
struct Stripe {
    stripe: u32,
    /// Blocks that were requested.
    asked: Mask,
    /// Requested blocks that have not arrived yet.
    coming: Mask,
    /// True if all blocks that arrived are intact.
    is_whole: bool,
    /// The sum of all blocks that arrived.
    sum: Block,
}

/// The blocks that a map checkpoint has read for its parities, or is reading.
#[derive(Default)]
pub(super) struct Ahead {
    stripes: Vec<Stripe>,
    in_flight: usize,
    /// The first stripe that has not been considered yet.
    next: u32,
}

impl Ahead {
    /// Starts a map checkpoint.
    pub fn begin(&mut self) {
        debug_assert!(self.stripes.is_empty() && self.in_flight == 0);
        self.next = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.stripes.is_empty()
    }

    /// Returns the next stripe after `stripe` to read for, of `stripes`, unless there is none or too much is being read.
    pub fn poll(&mut self, stripe: u32, stripes: u32) -> Option<u32> {
        let next = self.next.max(stripe + 1);
        let has_room = self.in_flight < PARITY_READS && self.stripes.len() < PARITY_READS;
        self.next = next + u32::from(next < stripes && has_room);
        (self.next > next).then_some(next)
    }

    /// True if a block requested for a stripe has not arrived.
    pub fn waits(&self, stripe: u32) -> bool {
        let mut stripes = self.stripes.iter();
        stripes.any(|of| of.stripe == stripe && of.coming != 0)
    }

    /// Notes that these blocks are requested for a stripe. Returns those that were not requested before.
    pub fn ask(&mut self, stripe: u32, mask: Mask, blocks: &mut LeafBlocks) -> Mask {
        let known = self.stripes.iter().position(|of| of.stripe == stripe);
        let index = match known {
            Some(index) => index,
            None if mask == 0 => return 0,
            None => {
                let mut sum = blocks.take();
                sum.fill(0);
                self.stripes.push(Stripe {
                    stripe,
                    asked: 0,
                    coming: 0,
                    is_whole: true,
                    sum,
                });
                self.stripes.len() - 1
            }
        };
        let of = &mut self.stripes[index];
        let new = mask & !of.asked;
        of.asked |= new;
        of.coming |= new;
        self.in_flight += new.count_ones() as usize;
        new
    }

    /// Adds a block that arrived. `None`: it cannot be read, or it is not the block that the newest root names.
    pub fn came(&mut self, stripe: u32, bit: Mask, block: Option<&[u8; BLOCK_BYTES]>) {
        self.in_flight -= 1;
        let mut stripes = self.stripes.iter_mut();
        let Some(of) = stripes.find(|of| of.stripe == stripe) else {
            return;
        };
        of.coming &= !bit;
        match block {
            Some(block) => leaf::add(&mut of.sum, block),
            None => of.is_whole = false,
        }
    }

    /// Takes the blocks read for a stripe: which they are, and their sum. `None`: the parity is not among them, one of `mask` is not, or
    /// one is not intact.
    pub fn take(
        &mut self,
        stripe: u32,
        mask: Mask,
        blocks: &mut LeafBlocks,
    ) -> Option<(Mask, Block)> {
        let index = self.stripes.iter().position(|of| of.stripe == stripe)?;
        let of = self.stripes.swap_remove(index);
        debug_assert_eq!(of.coming, 0, "stripe {stripe} is written while it is read");
        if of.is_whole && (mask | PARITY) & !of.asked == 0 {
            return Some((of.asked, of.sum));
        }
        blocks.give_back(of.sum);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_taken_when_the_blocks_it_needs_have_arrived() {
        let (mut ahead, mut blocks) = (Ahead::default(), LeafBlocks::default());
        ahead.begin();
        assert_eq!(ahead.ask(3, 0, &mut blocks), 0);
        assert!(ahead.is_empty());
        assert_eq!(ahead.ask(3, PARITY | 1, &mut blocks), PARITY | 1);
        ahead.came(3, 1, Some(&[5; BLOCK_BYTES]));
        // Another leaf has changed meanwhile.
        assert_eq!(ahead.ask(3, PARITY | 3, &mut blocks), 2);
        ahead.came(3, PARITY, Some(&[6; BLOCK_BYTES]));
        assert!(ahead.waits(3) && !ahead.waits(4));
        ahead.came(3, 2, Some(&[8; BLOCK_BYTES]));
        assert!(!ahead.waits(3));
        // One of them is in memory meanwhile. Its old contents are in the sum.
        let (read, sum) = ahead.take(3, PARITY | 2, &mut blocks).unwrap();
        assert_eq!((read, sum[7]), (PARITY | 3, 5 ^ 6 ^ 8));
        assert!(ahead.is_empty());
    }

    #[test]
    fn a_limited_number_of_blocks_is_read_for_the_stripes_ahead() {
        let (mut ahead, mut blocks) = (Ahead::default(), LeafBlocks::default());
        ahead.begin();
        assert_eq!([ahead.poll(3, 6), ahead.poll(3, 6)], [Some(4), Some(5)]);
        assert_eq!(ahead.poll(3, 6), None, "there are no more");
        ahead.ask(5, PARITY, &mut blocks);
        for stripe in 6..5 + PARITY_READS as u32 {
            assert_eq!(ahead.poll(5, u32::MAX), Some(stripe));
            ahead.ask(stripe, PARITY, &mut blocks);
        }
        assert_eq!(ahead.poll(5, u32::MAX), None);
        ahead.came(5, PARITY, None);
        assert_eq!(ahead.poll(5, u32::MAX), None, "it is not taken yet");
        ahead.take(5, PARITY, &mut blocks);
        assert!(ahead.poll(5, u32::MAX).is_some());
    }

    #[test]
    fn a_stripe_with_a_damaged_or_missing_block_is_not_taken() {
        let (mut ahead, mut blocks) = (Ahead::default(), LeafBlocks::default());
        for (stripe, block) in [(1, None), (2, Some(&[1; BLOCK_BYTES]))] {
            ahead.ask(stripe, PARITY, &mut blocks);
            ahead.came(stripe, PARITY, block);
        }
        assert!(ahead.take(1, PARITY, &mut blocks).is_none());
        assert!(ahead.take(2, PARITY | 1, &mut blocks).is_none());
        assert!(ahead.take(3, PARITY, &mut blocks).is_none());
    }
}
