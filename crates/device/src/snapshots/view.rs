//! A snapshot as a block device.
//!
//! It is read, and nothing else; or what is written to it is kept in memory for as long as it is served: whoever mounts a file
//! system replays its journal first, also to read it alone.

use super::carry;
use super::keeper::Keeper;
use super::take::SnapshotError;
use crate::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use crate::frames::{FramePool, Frames};
use crate::limits::SNAPSHOT_MEMORY;
use crate::shared::Shared;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{Number, Stage};
use vellum_core::snapshots::{ListError, Snapshots};

/// See the module.
pub struct Seen {
    shared: Arc<Shared>,
    number: Number,
    written: Option<RwLock<Written>>,
}

/// Blocks that were written to a snapshot.
type Written = BTreeMap<u64, Box<[u8; BLOCK_BYTES]>>;

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Whether a snapshot can be read.
fn is_there(book: &Snapshots, number: Number) -> bool {
    let one = book.iter().find(|one| one.number == number);
    one.is_some_and(|one| one.stage != Stage::Leaving)
}

impl Seen {
    /// The snapshot of this name.
    pub(crate) fn of(
        shared: &Arc<Shared>,
        keeper: &Keeper,
        name: &str,
    ) -> Result<Self, SnapshotError> {
        let book = keeper.book();
        let number = book.by_name(name).ok_or(ListError::Unknown)?.number;
        let shared = Arc::clone(shared);
        match is_there(&book, number) {
            true => Ok(Self {
                shared,
                number,
                written: None,
            }),
            false => Err(SnapshotError::Leaves),
        }
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

    /// Where its blocks are now.
    fn places(&self, lba: Lba, blocks: u64) -> Result<Vec<Lba>, BlockError> {
        let gone = || BlockError::Io("the snapshot has been deleted".to_owned());
        let book = self.shared.keeper.as_ref().ok_or_else(gone)?.book();
        match is_there(&book, self.number) {
            true => {
                let lbas = (lba.0..lba.0 + blocks).map(Lba);
                Ok(lbas.map(|lba| book.place(self.number, lba)).collect())
            }
            false => Err(gone()),
        }
    }

    fn verdict(&self, request: &Request) -> Result<(), BlockError> {
        let (lba, blocks, size) = (request.lba.0, request.blocks, self.shared.blocks);
        if lba.checked_add(blocks).is_none_or(|end| end > size) {
            return Err(BlockError::OutOfRange { lba, blocks, size });
        }
        let frames = request.frames.len() as u64;
        match frames == blocks {
            true => Ok(()),
            false => Err(BlockError::Io(format!(
                "a request of {blocks} blocks came with {frames} frames"
            ))),
        }
    }

    /// Reads, and reads again if meanwhile something was kept that was read where the volume has it.
    fn read(&self, request: &mut Request) -> Result<(), BlockError> {
        self.verdict(request)?;
        loop {
            let places = self.places(request.lba, request.blocks)?;
            // What was answered before is there.
            drop(self.shared.knowing_all());
            let mut rest = std::mem::take(&mut request.frames);
            for run in places.chunk_by(|one, next| one.plus(1) == *next) {
                let others = rest.split_off(run.len());
                let read = carry::read_into(&self.shared, run[0], rest)?;
                request.frames.append(read);
                rest = others;
            }
            if self.places(request.lba, request.blocks)? == places {
                self.lay_over(request);
                return Ok(());
            }
        }
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
            self.verdict(request)?;
        } else if request.lba.0.saturating_add(request.blocks) > self.shared.blocks {
            let (lba, blocks, size) = (request.lba.0, request.blocks, self.shared.blocks);
            return Err(BlockError::OutOfRange { lba, blocks, size });
        } else if matches!(request.op, Op::Discard { .. }) {
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

    /// A snapshot has as much as the volume has where nothing was kept: what is not asked for is taken for data.
    fn extents(&self, _: Lba, blocks: u64, _: usize) -> Vec<Extent> {
        let mapped = true;
        vec![Extent { blocks, mapped }]
    }
}
