//! What the driver remembers of an effect until it completes.

use crate::content::Content;
use vellum_core::addr::{Buf, Pba};
use vellum_core::driver::{Extent, To};

/// An effect in flight.
#[derive(Clone, Copy)]
pub(super) enum Flight {
    /// No effect has this number.
    None,
    /// Nothing is left to do.
    Plain,
    /// Whole blocks are read.
    Read { from: Extent, to: To },
    /// Metadata is read.
    Meta(Extent),
    /// A block is read, and compared with a buffer's; or a part of the page there.
    Compare { buf: Buf, at: Pba, slot: Option<u8> },
    /// A comparison of blocks in memory.
    Compared(bool),
    /// A content's fingerprint is computed.
    Print(Content),
    /// A page is read for these parts.
    Parts {
        at: Pba,
        slot: u8,
        count: u8,
        to: To,
    },
    /// Parts were read in memory; true if all of them are whole.
    PartsShown(bool),
    /// A base is being read; then this is done.
    Base(Then),
    /// The segment here is discarded.
    Erase { at: Pba },
}

/// What to do once a base has been read.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// Read the delta, for a client: slot and count of the parts.
    Read { at: Pba, parts: (u8, u8), to: To },
    /// The delta was in RAM, and has been shown.
    Shown(bool),
    /// Read the delta, and compare it with a buffer's block.
    Compare { buf: Buf, at: Pba, slot: u8 },
    /// The delta was in RAM, and has been compared.
    Compared(bool),
}
