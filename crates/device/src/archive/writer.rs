//! The blocks of a medium, into an archive.

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
    /// Begins one.
    ///
    /// # Errors
    /// What the stream refuses, or when there is no memory for an encoder.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let (bytes, sum) = head.encode();
        let frames = FrameWriter::new(out, &bytes, sum)?;
        Ok(Self { frames })
    }

    /// Adds a run of blocks, behind all that were added before.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn blocks(&mut self, at: Pba, bytes: &[u8]) -> io::Result<()> {
        self.frames.blocks(at.0, bytes)
    }

    /// Adds a run of blocks that are not there: [`FrameKind::Unread`], or left out.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn missing(&mut self, at: Pba, blocks: u64, why: FrameKind) -> io::Result<()> {
        self.frames.others(why, at.0, blocks)
    }

    /// Ends it. Without that it is none.
    ///
    /// # Errors
    /// What the stream refuses.
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
