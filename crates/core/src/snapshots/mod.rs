//! Snapshots: a snapshot keeps what clients saw at one instant, for as long as it is wanted.
//!
//! They are built above the layouts, and need only the promise: writes take effect in order, and a [copy](crate::seam::Input::Copy) costs
//! no data. Before a block changes for the first time since the newest snapshot, it is copied into a block that no client sees. A *row*
//! says which block it is, and for which snapshot. Copy and row precede the change in the order of writes, so no crash shows the change
//! without them. A snapshot reads a block by the oldest row for it that is not older than the snapshot. If there is none, it reads the
//! block as the volume has it now.
//!
//! What must hold:
//! 1. A change is handed to the volume only when the copies and the rows of all its blocks have taken effect.
//! 2. A snapshot enters the list when everything before it has taken effect, and before anything after it.
//! 3. A row of a snapshot that is not in the list means nothing: the snapshot was about to be taken when the power failed.
//!
//! This module only keeps the books. The caller does the I/O: it hands blocks of the list and of rows to [`Snapshots::load_list`] and
//! [`Snapshots::load_rows`] once, and writes those that a [`Plan`] names.

mod change;
mod clones;
mod keep;
mod list;
mod rows;
mod sorted;

pub use change::{Change, Part};
pub use keep::{BadKeep, Keep, Schedule, Span, USUAL_KEEP, scheduled_name};
pub use list::{BadEntry, ListError};
pub use rows::{Ignored, Slot};

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::history::{
    BLOCK_ROWS, History, Identity, LIST_BLOCKS, Number, Row, Snapshot, Stage,
};
use crate::seam::CopyBlocks;
use crate::size::Size;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use list::List;
use rows::{Owner, Rows};

/// What to do before blocks change: its steps, one after the other. When all of them have taken effect, [keep](Snapshots::keep) the
/// plan; otherwise [drop](Snapshots::drop_plan) it.
#[derive(Debug, Default)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    added: Vec<(Row, u32)>,
}

/// A step of a plan: first make the copies, then write the block of rows that leads to them. So a cut leaves few copies without rows.
#[derive(Debug)]
pub struct Step {
    /// The copies.
    pub copies: Vec<CopyBlocks>,
    /// The block of rows for them, by number.
    pub row_block: u64,
}

/// The next steps of deleting a snapshot, for some of the blocks that only this snapshot has: first make the discards, then write the
/// blocks of rows. If that fails, [owe](Snapshots::owe) it.
#[derive(Debug, Default)]
pub struct Forget {
    /// Blocks that are not needed any more.
    pub discards: Vec<(Lba, u64)>,
    /// The blocks of rows for them, by number.
    pub row_blocks: Vec<u64>,
    /// Where to continue; `None` if these were the last.
    pub next: Option<Slot>,
}

/// There is no room for one more kept block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("snapshots keep {}, and have room for no more: delete one", Size::of_blocks(*.0))]
pub struct NoRoom(pub u64);

/// See the module.
#[derive(Debug)]
pub struct Snapshots {
    history: History,
    list: List,
    rows: Rows,
    /// Kept blocks that may be mapped, and to which no row in memory leads.
    loose: Vec<(Lba, u64)>,
}

impl Snapshots {
    /// The snapshots of a volume, before anything is loaded.
    #[must_use]
    pub fn new(history: History) -> Self {
        Self {
            history,
            list: List::new(history.row_form().last_number()),
            rows: Rows::new(history),
            loose: Vec::new(),
        }
    }

    /// Where they are on the volume.
    #[must_use]
    pub fn history(&self) -> History {
        self.history
    }

    /// Loads a block of the list: all entries that are right.
    ///
    /// # Errors
    /// When it holds something that is not a snapshot, or one that is loaded already. Tells of the first.
    pub fn load_list(&mut self, block: u64, bytes: &[u8; BLOCK_BYTES]) -> Result<(), BadEntry> {
        self.list.load(block, bytes)
    }

    /// Loads a block of rows, once the list is loaded. Returns what does not count.
    pub fn load_rows(&mut self, block: u64, bytes: &[u8; BLOCK_BYTES]) -> Ignored {
        let list = &self.list;
        self.rows.load(block, bytes, |row| {
            // A snapshot that is still arriving has no rows. If there are any, they were being written when the power failed, and do not
            // count.
            match list.by_number(row.number)?.stage {
                stage if stage.arrives() => None,
                stage if stage.is_clone() => Some(Owner::Clone),
                _ => Some(Owner::Snapshot),
            }
        })
    }

    /// The snapshot or clone of this number.
    #[must_use]
    pub fn by_number(&self, number: Number) -> Option<&Snapshot> {
        self.list.by_number(number)
    }

    /// All snapshots, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.list.iter()
    }

    /// The snapshot of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Snapshot> {
        self.list
            .iter()
            .find(|snapshot| snapshot.identity.name.as_str() == name)
    }

    /// The snapshot that is being received.
    #[must_use]
    pub fn arriving(&self) -> Option<&Snapshot> {
        self.list.iter().find(|snapshot| snapshot.stage.arrives())
    }

    /// The snapshot that the volume is being taken back to.
    #[must_use]
    pub fn returning(&self) -> Option<&Snapshot> {
        self.list.iter().find(|one| one.stage == Stage::Returning)
    }

    /// The newest snapshot that changes are kept for: not one that is being deleted or is incomplete.
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

    /// Blocks of rows that name a snapshot that does not exist, or whose write failed. They have to be written before the list changes,
    /// because a new snapshot may get that number, and an older snapshot may need a row that still names a deleted one. They also have to
    /// be written before a kept block is reused, because the block's old row may still be on the medium.
    #[must_use]
    pub fn stale_row_blocks(&self) -> Vec<u64> {
        self.rows.stale().collect()
    }

    /// Kept blocks that nothing needs. Once the [stale blocks of rows](Self::stale_row_blocks) are written, no row leads to them on the
    /// medium either: then they have to be discarded, and before they are used again.
    #[must_use]
    pub fn loose(&self) -> &[(Lba, u64)] {
        &self.loose
    }

    /// Runs of kept blocks that have no row. If they are mapped, a crash has left them.
    pub fn without_rows(&self) -> impl Iterator<Item = (Lba, u64)> {
        let runs = self.rows.free();
        runs.map(|(slot, blocks)| (self.history.block(slot), blocks))
    }

    /// Notes that these kept blocks, which have no row, are mapped.
    pub fn loosen(&mut self, runs: Vec<(Lba, u64)>) {
        self.loose.extend(runs);
    }

    /// Notes that the stale blocks of rows have been written, and what was loose is discarded.
    pub fn cleaned(&mut self) {
        self.rows.cleaned();
        self.loose.clear();
    }

    /// How many blocks are kept, and how many there is room for.
    #[must_use]
    pub fn room(&self) -> (u64, u64) {
        (self.rows.len(), self.history.kept())
    }

    /// True if a block has to be kept before it changes.
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

    /// The first of these blocks that differs between a snapshot and a later one, or the current volume.
    #[must_use]
    pub fn next_changed(
        &self,
        range: Range<Lba>,
        since: Number,
        until: Option<Number>,
    ) -> Option<Lba> {
        self.rows.next_changed(range, since, until)
    }

    /// Runs of such blocks, as far as a look at `most` rows goes, and where to go on: the end of the range if this was all. It goes on
    /// behind the first block in any case, which has no more rows than there are snapshots.
    #[must_use]
    pub fn changed_runs(
        &self,
        range: Range<Lba>,
        (since, until): (Number, Option<Number>),
        most: usize,
    ) -> (Vec<(Lba, u64)>, Lba) {
        let (mut runs, mut at) = (Vec::new(), range.start);
        let rows = self.rows.from(Row {
            lba: range.start,
            number: since,
        });
        let rows = rows.map(|(row, _)| row);
        for (looked, row) in rows.take_while(|row| row.lba < range.end).enumerate() {
            if looked >= most && row.lba > at {
                return (runs, row.lba);
            }
            at = row.lba;
            let is_known = runs
                .last()
                .is_some_and(|&(lba, n): &(Lba, u64)| lba.plus(n) > at);
            if !is_known && row.number >= since && until.is_none_or(|until| row.number < until) {
                add_to(&mut runs, at, 1);
            }
        }
        (runs, range.end)
    }

    /// All such blocks, in order.
    pub fn changed(&self, since: Number, until: Option<Number>) -> impl Iterator<Item = Lba> {
        let from = move |first| self.next_changed(first..Lba(u64::MAX), since, until);
        core::iter::successors(from(Lba(0)), move |last| from(last.plus(1)))
    }

    /// Plans what has to be done before these blocks change, `number` being the newest snapshot. Skips blocks that are kept
    /// already, or are named twice.
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
                self.cancel_plan(plan);
                return Err(NoRoom(self.history.kept()));
            };
            plan.add(row, slot, &self.history);
        }
        Ok(plan)
    }

    /// Notes that a plan has taken effect.
    pub fn keep(&mut self, plan: Plan) {
        for (_, slot) in plan.added {
            self.rows.insert(slot);
        }
    }

    /// Notes that a plan has not taken effect, or that this is not known.
    pub fn drop_plan(&mut self, plan: Plan) {
        for step in &plan.steps {
            self.rows.owe(&[step.row_block]);
            for copy in &step.copies {
                add_to(&mut self.loose, copy.to, copy.blocks);
            }
        }
        self.cancel_plan(plan);
    }

    /// Notes that nothing of a plan was done.
    pub fn cancel_plan(&mut self, plan: Plan) {
        for (_, slot) in plan.added {
            self.rows.give_back(slot);
        }
    }

    /// Encodes a block of rows as it has to be written.
    pub fn encode_rows(&self, block: u64, out: &mut [u8]) {
        self.rows.encode(block, out);
    }

    /// Encodes a block of the list as it has to be written.
    pub fn encode_list(&self, block: u64, out: &mut [u8]) {
        self.list.encode(block, out);
    }

    /// Proposes a number for a snapshot that is to be taken, and a place in the list.
    ///
    /// # Errors
    /// When there is one of that name, or no room for another.
    pub fn propose(&self, identity: Identity) -> Result<(Snapshot, u64), ListError> {
        self.list.propose(identity)
    }

    /// Adds a snapshot at that place. Returns the block of the list to write.
    pub fn add(&mut self, snapshot: Snapshot, place: u64) -> u64 {
        self.list.add(snapshot, place)
    }

    /// Changes the stage of a snapshot. Returns the block of the list to write.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn set_stage(&mut self, name: &str, stage: Stage) -> Result<u64, ListError> {
        self.list.set_stage(name, stage)
    }

    /// A snapshot, and its place in the list.
    #[must_use]
    pub fn entry(&self, number: Number) -> Option<(Snapshot, u64)> {
        self.list.entry(number)
    }

    /// Removes a snapshot that has no rows from the list. Returns the block of the list to write.
    pub fn remove(&mut self, number: Number) -> Option<u64> {
        debug_assert!(self.rows.of(number, Slot::default()).next().is_none());
        self.list.remove(number)
    }

    /// Deletes the next rows of a snapshot or clone, at most `most`, from a slot on. Rows that an older snapshot needs move to it, and the
    /// others are given up. It goes by slot, so that few blocks of rows change at a time, and adjacent kept blocks are given up together.
    pub fn forget(&mut self, number: Number, from: Slot, most: usize) -> Forget {
        let is_clone = self.is_clone(number);
        let older = self.older(number);
        let rows: Vec<(Row, u32)> = self.rows.of(number, from).take(most + 1).collect();
        let mut forget = Forget {
            next: rows.get(most).map(|(_, slot)| Slot(*slot)),
            ..Forget::default()
        };
        for &(row, slot) in rows.iter().take(most) {
            let inherits = older.map(|number| Row { number, ..row });
            match inherits.filter(|row| !self.rows.has(*row)) {
                Some(heir) => self.rows.rename(row, heir, slot),
                None => {
                    match is_clone {
                        true => self.rows.remove_clone(row, slot),
                        false => self.rows.remove(row, slot),
                    }
                    add_to(&mut forget.discards, self.history.block(slot), 1);
                }
            }
            note(&mut forget.row_blocks, slot);
        }
        forget
    }

    /// Notes that these steps have not taken effect, or may not have: their rows have to be written before the list changes, and their
    /// blocks discarded after that.
    pub fn owe(&mut self, forget: &Forget) {
        self.rows.owe(&forget.row_blocks);
        self.loose.extend(&forget.discards);
    }

    /// The snapshot before a given one, which may need its rows. None for a clone: no snapshot needs a clone's.
    fn older(&self, number: Number) -> Option<Number> {
        if self.is_clone(number) {
            return None;
        }
        let is_older = |other: &&Snapshot| other.number < number && !other.stage.is_clone();
        let older = self.list.iter().rev().find(is_older);
        older.map(|older| older.number)
    }

    /// The rows that deleting a snapshot gives up, by slot: those that no older one needs.
    fn given_up(&self, number: Number) -> impl Iterator<Item = u32> {
        let older = self.older(number);
        let is_given_up =
            move |row: &Row| older.is_none_or(|number| self.rows.has(Row { number, ..*row }));
        let rows = self.rows.of(number, Slot::default());
        let given_up = rows.filter(move |(row, _)| is_given_up(row));
        given_up.map(|(_, slot)| slot)
    }

    /// The kept blocks of each snapshot and clone for blocks from `end` on, in runs.
    #[must_use]
    pub fn kept_behind(&self, end: Lba) -> Vec<(Snapshot, Vec<(Lba, u64)>)> {
        let mut slots: BTreeMap<Number, Vec<u32>> = BTreeMap::new();
        for (row, slot) in self.rows.behind(end) {
            slots.entry(row.number).or_default().push(slot);
        }
        for clone in self.list.iter().filter(|one| one.stage.is_clone()) {
            let own = self.rows.of_clone(clone.number, end);
            let own: Vec<u32> = own.map(|(_, slot)| slot).collect();
            slots.insert(clone.number, own);
        }
        let kept = self.list.iter().filter_map(|one| {
            let mut slots = slots.remove(&one.number)?;
            slots.sort_unstable();
            Some((*one, self.runs_of(&slots)))
        });
        kept.filter(|(_, runs)| !runs.is_empty()).collect()
    }

    /// The kept blocks in these slots, which are sorted, in runs.
    fn runs_of(&self, slots: &[u32]) -> Vec<(Lba, u64)> {
        let mut runs: Vec<(Lba, u64)> = Vec::new();
        for &slot in slots {
            add_to(&mut runs, self.history.block(slot), 1);
        }
        runs
    }

    /// True if deleting a snapshot gives up a kept block, even if nothing is stored in it.
    #[must_use]
    pub fn gives_up_any(&self, number: Number) -> bool {
        self.given_up(number).next().is_some()
    }

    /// The kept blocks that deleting a snapshot gives up, in runs. Blocks that were not mapped store nothing.
    #[must_use]
    pub fn kept_by(&self, number: Number) -> Vec<(Lba, u64)> {
        let slots: Vec<u32> = self.given_up(number).collect();
        self.runs_of(&slots)
    }

    /// Looks at `most` rows from a slot on: the kept blocks that deleting a single snapshot or clone gives up, in runs of one each; and
    /// where to go on.
    #[must_use]
    pub fn kept_alone(&self, from: Slot, most: usize) -> (Vec<(Number, Lba, u64)>, Option<Slot>) {
        let mut before = None;
        let older = self.list.iter().map(|one| {
            let older = before.filter(|_| !one.stage.is_clone());
            if !one.stage.is_clone() {
                before = Some(one.number);
            }
            (one.number, older)
        });
        let older: BTreeMap<Number, Option<Number>> = older.collect();
        let mut rows = self.rows.all(from);
        let mut runs: Vec<(Number, Lba, u64)> = Vec::new();
        for (row, slot) in rows.by_ref().take(most) {
            let heir = older.get(&row.number).copied().flatten();
            if heir.is_some_and(|number| !self.rows.has(Row { number, ..row })) {
                continue;
            }
            let block = self.history.block(slot);
            match runs.last_mut() {
                Some((number, first, blocks))
                    if *number == row.number && first.plus(*blocks) == block =>
                {
                    *blocks += 1;
                }
                _ => runs.push((row.number, block, 1)),
            }
        }
        let next = rows.next().map(|(_, slot)| Slot(slot));
        (runs, next)
    }

    /// True if this is the number of a clone.
    #[must_use]
    pub fn is_clone(&self, number: Number) -> bool {
        let one = self.list.by_number(number);
        one.is_some_and(|one| one.stage.is_clone())
    }
}

/// Adds blocks: to the last run if they follow that, or as a new run.
fn add_to(runs: &mut Vec<(Lba, u64)>, at: Lba, more: u64) {
    match runs.last_mut() {
        Some((first, blocks)) if first.plus(*blocks) == at => *blocks += more,
        _ => runs.push((at, more)),
    }
}

impl Plan {
    /// True if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    fn add(&mut self, row: Row, slot: u32, history: &History) {
        let (to, row_block) = (history.block(slot), block_of(slot));
        // Slots are taken in order, so each block of rows has one step.
        if self
            .steps
            .last()
            .is_none_or(|last| last.row_block != row_block)
        {
            let copies = Vec::new();
            self.steps.push(Step { copies, row_block });
        }
        let Some(Step { copies, .. }) = self.steps.last_mut() else {
            unreachable!("the plan has a step for block {row_block} of rows")
        };
        match copies.last_mut() {
            Some(last)
                if last.from.plus(last.blocks) == row.lba && last.to.plus(last.blocks) == to =>
            {
                last.blocks += 1;
            }
            _ => copies.push(CopyBlocks {
                from: row.lba,
                to,
                blocks: 1,
            }),
        }
        self.added.push((row, slot));
    }
}

/// The block of rows with this slot.
fn block_of(slot: u32) -> u64 {
    u64::from(slot) / BLOCK_ROWS as u64
}

/// Notes that the block of rows with this slot has to be written.
fn note(row_blocks: &mut Vec<u64>, slot: u32) {
    let block = block_of(slot);
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
