//! Clones: each begins as a snapshot, and is written to.
//!
//! A block of a clone that was written lies where kept blocks do, and its row says so. What must hold:
//! 1. A block's data takes effect before the row that leads to it, and then it stays where it is for as long as the clone is
//!    there. So whoever reads a clone reads the snapshot's block, or the whole new one.
//! 2. A row of a clone is no row of a snapshot: what a clone has is read by itself alone, and never goes to another one.
//! 3. A snapshot stays for as long as it has clones.

use super::change::{Change, Part};
use super::{Forget, NoRoom, Snapshots, note};
use crate::addr::Lba;
use crate::format::FormatError;
use crate::format::history::{BLOCK_ROWS, Number, Row, Snapshot, Stage};
use alloc::vec::Vec;

impl Snapshots {
    /// All clones of a snapshot.
    pub fn clones_of(&self, number: Number) -> impl Iterator<Item = &Snapshot> {
        self.iter()
            .filter(move |one| one.clone_of() == Some(number))
    }

    /// Whether this is the number of a clone.
    #[must_use]
    pub fn is_clone(&self, number: Number) -> bool {
        let one = self.list.by_number(number);
        one.is_some_and(|one| one.stage.is_clone())
    }

    /// Says whether each clone has its snapshot, once the list is there.
    ///
    /// # Errors
    /// When one has none.
    pub fn check_clones(&self) -> Result<(), FormatError> {
        let lost = |of: &Number| {
            let of = self.list.by_number(*of);
            of.is_none_or(|of| of.stage.is_clone() || of.stage.leaves() || of.stage.arrives())
        };
        match self.iter().filter_map(Snapshot::clone_of).find(lost) {
            None => Ok(()),
            Some(of) => Err(FormatError::Value {
                what: "list of snapshots",
                field: "snapshot of a clone",
                value: of.0.into(),
            }),
        }
    }

    /// Where a clone or a snapshot reads blocks from `lba` on, as far as they follow each other, and before `end`.
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
        let changed = self.next_changed(lba, number, None);
        let changed = changed.map_or(end, |changed| changed.min(end));
        let (place, blocks) = match changed == lba {
            true => (self.place(number, lba), 1),
            false => (lba, changed.0 - lba.0),
        };
        let own = false;
        Part { place, blocks, own }
    }

    /// Blocks that all clones together may have of their own: half of what there is room for. The other half is left to snapshots:
    /// what they cannot keep, no client of the volume may change.
    #[must_use]
    pub fn room_of_clones(&self) -> u64 {
        self.history.kept() / 2
    }

    /// Room for blocks of a clone of which it has none of its own: for the first at least.
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

    /// A change has taken effect.
    pub fn made(&mut self, change: Change) {
        for (_, slot) in change.added {
            self.rows.insert_clone(slot);
        }
    }

    /// A change has not, or nobody knows.
    pub fn drop_change(&mut self, change: Change) {
        for (_, slot) in change.added {
            self.rows.give_back(slot);
        }
    }

    /// As [`forget`](Self::forget): what a clone has, nobody else needs.
    pub(super) fn forget_clone(&mut self, number: Number, from: Lba, most: usize) -> Forget {
        debug_assert!(
            self.list
                .by_number(number)
                .is_some_and(|one| one.stage == Stage::LeavingClone)
        );
        let rows: Vec<(Row, u32)> = self.rows.of_clone(number, from).take(most + 1).collect();
        let mut forget = Forget {
            next: rows.get(most).map(|(row, _)| row.lba),
            ..Forget::default()
        };
        for &(row, slot) in rows.iter().take(most) {
            self.rows.remove_clone(row, slot);
            forget.discard(self.history.block(slot));
            note(&mut forget.row_blocks, slot);
        }
        forget
    }
}
