//! A set of LBAs of one volume, one bit each; nothing is allocated before the first insertion.

use crate::addr::Lba;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// A set of LBAs, one bit each.
#[derive(Clone, Debug)]
pub struct LbaSet {
    blocks: u64,
    words: Vec<u64>,
}

impl LbaSet {
    /// An empty set, for a volume with so many blocks.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks,
            words: Vec::new(),
        }
    }

    /// The members before `blocks`.
    #[must_use]
    pub fn before(&self, blocks: u64) -> Self {
        let mut before = Self::new(self.blocks.min(blocks));
        self.runs()
            .for_each(|(from, length)| before.insert(from, length));
        before
    }

    /// Inserts all LBAs of the volume.
    pub fn insert_all(&mut self) {
        self.insert(Lba(0), self.blocks);
    }

    /// Inserts a run, as far as the volume has it.
    pub fn insert(&mut self, from: Lba, blocks: u64) {
        let range = self.within(from, blocks);
        if self.words.is_empty() && !range.is_empty() {
            self.words = vec![0; self.blocks.div_ceil(64) as usize];
        }
        self.each_word(range, |word, mask| *word |= mask);
    }

    /// Removes a run.
    pub fn remove(&mut self, from: Lba, blocks: u64) {
        let range = self.within(from, blocks);
        self.each_word(range, |word, mask| *word &= !mask);
    }

    /// True if the set contains it.
    #[must_use]
    pub fn contains(&self, lba: Lba) -> bool {
        let word = self.words.get((lba.0 / 64) as usize);
        word.is_some_and(|word| word >> (lba.0 % 64) & 1 == 1)
    }

    /// How many LBAs it contains.
    #[must_use]
    pub fn len(&self) -> u64 {
        let ones = self.words.iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }

    /// True if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The first run in `range`: where it begins, and how long it is.
    #[must_use]
    pub fn next_run(&self, range: Range<u64>) -> Option<(Lba, u64)> {
        let end = range.end.min(self.blocks);
        let from = self.first(range.start..end, true)?;
        let to = self.first(from..end, false).unwrap_or(end);
        Some((Lba(from), to - from))
    }

    /// Every run, in order.
    pub fn runs(&self) -> impl Iterator<Item = (Lba, u64)> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let (lba, blocks) = self.next_run(from..self.blocks)?;
            from = lba.0 + blocks;
            Some((lba, blocks))
        })
    }

    /// The first LBA in `range` that is in the set, or with `is_in` false, that is not.
    fn first(&self, range: Range<u64>, is_in: bool) -> Option<u64> {
        if self.words.is_empty() {
            return (!is_in && !range.is_empty()).then_some(range.start);
        }
        let mut at = range.start;
        while at < range.end {
            let word = self.words[(at / 64) as usize];
            let wanted = if is_in { word } else { !word } >> (at % 64);
            if wanted != 0 {
                at += u64::from(wanted.trailing_zeros());
                return (at < range.end).then_some(at);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn within(&self, from: Lba, blocks: u64) -> Range<u64> {
        from.0.min(self.blocks)..from.0.saturating_add(blocks).min(self.blocks)
    }

    fn each_word(&mut self, range: Range<u64>, change: impl Fn(&mut u64, u64)) {
        let mut at = range.start;
        while at < range.end && !self.words.is_empty() {
            let end = range.end.min((at / 64 + 1) * 64);
            let mask = !0 >> (64 - (end - at)) << (at % 64);
            change(&mut self.words[(at / 64) as usize], mask);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u64..200), 0..40)) {
            let mut set = LbaSet::new(250);
            let mut model = BTreeSet::new();
            for (inserts, from, blocks) in steps {
                let range = from.min(250)..(from + blocks).min(250);
                match inserts {
                    true => {
                        set.insert(Lba(from), blocks);
                        model.extend(range);
                    }
                    false => {
                        set.remove(Lba(from), blocks);
                        model.retain(|lba| !range.contains(lba));
                    }
                }
                prop_assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
                prop_assert_eq!(set.before(from).len(), model.range(..from).count() as u64);
            }
            let listed: BTreeSet<u64> = set.runs().flat_map(|(lba, blocks)| lba.0..lba.0 + blocks).collect();
            prop_assert!((0..260).all(|lba| set.contains(Lba(lba)) == model.contains(&lba)));
            prop_assert_eq!(listed, model);
        }
    }
}
