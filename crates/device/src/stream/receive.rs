//! Receives a stream into a volume, which then has the snapshot.

use super::reader::{Reader, Run};
use super::totals::Totals;
use crate::block::{BlockDevice, BlockError, Op};
use crate::frames::Frames;
use crate::migrate::{MigrateError, REQUEST_BLOCKS, Side};
use crate::runs::Damaged;
use crate::snapshots::{ArrivalError, SnapshotError};
use crate::volume::Volume;
use std::io::Read;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::stream::Head;
use vellum_core::size::Size;

/// Blocks after which what was received is made durable, so that another attempt finds it there.
const FLUSH_BLOCKS: u64 = 64 << 8;

/// Why a snapshot is not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is not whole. Its beginning is on the volume; the snapshot does not exist.
    #[error("{0}; give the same stream again, whole")]
    Stream(#[from] Damaged),
    /// The volume does not take it. Nothing was changed.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// The snapshot cannot be taken.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The volume fails.
    #[error("{0}; give the same stream again when that is mended")]
    Volume(#[from] MigrateError),
    /// The volume has no room for all of it. What has come is there.
    #[error(
        "there is no room for all of it: make the volume larger (`vellum grow VOLUME`), or delete an old \
         snapshot (`vellum delete VOLUME NAME`), and give the same stream again"
    )]
    NoRoom,
    /// The volume is too small. Nothing was changed.
    #[error(
        "the stream is of a volume of {:#}, and this one has {:#}: it must be as large",
        Size::of_blocks(*.need),
        Size::of_blocks(*.have)
    )]
    TooSmall {
        /// The volume's blocks.
        have: u64,
        /// The blocks that it needs.
        need: u64,
    },
    /// The caller ended it.
    #[error("interrupted; give the same stream again to go on")]
    Interrupted,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The contents of the stream.
    pub totals: Totals,
    /// Blocks of it that were there from an earlier attempt, and were not written again.
    pub there: u64,
}

struct Target<'a> {
    side: Side<'a>,
    /// Whether an earlier attempt may have left blocks of it.
    resumes: bool,
    /// Whether blocks that the stream does not name are zeros.
    is_whole: bool,
    /// Everything before this block is as it should be.
    at: u64,
    flushed: u64,
    there: u64,
}

/// Makes the volume what the stream holds, and takes the snapshot. Calls `report` with the block that it has reached, and ends
/// when that returns `false`. With `force` a whole snapshot overwrites what is on the volume. If an earlier attempt was begun,
/// what is there already is not written again.
///
/// # Errors
/// When the volume does not take it, the stream is not whole, or the volume fails. Then the snapshot does not exist.
pub fn receive<R: Read>(
    volume: &Volume,
    stream: &mut Reader<R>,
    force: bool,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Received, ReceiveError> {
    let head = *stream.head();
    let (have, need) = (volume.blocks(), head.blocks);
    if have < need {
        return Err(ReceiveError::TooSmall { have, need });
    }
    take_in(volume, stream, &head, force, report).map_err(|error| match error {
        ReceiveError::Volume(MigrateError::Block {
            source: BlockError::Full,
            ..
        })
        | ReceiveError::Snapshot(
            SnapshotError::NoRoom(_) | SnapshotError::Block(BlockError::Full),
        ) => ReceiveError::NoRoom,
        error => error,
    })
}

fn take_in<R: Read>(
    volume: &Volume,
    stream: &mut Reader<R>,
    head: &Head,
    force: bool,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Received, ReceiveError> {
    let have = volume.blocks();
    let resumes = volume.arrive(head, force)?;
    let mut target = Target {
        side: Side::new(volume, "the volume"),
        resumes,
        is_whole: head.from.is_none(),
        at: 0,
        flushed: 0,
        there: 0,
    };
    while let Some(run) = stream.next_run()? {
        match run {
            Run::Blocks { at, bytes } => target.write(at, bytes)?,
            Run::Zeros { at, blocks } => target.zeros(at, blocks)?,
        }
        target.flush_now_and_then()?;
        if !report(target.at) {
            return Err(ReceiveError::Interrupted);
        }
    }
    // The stream has ended properly: only now is what it does not name discarded.
    target.move_to(have)?;
    volume.arrived(head.snapshot.name.as_str())?;
    Ok(Received {
        totals: stream.totals().unwrap_or_default(),
        there: target.there,
    })
}

impl Target<'_> {
    /// Makes the blocks that were passed over what they should be.
    fn move_to(&mut self, at: u64) -> Result<(), MigrateError> {
        if self.is_whole {
            self.clear(self.at, at)?;
        }
        self.at = at;
        Ok(())
    }

    fn write(&mut self, at: Lba, bytes: &[u8]) -> Result<(), MigrateError> {
        self.move_to(at.0)?;
        for part in bytes.chunks(REQUEST_BLOCKS as usize * BLOCK_BYTES) {
            let blocks = (part.len() / BLOCK_BYTES) as u64;
            match self.resumes {
                true => self.write_what_differs(self.at, part)?,
                false => self.put(self.at, part)?,
            }
            self.at += blocks;
        }
        Ok(())
    }

    fn write_what_differs(&mut self, at: u64, bytes: &[u8]) -> Result<(), MigrateError> {
        let new: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
        let old = self.side.read(at, new.len() as u64)?;
        let mut lba = at;
        let is_there = |index: usize| old.block(index) == new[index];
        let indices: Vec<usize> = (0..new.len()).collect();
        for run in indices.chunk_by(|one, next| is_there(*one) == is_there(*next)) {
            match is_there(run[0]) {
                true => self.there += run.len() as u64,
                false => {
                    let end = run[0] + run.len();
                    self.put(lba, &bytes[run[0] * BLOCK_BYTES..end * BLOCK_BYTES])?;
                }
            }
            lba += run.len() as u64;
        }
        Ok(())
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), MigrateError> {
        self.side.write_bytes(at, bytes)
    }

    fn zeros(&mut self, at: Lba, blocks: u64) -> Result<(), MigrateError> {
        self.move_to(at.0)?;
        self.clear(at.0, at.0 + blocks)?;
        self.at += blocks;
        Ok(())
    }

    /// Discards what is mapped there.
    fn clear(&self, from: u64, end: u64) -> Result<(), MigrateError> {
        let mut at = from;
        while at < end {
            let (run, is_mapped) = self.side.extent(at);
            let run = run.min(end - at);
            if is_mapped {
                let discard = Op::Discard { fua: false };
                self.side.ask(discard, at, run, Frames::default())?;
            }
            at += run;
        }
        Ok(())
    }

    fn flush_now_and_then(&mut self) -> Result<(), MigrateError> {
        if self.at - self.flushed >= FLUSH_BLOCKS {
            self.side.ask(Op::Flush, 0, 0, Frames::default())?;
            self.flushed = self.at;
        }
        Ok(())
    }
}
