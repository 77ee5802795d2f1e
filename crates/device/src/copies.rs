//! Which blocks of a journal are copies of what, and where the newest copy of each is: what the next one is most like.

use crate::limits::COPIES_KNOWN;
use std::collections::HashMap;
use vellum_core::addr::Lba;
use vellum_ext4::journal::JournalBlock;

/// What is known of the copies in a journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// Where copies belong (bytes of the volume), as the descriptors say that have been read last.
    homes: HashMap<JournalBlock, u64>,
    /// Of what belongs there, the copy that was written last.
    newest: HashMap<u64, (JournalBlock, Lba)>,
}

/// A block that is about to be written into a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Where it belongs (bytes of the volume).
    pub home: u64,
    /// Where the copy before this one is.
    pub before: Option<Lba>,
}

impl Copies {
    /// A descriptor says where the copies behind it belong.
    pub fn describe(&mut self, places: impl Iterator<Item = (JournalBlock, u64)>) {
        if self.homes.len() > COPIES_KNOWN {
            self.homes.clear();
        }
        self.homes.extend(places);
    }

    /// A block of the journal, which lies at `lba`, is written: what it is a copy of, if that is known.
    pub fn write(&mut self, block: JournalBlock, lba: Lba) -> Option<Copied> {
        let home = *self.homes.get(&block)?;
        if self.newest.len() > COPIES_KNOWN {
            self.newest.clear();
        }
        let before = self.newest.insert(home, (block, lba));
        // The journal has come round, and something else is there.
        let before = before.filter(|(block, _)| self.homes.get(block) == Some(&home));
        Some(Copied {
            home,
            before: before.map(|(_, lba)| lba),
        })
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        self.homes.clear();
        self.newest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: u64 = 40_960;

    fn describe(copies: &mut Copies, block: u32, home: u64) {
        copies.describe([(JournalBlock(block), home)].into_iter());
    }

    fn before(copies: &mut Copies, block: u32) -> Option<Lba> {
        let copied = copies.write(JournalBlock(block), Lba(u64::from(block) + 100));
        copied.expect("it is described").before
    }

    #[test]
    fn the_copy_before_is_found_until_something_else_is_there() {
        let mut copies = Copies::default();
        assert_eq!(copies.write(JournalBlock(2), Lba(102)), None);
        describe(&mut copies, 2, HOME);
        assert_eq!(before(&mut copies, 2), None);
        describe(&mut copies, 6, HOME);
        assert_eq!(before(&mut copies, 6), Some(Lba(102)));
        describe(&mut copies, 9, HOME);
        assert_eq!(before(&mut copies, 9), Some(Lba(106)));
        // The journal comes round.
        describe(&mut copies, 9, 2 * HOME);
        assert_eq!(before(&mut copies, 9), None);
        describe(&mut copies, 2, HOME);
        assert_eq!(before(&mut copies, 2), None);
        copies.clear();
        assert_eq!(copies.write(JournalBlock(2), Lba(102)), None);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut copies = Copies::default();
        // As a hostile journal would have it: ever new homes.
        for at in 0..3 * COPIES_KNOWN as u32 {
            describe(&mut copies, at, u64::from(at));
            before(&mut copies, at);
            describe(&mut copies, 0, HOME + u64::from(at));
            before(&mut copies, 0);
            assert!(copies.homes.len() <= COPIES_KNOWN + 1);
            assert!(copies.newest.len() <= COPIES_KNOWN + 1);
        }
        // Or described all at once, and written then.
        let all = 0..3 * COPIES_KNOWN as u32;
        copies.describe(all.clone().map(|at| (JournalBlock(at), u64::from(at))));
        for at in all {
            before(&mut copies, at);
            assert!(copies.newest.len() <= COPIES_KNOWN + 1);
        }
    }
}
