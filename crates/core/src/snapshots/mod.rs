//! Snapshots: what clients saw at an instant, for as long as it is wanted.
//!
//! They are built on the promise and on nothing else, above the layouts: a volume takes effect in the order of its writes, and a
//! [copy](crate::seam::Input::Copy) costs no data. Before a block changes for the first time since the newest snapshot, it is
//! copied into a block that no client sees, and a *row* says of which block that is, and for which snapshot. Both are before the
//! change in the order of writes, so no crash shows it without them. A snapshot reads a block in the oldest row that is
//! not older than itself, or else as the volume has it now.
//!
//! What must hold:
//! 1. A change is handed to the volume when the copies and the rows of all its blocks have taken effect, and not before.
//! 2. A snapshot is in the list when all that came before it has taken effect, and before anything that comes after.
//! 3. A row of a snapshot that is not in the list says nothing: it was about to be, when the power failed.
//!
//! This is the bookkeeping. Who carries it out hands blocks of the list and of rows to [`Snapshots::load_list`] and
//! [`Snapshots::load_rows`] once, and writes those that a [`Plan`] names.

mod change;
mod clones;
mod keep;
mod list;
mod rows;
mod sorted;

pub use change::{Change, Part};
pub use keep::{BadKeep, Keep, Schedule, Span, USUAL_KEEP, scheduled_name};
pub use list::ListError;

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::FormatError;
use crate::format::history::{
    BLOCK_ROWS, History, Identity, LIST_BLOCKS, Number, Row, Snapshot, Stage,
};
use crate::seam::Copy;
use alloc::{collections::BTreeSet, vec::Vec};
use list::List;
use rows::{Owner, Rows};

/// What is to be done before blocks change: first the copies, then the blocks of rows are written. When all that has taken effect
/// it is [kept](Snapshots::keep); otherwise [dropped](Snapshots::drop_plan).
#[derive(Debug, Default)]
pub struct Plan {
    /// The copies.
    pub copies: Vec<Copy>,
    /// The blocks of rows that say so, by number.
    pub row_blocks: Vec<u64>,
    added: Vec<(Row, u32)>,
}

/// What is to be done for some of the blocks that only a snapshot which is being deleted has: first the discards, then the blocks
/// of rows are written. It is done then.
#[derive(Debug, Default)]
pub struct Forget {
    /// Blocks that nobody reads any more.
    pub discards: Vec<(Lba, u64)>,
    /// The blocks of rows that say so, by number.
    pub row_blocks: Vec<u64>,
    /// Where to go on; `None`: these were the last.
    pub next: Option<Lba>,
}

/// There is no room for one more kept block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("snapshots keep {0} blocks, and have room for no more: delete one")]
pub struct NoRoom(pub u64);

/// See the module.
#[derive(Debug)]
pub struct Snapshots {
    history: History,
    list: List,
    rows: Rows,
}

impl Snapshots {
    /// Those of a volume, before anything is loaded.
    #[must_use]
    pub fn new(history: History) -> Self {
        Self {
            history,
            list: List::default(),
            rows: Rows::new(history),
        }
    }

    /// Where they are.
    #[must_use]
    pub fn history(&self) -> History {
        self.history
    }

    /// Takes a block of the list.
    ///
    /// # Errors
    /// When something in it is no snapshot, or one that is there already.
    pub fn load_list(&mut self, block: u64, bytes: &[u8; BLOCK_BYTES]) -> Result<(), FormatError> {
        self.list.load(block, bytes)
    }

    /// Takes a block of rows, when the list is there.
    pub fn load_rows(&mut self, block: u64, bytes: &[u8; BLOCK_BYTES]) {
        let list = &self.list;
        self.rows.load(block, bytes, |row| {
            // One that arrives has none: those that are there were about to be its first when the power failed.
            match list.by_number(row.number)?.stage {
                stage if stage.arrives() => None,
                stage if stage.is_clone() => Some(Owner::Clone),
                _ => Some(Owner::Snapshot),
            }
        });
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.list.iter()
    }

    /// The one of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Snapshot> {
        self.list
            .iter()
            .find(|snapshot| snapshot.identity.name.as_str() == name)
    }

    /// The one that is being received.
    #[must_use]
    pub fn arriving(&self) -> Option<&Snapshot> {
        self.list.iter().find(|snapshot| snapshot.stage.arrives())
    }

    /// The newest that changes are kept for: not one that is being deleted, and none that is not there yet.
    #[must_use]
    pub fn newest(&self) -> Option<Number> {
        let mut newer = self.list.iter().rev();
        let is_kept = |one: &&Snapshot| {
            let stage = one.stage;
            !stage.leaves() && !stage.arrives() && !stage.is_clone()
        };
        let newest = newer.find(is_kept);
        newest.map(|newest| newest.number)
    }

    /// Blocks of rows that say something of a snapshot which is not there. They are to be written before one is taken: it may get
    /// that number.
    #[must_use]
    pub fn stale_row_blocks(&self) -> Vec<u64> {
        self.rows.stale().collect()
    }

    /// These have been written.
    pub fn cleaned(&mut self) {
        self.rows.cleaned();
    }

    /// Blocks that they keep, and how many they have room for.
    #[must_use]
    pub fn room(&self) -> (u64, u64) {
        (self.rows.len(), self.history.kept())
    }

    /// Whether a block would have to be kept before it changes.
    #[must_use]
    pub fn wants(&self, lba: Lba) -> bool {
        self.newest()
            .is_some_and(|number| self.rows.at(Row { lba, number }).is_none())
    }

    /// Where a snapshot reads a block.
    #[must_use]
    pub fn place(&self, number: Number, lba: Lba) -> Lba {
        self.rows
            .at(Row { lba, number })
            .map_or(lba, |slot| self.history.block(slot))
    }

    /// Blocks that differ between a snapshot and a later one, or the volume as it is, from `from` on: the first.
    #[must_use]
    pub fn next_changed(&self, from: Lba, since: Number, until: Option<Number>) -> Option<Lba> {
        self.rows.next_changed(from, since, until)
    }

    /// All of them, in order.
    pub fn changed(&self, since: Number, until: Option<Number>) -> impl Iterator<Item = Lba> {
        let next = move |last: &Lba| self.next_changed(last.plus(1), since, until);
        core::iter::successors(self.next_changed(Lba(0), since, until), next)
    }

    /// What has to be done before these blocks change, `number` being the newest snapshot. Blocks that are kept already, or that
    /// are named twice, are passed over.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn plan(
        &mut self,
        number: Number,
        lbas: impl Iterator<Item = Lba>,
    ) -> Result<Plan, NoRoom> {
        let mut plan = Plan::default();
        let mut named = BTreeSet::new();
        for lba in lbas {
            let row = Row { lba, number };
            if self.rows.at(row).is_some() || !named.insert(lba) {
                continue;
            }
            let Some(slot) = self.rows.take(row) else {
                self.drop_plan(plan);
                return Err(NoRoom(self.history.kept()));
            };
            plan.add(row, slot, &self.history);
        }
        Ok(plan)
    }

    /// A plan has taken effect.
    pub fn keep(&mut self, plan: Plan) {
        for (_, slot) in plan.added {
            self.rows.insert(slot);
        }
    }

    /// A plan has not, or nobody knows.
    pub fn drop_plan(&mut self, plan: Plan) {
        for (_, slot) in plan.added {
            self.rows.give_back(slot);
        }
    }

    /// A block of rows as it is to be written.
    pub fn encode_rows(&self, block: u64, out: &mut [u8]) {
        self.rows.encode(block, out);
    }

    /// A block of the list as it is to be written.
    pub fn encode_list(&self, block: u64, out: &mut [u8]) {
        self.list.encode(block, out);
    }

    /// A number for a snapshot that is to be taken, and a place in the list.
    ///
    /// # Errors
    /// When one of that name is there, or there is no room for one more.
    pub fn propose(&self, identity: Identity) -> Result<(Snapshot, u64), ListError> {
        self.list.propose(identity)
    }

    /// Takes it in at that place; the block of the list that is to be written.
    pub fn add(&mut self, snapshot: Snapshot, place: u64) -> u64 {
        self.list.add(snapshot, place)
    }

    /// Another stage of one; the block of the list that is to be written.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn set_stage(&mut self, name: &str, stage: Stage) -> Result<u64, ListError> {
        self.list.set_stage(name, stage)
    }

    /// Takes one out of the list, of which there is no row; the block of the list that is to be written.
    pub fn remove(&mut self, number: Number) -> Option<u64> {
        debug_assert!(self.rows.of(number, Lba(0)).next().is_none());
        debug_assert!(self.rows.of_clone(number, Lba(0)).next().is_none());
        self.list.remove(number)
    }

    /// The next rows of a snapshot that is being deleted, from those of block `from` on and so many at most: an older one needs
    /// them, or nobody.
    pub fn forget(&mut self, number: Number, from: Lba, most: usize) -> Forget {
        if self.is_clone(number) {
            return self.forget_clone(number, from, most);
        }
        let older = self.older(number);
        let rows: Vec<(Row, u32)> = self.rows.of(number, from).take(most + 1).collect();
        let mut forget = Forget {
            next: rows.get(most).map(|(row, _)| row.lba),
            ..Forget::default()
        };
        for &(row, slot) in rows.iter().take(most) {
            let inherits = older.map(|number| Row { number, ..row });
            match inherits.filter(|row| !self.rows.has(*row)) {
                Some(heir) => self.rows.rename(row, heir, slot),
                None => {
                    self.rows.remove(row, slot);
                    forget.discard(self.history.block(slot));
                }
            }
            note(&mut forget.row_blocks, slot);
        }
        forget
    }

    /// The snapshot before one.
    fn older(&self, number: Number) -> Option<Number> {
        let is_older = |other: &&Snapshot| other.number < number && !other.stage.is_clone();
        let older = self.list.iter().rev().find(is_older);
        older.map(|older| older.number)
    }

    /// How many blocks deleting a snapshot gives up: those that no older one needs.
    #[must_use]
    pub fn kept_by(&self, number: Number) -> u64 {
        if self.is_clone(number) {
            return self.rows.of_clone(number, Lba(0)).count() as u64;
        }
        let rows = self.rows.of(number, Lba(0));
        match self.older(number) {
            None => rows.count() as u64,
            Some(number) => rows
                .filter(|(row, _)| self.rows.has(Row { number, ..*row }))
                .count() as u64,
        }
    }
}

impl Plan {
    /// Whether there is nothing to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    fn add(&mut self, row: Row, slot: u32, history: &History) {
        let to = history.block(slot);
        match self.copies.last_mut() {
            Some(last)
                if last.from.plus(last.blocks) == row.lba && last.to.plus(last.blocks) == to =>
            {
                last.blocks += 1;
            }
            _ => self.copies.push(Copy {
                from: row.lba,
                to,
                blocks: 1,
            }),
        }
        note(&mut self.row_blocks, slot);
        self.added.push((row, slot));
    }
}

impl Forget {
    fn discard(&mut self, block: Lba) {
        match self.discards.last_mut() {
            Some((first, blocks)) if first.plus(*blocks) == block => *blocks += 1,
            _ => self.discards.push((block, 1)),
        }
    }
}

/// The block of rows that has a slot is to be written.
fn note(row_blocks: &mut Vec<u64>, slot: u32) {
    let block = u64::from(slot) / BLOCK_ROWS as u64;
    if !row_blocks.contains(&block) {
        row_blocks.push(block);
    }
}

/// All blocks of the list.
pub fn list_blocks() -> impl Iterator<Item = u64> {
    0..LIST_BLOCKS
}

#[cfg(test)]
mod tests;
