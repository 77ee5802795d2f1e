//! Admission by a policy of one's own: what each write may use of what there is.
//!
//! It is asked before the page map or the engine sees the write. So the core calls nobody: it is told of a write without what the write was not admitted to.

use crate::content::Content;

/// A write that the host asks for.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its first block.
    pub lba: u64,
    /// What it writes, a content a block: equal numbers are equal blocks, 0 is a block of zeros.
    pub contents: &'a [Content],
    /// Virtual time in nanoseconds. It stands still while a drive is filled and warmed up.
    pub now: u64,
    /// Whether the host wants it on the medium when it is answered.
    pub durable: bool,
}

/// What a write may use. What the drive or the policy does not have is not used, whatever is said here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// A page map's write buffer: else it is answered when the units that it fills are on flash. A durable write waits for them
    /// in any case.
    pub buffer: bool,
    /// Deduplication: else the engine does not look for its contents. It still remembers them for later writes.
    pub dedup: bool,
    /// Fewer bytes, by compression or as a difference: else it is stored whole.
    pub pack: bool,
}

impl Admitted {
    /// To all that there is: what happens without a policy of one's own.
    pub const ALL: Self = Self {
        buffer: true,
        dedup: true,
        pack: true,
    };

    /// To nothing.
    pub const NOTHING: Self = Self {
        buffer: false,
        dedup: false,
        pack: false,
    };
}

/// Says what each write may use. There is one for a run.
pub trait Admit {
    /// The host writes something, from the filling of the drive on.
    fn admit(&mut self, write: &Arrived<'_>) -> Admitted;
}

/// Makes one.
pub type Admission<'a> = &'a (dyn Fn() -> Box<dyn Admit> + Sync);
