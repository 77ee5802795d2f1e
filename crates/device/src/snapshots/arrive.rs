//! A snapshot that is received: it is noted before its first block is written, and exists once its last block is.
//!
//! The note is durable before anything that follows it. So a volume that holds half a snapshot is known as such: nothing else
//! writes to it, and it accepts only the same stream again. Everything that the stream names is then written once more; the rest
//! has not changed.

use super::carry;
use super::keeper::Keeper;
use super::take::{SnapshotError, before, closed_to_answer, whole};
use crate::block::BlockError;
use crate::shared::SharedVolume;
use vellum_core::addr::Lba;
use vellum_core::format::history::{Identity, Name, Number, Snapshot, Stage};
use vellum_core::format::stream::Head;
use vellum_core::snapshots::{ListError, Snapshots};

/// Why a stream is not received into a volume. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// An error of a snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The volume is not empty.
    #[error(
        "the volume is not empty, and the stream is of a whole snapshot: use a new volume, or --force, which \
         writes over all that is on it"
    )]
    NotEmpty,
    /// The changes are relative to another snapshot.
    #[error(
        "the stream has what changed since snapshot {need} of its origin, and the newest snapshot here is \
         {}: send since that one, or all of it",
        have.map_or("none".to_owned(), |have| format!("{have}, another one"))
    )]
    Base {
        /// The snapshot that the changes are relative to.
        need: Name,
        /// The newest snapshot on the volume.
        have: Option<Name>,
    },
    /// The volume has changed since that snapshot.
    #[error(
        "the volume was written to since its snapshot {0}, on which the stream builds: \
         `vellum rollback VOLUME {0}` takes that back"
    )]
    Changed(Name),
}

impl From<ListError> for ArrivalError {
    fn from(error: ListError) -> Self {
        Self::Snapshot(error.into())
    }
}

impl From<BlockError> for ArrivalError {
    fn from(error: BlockError) -> Self {
        Self::Snapshot(error.into())
    }
}

/// See [`Volume::arrive`](crate::Volume::arrive).
pub(crate) fn arrive(
    shared: &SharedVolume,
    keeper: &Keeper,
    head: &Head,
    force: bool,
) -> Result<bool, ArrivalError> {
    let mut book = keeper.book();
    let stage = match head.from {
        None => Stage::ArrivingWhole,
        Some(_) => Stage::ArrivingChanges,
    };
    let name = head.snapshot.name;
    if let Some(there) = book.by_name(name.as_str())
        && !there.stage.arrives()
    {
        return Err(ListError::Exists(name).into());
    }
    let mut resumes = false;
    if let Some(arriving) = book.arriving() {
        resumes = arriving.identity == head.snapshot && arriving.stage == stage;
        let is_replaced = force && stage == Stage::ArrivingWhole;
        if !resumes && !is_replaced {
            return Err(SnapshotError::Arrives(arriving.identity.name).into());
        }
    }
    if let Some(from) = &head.from {
        let base = base(&book, from)?;
        if !resumes && differs(shared, &book, base)? {
            return Err(ArrivalError::Changed(from.name));
        }
    }
    if resumes {
        return Ok(true);
    }
    if head.from.is_none() && !force && !is_empty(shared) {
        return Err(ArrivalError::NotEmpty);
    }
    carry::owed(shared, &mut book)?;
    note(shared, &mut book, head.snapshot, stage)?;
    drop(book);
    carry::flush(shared)?;
    Ok(false)
}

/// Notes in the list that a snapshot arrives. Half of another one is replaced in its place, by the same write: at no instant nothing
/// says that the volume is a mixture.
fn note(
    shared: &SharedVolume,
    book: &mut Snapshots,
    identity: Identity,
    stage: Stage,
) -> Result<(), ArrivalError> {
    let half = book.arriving().map(|half| half.number);
    let half = half.and_then(|number| book.entry(number));
    if let Some((half, _)) = half {
        book.remove(half.number);
    }
    let noted = book.propose(identity).map_err(ArrivalError::from);
    let noted = noted.and_then(|(snapshot, free)| {
        let place = half.map_or(free, |(_, place)| place);
        let block = book.add(Snapshot { stage, ..snapshot }, place);
        carry::list(shared, book, block).map_err(|error| {
            book.remove(snapshot.number);
            error.into()
        })
    });
    if let (Err(_), Some((half, place))) = (&noted, half) {
        book.add(half, place);
    }
    noted
}

/// Returns the newest snapshot, which has to be this one.
fn base(book: &Snapshots, from: &Identity) -> Result<Number, ArrivalError> {
    let newest = book.newest();
    let newest = newest.and_then(|number| book.iter().find(|one| one.number == number));
    match newest.filter(|newest| newest.identity == *from) {
        Some(base) => Ok(base.number),
        None => Err(ArrivalError::Base {
            need: from.name,
            have: newest.map(|newest| newest.identity.name),
        }),
    }
}

/// True if the volume reads differently from that snapshot. A block that was kept may be the same again, after a rollback.
fn differs(shared: &SharedVolume, book: &Snapshots, base: Number) -> Result<bool, BlockError> {
    let bytes = |lba| {
        let block = carry::read(shared, lba)?;
        Ok(block.filter(|block| block.iter().any(|&byte| byte != 0)))
    };
    for lba in book.changed(base, None) {
        if bytes(lba)? != bytes(book.place(base, lba))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_empty(shared: &SharedVolume) -> bool {
    let mut at = 0;
    while at < shared.blocks {
        for (blocks, is_mapped) in carry::extents(shared, Lba(at), shared.blocks - at) {
            if is_mapped {
                return false;
            }
            at += blocks;
        }
    }
    true
}

/// See [`Volume::arrived`](crate::Volume::arrived).
pub(crate) fn arrived(
    shared: &SharedVolume,
    keeper: &Keeper,
    name: &str,
) -> Result<(), SnapshotError> {
    let closed = closed_to_answer(shared, keeper)?;
    let mut book = keeper.book();
    keeper.expects_one();
    let kept = keep(shared, &mut book, name);
    keeper.note(&book);
    kept?;
    debug_assert!(whole(&book, name).is_ok());
    drop(book);
    drop(closed);
    Ok(carry::flush(shared)?)
}

fn keep(shared: &SharedVolume, book: &mut Snapshots, name: &str) -> Result<(), SnapshotError> {
    let snapshot = *book.by_name(name).ok_or_else(|| ListError::unknown(name))?;
    let plan = before(shared, book, snapshot.number)?;
    let block = book.set_stage(name, Stage::Kept)?;
    if let Err(error) = carry::list(shared, book, block) {
        book.set_stage(name, snapshot.stage)?;
        carry::drop_plan(shared, book, plan);
        return Err(error.into());
    }
    book.keep(plan);
    Ok(())
}
