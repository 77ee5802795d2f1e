//! Copies one volume to another, whatever their layouts: every mapped block is copied, and then compared.
//!
//! Both are used as their clients see them, so a crash of either cannot make the copy wrong.

use crate::block::{BlockDevice, BlockError, Op, Request, answer_to};
use crate::frames::{Frames, Quota};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::size::Size;

/// Blocks of one request.
pub(crate) const REQUEST_BLOCKS: u64 = 256;
/// How far to look for the end of a run.
const EXTENT_BLOCKS: u64 = 16 * REQUEST_BLOCKS;

/// Blocks after which the copy is made durable, and the progress is reported.
const REPORT_BLOCKS: u64 = 64 << 8;

/// What errors call the volume that is copied.
pub const SOURCE: &str = "the source";

/// Why a copy ended early. What was reported is there; the copy can go on from there.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// They differ in size.
    #[error(
        "the volumes have {} and {}: both must have the same size",
        Size::of_blocks(*.from).beside(Size::of_blocks(*.to)),
        Size::of_blocks(*.to).beside(Size::of_blocks(*.from))
    )]
    Size {
        /// The source's.
        from: u64,
        /// The copy's.
        to: u64,
    },
    /// One of them refuses.
    #[error("{which}, {what} {blocks} blocks from LBA {lba} on: {source}")]
    Block {
        /// The source or the copy.
        which: &'static str,
        /// What was requested.
        what: &'static str,
        /// Where.
        lba: Lba,
        /// How many.
        blocks: u64,
        /// Why.
        source: BlockError,
    },
    /// The copy is smaller, and there is data past its end.
    #[error("LBA {lba} holds data, and the copy ends before LBA {end}")]
    Behind {
        /// The first block that would be lost.
        lba: Lba,
        /// Where the copy ends.
        end: Lba,
    },
    /// A block of the copy differs from the source.
    #[error("LBA {0} of the copy is not what it is in the source")]
    Differs(Lba),
    /// It cannot be recorded how far it is.
    #[error("cannot note how far it is: {0}")]
    Report(#[from] std::io::Error),
    /// The caller ended it.
    #[error("interrupted")]
    Interrupted,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Blocks that were copied, or compared.
    pub blocks: u64,
}

/// One volume, with one request at a time.
pub(crate) struct Side<'a> {
    device: &'a dyn BlockDevice,
    which: &'static str,
}

impl<'a> Side<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, which: &'static str) -> Self {
        Self { device, which }
    }

    pub(crate) fn ask(
        &self,
        op: Op,
        lba: u64,
        blocks: u64,
        frames: Frames,
    ) -> Result<Frames, MigrateError> {
        let mut asked = vec![Request::new(op, Lba(lba), blocks, frames)];
        answer_to(|replies| self.device.submit(&mut asked, replies))
            .map(|request| request.frames)
            .map_err(|source| self.error(op, lba, blocks, source))
    }

    fn error(&self, op: Op, lba: u64, blocks: u64, source: BlockError) -> MigrateError {
        let what = match op {
            Op::Read => "reading",
            Op::Flush => "flushing",
            _ => "writing",
        };
        MigrateError::Block {
            which: self.which,
            what,
            lba: Lba(lba),
            blocks,
            source,
        }
    }

    pub(crate) fn read(&self, lba: u64, blocks: u64) -> Result<Frames, MigrateError> {
        let frames = self.device.frames().take(Quota::Read, blocks as usize);
        let frames = frames.map_err(|source| self.error(Op::Read, lba, blocks, source))?;
        self.ask(Op::Read, lba, blocks, frames)
    }

    pub(crate) fn write_bytes(&self, lba: u64, bytes: &[u8]) -> Result<(), MigrateError> {
        let (op, blocks) = (Op::Write { fua: false }, bytes.len() / BLOCK_BYTES);
        let frames = self.device.frames().take(Quota::Write, blocks);
        let mut frames = frames.map_err(|source| self.error(op, lba, blocks as u64, source))?;
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            frames.block_mut(index).copy_from_slice(block);
        }
        self.ask(op, lba, blocks as u64, frames).map(drop)
    }

    pub(crate) fn write(&self, lba: u64, content: &Frames) -> Result<(), MigrateError> {
        let (op, blocks) = (Op::Write { fua: false }, content.len());
        let frames = self.device.frames().take(Quota::Write, blocks);
        let mut frames = frames.map_err(|source| self.error(op, lba, blocks as u64, source))?;
        for index in 0..blocks {
            frames
                .block_mut(index)
                .copy_from_slice(content.block(index));
        }
        self.ask(op, lba, blocks as u64, frames).map(drop)
    }

    /// The next run from `at` on, and whether it has data.
    pub(crate) fn extent(&self, at: u64) -> (u64, bool) {
        // A mapped run is walked block by block, so do not walk to the end of the volume for each request.
        let left = (self.device.blocks() - at).min(EXTENT_BLOCKS);
        match self.device.extents(Lba(at), left, 1).first() {
            Some(extent) => (extent.blocks.clamp(1, left), extent.mapped),
            None => (left, true),
        }
    }
}

pub(crate) fn same_size(from: &dyn BlockDevice, to: &dyn BlockDevice) -> Result<(), MigrateError> {
    let (from, to) = (from.blocks(), to.blocks());
    match from == to {
        true => Ok(()),
        false => Err(MigrateError::Size { from, to }),
    }
}

/// Checks that nothing but zeros follows from block `end` on: a copy may be that small.
///
/// # Errors
/// When there is data; the error names the first block. When reading fails.
pub fn ends_before(from: &dyn BlockDevice, end: u64) -> Result<(), MigrateError> {
    only_zeros(&Side::new(from, SOURCE), end, end)
}

fn only_zeros(side: &Side<'_>, start: u64, end: u64) -> Result<(), MigrateError> {
    let mut at = start;
    while at < side.device.blocks() {
        let (run, mapped) = side.extent(at);
        if !mapped {
            at += run;
            continue;
        }
        let blocks = run.min(REQUEST_BLOCKS);
        let content = side.read(at, blocks)?;
        let zeros = |index: &usize| content.block(*index).iter().all(|&byte| byte == 0);
        if let Some(index) = (0..blocks as usize).find(|index| !zeros(index)) {
            let (lba, end) = (Lba(at + index as u64), Lba(end));
            return Err(MigrateError::Behind { lba, end });
        }
        at += blocks;
    }
    Ok(())
}

/// Copies what is mapped from block `start` on. Everything before it is copied already, and what is unmapped reads as zeros on a
/// new volume. Calls `report` with the block up to which the copy is durable; its error ends the copy. The copy may be larger, or
/// smaller where [`ends_before`] allows it.
///
/// # Errors
/// When one of them fails. What was reported is durable.
pub fn copy(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    start: u64,
    report: &mut dyn FnMut(u64) -> Result<(), MigrateError>,
) -> Result<Migrated, MigrateError> {
    let (source, target) = (Side::new(from, SOURCE), Side::new(to, "the copy"));
    let mut done = Migrated::default();
    let (mut at, mut reported) = (start, start);
    let end = from.blocks().min(to.blocks());
    while at < end {
        let (run, mapped) = source.extent(at);
        let run = run.min(end - at);
        if !mapped {
            at += run;
        } else {
            let blocks = run.min(REQUEST_BLOCKS);
            target.write(at, &source.read(at, blocks)?)?;
            at += blocks;
            done.blocks += blocks;
        }
        if at - reported >= REPORT_BLOCKS || at >= end {
            target.ask(Op::Flush, 0, 0, Frames::default())?;
            report(at)?;
            reported = at;
        }
    }
    Ok(done)
}

/// Reads both volumes and compares them; skips what has no data in either. What one of them has past the other's end must be
/// zeros. Calls `report` with the block that it has reached; its error ends the comparison.
///
/// # Errors
/// When one of them fails, or a block differs or would be lost; the error names the first.
pub fn verify(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    report: &mut dyn FnMut(u64) -> Result<(), MigrateError>,
) -> Result<Migrated, MigrateError> {
    let (source, target) = (Side::new(from, SOURCE), Side::new(to, "the copy"));
    let mut done = Migrated::default();
    let mut at = 0;
    let end = from.blocks().min(to.blocks());
    while at < end {
        let ((here, mapped), (there, copied)) = (source.extent(at), target.extent(at));
        let run = here.min(there).min(end - at);
        if !mapped && !copied {
            at += run;
            continue;
        }
        let blocks = run.min(REQUEST_BLOCKS);
        let (a, b) = (source.read(at, blocks)?, target.read(at, blocks)?);
        for index in 0..blocks as usize {
            if a.block(index) != b.block(index) {
                return Err(MigrateError::Differs(Lba(at + index as u64)));
            }
        }
        at += blocks;
        done.blocks += blocks;
        report(at)?;
    }
    only_zeros(&source, end, end)?;
    only_zeros(&target, end, end).map_err(|error| match error {
        MigrateError::Behind { lba, .. } => MigrateError::Differs(lba),
        error => error,
    })?;
    Ok(done)
}
