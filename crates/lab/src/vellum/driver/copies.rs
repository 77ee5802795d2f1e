//! Which blocks of a journal are copies of what, and where the newest copy of each is: what the next one is most like. By the device's rule, and
//! bounded as there.

use crate::workload::NO_HOME;
use std::collections::HashMap;

/// Copies that the device knows, at most.
const COPIES_KNOWN: usize = 32 << 10;

/// What is known of the copies in a journal. Looked up only: the maps' order is chance.
#[derive(Default)]
pub(super) struct Copies {
    homes: HashMap<u64, u64>,
    newest: HashMap<u64, u64>,
}

impl Copies {
    /// Where the blocks belong that are to be written from `at` on.
    pub fn describe(&mut self, at: u64, homes: &[u64]) {
        if self.homes.len() > COPIES_KNOWN {
            self.homes.clear();
        }
        for (at, &home) in (at..).zip(homes) {
            match home {
                NO_HOME => self.homes.remove(&at),
                home => self.homes.insert(at, home),
            };
        }
    }

    /// A copy is written: where the one before it is, if that is still there.
    pub fn write(&mut self, at: u64, home: u64) -> Option<u64> {
        if self.newest.len() > COPIES_KNOWN {
            self.newest.clear();
        }
        let before = self.newest.insert(home, at)?;
        (self.homes.get(&before) == Some(&home)).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_before_is_found_until_something_else_is_there() {
        let mut copies = Copies::default();
        copies.describe(1, &[NO_HOME, 500, 600]);
        assert_eq!(copies.write(2, 500), None);
        assert_eq!(copies.write(3, 600), None);
        copies.describe(5, &[500, 600, NO_HOME]);
        assert_eq!(copies.write(5, 500), Some(2));
        assert_eq!(copies.write(6, 600), Some(3));
        // The journal has come round: to another copy, and to a block of its own.
        copies.describe(5, &[700, NO_HOME, 500, 600]);
        assert_eq!(copies.write(7, 500), None);
        assert_eq!(copies.write(8, 600), None);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut copies = Copies::default();
        for at in 0..3 * COPIES_KNOWN as u64 {
            copies.describe(at, &[at]);
            copies.write(at, at);
            assert!(copies.homes.len() <= COPIES_KNOWN + 1);
            assert!(copies.newest.len() <= COPIES_KNOWN + 1);
        }
    }
}
