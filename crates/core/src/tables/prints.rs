//! The table of fingerprints: the checksum of each data block whose content is known to be there.
//!
//! A fingerprint counts as an owner of its block, so the content stays when no LBA has it any more (OrderMergeDedup §2.1). Such contents
//! are given up when free blocks are short. A new index is filled from the table, a part at a time.

use super::table::Table;
use crate::format::table::{Edition, Signer};
use alloc::vec::Vec;

/// See the module.
pub(super) struct Prints {
    table: Table<u32>,
    /// Where the search for fingerprints to give up continues.
    give_up_from: u32,
    /// Where filling a new index continues.
    fill_from: Option<u32>,
}

impl Prints {
    /// The fingerprints that were found.
    pub fn new(table: Table<u32>) -> Self {
        Self {
            table,
            give_up_from: 0,
            fill_from: None,
        }
    }

    /// The checksum of a data block's content, if the block has a fingerprint.
    #[inline]
    pub fn sum(&self, index: u32) -> Option<u32> {
        sum_of(self.table.get(index))
    }

    /// Gives a data block a fingerprint.
    pub fn set(&mut self, index: u32, sum: u32) {
        self.table.set(index, print_of(sum));
    }

    /// Takes the fingerprints of at most `most` blocks that nothing else keeps, and returns these blocks. The search goes on
    /// where the last one ended, and over all blocks before `end` at most once more.
    pub fn give_up(&mut self, most: usize, end: u32, is_unused: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut given_up = Vec::new();
        let mut from = self.give_up_from;
        let mut wrapped = false;
        while given_up.len() < most {
            let Some((index, _)) = self.table.next(from, end) else {
                if wrapped {
                    break;
                }
                (from, wrapped) = (0, true);
                continue;
            };
            from = index + 1;
            if is_unused(index) {
                self.table.set(index, 0);
                given_up.push(index);
            }
        }
        self.give_up_from = from;
        given_up
    }

    /// Begins to fill a new index.
    pub fn begin_to_fill(&mut self) {
        self.fill_from = Some(0);
    }

    /// Ends that.
    pub fn end_to_fill(&mut self) {
        self.fill_from = None;
    }

    pub fn is_filling(&self) -> bool {
        self.fill_from.is_some()
    }

    /// Tells `met` the data blocks and checksums of the next part, of `part` blocks of `all`, if an index is being filled.
    pub fn fill(&mut self, part: u32, all: u32, mut met: impl FnMut(u32, u32)) {
        let Some(mut from) = self.fill_from else {
            return;
        };
        let end = all.min(from.saturating_add(part));
        while let Some((index, print)) = self.table.next(from, end) {
            sum_of(print).into_iter().for_each(|sum| met(index, sum));
            from = index + 1;
        }
        self.fill_from = (end < all).then_some(end);
    }

    /// Encodes a block of the table, whose number over all tables is `number`.
    pub fn encode(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        let none = Edition::default();
        self.table.encode(block, number, none, signer, out);
    }
}

/// A fingerprint as it is stored in the table; 0 is none.
fn print_of(sum: u32) -> u32 {
    sum.wrapping_add(1).max(1)
}

fn sum_of(print: u32) -> Option<u32> {
    (print != 0).then(|| print.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(u32, u32)]) -> Prints {
        let mut prints = Prints::new(Table::new(1));
        for &(index, sum) in all {
            prints.set(index, sum);
        }
        prints
    }

    #[test]
    fn a_fingerprint_is_a_checksum() {
        let prints = of(&[(3, 0), (4, 77), (5, u32::MAX)]);
        assert_eq!(prints.sum(2), None);
        assert_eq!(prints.sum(3), Some(0));
        assert_eq!(prints.sum(4), Some(77));
        assert!(prints.sum(5).is_some(), "all checksums have one");
    }

    #[test]
    fn unused_contents_are_given_up_in_turn() {
        let mut prints = of(&[(1, 9), (2, 9), (5, 9), (7, 9)]);
        let is_unused = |index: u32| index != 2;
        assert_eq!(prints.give_up(2, 10, is_unused), [1, 5]);
        prints.set(1, 9);
        assert_eq!(
            prints.give_up(1, 10, is_unused),
            [7],
            "the search goes on where it ended"
        );
        assert_eq!(
            prints.give_up(5, 10, is_unused),
            [1],
            "the search begins again at the first block"
        );
        assert_eq!(prints.give_up(5, 10, is_unused), []);
        assert_eq!(prints.sum(2), Some(9));
    }

    #[test]
    fn an_index_is_filled_in_parts() {
        let mut prints = of(&[(0, 5), (3, 6), (4, 7), (9, 8)]);
        let mut met = Vec::new();
        prints.fill(4, 10, |_, _| unreachable!("nothing is filled"));
        prints.begin_to_fill();
        let mut parts = 0;
        while prints.is_filling() {
            prints.fill(4, 10, |index, sum| met.push((index, sum)));
            parts += 1;
        }
        assert_eq!((parts, met), (3, [(0, 5), (3, 6), (4, 7), (9, 8)].to_vec()));
    }
}
