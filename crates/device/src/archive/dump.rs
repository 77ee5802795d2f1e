//! Dumps a medium into an archive: all blocks that are not zeros, whatever they mean.

use super::totals::Totals;
use super::writer::Writer;
use std::io::{self, Write};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::archive::Head;
use vellum_core::format::frames::{FrameKind, RUN_BLOCKS};
use vellum_medium::{Medium, MediumError};

/// Why there is no archive. Blocks that cannot be read are no reason: the archive says which they are.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The archive cannot be written.
    #[error("the archive cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The medium's cache cannot be dropped, so reads might not return what is on the medium.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The caller ended it.
    #[error("interrupted")]
    Interrupted,
}

/// Writes the medium's first blocks, as many as the head says, to an archive. Calls `report` with the block that it has reached,
/// and ends when that returns `false`.
///
/// # Errors
/// When the archive cannot be written, or `report` ends it.
pub fn dump<W: Write>(
    medium: &dyn Medium,
    head: &Head,
    out: W,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<(W, Totals), DumpError> {
    medium.drop_cache()?;
    let mut writer = Writer::new(out, head)?;
    let mut buffer = vec![0; RUN_BLOCKS as usize * BLOCK_BYTES];
    let end = head.medium_blocks;
    let mut at = medium.next_data(Pba(0)).0;
    while at < end {
        let blocks = (end - at).min(RUN_BLOCKS);
        let bytes = &mut buffer[..blocks as usize * BLOCK_BYTES];
        match medium.read(Pba(at), bytes) {
            Ok(()) => all_but_zeros(&mut writer, Pba(at), bytes)?,
            Err(_) => one_by_one(medium, &mut writer, Pba(at), bytes)?,
        }
        at = medium.next_data(Pba(at + blocks)).0;
        if !report(at.min(end)) {
            return Err(DumpError::Interrupted);
        }
    }
    Ok(writer.end()?)
}

/// Adds the blocks that are not zeros.
fn all_but_zeros<W: Write>(writer: &mut Writer<W>, at: Pba, bytes: &[u8]) -> io::Result<()> {
    let is_zero = |block: &&[u8]| block.iter().all(|byte| *byte == 0);
    let mut at = at;
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros = rest.chunks(BLOCK_BYTES).take_while(is_zero).count();
        let (_, behind) = rest.split_at(zeros * BLOCK_BYTES);
        let blocks = behind.chunks(BLOCK_BYTES).take_while(|b| !is_zero(b));
        let blocks = blocks.count();
        let (run, behind) = behind.split_at(blocks * BLOCK_BYTES);
        writer.blocks(at.plus(zeros as u64), run)?;
        at = at.plus((zeros + blocks) as u64);
        rest = behind;
    }
    Ok(())
}

/// Adds what can be read of a run, and marks what cannot.
fn one_by_one<W: Write>(
    medium: &dyn Medium,
    writer: &mut Writer<W>,
    at: Pba,
    bytes: &mut [u8],
) -> io::Result<()> {
    let mut unread: Option<(Pba, u64)> = None;
    for (index, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        let at = at.plus(index as u64);
        if medium.read(at, block).is_err() {
            let (_, blocks) = unread.get_or_insert((at, 0));
            *blocks += 1;
            continue;
        }
        if let Some((at, blocks)) = unread.take() {
            writer.missing(at, blocks, FrameKind::Unread)?;
        }
        all_but_zeros(writer, at, block)?;
    }
    match unread {
        Some((at, blocks)) => writer.missing(at, blocks, FrameKind::Unread),
        None => Ok(()),
    }
}
