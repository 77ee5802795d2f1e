//! Where blocks live.
//!
//! A medium reads, writes, syncs and discards 4 KiB blocks. It knows physical addresses
//! and nothing of what is in them.

use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// What an [`Io`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fill the memory from the medium.
    Read,
    /// Put the memory on the medium; `durable`: on stable storage when it completes.
    Write {
        /// On stable storage when it completes (FUA, `RWF_DSYNC`).
        durable: bool,
    },
    /// Make every write that completed before durable.
    Sync,
    /// The blocks' content is not needed any more.
    Discard {
        /// How many.
        blocks: u64,
    },
}

/// A piece of memory that an [`Io`] reads or writes: block-aligned, a multiple of a block long.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    ptr: *mut u8,
    len: usize,
}

/// One operation: submitted, carried out in any order with others, and given back when done, so
/// that its allocations serve again.
#[derive(Debug)]
pub struct Io {
    /// The submitter's own number for it.
    pub token: u64,
    /// What it does.
    pub kind: Kind,
    /// Where it starts.
    pub at: Pba,
    pieces: Vec<Piece>,
}

// SAFETY: whoever pushed a piece promised that the memory stays valid and unshared until the Io is back.
unsafe impl Send for Io {}

impl Io {
    /// An operation without memory yet.
    #[must_use]
    pub fn new(token: u64, kind: Kind, at: Pba) -> Box<Self> {
        Box::new(Self { token, kind, at, pieces: Vec::new() })
    }

    /// Makes a used one new, keeping its allocation.
    pub fn reset(&mut self, token: u64, kind: Kind, at: Pba) {
        (self.token, self.kind, self.at) = (token, kind, at);
        self.pieces.clear();
    }

    /// Adds memory to transfer; adjacent pieces are joined.
    ///
    /// # Safety
    /// `ptr..ptr + len` must be valid, and not be touched by anyone else in a way that conflicts with
    /// the transfer, until the operation is given back. Both must be multiples of a block.
    pub unsafe fn push(&mut self, ptr: *mut u8, len: usize) {
        debug_assert!(ptr as usize % BLOCK_BYTES == 0 && len % BLOCK_BYTES == 0);
        match self.pieces.last_mut() {
            Some(last) if last.ptr.wrapping_add(last.len) == ptr => last.len += len,
            _ => self.pieces.push(Piece { ptr, len }),
        }
    }

    /// Bytes to transfer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|p| p.len).sum()
    }

    /// Whether it transfers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The memory, piece by piece (laid out as `iovec`).
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// An operation that ended.
#[derive(Debug)]
pub struct Done {
    /// The operation, for use again.
    pub io: Box<Io>,
    /// How it ended.
    pub result: Result<(), MediumError>,
}

/// Why a medium could not do it.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {what} at byte {offset}: {source}")]
pub struct MediumError {
    /// What was tried.
    pub operation: &'static str,
    /// The medium's name.
    pub what: String,
    /// Where.
    pub offset: u64,
    /// What the system said.
    pub source: std::io::Error,
}

impl MediumError {
    /// Whether room may come back (ENOSPC, EDQUOT), so that trying again makes sense.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
    }
}

/// Where blocks live. Any thread may submit; one thread waits.
pub trait Medium: Send + Sync {
    /// What to call it in messages: a path, mostly.
    fn name(&self) -> &str;
    /// How many whole blocks it has.
    fn blocks(&self) -> u64;
    /// Whether discards are worth sending.
    fn wants_discard(&self) -> bool;
    /// Queues operations and empties the vector; never blocks for the I/O itself.
    fn submit(&self, ios: &mut Vec<Box<Io>>);
    /// Appends what has completed to `done`, waiting for at least one, for `wake`, or for the time-out
    /// (`None`: for ever).
    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>);
    /// Makes a `wait` in progress, or the next one, return at once.
    fn wake(&self);
    /// Reads now. For start-up and tools: `bytes` need not be aligned in memory; its length is whole blocks.
    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError>;
    /// Writes now, like `read`.
    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError>;
    /// Makes every completed write durable, now.
    fn sync(&self) -> Result<(), MediumError>;
}
