//! The blocks of a medium, into an archive.

use super::totals::Totals;
use std::io::{self, Write};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::archive::{Frame, FrameKind, Head, RUN_BLOCKS};
use zstd_safe::{CCtx, compress_bound};

/// How hard zstd tries: most of what a volume holds is encoded already, and a disk is to be kept up with.
const LEVEL: i32 = 1;

const RUN_BYTES: usize = RUN_BLOCKS as usize * BLOCK_BYTES;

/// Writes an archive: runs of blocks by rising addresses.
pub struct Writer<W> {
    out: W,
    sum: u64,
    /// The first block that may come.
    next: u64,
    totals: Totals,
    context: CCtx<'static>,
    encoded: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// What the stream refuses, or when there is no memory for an encoder.
    pub fn new(mut out: W, head: &Head) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let context = CCtx::try_create().ok_or_else(no_memory)?;
        let (bytes, sum) = head.encode();
        out.write_all(&bytes)?;
        Ok(Self {
            out,
            sum,
            next: 0,
            totals: Totals::default(),
            context,
            encoded: vec![0; compress_bound(RUN_BYTES)],
        })
    }

    /// Adds a run of blocks, behind all that were added before.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn blocks(&mut self, at: Pba, bytes: &[u8]) -> io::Result<()> {
        let mut at = at;
        for run in bytes.chunks(RUN_BYTES) {
            let blocks = (run.len() / BLOCK_BYTES) as u64;
            let mut encoded = std::mem::take(&mut self.encoded);
            let length = self.context.compress(&mut encoded[..], run, LEVEL);
            let shorter = length.ok().filter(|length| *length < run.len());
            let held = shorter.map_or(run, |length| &encoded[..length]);
            self.frame(FrameKind::Blocks, at, blocks, shorter.is_some(), held)?;
            self.encoded = encoded;
            self.totals.blocks += blocks;
            at = at.plus(blocks);
        }
        Ok(())
    }

    /// Adds a run of blocks that are not there: [`FrameKind::Unread`], or left out.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn missing(&mut self, at: Pba, blocks: u64, why: FrameKind) -> io::Result<()> {
        self.frame(why, at, blocks, false, &[])?;
        self.totals.missing += blocks;
        Ok(())
    }

    /// Ends it. Without that it is none.
    ///
    /// # Errors
    /// What the stream refuses.
    pub fn end(mut self) -> io::Result<(W, Totals)> {
        let Totals {
            blocks, missing, ..
        } = self.totals;
        let frame = Frame {
            kind: FrameKind::End,
            at: Pba(blocks),
            blocks: missing,
            bytes: 0,
            is_encoded: false,
        };
        self.put(&frame, &[])?;
        self.out.flush()?;
        self.totals.sum = self.sum;
        Ok((self.out, self.totals))
    }

    fn frame(
        &mut self,
        kind: FrameKind,
        at: Pba,
        blocks: u64,
        is_encoded: bool,
        held: &[u8],
    ) -> io::Result<()> {
        debug_assert!(at.0 >= self.next);
        self.next = at.0 + blocks;
        let frame = Frame {
            kind,
            at,
            blocks,
            bytes: held.len() as u32,
            is_encoded,
        };
        self.put(&frame, held)
    }

    fn put(&mut self, frame: &Frame, held: &[u8]) -> io::Result<()> {
        let (bytes, sum) = frame.encode(self.sum, held);
        self.sum = sum;
        self.out.write_all(&bytes)?;
        self.out.write_all(held)
    }
}
