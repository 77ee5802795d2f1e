//! Clones: a clone begins with a snapshot's contents, and can be written.
//!
//! A block that a clone has written lies among the kept blocks, and its row says so. What must hold:
//! 1. A block's data takes effect before the row that leads to it, and then stays in place for as long as the clone exists. So a
//!    reader of a clone reads the snapshot's block, or the whole new one.
//! 2. A row of a clone is not a row of a snapshot: only the clone reads it, and it never passes to another snapshot.
//! 3. A snapshot stays for as long as it has clones.

use super::change::{Change, Part};
use super::{BadEntry, NoRoom, Snapshots};
use crate::addr::Lba;
use crate::format::history::{BLOCK_ROWS, Number, Row, Snapshot};

impl Snapshots {
    /// All clones of a snapshot.
    pub fn clones_of(&self, number: Number) -> impl Iterator<Item = &Snapshot> {
        self.iter()
            .filter(move |one| one.clone_of() == Some(number))
    }

    /// Checks that each clone has its snapshot, once the list is loaded.
    ///
    /// # Errors
    /// When one has none.
    pub fn check_clones(&self) -> Result<(), BadEntry> {
        let lost = |of: Number| {
            let of = self.list.by_number(of);
            of.is_none_or(|of| of.stage.is_clone() || of.stage.leaves() || of.stage.arrives())
        };
        let lost = self.iter().find(|one| one.clone_of().is_some_and(lost));
        match lost.and_then(|one| Some((one.identity.name, one.clone_of()?))) {
            None => Ok(()),
            Some((name, of)) => Err(BadEntry::Alone { name, of }),
        }
    }

    /// The place from which a clone or a snapshot reads the blocks from `lba` on, as far as they are adjacent there and before `end`.
    #[must_use]
    pub fn part(&self, number: Number, lba: Lba, end: Lba) -> Part {
        let Some(of) = self.list.by_number(number).and_then(Snapshot::clone_of) else {
            return self.part_of_snapshot(number, lba, end);
        };
        let mut own = self.rows.of_clone(number, lba);
        match own.next() {
            Some((row, first)) if row.lba == lba => {
                let follow = own.zip(1..).take_while(|((row, slot), n)| {
                    row.lba == lba.plus(*n)
                        && row.lba < end
                        && u64::from(*slot) == u64::from(first) + n
                });
                Part {
                    place: self.history.block(first),
                    blocks: 1 + follow.count() as u64,
                    own: true,
                }
            }
            Some((row, _)) => self.part_of_snapshot(of, lba, row.lba.min(end)),
            None => self.part_of_snapshot(of, lba, end),
        }
    }

    fn part_of_snapshot(&self, number: Number, lba: Lba, end: Lba) -> Part {
        let changed = self.next_changed(lba..end, number, None).unwrap_or(end);
        let (place, blocks) = match changed == lba {
            true => (self.place(number, lba), 1),
            false => (lba, changed.0 - lba.0),
        };
        let own = false;
        Part { place, blocks, own }
    }

    /// The most blocks that all clones together may have of their own: half of the room. The other half is left to snapshots: if they
    /// could not keep a block, no client could change it.
    #[must_use]
    pub fn room_of_clones(&self) -> u64 {
        self.history.kept() / 2
    }

    /// Finds room for blocks that a clone does not have of its own yet: for the first of them at least.
    ///
    /// # Errors
    /// When there is none.
    pub fn change(&mut self, number: Number, lba: Lba, blocks: u64) -> Result<Change, NoRoom> {
        debug_assert!(self.is_clone(number));
        let mut change = Change::default();
        let left = self.room_of_clones().saturating_sub(self.rows.of_clones());
        for lba in (0..blocks.min(left)).map(|index| lba.plus(index)) {
            let row = Row { lba, number };
            debug_assert_eq!(self.rows.at_clone(row), None);
            let Some(slot) = self.rows.take(row) else {
                break;
            };
            let row_block = u64::from(slot) / BLOCK_ROWS as u64;
            if !change.added.is_empty() && row_block != change.row_block {
                self.rows.give_back(slot);
                break;
            }
            change.row_block = row_block;
            let place = self.history.block(slot);
            match change.places.last_mut() {
                Some((first, blocks)) if first.plus(*blocks) == place => *blocks += 1,
                _ => change.places.push((place, 1)),
            }
            change.added.push((row, slot));
        }
        match change.added.is_empty() {
            true => Err(NoRoom(self.room().0)),
            false => Ok(change),
        }
    }

    /// Notes that a change has taken effect.
    pub fn made(&mut self, change: Change) {
        for (_, slot) in change.added {
            self.rows.insert_clone(slot);
        }
    }

    /// Notes that a change has not taken effect, or that this is not known.
    pub fn drop_change(&mut self, change: Change) {
        self.rows.owe(&[change.row_block]);
        self.loose.extend(change.places);
        for (_, slot) in change.added {
            self.rows.give_back(slot);
        }
    }
}
