//! Free page numbers: numbers that no page has.

use alloc::vec::Vec;

/// Numbers are below 64 to this power.
const LEVELS: usize = 5;

/// A set whose least member is found at once. It has a bit for each number, and above each 64 bits one bit that says whether any of them
/// is set.
#[derive(Default)]
struct Set {
    levels: [Vec<u64>; LEVELS],
}

impl Set {
    fn least(&self) -> Option<u32> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let word = *level.get(index)?;
            if word == 0 {
                return None;
            }
            index = index * 64 + word.trailing_zeros() as usize;
        }
        Some(index as u32)
    }

    fn put(&mut self, number: u32) {
        let mut index = number as usize;
        for words in &mut self.levels {
            let at = index / 64;
            if at >= words.len() {
                // Grows by an eighth at a time: a volume that shares much has millions.
                words.reserve_exact(at + 1 + at / 8 - words.len());
                words.resize(words.capacity(), 0);
            }
            words[at] |= 1 << (index % 64);
            index = at;
        }
    }

    fn take(&mut self) -> Option<u32> {
        let number = self.least()?;
        self.remove(number);
        Some(number)
    }

    fn remove(&mut self, number: u32) {
        let mut index = number as usize;
        for words in &mut self.levels {
            let Some(word) = words.get_mut(index / 64) else {
                return;
            };
            *word &= !(1 << (index % 64));
            if *word != 0 {
                return;
            }
            index /= 64;
        }
    }
}

/// Free numbers of pages, by when they can be allocated: now, after the map checkpoint in flight, or after the next one.
#[derive(Default)]
pub(super) struct Free {
    ready: Set,
    ending: Set,
    resting: Set,
    /// Numbers that are free by what is counted so far. They are not used before all is.
    waiting: Set,
}

impl Free {
    /// Returns the next number to allocate: the least, so that used numbers stay together.
    pub fn next(&self) -> Option<u32> {
        self.ready.least()
    }

    /// Allocates the least free number.
    pub fn take(&mut self) -> Option<u32> {
        self.ready.take()
    }

    /// Frees a number: it rests until a map checkpoint that began afterwards is durable.
    pub fn put(&mut self, number: u32) {
        self.resting.put(number);
    }

    /// Has a number wait until all pages are settled: then it is free.
    pub fn put_later(&mut self, number: u32) {
        self.waiting.put(number);
    }

    /// Takes a number back that may wait for that.
    pub fn take_back(&mut self, number: u32) {
        self.waiting.remove(number);
    }

    /// Frees the numbers that wait. No other was freed before.
    pub fn put_waiting(&mut self) {
        debug_assert!(self.resting.least().is_none(), "pages are settled first");
        self.resting = core::mem::take(&mut self.waiting);
    }

    /// Begins a map checkpoint.
    pub fn checkpoint_begins(&mut self) {
        debug_assert!(
            self.ending.least().is_none(),
            "one map checkpoint at a time"
        );
        core::mem::swap(&mut self.ending, &mut self.resting);
    }

    /// After that checkpoint is durable, returns the next number that can be allocated from now on.
    pub fn rested(&mut self) -> Option<u32> {
        let number = self.ending.take()?;
        self.ready.put(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_least_comes_first(
            steps in prop::collection::vec((0..3, 0..1u32 << 20, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut set = Set::default();
            let mut model = BTreeSet::new();
            for (step, number, which) in steps {
                match step {
                    0 => prop_assert_eq!(set.take(), model.pop_first()),
                    1 => {
                        let one = (!model.is_empty()).then(|| which.index(model.len()));
                        let one = one.and_then(|one| model.iter().nth(one).copied());
                        set.remove(one.unwrap_or(number));
                        model.remove(&one.unwrap_or(number));
                    }
                    _ => {
                        set.put(number);
                        model.insert(number);
                    }
                }
                prop_assert_eq!(set.least(), model.first().copied());
            }
            while let Some(number) = model.pop_first() {
                prop_assert_eq!(set.take(), Some(number));
            }
            prop_assert_eq!(set.take(), None);
        }
    }
}
