//! Takes a snapshot, deletes it, and takes the volume back to it.

use super::carry;
use super::keeper::{Alone, Keeper};
use crate::block::BlockError;
use crate::entropy;
use crate::gate::Commits;
use crate::limits::{SNAPSHOT_PATIENCE, SNAPSHOT_ROWS};
use crate::shared::SharedVolume;
use parking_lot::RwLockWriteGuard;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{
    BLOCK_ROWS, BadName, Identity, Mark, Name, Number, Snapshot, Stage,
};
use vellum_core::seam::CopyBlocks;
use vellum_core::snapshots::{ListError, NoRoom, Plan, Slot, Snapshots};

/// The most rows that are looked at in one hold of the book: writes that need it wait meanwhile.
pub(super) const COMPARED_MAX: usize = 8192;

/// Blocks beside those of rows that a rollback has to find free: for the list, which is written twice, and to delete a snapshot then.
const RETURN_SLACK: u64 = 4;

/// Why something cannot be done with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The volume was made without room for snapshots.
    #[error(
        "the volume was made without room for snapshots: `vellum migrate --layout log` makes one with it"
    )]
    NoHistory,
    /// The volume is open read-only.
    #[error("the volume is open read-only")]
    ReadOnly,
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] BadName),
    /// An error of the list.
    #[error(transparent)]
    List(#[from] ListError),
    /// Too much is kept.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The volume is too full to go back.
    #[error(
        "the volume is so full that going back to a snapshot could not end: delete another snapshot, or make \
         the volume larger (vellum grow)"
    )]
    NoRoomToReturn,
    /// Writes were waiting all the time.
    #[error(
        "writes were waiting all the time, for {} s; nothing was done: try again when the volume has less \
         to do",
        SNAPSHOT_PATIENCE.as_secs()
    )]
    Busy,
    /// The snapshot is being deleted.
    #[error("the snapshot is being deleted")]
    Leaves,
    /// The snapshot is being received.
    #[error(
        "snapshot {0} is being received, and is not there before all of it is: give `vellum receive` the \
         same stream again, or give it up by `vellum delete VOLUME {0}`"
    )]
    Arrives(Name),
    /// What is being received builds on the snapshot.
    #[error(
        "snapshot {arriving} is being received, and builds on {base}: give `vellum receive` the same stream \
         again, or give {arriving} up by `vellum delete VOLUME {arriving}`, and then go back by \
         `vellum rollback VOLUME {base}`"
    )]
    IsBase {
        /// The snapshot.
        base: Name,
        /// The one that is being received.
        arriving: Name,
    },
    /// The volume is being taken back to the snapshot.
    #[error(
        "a rollback to snapshot {0} was cut short, so the volume holds a mixture of old and new blocks: \
         `vellum rollback VOLUME {0}` completes it, and so does opening the volume for writing"
    )]
    Returns(Name),
    /// Changes since a snapshot were requested up to one that is not newer.
    #[error("{since} was not taken before {until}: name the older one first")]
    Order {
        /// The snapshot that is to be the older one.
        since: Name,
        /// The snapshot that is to be the newer one.
        until: Name,
    },
    /// The snapshot has clones.
    #[error("snapshot {0} has clones: delete {1} first")]
    HasClones(Name, String),
    /// It is a clone, not a snapshot.
    #[error("{0} is a clone, and no snapshot")]
    IsClone(Name),
    /// The clone is open.
    #[error("clone {0} is in use: detach it, or end its clients, and then delete it")]
    InUse(Name),
    /// No randomness for the snapshot's mark.
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
    /// Its number: later ones have higher numbers.
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
    /// Whether it is being received, and is not complete yet.
    #[serde(default)]
    pub arrives: bool,
    /// The snapshot that it is a clone of, if it is a clone.
    #[serde(default)]
    pub clone_of: Option<String>,
}

/// Closes the door once nothing that was handed over waits any more.
fn closed<'a>(
    shared: &SharedVolume,
    keeper: &'a Keeper,
) -> Result<RwLockWriteGuard<'a, ()>, SnapshotError> {
    closed_when(shared, keeper, |commits| commits.blocks() == 0)
}

/// The same, but answered commit blocks may wait: they are not in the snapshot, as they would not be there after a crash. What they
/// overwrite has to be kept for it ([`before`]).
pub(super) fn closed_to_answer<'a>(
    shared: &SharedVolume,
    keeper: &'a Keeper,
) -> Result<RwLockWriteGuard<'a, ()>, SnapshotError> {
    closed_when(shared, keeper, |commits| {
        commits.blocks() == commits.answered().count()
    })
}

fn closed_when<'a>(
    shared: &SharedVolume,
    keeper: &'a Keeper,
    may_be: impl Fn(&Commits) -> bool,
) -> Result<RwLockWriteGuard<'a, ()>, SnapshotError> {
    let began = Instant::now();
    while began.elapsed() < SNAPSHOT_PATIENCE {
        let closed = keeper.close();
        if shared.wait_until(|inner| may_be(&inner.gate.commits) && inner.core.nothing_waits()) {
            return Ok(closed);
        }
        // What waits may need a request that is still to come.
        drop(closed);
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(match shared.inner.lock().full {
        true => BlockError::NoRoom.into(),
        false => SnapshotError::Busy,
    })
}

/// See [`Volume::take_snapshot`](crate::Volume::take_snapshot).
pub(crate) fn take(
    shared: &SharedVolume,
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
    let closed = closed_to_answer(shared, keeper)?;
    let mut book = keeper.book();
    if let Some(arriving) = book.arriving() {
        return Err(SnapshotError::Arrives(arriving.identity.name));
    }
    // A commit block that waits may go on meanwhile, and pledge homes. What is kept is decided before.
    keeper.expects_one();
    let added = add(shared, &mut book, identity);
    keeper.note(&book);
    added?;
    drop(book);
    drop(closed);
    Ok(carry::flush(shared)?)
}

fn add(
    shared: &SharedVolume,
    book: &mut Snapshots,
    identity: Identity,
) -> Result<(), SnapshotError> {
    let (snapshot, place) = book.propose(identity)?;
    let plan = before(shared, book, snapshot.number)?;
    let block = book.add(snapshot, place);
    if let Err(error) = carry::list(shared, book, block) {
        book.remove(snapshot.number);
        carry::drop_plan(shared, book, plan);
        return Err(error.into());
    }
    book.keep(plan);
    Ok(())
}

/// Prepares for a snapshot of this number, which the keeper [expects](Keeper::expects_one). Removes old rows that have this number: they
/// would be taken for the new snapshot's. Keeps the blocks that may change without another request: homes of pledges, and the places of
/// answered commit blocks that wait.
pub(super) fn before(
    shared: &SharedVolume,
    book: &mut Snapshots,
    number: Number,
) -> Result<Plan, SnapshotError> {
    let keeper = shared.keeper.as_ref();
    debug_assert!(
        keeper.is_some_and(|keeper| keeper.has_any()),
        "a block may be pledged that is not kept"
    );
    carry::owed(shared, book)?;
    let changing = {
        let inner = shared.knowing_all();
        let mut changing = inner.core.pledged_homes();
        changing.extend(inner.gate.commits.answered().map(Lba));
        changing
    };
    let plan = book.plan(number, changing.into_iter())?;
    Ok(carry::out(shared, book, plan)?)
}

/// The snapshot of this name, if it is complete.
pub(super) fn whole(book: &Snapshots, name: &str) -> Result<Snapshot, SnapshotError> {
    let snapshot = book.by_name(name).ok_or_else(|| ListError::unknown(name))?;
    match snapshot.stage {
        stage if stage.is_clone() => Err(SnapshotError::IsClone(snapshot.identity.name)),
        Stage::Leaving => Err(SnapshotError::Leaves),
        stage if stage.arrives() => Err(SnapshotError::Arrives(snapshot.identity.name)),
        _ => Ok(*snapshot),
    }
}

/// See [`Volume::delete_snapshot`](crate::Volume::delete_snapshot).
pub(crate) fn delete(
    shared: &SharedVolume,
    keeper: &Keeper,
    name: &str,
) -> Result<(), SnapshotError> {
    let _alone = keeper.alone();
    let is_clone = {
        let book = keeper.book();
        book.by_name(name).is_some_and(|one| one.stage.is_clone())
    };
    let nobody_writes = is_clone.then(|| keeper.close_clones());
    let mut book = keeper.book();
    let number = book
        .by_name(name)
        .ok_or_else(|| ListError::unknown(name))?
        .number;
    let leaves = may_leave(keeper, &book, name)?;
    change_stage(shared, &mut book, name, leaves)?;
    keeper.note(&book);
    drop(book);
    drop(nobody_writes);
    forget_all(shared, keeper, number)?;
    Ok(carry::flush(shared)?)
}

/// Gives a snapshot another stage, on the medium too. If the write is refused, the stage stays: changes are kept for a snapshot as
/// long as the list on the medium names it.
pub(super) fn change_stage(
    shared: &SharedVolume,
    book: &mut Snapshots,
    name: &str,
    stage: Stage,
) -> Result<(), SnapshotError> {
    let before = book
        .by_name(name)
        .ok_or_else(|| ListError::unknown(name))?
        .stage;
    let block = book.set_stage(name, stage)?;
    if let Err(error) = carry::list(shared, book, block) {
        book.set_stage(name, before)?;
        return Err(error.into());
    }
    Ok(())
}

/// The stage of a snapshot that is to be deleted, if it may be.
fn may_leave(keeper: &Keeper, book: &Snapshots, name: &str) -> Result<Stage, SnapshotError> {
    let one = book.by_name(name).ok_or_else(|| ListError::unknown(name))?;
    let its = |one: &Snapshot| one.identity.name;
    let clones: Vec<_> = book.clones_of(one.number).map(its).collect();
    if !clones.is_empty() {
        let names: Vec<_> = clones.iter().map(Name::as_str).collect();
        return Err(SnapshotError::HasClones(its(one), names.join(", ")));
    }
    if one.stage == Stage::Returning {
        // Without it, the volume would stay a mixture.
        return Err(SnapshotError::Returns(its(one)));
    }
    let builds = |other: &&Snapshot| other.stage == Stage::ArrivingChanges;
    if let Some(arriving) = book.arriving().filter(builds)
        && book.newest() == Some(one.number)
    {
        // Without it, nobody could take back what has come of the other.
        return Err(SnapshotError::IsBase {
            base: its(one),
            arriving: its(arriving),
        });
    }
    match one.stage.is_clone() {
        true if keeper.is_viewed(one.number) => Err(SnapshotError::InUse(its(one))),
        true => Ok(Stage::LeavingClone),
        false => Ok(Stage::Leaving),
    }
}

/// Deletes a snapshot that is not open. Returns true if it did.
pub(super) fn give_up(
    shared: &SharedVolume,
    keeper: &Keeper,
    number: Number,
) -> Result<bool, SnapshotError> {
    let alone = keeper.alone();
    give_up_alone(shared, keeper, number, &alone)
}

/// The same, for a caller that has the right to delete.
pub(super) fn give_up_alone(
    shared: &SharedVolume,
    keeper: &Keeper,
    number: Number,
    _alone: &Alone<'_>,
) -> Result<bool, SnapshotError> {
    let mut book = keeper.book();
    // Under the lock of the book, because opening one takes that lock as well.
    let is_it = |one: &&Snapshot| one.number == number && one.stage == Stage::Kept;
    let Some(name) = book.iter().find(is_it).map(|one| one.identity.name) else {
        return Ok(false);
    };
    if keeper.is_viewed(number) || book.clones_of(number).next().is_some() {
        return Ok(false);
    }
    change_stage(shared, &mut book, name.as_str(), Stage::Leaving)?;
    keeper.note(&book);
    drop(book);
    forget_all(shared, keeper, number)?;
    Ok(true)
}

/// Gives up what a snapshot that is being deleted keeps, and takes it out of the list. Clients go on meanwhile.
pub(super) fn forget_all(
    shared: &SharedVolume,
    keeper: &Keeper,
    number: Number,
) -> Result<(), BlockError> {
    let mut from = Some(Slot::default());
    while let Some(slot) = from {
        let mut book = keeper.book();
        let forget = book.forget(number, slot, SNAPSHOT_ROWS);
        if let Err(error) = carry::out_of(shared, &book, &forget) {
            book.owe(&forget);
            return Err(error);
        }
        from = forget.next;
    }
    let mut book = keeper.book();
    // Rows on the medium may still name it, after an earlier try. They have to be written before it leaves the list, or the older
    // snapshot would lose them.
    carry::owed(shared, &mut book)?;
    let entry = book.entry(number);
    if let Some(block) = book.remove(number)
        && let Err(error) = carry::list(shared, &book, block)
    {
        // The medium still lists it, so its name stays taken.
        if let Some((gone, place)) = entry {
            book.add(gone, place);
        }
        return Err(error);
    }
    keeper.note(&book);
    carry::clear(shared, &mut book)
}

/// See [`Volume::roll_back`](crate::Volume::roll_back).
pub(crate) fn roll_back(
    shared: &SharedVolume,
    keeper: &Keeper,
    name: &str,
) -> Result<(), SnapshotError> {
    let closed = closed(shared, keeper)?;
    let mut book = keeper.book();
    if let Some(arriving) = book.arriving() {
        // This changes blocks that the stream does not name, and its rest would complete another snapshot.
        return Err(SnapshotError::Arrives(arriving.identity.name));
    }
    let snapshot = whole(&book, name)?;
    // Once begun, it has to be completed.
    let needs = kept_to_return(&book, snapshot.number);
    let (kept, most) = book.room();
    if needs > most - kept {
        return Err(NoRoom(most).into());
    }
    // Free places for rows may be scattered, and a block of rows that gets more may take another block.
    let rows = 2 * needs.div_ceil(BLOCK_ROWS as u64) + RETURN_SLACK;
    if !carry::has_room(shared, |room| room.live + rows <= room.capacity) {
        return Err(SnapshotError::NoRoomToReturn);
    }
    change_stage(shared, &mut book, name, Stage::Returning)?;
    drop(book);
    return_all(shared, keeper, &snapshot)?;
    drop(closed);
    Ok(carry::flush(shared)?)
}

/// How many more blocks newer snapshots have to keep before the volume is taken back to a snapshot.
fn kept_to_return(book: &Snapshots, number: Number) -> u64 {
    let changed = book.changed(number, None);
    changed.filter(|lba| book.wants(*lba)).count() as u64
}

/// Goes on with a rollback that was cut short, if it has room to end. Without that it would only take the last blocks of the volume.
pub(super) fn return_rest(
    shared: &SharedVolume,
    keeper: &Keeper,
    snapshot: &Snapshot,
) -> Result<(), BlockError> {
    let needs = kept_to_return(&keeper.book(), snapshot.number);
    let rows = needs.div_ceil(BLOCK_ROWS as u64) + 1;
    match carry::has_room(shared, |room| room.live + rows <= room.capacity) {
        true => return_all(shared, keeper, snapshot),
        false => Err(BlockError::Full),
    }
}

/// Makes the volume read as a snapshot does. What it was is kept for newer snapshots, as with any change.
fn return_all(
    shared: &SharedVolume,
    keeper: &Keeper,
    snapshot: &Snapshot,
) -> Result<(), BlockError> {
    let mut book = keeper.book();
    let newest = book.newest().unwrap_or(snapshot.number);
    let mut at = Lba(0);
    while let Some(lba) = book.next_changed(at..Lba(u64::MAX), snapshot.number, None) {
        carry::owed(shared, &mut book)?;
        let from = book.place(snapshot.number, lba);
        let plan = book.plan(newest, std::iter::once(lba));
        let plan = plan.map_err(|_| BlockError::Full)?;
        let plan = carry::out_to_the_end(shared, &mut book, plan)?;
        book.keep(plan);
        let (to, blocks) = (lba, 1);
        carry::copy(shared, &CopyBlocks { from, to, blocks })?;
        at = lba.plus(1);
    }
    let block = book.set_stage(snapshot.identity.name.as_str(), Stage::Kept);
    block.map_or(Ok(()), |block| carry::list(shared, &book, block))
}

/// The identity of a snapshot that is complete and not being deleted.
pub(crate) fn identity(keeper: &Keeper, name: &str) -> Result<(Number, Identity), SnapshotError> {
    let book = keeper.book();
    let snapshot = whole(&book, name)?;
    Ok((snapshot.number, snapshot.identity))
}

/// All snapshots, the oldest first. What they keep is found in parts: writes wait for the book, or for the map, only meanwhile.
pub(crate) fn infos(shared: &SharedVolume, keeper: &Keeper) -> Vec<SnapshotInfo> {
    let mut infos = listed(&keeper.book());
    let mut from = Some(Slot::default());
    while let Some(slot) = from {
        let (runs, next) = keeper.book().kept_alone(slot, COMPARED_MAX);
        for (number, first, blocks) in runs {
            // One that was taken meanwhile is not in the list.
            if let Ok(at) = infos.binary_search_by_key(&number.0, |info| info.number) {
                let kept = carry::mapped(shared, &[(first, blocks)]).sum::<u64>();
                infos[at].kept_bytes += kept * BLOCK_BYTES as u64;
            }
        }
        from = next;
    }
    infos
}

/// All snapshots, the oldest first, without what they keep.
pub(crate) fn listed(book: &Snapshots) -> Vec<SnapshotInfo> {
    let name = |number: Number| {
        let one = book.iter().find(|one| one.number == number);
        one.map(|one| one.identity.name.as_str().to_owned())
    };
    let info = |snapshot: &Snapshot| SnapshotInfo {
        name: snapshot.identity.name.as_str().to_owned(),
        number: snapshot.number.0,
        taken: snapshot.identity.taken,
        kept_bytes: 0,
        leaves: snapshot.stage.leaves(),
        scheduled: snapshot.is_scheduled() && !snapshot.stage.is_clone(),
        arrives: snapshot.stage.arrives(),
        clone_of: snapshot.clone_of().and_then(name),
    };
    book.iter().map(info).collect()
}
