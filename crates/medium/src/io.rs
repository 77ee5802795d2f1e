//! Operations: what is submitted to a medium and given back.

use crate::error::MediumError;
use std::io;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// What an [`Io`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fill the memory from the medium.
    Read,
    /// Put the memory on the medium.
    Write {
        /// On stable storage when it completes (FUA, `RWF_DSYNC`).
        durable: bool,
    },
    /// Make every write that completed before it durable.
    Sync,
    /// The contents of the blocks are no longer needed.
    Discard {
        /// How many.
        blocks: u64,
    },
}

impl Kind {
    /// Its name in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write { durable: false } => "write",
            Self::Write { durable: true } => "durable write",
            Self::Sync => "sync",
            Self::Discard { .. } => "discard",
        }
    }
}

/// A piece of memory that an [`Io`] reads or writes: block-aligned, a multiple of a block long.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    // In this order: the system reads a slice of pieces as `iovec`s.
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

const _: () = assert!(size_of::<Piece>() == size_of::<libc::iovec>());
const _: () =
    assert!(std::mem::offset_of!(libc::iovec, iov_len) == std::mem::offset_of!(Piece, len));

// SAFETY: a piece is only an address; code that transfers through it relies on the promise made for its `Io`.
unsafe impl Send for Piece {}

/// One operation. It is submitted, carried out in any order relative to others, and given back when done, so
/// that its allocations are reused.
#[derive(Debug)]
pub struct Io {
    /// The submitter's number for it.
    pub token: u64,
    /// What it does.
    pub kind: Kind,
    /// Where it starts.
    pub at: Pba,
    pieces: Vec<Piece>,
}

impl Io {
    /// An operation without memory yet.
    #[must_use]
    pub fn new(token: u64, kind: Kind, at: Pba) -> Box<Self> {
        Box::new(Self {
            token,
            kind,
            at,
            pieces: Vec::new(),
        })
    }

    /// Reinitializes a used operation, keeping its allocation.
    pub fn reset(&mut self, token: u64, kind: Kind, at: Pba) {
        (self.token, self.kind, self.at) = (token, kind, at);
        self.pieces.clear();
    }

    /// Adds memory to transfer; adjacent pieces are joined.
    ///
    /// # Safety
    /// `ptr..ptr + len` must be valid, and nothing else may access it in a way that conflicts with the transfer, until the
    /// operation is given back. Both must be multiples of a block.
    pub unsafe fn push(&mut self, ptr: *mut u8, len: usize) {
        debug_assert!(
            (ptr as usize).is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES)
        );
        match self.pieces.last_mut() {
            Some(last) if last.ptr.wrapping_add(last.len) == ptr => last.len += len,
            _ => self.pieces.push(Piece { ptr, len }),
        }
    }

    /// Replaces its memory, and returns the old pieces.
    pub(crate) fn replace_pieces(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        std::mem::replace(&mut self.pieces, pieces)
    }

    /// Bytes to transfer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|p| p.len).sum()
    }

    /// True if it transfers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The memory, piece by piece (laid out as `iovec`).
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The number of blocks it touches.
    pub(crate) fn blocks(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write { .. } => (self.len() / BLOCK_BYTES) as u64,
            Kind::Sync => 0,
            Kind::Discard { blocks } => blocks,
        }
    }

    /// Checks that it is within a medium of `size` blocks.
    pub(crate) fn check(&self, size: u64) -> io::Result<()> {
        if self.kind == Kind::Sync {
            return Ok(());
        }
        check_range(self.at, self.blocks(), size)
    }

    /// Ends it with this result.
    pub(crate) fn done(self: Box<Self>, what: &str, result: io::Result<()>) -> Done {
        let result = result.map_err(|e| MediumError::at(self.kind.name(), what, self.at, e));
        Done { io: self, result }
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

/// Checks that `blocks` blocks from `at` on are within a medium of `size` blocks.
pub(crate) fn check_range(at: Pba, blocks: u64, size: u64) -> io::Result<()> {
    if at.0.checked_add(blocks).is_some_and(|end| end <= size) {
        return Ok(());
    }
    let why = format!("blocks {at}+{blocks} end past the medium's {size}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Checks that a buffer of the synchronous calls is whole blocks.
pub(crate) fn check_bytes(at: Pba, bytes: usize, size: u64) -> io::Result<()> {
    if !bytes.is_multiple_of(BLOCK_BYTES) {
        let why = format!("{bytes} bytes are not whole blocks of {BLOCK_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    check_range(at, (bytes / BLOCK_BYTES) as u64, size)
}
