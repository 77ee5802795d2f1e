//! Taking a snapshot, deleting it, and taking the volume back to it.

use super::carry;
use super::keeper::{Alone, Keeper};
use crate::block::{BlockError, Extent};
use crate::entropy;
use crate::limits::{SNAPSHOT_PATIENCE, SNAPSHOT_ROWS, SNAPSHOT_WAITS};
use crate::shared::Shared;
use parking_lot::RwLockWriteGuard;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{BadName, Identity, Mark, Name, Number, Snapshot, Stage};
use vellum_core::seam::Copy;
use vellum_core::snapshots::{ListError, NoRoom, Plan, Snapshots};

/// Changed blocks that are looked at in one go: meanwhile no write is kept.
const COMPARED_MAX: usize = 8192;

/// Why something cannot be done with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It was made without room for any.
    #[error(
        "the volume was made without room for snapshots: `vellum migrate --layout log` makes one with it"
    )]
    NoHistory,
    /// It is read alone.
    #[error("the volume is open read-only")]
    ReadOnly,
    /// Of the name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// Of the list.
    #[error(transparent)]
    List(#[from] ListError),
    /// Too much is kept.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Writes waited all the time.
    #[error(
        "writes have waited for {} s before the volume: for room, or for what they commit; nothing was done",
        SNAPSHOT_PATIENCE.as_secs()
    )]
    Busy,
    /// It is being deleted.
    #[error("the snapshot is being deleted")]
    Leaves,
    /// It is being received.
    #[error("snapshot {0} is being received, and is not there before all of it is")]
    Arrives(Name),
    /// It has clones.
    #[error("snapshot {0} has clones: delete {1} first")]
    HasClones(Name, String),
    /// It is a clone.
    #[error("{0} is a clone, and no snapshot")]
    IsClone(Name),
    /// Somebody has it open.
    #[error("clone {0} is in use: detach it, or end its clients, and then delete it")]
    InUse(Name),
    /// No randomness for its mark.
    #[error("no randomness from the system for the snapshot's mark: {0}")]
    Random(std::io::Error),
    /// The volume refuses.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// A snapshot, as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Its number: those that were taken later have higher ones.
    pub number: u32,
    /// When it was taken, in seconds since 1970.
    pub taken: u64,
    /// Bytes that it alone keeps: deleting it gives them up.
    pub kept_bytes: u64,
    /// Whether it is being deleted.
    pub leaves: bool,
    /// Whether its volume has taken it by itself.
    #[serde(default)]
    pub scheduled: bool,
    /// Whether it is being received, and not all of it is there.
    #[serde(default)]
    pub arrives: bool,
    /// Of which snapshot it is a clone, if it is one.
    #[serde(default)]
    pub clone_of: Option<String>,
}

/// Closes the door when nothing that was handed over waits any more.
pub(super) fn closed<'a>(
    shared: &Shared,
    keeper: &'a Keeper,
) -> Result<RwLockWriteGuard<'a, ()>, SnapshotError> {
    let began = Instant::now();
    while began.elapsed() < SNAPSHOT_PATIENCE {
        let closed = keeper.close();
        for _ in 0..SNAPSHOT_WAITS {
            let inner = shared.knowing_all();
            if !inner.gate.is_waited_at() && inner.engine.nothing_waits() {
                drop(inner);
                return Ok(closed);
            }
            drop(inner);
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may wait for what comes after it.
        drop(closed);
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(SnapshotError::Busy)
}

/// See [`Volume::take_snapshot`](crate::Volume::take_snapshot).
pub(crate) fn take(
    shared: &Shared,
    keeper: &Keeper,
    name: &str,
    taken: u64,
) -> Result<(), SnapshotError> {
    let name = Name::new(name)?;
    let mark = entropy::bytes().map_err(SnapshotError::Random)?;
    let identity = Identity {
        name,
        taken,
        mark: Mark(mark),
    };
    let closed = closed(shared, keeper)?;
    let mut book = keeper.book();
    if let Some(arriving) = book.arriving() {
        return Err(SnapshotError::Arrives(arriving.identity.name));
    }
    let (snapshot, place) = book.propose(identity)?;
    let plan = before(shared, &mut book, snapshot.number)?;
    let block = book.add(snapshot, place);
    if let Err(error) = carry::list(shared, &book, block) {
        book.remove(snapshot.number);
        book.drop_plan(plan);
        return Err(error.into());
    }
    book.keep(plan);
    keeper.note(&book);
    drop(book);
    drop(closed);
    Ok(carry::flush(shared)?)
}

/// What is done before there is a snapshot of this number: rows that would be taken for its own go, and what could change without a
/// write is kept.
pub(super) fn before(
    shared: &Shared,
    book: &mut Snapshots,
    number: Number,
) -> Result<Plan, SnapshotError> {
    carry::rows(shared, book, &book.stale_row_blocks())?;
    book.cleaned();
    let homes = shared.knowing_all().engine.pledged_homes();
    let plan = book.plan(number, homes.into_iter())?;
    match carry::out(shared, book, &plan) {
        Ok(()) => Ok(plan),
        Err(error) => {
            book.drop_plan(plan);
            Err(error.into())
        }
    }
}

/// The snapshot of this name, if all of it is there.
pub(super) fn whole(book: &Snapshots, name: &str) -> Result<Snapshot, SnapshotError> {
    let snapshot = book.by_name(name).ok_or(ListError::Unknown)?;
    match snapshot.stage {
        stage if stage.is_clone() => Err(SnapshotError::IsClone(snapshot.identity.name)),
        Stage::Leaving => Err(SnapshotError::Leaves),
        stage if stage.arrives() => Err(SnapshotError::Arrives(snapshot.identity.name)),
        _ => Ok(*snapshot),
    }
}

/// See [`Volume::delete_snapshot`](crate::Volume::delete_snapshot).
pub(crate) fn delete(shared: &Shared, keeper: &Keeper, name: &str) -> Result<(), SnapshotError> {
    let _alone = keeper.alone();
    let is_clone = {
        let book = keeper.book();
        book.by_name(name).is_some_and(|one| one.stage.is_clone())
    };
    let nobody_writes = is_clone.then(|| keeper.close_clones());
    let mut book = keeper.book();
    let number = book.by_name(name).ok_or(ListError::Unknown)?.number;
    let leaves = may_leave(keeper, &book, name)?;
    let block = book.set_stage(name, leaves)?;
    carry::list(shared, &book, block)?;
    keeper.note(&book);
    drop(book);
    drop(nobody_writes);
    forget_all(shared, keeper, number)?;
    Ok(carry::flush(shared)?)
}

/// What one becomes that is to be deleted, if it may be.
fn may_leave(keeper: &Keeper, book: &Snapshots, name: &str) -> Result<Stage, SnapshotError> {
    let one = book.by_name(name).ok_or(ListError::Unknown)?;
    let its = |one: &Snapshot| one.identity.name;
    let clones: Vec<_> = book.clones_of(one.number).map(its).collect();
    if !clones.is_empty() {
        let names: Vec<_> = clones.iter().map(Name::as_str).collect();
        return Err(SnapshotError::HasClones(its(one), names.join(", ")));
    }
    match one.stage.is_clone() {
        true if keeper.is_viewed(one.number) => Err(SnapshotError::InUse(its(one))),
        true => Ok(Stage::LeavingClone),
        false => Ok(Stage::Leaving),
    }
}

/// Deletes one that nobody has open; whether it did.
pub(super) fn give_up(
    shared: &Shared,
    keeper: &Keeper,
    number: Number,
) -> Result<bool, SnapshotError> {
    let alone = keeper.alone();
    give_up_alone(shared, keeper, number, &alone)
}

/// The same, of whoever deletes alone.
pub(super) fn give_up_alone(
    shared: &Shared,
    keeper: &Keeper,
    number: Number,
    _alone: &Alone<'_>,
) -> Result<bool, SnapshotError> {
    let mut book = keeper.book();
    // Under the lock of the book: whoever opens one does that under it as well.
    let is_it = |one: &&Snapshot| one.number == number && one.stage == Stage::Kept;
    let Some(name) = book.iter().find(is_it).map(|one| one.identity.name) else {
        return Ok(false);
    };
    if keeper.is_viewed(number) || book.clones_of(number).next().is_some() {
        return Ok(false);
    }
    let block = book.set_stage(name.as_str(), Stage::Leaving)?;
    carry::list(shared, &book, block)?;
    keeper.note(&book);
    drop(book);
    forget_all(shared, keeper, number)?;
    Ok(true)
}

/// Gives up what a snapshot that leaves has, and takes it out of the list. Clients go on meanwhile.
pub(super) fn forget_all(
    shared: &Shared,
    keeper: &Keeper,
    number: Number,
) -> Result<(), BlockError> {
    let mut from = Some(Lba(0));
    while let Some(lba) = from {
        let mut book = keeper.book();
        let forget = book.forget(number, lba, SNAPSHOT_ROWS);
        carry::out_of(shared, &book, &forget)?;
        from = forget.next;
    }
    let mut book = keeper.book();
    if let Some(block) = book.remove(number) {
        carry::list(shared, &book, block)?;
    }
    keeper.note(&book);
    carry::clear(shared, &mut book)
}

/// See [`Volume::roll_back`](crate::Volume::roll_back).
pub(crate) fn roll_back(shared: &Shared, keeper: &Keeper, name: &str) -> Result<(), SnapshotError> {
    let closed = closed(shared, keeper)?;
    let mut book = keeper.book();
    let snapshot = whole(&book, name)?;
    // Once begun, it has to come to its end.
    let needs = book.changed(snapshot.number, None);
    let (kept, most) = book.room();
    if needs.filter(|lba| book.wants(*lba)).count() as u64 > most - kept {
        return Err(NoRoom(most).into());
    }
    let block = book.set_stage(name, Stage::Returning)?;
    carry::list(shared, &book, block)?;
    drop(book);
    return_all(shared, keeper, &snapshot)?;
    drop(closed);
    Ok(carry::flush(shared)?)
}

/// Makes the volume what a snapshot reads as. What it was is kept for newer ones as with any change.
pub(super) fn return_all(
    shared: &Shared,
    keeper: &Keeper,
    snapshot: &Snapshot,
) -> Result<(), BlockError> {
    let mut book = keeper.book();
    let newest = book.newest().unwrap_or(snapshot.number);
    let mut at = Lba(0);
    while let Some(lba) = book.next_changed(at, snapshot.number, None) {
        let from = book.place(snapshot.number, lba);
        let plan = book.plan(newest, std::iter::once(lba));
        let plan = plan.map_err(|_| BlockError::Full)?;
        if let Err(error) = carry::out(shared, &book, &plan) {
            book.drop_plan(plan);
            return Err(error);
        }
        book.keep(plan);
        let (to, blocks) = (lba, 1);
        carry::copy(shared, &Copy { from, to, blocks })?;
        at = lba.plus(1);
    }
    let block = book.set_stage(snapshot.identity.name.as_str(), Stage::Kept);
    block.map_or(Ok(()), |block| carry::list(shared, &book, block))
}

/// What tells a snapshot from all others. One that is there, and not about to go.
pub(crate) fn identity(keeper: &Keeper, name: &str) -> Result<(Number, Identity), SnapshotError> {
    let book = keeper.book();
    let snapshot = whole(&book, name)?;
    Ok((snapshot.number, snapshot.identity))
}

/// All snapshots, the oldest first.
pub(crate) fn infos(keeper: &Keeper) -> Vec<SnapshotInfo> {
    let book = keeper.book();
    let name = |number: Number| {
        let one = book.iter().find(|one| one.number == number);
        one.map(|one| one.identity.name.as_str().to_owned())
    };
    let info = |snapshot: &Snapshot| SnapshotInfo {
        name: snapshot.identity.name.as_str().to_owned(),
        number: snapshot.number.0,
        taken: snapshot.identity.taken,
        kept_bytes: book.kept_by(snapshot.number) * BLOCK_BYTES as u64,
        leaves: snapshot.stage.leaves(),
        scheduled: snapshot.is_scheduled() && !snapshot.stage.is_clone(),
        arrives: snapshot.stage.arrives(),
        clone_of: snapshot.clone_of().and_then(name),
    };
    book.iter().map(info).collect()
}

/// See [`Volume::changed_since`](crate::Volume::changed_since).
pub(crate) fn changed(
    keeper: &Keeper,
    since: &str,
    until: Option<&str>,
) -> Result<Vec<(Lba, u64)>, SnapshotError> {
    let book = keeper.book();
    let (since, until) = two(&book, since, until)?;
    let mut runs: Vec<(Lba, u64)> = Vec::new();
    for lba in book.changed(since, until) {
        match runs.last_mut() {
            Some((first, blocks)) if first.plus(*blocks) == lba => *blocks += 1,
            _ => runs.push((lba, 1)),
        }
    }
    Ok(runs)
}

/// The numbers of two that are compared.
fn two(
    book: &Snapshots,
    since: &str,
    until: Option<&str>,
) -> Result<(Number, Option<Number>), SnapshotError> {
    let number = |name: &str| match book.by_name(name) {
        Some(snapshot) if snapshot.stage.arrives() => {
            Err(SnapshotError::Arrives(snapshot.identity.name))
        }
        Some(snapshot) if snapshot.stage.is_clone() => {
            Err(SnapshotError::IsClone(snapshot.identity.name))
        }
        Some(snapshot) => Ok(snapshot.number),
        None => Err(SnapshotError::from(ListError::Unknown)),
    };
    Ok((number(since)?, until.map(number).transpose()?))
}

/// See [`Volume::changed_within`](crate::Volume::changed_within).
pub(crate) fn changed_within(
    keeper: &Keeper,
    since: &str,
    until: Option<&str>,
    (lba, blocks): (Lba, u64),
    max: usize,
) -> Result<Vec<Extent>, SnapshotError> {
    let book = keeper.book();
    let (since, until) = two(&book, since, until)?;
    let (mut at, end) = (lba, lba.plus(blocks));
    let mut found: Vec<Extent> = Vec::new();
    for _ in 0..COMPARED_MAX {
        if at >= end {
            break;
        }
        let next = book.next_changed(at, since, until);
        let next = next.map_or(end, |next| next.min(end));
        let (mapped, blocks) = match next == at {
            true => (true, 1),
            false => (false, next.0 - at.0),
        };
        let is_full = found.len() >= max.max(1);
        match found.last_mut() {
            Some(last) if last.mapped == mapped => last.blocks += blocks,
            _ if is_full => break,
            _ => found.push(Extent { blocks, mapped }),
        }
        at = at.plus(blocks);
    }
    Ok(found)
}
