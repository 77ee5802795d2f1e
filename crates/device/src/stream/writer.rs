//! Blocks of a snapshot, into a stream.

use super::totals::Totals;
use crate::runs::FrameWriter;
use std::io::{self, Write};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::frames::FrameKind;
use vellum_core::format::stream::Head;

/// Writes a stream: runs of blocks by rising addresses.
pub struct Writer<W> {
    frames: FrameWriter<W>,
    /// Whether blocks that it does not name are zeros.
    is_whole: bool,
    /// Zeros that are not written yet: the run may go on.
    zeros: Option<(u64, u64)>,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// What the stream refuses, or when there is no memory for an encoder.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let (bytes, sum) = head.encode();
        Ok(Self {
            frames: FrameWriter::new(out, &bytes, sum)?,
            is_whole: head.from.is_none(),
            zeros: None,
        })
    }

    /// Adds a run of blocks, behind all that were added before; what is zeros as zeros.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn blocks(&mut self, at: Lba, bytes: &[u8]) -> io::Result<()> {
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
        let mut at = at.0;
        let mut rest = bytes;
        for run in blocks.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
            let (own, behind) = rest.split_at(run.len() * BLOCK_BYTES);
            match is_zero(run[0]) {
                true => self.zeros(Lba(at), run.len() as u64)?,
                false => {
                    self.put_zeros()?;
                    self.frames.blocks(at, own)?;
                }
            }
            at += run.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Adds a run of blocks that are zeros, behind all that were added before.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn zeros(&mut self, at: Lba, blocks: u64) -> io::Result<()> {
        if self.is_whole {
            return Ok(());
        }
        match &mut self.zeros {
            Some((first, have)) if *first + *have == at.0 => *have += blocks,
            _ => {
                self.put_zeros()?;
                self.zeros = Some((at.0, blocks));
            }
        }
        Ok(())
    }

    fn put_zeros(&mut self) -> io::Result<()> {
        match self.zeros.take() {
            Some((at, blocks)) => self.frames.others(FrameKind::Zeros, at, blocks),
            None => Ok(()),
        }
    }

    /// Ends it. Without that it is none.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn end(mut self) -> io::Result<(W, Totals)> {
        self.put_zeros()?;
        let (out, totals) = self.frames.end()?;
        Ok((out, Totals::of(totals)))
    }
}
