//! A clone as a block device: it begins as its snapshot, and is written.
//!
//! A write to a block that the clone still shares with its snapshot holds the book meanwhile, as keeping a block for a snapshot
//! does: first the data, then the row. Later writes of that block go to its place directly.

use super::carry;
use super::keeper::Keeper;
use super::take::{SnapshotError, whole};
use super::view::{extents, gone, hold, in_range, is_there, read, verdict};
use crate::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use crate::frames::{FramePool, Frames};
use crate::shared::SharedVolume;
use parking_lot::MutexGuard;
use std::any::Any;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::format::history::{Identity, Mark, Name, Number, Stage};
use vellum_core::room::{Level, Room};
use vellum_core::snapshots::{Change, ListError, Part, Snapshots};

/// See [`Volume::clone_snapshot`](crate::Volume::clone_snapshot).
pub(crate) fn make(
    shared: &SharedVolume,
    keeper: &Keeper,
    of: &str,
    name: &str,
    taken: u64,
) -> Result<(), SnapshotError> {
    let name = Name::new(name)?;
    let mut book = keeper.book();
    let snapshot = whole(&book, of)?;
    let identity = Identity {
        name,
        taken,
        mark: Mark::of_clone(snapshot.number),
    };
    let (mut clone, place) = book.propose(identity)?;
    clone.stage = Stage::Clone;
    carry::owed(shared, &mut book)?;
    let block = book.add(clone, place);
    if let Err(error) = carry::list(shared, &book, block) {
        book.remove(clone.number);
        return Err(error.into());
    }
    drop(book);
    Ok(carry::flush(shared)?)
}

/// See the module.
pub struct Cloned {
    shared: Arc<SharedVolume>,
    number: Number,
    read_only: bool,
}

impl std::fmt::Debug for Cloned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloned")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Cloned {
    /// The clone of this name; `None` if the name is a snapshot's.
    pub(crate) fn of(
        shared: &Arc<SharedVolume>,
        keeper: &Keeper,
        name: &str,
        read_only: bool,
    ) -> Result<Option<Self>, SnapshotError> {
        let book = keeper.book();
        let one = book.by_name(name).ok_or_else(|| ListError::unknown(name))?;
        match one.stage {
            Stage::LeavingClone => Err(SnapshotError::Leaves),
            Stage::Clone => Ok(Some(Self {
                shared: Arc::clone(shared),
                number: one.number,
                read_only,
            })),
            _ => Ok(None),
        }
    }

    /// Its number, which no other clone or snapshot has.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.0
    }

    fn keeper(&self) -> Result<&Keeper, BlockError> {
        self.shared.keeper.as_ref().ok_or_else(gone)
    }

    /// Locks the bookkeeping, and finds what is there from a block on.
    fn part(&self, lba: Lba, end: Lba) -> Result<(MutexGuard<'_, Snapshots>, Part), BlockError> {
        let book = self.keeper()?.book();
        if !is_there(&book, self.number) {
            return Err(gone());
        }
        let part = book.part(self.number, lba, end);
        Ok((book, part))
    }

    fn write(&self, request: &mut Request) -> Result<(), BlockError> {
        verdict(&self.shared, request)?;
        let _is_open = self.keeper()?.enter_clone();
        let (mut at, end) = (request.lba, request.lba.plus(request.blocks));
        let mut rest = std::mem::take(&mut request.frames);
        let mut has_room = false;
        while at < end {
            let (mut book, part) = self.part(at, end)?;
            if !part.own && !has_room {
                // Others need the book while this waits.
                drop(book);
                self.has_room()?;
                has_room = true;
                continue;
            }
            let mut fill = |place, blocks: u64| {
                let others = rest.split_off(blocks as usize);
                let these = std::mem::replace(&mut rest, others);
                carry::write_from(&self.shared, place, these)
            };
            let written = if part.own {
                drop(book);
                fill(part.place, part.blocks)?;
                part.blocks
            } else {
                self.change(&mut book, (at, part.blocks), fill)?
            };
            at = at.plus(written);
        }
        Ok(())
    }

    /// Gives the first of these blocks places of their own, and has `fill` write their contents there. Returns how many.
    fn change(
        &self,
        book: &mut Snapshots,
        (lba, blocks): (Lba, u64),
        mut fill: impl FnMut(Lba, u64) -> Result<(), BlockError>,
    ) -> Result<u64, BlockError> {
        carry::owed(&self.shared, book)?;
        let change = book.change(self.number, lba, blocks);
        let change = change.map_err(|_| BlockError::Full)?;
        let mut carry_out = |book: &Snapshots, change: &Change| {
            for &(place, blocks) in &change.places {
                fill(place, blocks)?;
            }
            carry::new_rows(&self.shared, book, &[change.row_block])
        };
        match carry_out(book, &change) {
            Ok(()) => {
                let blocks = change.blocks();
                book.made(change);
                Ok(blocks)
            }
            Err(error) => {
                book.drop_change(change);
                // The new places take room that is needed. If this fails, it is owed before the next change.
                let _ = carry::owed(&self.shared, book);
                Err(error)
            }
        }
    }

    /// A volume that is nearly full has no room for clones to grow: what is left is for its own clients. This may wait until all is
    /// counted after an opening: before that, the volume looks emptier than it is.
    fn has_room(&self) -> Result<(), BlockError> {
        let is_enough = |room: Room| room.percent() < Level::Critical.percent();
        match carry::has_room(&self.shared, is_enough) {
            true => Ok(()),
            false => Err(BlockError::Full),
        }
    }

    /// Makes blocks read as zeros.
    fn clear(&self, request: &Request) -> Result<(), BlockError> {
        in_range(&self.shared, request)?;
        let _is_open = self.keeper()?.enter_clone();
        let (mut at, end) = (request.lba, request.lba.plus(request.blocks));
        while at < end {
            let (mut book, part) = self.part(at, end)?;
            if part.own {
                drop(book);
                carry::discard(&self.shared, part.place, part.blocks)?;
                at = at.plus(part.blocks);
                continue;
            }
            for (blocks, is_mapped) in carry::extents(&self.shared, part.place, part.blocks) {
                let mut cleared = blocks;
                if is_mapped {
                    let fill = |place, blocks| carry::discard(&self.shared, place, blocks);
                    cleared = self.change(&mut book, (at, blocks), fill)?;
                }
                at = at.plus(cleared);
                if cleared < blocks {
                    break;
                }
            }
        }
        Ok(())
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), BlockError> {
        let fua = match request.op {
            Op::Read => {
                verdict(&self.shared, request)?;
                return read(&self.shared, self.number, request);
            }
            Op::Flush if self.read_only => return Ok(()),
            _ if self.read_only => return Err(BlockError::ReadOnly),
            Op::Flush => true,
            Op::Write { fua } => {
                self.write(request)?;
                fua
            }
            Op::Discard { fua } | Op::WriteZeroes { fua } => {
                self.clear(request)?;
                fua
            }
        };
        match fua {
            true => carry::flush(&self.shared),
            false => Ok(()),
        }
    }
}

impl BlockDevice for Cloned {
    fn blocks(&self) -> u64 {
        self.shared.blocks
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn hold(&self) -> Option<Box<dyn Any + Send + Sync>> {
        hold(&self.shared, self.number)
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.shared.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        for mut request in requests.drain(..) {
            let result = self.carry_out(&mut request);
            if request.op != Op::Read {
                request.frames = Frames::default();
            }
            replies.complete(request, result);
        }
        replies.flush();
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        extents(&self.shared, self.number, (lba, blocks), max)
    }
}
