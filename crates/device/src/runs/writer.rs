//! Encodes runs of blocks.

use std::io::{self, Write};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::frames::{Frame, FrameKind, RUN_BLOCKS};
use zstd_safe::{CCtx, compress_bound};

/// How hard zstd tries: most of what a volume holds is encoded already, and this has to keep up with a disk.
const LEVEL: i32 = 1;

const RUN_BYTES: usize = RUN_BLOCKS as usize * BLOCK_BYTES;

/// Writes what follows a head: runs of blocks by rising addresses.
pub(crate) struct FrameWriter<W> {
    out: W,
    sum: u64,
    /// The first block that may follow.
    next: u64,
    blocks: u64,
    others: u64,
    context: CCtx<'static>,
    encoded: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    /// Writes a head that has this sum, and goes on from there.
    pub fn new(mut out: W, head: &[u8], sum: u64) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let context = CCtx::try_create().ok_or_else(no_memory)?;
        out.write_all(head)?;
        Ok(Self {
            out,
            sum,
            next: 0,
            blocks: 0,
            others: 0,
            context,
            encoded: vec![0; compress_bound(RUN_BYTES)],
        })
    }

    /// Adds a run of blocks, after all that were added before.
    pub fn blocks(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = at;
        for run in bytes.chunks(RUN_BYTES) {
            let blocks = (run.len() / BLOCK_BYTES) as u64;
            let mut encoded = std::mem::take(&mut self.encoded);
            let length = self.context.compress(&mut encoded[..], run, LEVEL);
            let shorter = length.ok().filter(|length| *length < run.len());
            let held = shorter.map_or(run, |length| &encoded[..length]);
            self.frame(FrameKind::Blocks, at, blocks, shorter.is_some(), held)?;
            self.encoded = encoded;
            self.blocks += blocks;
            at += blocks;
        }
        Ok(())
    }

    /// Adds a run of another kind.
    pub fn others(&mut self, kind: FrameKind, at: u64, blocks: u64) -> io::Result<()> {
        self.frame(kind, at, blocks, false, &[])?;
        self.others += blocks;
        Ok(())
    }

    /// Ends it. Returns how many blocks there were, how many of other kinds, and the sum of everything. Without this, the file is
    /// not valid.
    pub fn end(mut self) -> io::Result<(W, (u64, u64, u64))> {
        let frame = Frame {
            kind: FrameKind::End,
            at: self.blocks,
            blocks: self.others,
            bytes: 0,
            is_encoded: false,
        };
        self.put(&frame, &[])?;
        self.out.flush()?;
        Ok((self.out, (self.blocks, self.others, self.sum)))
    }

    fn frame(
        &mut self,
        kind: FrameKind,
        at: u64,
        blocks: u64,
        is_encoded: bool,
        held: &[u8],
    ) -> io::Result<()> {
        debug_assert!(at >= self.next);
        self.next = at + blocks;
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
