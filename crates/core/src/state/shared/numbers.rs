//! Numbers that no page has.

use alloc::vec::Vec;

/// Numbers are less than 64 to this power.
const LEVELS: usize = 5;

/// A set, of which the least is found at once: a bit for each number, and for each 64 bits one that says whether any is set.
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
                // By an eighth more at a time: a volume that shares much has millions.
                words.reserve_exact(at + 1 + at / 8 - words.len());
                words.resize(words.capacity(), 0);
            }
            words[at] |= 1 << (index % 64);
            index = at;
        }
    }

    fn take(&mut self) -> Option<u32> {
        let number = self.least()?;
        let mut index = number as usize;
        for words in &mut self.levels {
            let word = &mut words[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                break;
            }
            index /= 64;
        }
        Some(number)
    }
}

/// Those that can be given out, those that a map checkpoint on its way sets free, and those that the next one will.
#[derive(Default)]
pub(super) struct Free {
    ready: Set,
    ending: Set,
    resting: Set,
}

impl Free {
    /// The one that is given out next: the least, so that those which are in use stay together.
    pub fn next(&self) -> Option<u32> {
        self.ready.least()
    }

    /// Gives it out.
    pub fn take(&mut self) -> Option<u32> {
        self.ready.take()
    }

    /// A number is freed: it rests until a map checkpoint is durable that began afterwards.
    pub fn put(&mut self, number: u32) {
        self.resting.put(number);
    }

    /// A map checkpoint begins.
    pub fn checkpoint_begins(&mut self) {
        debug_assert!(
            self.ending.least().is_none(),
            "one map checkpoint at a time"
        );
        core::mem::swap(&mut self.ending, &mut self.resting);
    }

    /// That one is durable: the next number that can be given out from now on.
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
        fn the_least_comes_first(steps in prop::collection::vec(prop::option::of(0..1u32 << 20), 1..300)) {
            let mut set = Set::default();
            let mut model = BTreeSet::new();
            for put in steps {
                match put {
                    Some(number) => {
                        set.put(number);
                        model.insert(number);
                    }
                    None => prop_assert_eq!(set.take(), model.pop_first()),
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
