//! Encodes the blocks of a medium into an archive.

use super::totals::Totals;
use crate::runs::FrameWriter;
use std::io::{self, Write};
use vellum_core::addr::Pba;
use vellum_core::format::archive::Head;
use vellum_core::format::frames::FrameKind;

/// Writes an archive: runs of blocks by rising addresses.
pub struct Writer<W> {
    frames: FrameWriter<W>,
}

impl<W: Write> Writer<W> {
    /// Begins an archive.
    ///
    /// # Errors
    /// When the output fails, there is no memory for an encoder, or no reader would take the head.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let (bytes, sum) = head.encode();
        Head::decode(&bytes).map_err(io::Error::other)?;
        let frames = FrameWriter::new(out, &bytes, sum)?;
        Ok(Self { frames })
    }

    /// Adds a run of blocks, after all that were added before.
    ///
    /// # Errors
    /// When the output fails.
    pub fn blocks(&mut self, at: Pba, bytes: &[u8]) -> io::Result<()> {
        self.frames.blocks(at.0, bytes)
    }

    /// Adds a run of blocks that are missing: [`FrameKind::Unread`], or left out.
    ///
    /// # Errors
    /// When the output fails.
    pub fn missing(&mut self, at: Pba, blocks: u64, why: FrameKind) -> io::Result<()> {
        self.frames.others(why, at.0, blocks)
    }

    /// Ends the archive. Without this, it is not valid.
    ///
    /// # Errors
    /// When the output fails.
    pub fn end(self) -> io::Result<(W, Totals)> {
        let (out, (blocks, missing, sum)) = self.frames.end()?;
        let totals = Totals {
            blocks,
            missing,
            sum,
        };
        Ok((out, totals))
    }
}
