//! Which blocks of a root are written, and in which pieces.
//!
//! Roots take turns in two places. So a place holds what the root before the last one said, and only what has changed since is written
//! there. The root's checksum covers all its blocks, so a root of which a piece is missing is none, and the one before counts.
//!
//! A recovery may pass over a root whose write was cut short. The next root has the same number and the same place, and some of its blocks
//! may be equal. So a part of the next root could complete the old one, whose leaves are overwritten by then. To prevent that, the header
//! of a root that was passed over is overwritten, durably, before any leaf is written.

use crate::addr::{Generation, Leaf, Pba};
use crate::format::root::{self, SLOTS_IN_BLOCK};
use crate::format::superblock::Superblock;
use crate::limits;
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Consecutive blocks of a copy of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootPiece {
    /// Where they are written.
    pub at: Pba,
    /// The first of them, by its number in the root.
    pub first: u32,
    /// How many.
    pub blocks: u32,
    /// True if they belong to the second copy.
    pub is_twin: bool,
}

/// See the module.
pub(super) struct RootPieces {
    /// For each place: true for a block of slots that may differ there from what the newest root says.
    stale: [Vec<bool>; 2],
    left: VecDeque<RootPiece>,
    table_sum: u32,
}

impl RootPieces {
    /// What the places hold is not known.
    pub fn new(leaves: u32) -> Self {
        let blocks = root::blocks(leaves) as usize - 1;
        Self {
            stale: [vec![true; blocks], vec![true; blocks]],
            left: VecDeque::new(),
            table_sum: 0,
        }
    }

    /// Notes that the slot of a leaf has changed.
    pub fn on_moved(&mut self, leaf: Leaf) {
        let block = leaf.0 as usize / SLOTS_IN_BLOCK;
        self.stale.iter_mut().for_each(|stale| stale[block] = true);
    }

    /// Forgets what the places hold: the next roots are written whole.
    pub fn forget(&mut self) {
        self.stale.iter_mut().for_each(|stale| stale.fill(true));
    }

    /// The CRC of all blocks of the root but the first.
    pub fn table_sum(&self) -> u32 {
        self.table_sum
    }

    /// True if something of the root remains to be written.
    pub fn are_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// The number of pieces that remain to be written.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.left.len()
    }

    pub fn next(&mut self) -> Option<RootPiece> {
        self.left.pop_front()
    }

    /// Finds what makes void the roots in the place of this one: the headers of both copies.
    pub fn begin_to_void(&mut self, superblock: &Superblock, generation: Generation) {
        debug_assert!(!self.are_left(), "no root is being written");
        let copies = superblock.root_copies(generation).enumerate();
        self.left = copies
            .map(|(copy, at)| RootPiece {
                at,
                first: 0,
                blocks: 1,
                is_twin: copy > 0,
            })
            .collect();
    }

    /// Finds the pieces to write, of at most `most` blocks, for both copies of a root.
    pub fn begin(
        &mut self,
        superblock: &Superblock,
        generation: Generation,
        table_sum: u32,
        most: u32,
    ) {
        debug_assert!(!self.are_left(), "the root before is complete");
        self.table_sum = table_sum;
        let stale = &mut self.stale[generation.0 as usize & 1];
        let twin = superblock.root_twin(generation);
        // Damage that nobody has noticed stays in what is not written. Where there is no second copy it would cost the root; and a small
        // root costs no more writes as a whole.
        let is_whole = twin.is_none() || stale.len() < most as usize;
        let anew = match is_whole {
            true => 0..stale.len(),
            false => share_anew(generation, stale.len()),
        };
        stale[anew].fill(true);
        let copies = [
            Some((
                superblock.root_place(generation),
                superblock.root_blocks(),
                false,
            )),
            twin.map(|at| (at, superblock.twin_blocks() as u32, true)),
        ];
        for (at, blocks, is_twin) in copies.into_iter().flatten() {
            // The header, and what follows the slots, say something else in each root.
            let changes = |block: &u32| {
                let slots = (*block as usize).checked_sub(1);
                slots
                    .and_then(|slots| stale.get(slots))
                    .is_none_or(|&stale| stale)
            };
            for run in runs((0..blocks).filter(changes), most) {
                self.left.push_back(RootPiece {
                    at: at.plus(u64::from(run.start)),
                    first: run.start,
                    blocks: run.end - run.start,
                    is_twin,
                });
            }
        }
        stale.fill(false);
    }
}

/// The blocks of slots that a root writes again even if nothing has changed: each has its turn after twice
/// [`ROOT_SHARE_ANEW`](limits::ROOT_SHARE_ANEW) roots.
fn share_anew(generation: Generation, blocks: usize) -> Range<usize> {
    let share = blocks.div_ceil(limits::ROOT_SHARE_ANEW as usize);
    let turn = (generation.0 / 2 % limits::ROOT_SHARE_ANEW) as usize;
    let first = (turn * share).min(blocks);
    first..(first + share).min(blocks)
}

/// Groups ascending blocks into runs of at most `most`. What lies between two blocks that are close is written too: fewer writes are
/// faster.
fn runs(blocks: impl Iterator<Item = u32>, most: u32) -> impl Iterator<Item = Range<u32>> {
    let mut blocks = blocks.peekable();
    core::iter::from_fn(move || {
        let first = blocks.next()?;
        let mut end = first + 1;
        let fits = |block: &u32, end: u32| block - end <= most / 2 && block - first < most;
        while let Some(block) = blocks.next_if(|block| fits(block, end)) {
            end = block + 1;
        }
        Some(first..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_of(blocks: &[u32], most: u32) -> Vec<Range<u32>> {
        runs(blocks.iter().copied(), most).collect()
    }

    #[test]
    fn near_blocks_are_written_together_but_never_too_many() {
        assert_eq!(runs_of(&[], 8), []);
        assert_eq!(runs_of(&[0, 1, 5, 6, 12], 8), [0..7, 12..13]);
        assert_eq!(runs_of(&[0, 1, 2, 3, 4, 5], 4), [0..4, 4..6]);
        assert_eq!(runs_of(&[0, 2, 3], 1), [0..1, 2..3, 3..4]);
    }

    #[test]
    fn every_block_is_written_again_in_time() {
        for blocks in [1, 63, 64, 65, 1750] {
            let mut seen = vec![0; blocks];
            for generation in (0..2 * limits::ROOT_SHARE_ANEW).step_by(2) {
                let anew = share_anew(Generation(generation), blocks);
                anew.for_each(|block| seen[block] += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "{blocks}: {seen:?}");
        }
    }
}
