//! A snapshot as a block device.
//!
//! It is read, and nothing else; or what is written to it is kept in memory for as long as it is served: whoever mounts a file
//! system replays its journal first, also to read it alone.

use super::carry;
use super::keeper::Keeper;
use super::take::{SnapshotError, whole};
use crate::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use crate::frames::{FramePool, Frames};
use crate::limits::SNAPSHOT_MEMORY;
use crate::shared::Shared;
use parking_lot::RwLock;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::Number;
use vellum_core::snapshots::Snapshots;

/// See the module.
pub struct Seen {
    shared: Arc<Shared>,
    number: Number,
    written: Option<RwLock<Written>>,
}

/// Somebody has a snapshot or a clone open: it is not deleted by the schedule of its volume, nor a clone by its user.
struct Held {
    shared: Arc<Shared>,
    number: Number,
}

/// Holds it.
pub(super) fn hold(shared: &Arc<Shared>, number: Number) -> Option<Box<dyn Any + Send + Sync>> {
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

/// Runs of a snapshot's blocks that are looked at before what is mapped is told.
const RUNS: usize = 64;

/// Blocks that were written to a snapshot.
type Written = BTreeMap<u64, Box<[u8; BLOCK_BYTES]>>;

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Whether a snapshot or a clone can be read.
pub(super) fn is_there(book: &Snapshots, number: Number) -> bool {
    let one = book.iter().find(|one| one.number == number);
    one.is_some_and(|one| !one.stage.leaves() && !one.stage.arrives())
}

/// What is read of one that is not there any more.
pub(super) fn gone() -> BlockError {
    BlockError::Io("the snapshot has been deleted".to_owned())
}

/// Where the blocks of a snapshot or a clone are now: runs of them, so many at most.
fn places(
    shared: &Shared,
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

/// Why a request that has data, or gets some, is refused.
pub(super) fn verdict(shared: &Shared, request: &Request) -> Result<(), BlockError> {
    in_range(shared, request)?;
    let (blocks, frames) = (request.blocks, request.frames.len() as u64);
    match frames == blocks {
        true => Ok(()),
        false => Err(BlockError::Io(format!(
            "a request of {blocks} blocks came with {frames} frames"
        ))),
    }
}

/// Whether a request is of blocks that are there.
pub(super) fn in_range(shared: &Shared, request: &Request) -> Result<(), BlockError> {
    let (lba, blocks, size) = (request.lba.0, request.blocks, shared.blocks);
    match lba.checked_add(blocks).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(BlockError::OutOfRange { lba, blocks, size }),
    }
}

/// Reads, and reads again if meanwhile something was kept, or written to the clone, that was read where it was before.
pub(super) fn read(
    shared: &Shared,
    number: Number,
    request: &mut Request,
) -> Result<(), BlockError> {
    let asked = (request.lba, request.blocks);
    loop {
        let found = places(shared, number, asked, usize::MAX)?;
        // What was answered before is there.
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

/// What is mapped, in runs that follow each other.
fn mapped(
    shared: &Shared,
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
        // As of what is read.
        if places(shared, number, (lba, blocks), RUNS)? == known {
            return Ok(found);
        }
    }
}

/// As [`BlockDevice::extents`]. Where it is not known, nothing is claimed to be zero.
pub(super) fn extents(
    shared: &Shared,
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
        shared: &Arc<Shared>,
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

    /// Takes writes from now on, and forgets them when it is dropped.
    #[must_use]
    pub fn with_memory(mut self) -> Self {
        self.written = Some(RwLock::default());
        self
    }

    /// Which snapshot this is: no other has its number, whatever it is called.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Reads it as it was, and what was written since.
    fn read(&self, request: &mut Request) -> Result<(), BlockError> {
        verdict(&self.shared, request)?;
        read(&self.shared, self.number, request)?;
        self.lay_over(request);
        Ok(())
    }

    fn is_written(&self, lba: Lba, blocks: u64) -> bool {
        let range = lba.0..lba.0.saturating_add(blocks);
        let written = self.written.as_ref();
        written.is_some_and(|written| written.read().range(range).next().is_some())
    }

    /// What was written is read in place of what the snapshot has.
    fn lay_over(&self, request: &mut Request) {
        let Some(written) = &self.written else {
            return;
        };
        let (first, end) = (request.lba.0, request.lba.0 + request.blocks);
        for (lba, block) in written.read().range(first..end) {
            let frame = request.frames.block_mut((lba - first) as usize);
            frame.copy_from_slice(&block[..]);
        }
    }

    fn write(&self, request: &Request) -> Result<(), BlockError> {
        let written = self.written.as_ref().ok_or(BlockError::ReadOnly)?;
        let is_data = matches!(request.op, Op::Write { .. });
        if is_data {
            verdict(&self.shared, request)?;
        } else {
            in_range(&self.shared, request)?;
        }
        if matches!(request.op, Op::Discard { .. }) {
            // It may read as it did.
            return Ok(());
        }
        let mut written = written.write();
        for index in 0..request.blocks {
            if written.len() >= SNAPSHOT_MEMORY {
                return Err(BlockError::Full);
            }
            let mut block = Box::new([0; BLOCK_BYTES]);
            if is_data {
                block.copy_from_slice(request.frames.block(index as usize));
            }
            written.insert(request.lba.0 + index, block);
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
