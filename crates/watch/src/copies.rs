//! Which home block each journal block is a copy of, and where each home block's newest copy is: the next
//! copy will be most like that one.

use crate::limits::COPIES_KNOWN;
use std::collections::HashMap;
use vellum_core::addr::Lba;
use vellum_ext4::journal::JournalBlock;

/// What is known about the copies in a journal. Nothing depends on the order of its maps, which is random.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// The home (bytes of the volume) of each copy, according to the descriptors read last.
    homes: HashMap<JournalBlock, u64>,
    /// For each home, the copy written last.
    newest: HashMap<u64, (JournalBlock, Lba)>,
}

/// A block about to be written into a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its home (bytes of the volume).
    pub home: u64,
    /// The place of the previous copy.
    pub before: Option<Lba>,
}

impl Copies {
    /// Records the homes of the copies that follow a descriptor.
    pub fn describe(&mut self, places: impl Iterator<Item = (JournalBlock, u64)>) {
        if self.homes.len() > COPIES_KNOWN {
            self.homes.clear();
        }
        self.homes.extend(places);
    }

    /// Records that the journal writes a block of its own, which is not a copy.
    pub fn own(&mut self, block: JournalBlock) {
        self.homes.remove(&block);
    }

    /// Records a write to a journal block that is at `lba`. Returns what it is a copy of, if known.
    pub fn write(&mut self, block: JournalBlock, lba: Lba) -> Option<Copied> {
        let home = *self.homes.get(&block)?;
        if self.newest.len() > COPIES_KNOWN {
            self.newest.clear();
        }
        let before = self.newest.insert(home, (block, lba));
        // If the journal has wrapped around, that place now holds something else.
        let before = before.filter(|(block, _)| self.homes.get(block) == Some(&home));
        Some(Copied {
            home,
            before: before.map(|(_, lba)| lba),
        })
    }

    /// Forgets everything.
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
        copied.expect("a descriptor names the copy's home").before
    }

    #[test]
    fn the_previous_copy_is_found_until_its_place_is_overwritten() {
        let mut copies = Copies::default();
        assert_eq!(copies.write(JournalBlock(2), Lba(102)), None);
        describe(&mut copies, 2, HOME);
        assert_eq!(before(&mut copies, 2), None);
        describe(&mut copies, 6, HOME);
        assert_eq!(before(&mut copies, 6), Some(Lba(102)));
        describe(&mut copies, 9, HOME);
        assert_eq!(before(&mut copies, 9), Some(Lba(106)));
        // The journal wraps around.
        describe(&mut copies, 9, 2 * HOME);
        assert_eq!(before(&mut copies, 9), None);
        describe(&mut copies, 2, HOME);
        assert_eq!(before(&mut copies, 2), None);
        // The place of a block of its own.
        describe(&mut copies, 6, HOME);
        assert_eq!(before(&mut copies, 6), Some(Lba(102)));
        copies.own(JournalBlock(6));
        assert_eq!(copies.write(JournalBlock(6), Lba(106)), None);
        describe(&mut copies, 9, HOME);
        assert_eq!(before(&mut copies, 9), None);
        copies.clear();
        assert_eq!(copies.write(JournalBlock(2), Lba(102)), None);
    }

    #[test]
    fn the_number_of_known_copies_is_bounded() {
        let mut copies = Copies::default();
        // A hostile journal names ever new homes.
        for at in 0..3 * COPIES_KNOWN as u32 {
            describe(&mut copies, at, u64::from(at));
            before(&mut copies, at);
            describe(&mut copies, 0, HOME + u64::from(at));
            before(&mut copies, 0);
            assert!(copies.homes.len() <= COPIES_KNOWN + 1);
            assert!(copies.newest.len() <= COPIES_KNOWN + 1);
        }
        // Or it names all homes at once, and then writes the copies.
        let all = 0..3 * COPIES_KNOWN as u32;
        copies.describe(all.clone().map(|at| (JournalBlock(at), u64::from(at))));
        for at in all {
            before(&mut copies, at);
            assert!(copies.newest.len() <= COPIES_KNOWN + 1);
        }
    }
}
