//! A user-defined admission policy: what each write may use.
//!
//! It decides before the page map or the engine sees the write, so the core never calls it. The core gets the write without the features
//! that the policy denied.

use crate::content::Content;

/// A write that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its first block.
    pub lba: u64,
    /// What it writes, one content per block: equal numbers are equal blocks, 0 is a block of zeros.
    pub contents: &'a [Content],
    /// Virtual time in nanoseconds. It stands still while a drive is filled and warmed up.
    pub now: u64,
    /// True if it must be on the medium when it is answered.
    pub durable: bool,
}

/// What a write may use. What the drive or the policy does not have is never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// A page map's write buffer. Otherwise the write is answered when the units that it fills are on flash. A durable
    /// write always waits for them.
    pub buffer: bool,
    /// Deduplication. Otherwise the engine does not look up its contents, but still remembers them for later writes.
    pub dedup: bool,
    /// Compression or deltas. Otherwise it is stored whole.
    pub pack: bool,
}

impl Admitted {
    /// Everything: the default without a policy of the caller.
    pub const ALL: Self = Self {
        buffer: true,
        dedup: true,
        pack: true,
    };

    /// Nothing.
    pub const NOTHING: Self = Self {
        buffer: false,
        dedup: false,
        pack: false,
    };
}

/// Says what each write may use. Each run has one.
pub trait Admit {
    /// Decides on a write of the host, from the filling of the drive on.
    fn admit(&mut self, write: &Arrived<'_>) -> Admitted;
}

/// Makes the admission of a run.
pub type Admission<'a> = &'a (dyn Fn() -> Box<dyn Admit> + Sync);
