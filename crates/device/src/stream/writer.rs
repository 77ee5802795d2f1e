//! Encodes blocks of a snapshot into a stream.

use super::totals::Totals;
use crate::runs::FrameWriter;
use std::io::{self, Write};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::frames::{FrameKind, RUN_BLOCKS};
use vellum_core::format::stream::Head;

/// Writes a stream: blocks by rising addresses. Adjacent blocks become one run.
pub struct Writer<W> {
    frames: FrameWriter<W>,
    /// Whether blocks that it does not name are zeros.
    is_whole: bool,
    /// Zeros that are not written yet: the first, and how many.
    zeros: (u64, u64),
    /// Blocks that are not written yet: the first, and their bytes.
    run: (u64, Vec<u8>),
}

impl<W: Write> Writer<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// When the output fails, there is no memory for an encoder, or no receiver would take the head.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let (bytes, sum) = head.encode();
        Head::decode(&bytes).map_err(io::Error::other)?;
        Ok(Self {
            frames: FrameWriter::new(out, &bytes, sum)?,
            is_whole: head.from.is_none(),
            zeros: (0, 0),
            run: (0, Vec::with_capacity(RUN_BLOCKS as usize * BLOCK_BYTES)),
        })
    }

    /// Adds a block, after all that were added before.
    ///
    /// # Errors
    /// When the output fails.
    pub fn block(&mut self, at: Lba, bytes: &[u8]) -> io::Result<()> {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        if bytes.iter().all(|byte| *byte == 0) {
            return self.zeros(at, 1);
        }
        let (first, run) = &self.run;
        let blocks = (run.len() / BLOCK_BYTES) as u64;
        if self.zeros.1 > 0 || first + blocks != at.0 || blocks == RUN_BLOCKS {
            self.put()?;
        }
        if self.run.1.is_empty() {
            self.run.0 = at.0;
        }
        self.run.1.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds a run of zeroed blocks, after all that were added before.
    ///
    /// # Errors
    /// When the output fails.
    pub fn zeros(&mut self, at: Lba, blocks: u64) -> io::Result<()> {
        if self.is_whole {
            return Ok(());
        }
        let (first, have) = self.zeros;
        if have == 0 || first + have != at.0 {
            self.put()?;
            self.zeros = (at.0, 0);
        }
        self.zeros.1 += blocks;
        Ok(())
    }

    /// Writes what is collected: blocks, or zeros.
    fn put(&mut self) -> io::Result<()> {
        let (at, blocks) = std::mem::take(&mut self.zeros);
        if blocks > 0 {
            self.frames.others(FrameKind::Zeros, at, blocks)?;
        }
        let (at, run) = &mut self.run;
        self.frames.blocks(*at, run)?;
        run.clear();
        Ok(())
    }

    /// Ends the stream. Without this, it is not valid.
    ///
    /// # Errors
    /// When the output fails.
    pub fn end(mut self) -> io::Result<(W, Totals)> {
        self.put()?;
        let (out, totals) = self.frames.end()?;
        Ok((out, Totals::of(totals)))
    }
}
