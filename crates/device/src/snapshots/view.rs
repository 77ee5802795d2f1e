//! A snapshot as a block device.
//!
//! It is read only; or, on request, what is written to it is kept in memory for as long as it is served. A file system that is
//! mounted replays its journal first, even for a read-only mount.

use super::carry;
use super::keeper::Keeper;
use super::take::{SnapshotError, whole};
use super::written::Written;
use crate::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use crate::frames::{FramePool, Frames};
use crate::shared::SharedVolume;
use parking_lot::RwLock;
use std::any::Any;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::format::history::Number;
use vellum_core::snapshots::Snapshots;

/// See the module.
pub struct Seen {
    shared: Arc<SharedVolume>,
    number: Number,
    written: Option<RwLock<Written>>,
}

/// Says that a snapshot or a clone is open: then the schedule does not delete it, and a user cannot delete it if it is a clone.
struct Held {
    shared: Arc<SharedVolume>,
    number: Number,
}

/// Holds a snapshot or a clone open.
pub(super) fn hold(
    shared: &Arc<SharedVolume>,
    number: Number,
) -> Option<Box<dyn Any + Send + Sync>> {
    let keeper = shared.keeper.as_ref()?;
    // Under the lock of the book, so that it is not about to be deleted.
    let _book = keeper.book();
    keeper.look(number);
    let shared = Arc::clone(shared);
    Some(Box::new(Held { shared, number }))
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.look_away(self.number);
        }
    }
}

/// The most runs of a snapshot's blocks that are looked at to report what is mapped.
const RUNS: usize = 64;

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// True if a snapshot or a clone can be read.
pub(super) fn is_there(book: &Snapshots, number: Number) -> bool {
    let one = book.iter().find(|one| one.number == number);
    one.is_some_and(|one| !one.stage.leaves() && !one.stage.arrives())
}

/// The error of reading one that is gone.
pub(super) fn gone() -> BlockError {
    BlockError::Io("the snapshot has been deleted".to_owned())
}

/// Where the blocks of a snapshot or a clone are now, in at most `most` runs.
fn places(
    shared: &SharedVolume,
    number: Number,
    (lba, blocks): (Lba, u64),
    most: usize,
) -> Result<Vec<(Lba, u64)>, BlockError> {
    let book = shared.keeper.as_ref().ok_or_else(gone)?.book();
    if !is_there(&book, number) {
        return Err(gone());
    }
    let (mut at, end) = (lba, lba.plus(blocks));
    let mut runs: Vec<(Lba, u64)> = Vec::new();
    while at < end && runs.len() < most {
        let part = book.part(number, at, end);
        match runs.last_mut() {
            Some((first, before)) if first.plus(*before) == part.place => *before += part.blocks,
            _ => runs.push((part.place, part.blocks)),
        }
        at = at.plus(part.blocks);
    }
    Ok(runs)
}

/// Checks a read or a write.
pub(super) fn verdict(shared: &SharedVolume, request: &Request) -> Result<(), BlockError> {
    in_range(shared, request)?;
    let (blocks, frames) = (request.blocks, request.frames.len() as u64);
    match frames == blocks {
        true => Ok(()),
        false => Err(BlockError::Io(format!(
            "a request of {blocks} blocks came with {frames} frames"
        ))),
    }
}

/// Checks that a request lies within the volume.
pub(super) fn in_range(shared: &SharedVolume, request: &Request) -> Result<(), BlockError> {
    let (lba, blocks, size) = (request.lba.0, request.blocks, shared.blocks);
    match lba.checked_add(blocks).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(BlockError::OutOfRange { lba, blocks, size }),
    }
}

/// Reads, and reads again if a block that was read has moved meanwhile, because it was kept or was written to the clone.
pub(super) fn read(
    shared: &SharedVolume,
    number: Number,
    request: &mut Request,
) -> Result<(), BlockError> {
    let asked = (request.lba, request.blocks);
    loop {
        let found = places(shared, number, asked, usize::MAX)?;
        // Everything that was answered before takes effect first.
        drop(shared.knowing_all());
        let mut rest = std::mem::take(&mut request.frames);
        for &(place, blocks) in &found {
            let others = rest.split_off(blocks as usize);
            let read = carry::read_into(shared, place, rest)?;
            request.frames.append(read);
            rest = others;
        }
        if places(shared, number, asked, usize::MAX)? == found {
            return Ok(());
        }
    }
}

/// What is mapped, in adjacent runs.
fn mapped(
    shared: &SharedVolume,
    number: Number,
    lba: Lba,
    blocks: u64,
) -> Result<Vec<Extent>, BlockError> {
    loop {
        let known = places(shared, number, (lba, blocks), RUNS)?;
        let mut found: Vec<Extent> = Vec::new();
        for &(place, blocks) in &known {
            let extents = carry::extents(shared, place, blocks);
            let told: u64 = extents.iter().map(|(blocks, _)| blocks).sum();
            for (blocks, mapped) in extents {
                match found.last_mut() {
                    Some(last) if last.mapped == mapped => last.blocks += blocks,
                    _ => found.push(Extent { blocks, mapped }),
                }
            }
            if told < blocks {
                break;
            }
        }
        // The answer has to belong to the places that were looked at.
        if places(shared, number, (lba, blocks), RUNS)? == known {
            return Ok(found);
        }
    }
}

/// Like [`BlockDevice::extents`]. What is not known is reported as mapped.
pub(super) fn extents(
    shared: &SharedVolume,
    number: Number,
    (lba, blocks): (Lba, u64),
    max: usize,
) -> Vec<Extent> {
    let found = mapped(shared, number, lba, blocks).unwrap_or_default();
    match found.is_empty() {
        true => vec![Extent {
            blocks,
            mapped: true,
        }],
        false => found.into_iter().take(max.max(1)).collect(),
    }
}

impl Seen {
    /// The snapshot of this name.
    pub(crate) fn of(
        shared: &Arc<SharedVolume>,
        keeper: &Keeper,
        name: &str,
    ) -> Result<Self, SnapshotError> {
        let book = keeper.book();
        let number = whole(&book, name)?.number;
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            written: None,
        })
    }

    /// Takes writes from now on, and forgets them when dropped.
    #[must_use]
    pub fn with_memory(mut self) -> Self {
        self.written = Some(RwLock::default());
        self
    }

    /// Its number, which no other snapshot has, whatever its name.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Reads the snapshot, and what was written over it.
    fn read(&self, request: &mut Request) -> Result<(), BlockError> {
        verdict(&self.shared, request)?;
        read(&self.shared, self.number, request)?;
        self.lay_over(request);
        Ok(())
    }

    fn is_written(&self, lba: Lba, blocks: u64) -> bool {
        let end = lba.0.saturating_add(blocks);
        let written = self.written.as_ref();
        written.is_some_and(|written| written.read().is_any(lba.0, end))
    }

    /// Replaces what was read of the snapshot with what was written since.
    fn lay_over(&self, request: &mut Request) {
        let Some(written) = &self.written else {
            return;
        };
        let (first, end) = (request.lba.0, request.lba.0 + request.blocks);
        written.read().lay_over(first, end, |lba, block| {
            let frame = request.frames.block_mut((lba - first) as usize);
            frame.copy_from_slice(block);
        });
    }

    fn write(&self, request: &Request) -> Result<(), BlockError> {
        let written = self.written.as_ref().ok_or(BlockError::ReadOnly)?;
        if !matches!(request.op, Op::Write { .. }) {
            in_range(&self.shared, request)?;
            // A discard, too: a loop device over FUSE uses one to write zeros.
            let end = request.lba.plus(request.blocks);
            return written.write().clear(request.lba.0, end.0);
        }
        verdict(&self.shared, request)?;
        let mut written = written.write();
        for index in 0..request.blocks {
            let block = request.frames.block(index as usize);
            written.put(request.lba.0 + index, block)?;
        }
        Ok(())
    }
}

impl BlockDevice for Seen {
    fn blocks(&self) -> u64 {
        self.shared.blocks
    }

    fn read_only(&self) -> bool {
        self.written.is_none()
    }

    fn hold(&self) -> Option<Box<dyn Any + Send + Sync>> {
        hold(&self.shared, self.number)
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.shared.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        for mut request in requests.drain(..) {
            let result = match request.op {
                Op::Read => self.read(&mut request),
                Op::Flush => Ok(()),
                _ => {
                    let written = self.write(&request);
                    request.frames = Frames::default();
                    written
                }
            };
            replies.complete(request, result);
        }
        replies.flush();
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        match self.is_written(lba, blocks) {
            false => extents(&self.shared, self.number, (lba, blocks), max),
            true => vec![Extent {
                blocks,
                mapped: true,
            }],
        }
    }
}
