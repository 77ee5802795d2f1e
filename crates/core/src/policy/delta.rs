//! Blocks stored as their difference to another: which parts may be a base.
//!
//! The runtime has the bytes of bases, and makes the deltas; the core decides what may be a base, and what becomes of it. Three
//! rules keep what is stored for deltas bounded, and let it always be given up:
//! 1. A base is no delta, so a block is never more than one read away from its base.
//! 2. A base is in a sealed chunk. So its bytes no longer change, and a page needs only older pages: there are no cycles.
//! 3. The number of pages needed as bases is limited, and no more are added when the volume is nearly full: a page that is kept
//!    only for deltas takes room that no client knows of.

use crate::entry::PartId;
use crate::limits;
use crate::seam::Payload;

/// What is known of a part that may become a base.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// True if an LBA owns a part of its page, or a delta needs one.
    pub is_kept: bool,
    /// True if it is a delta itself.
    pub is_delta: bool,
    /// True if deltas need its page already.
    pub is_needed: bool,
    /// True if its page is in the open chunk.
    pub is_open: bool,
}

/// What room a volume has for pages that are kept for deltas.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    /// The pages that deltas need.
    pub bases: u64,
    /// The data blocks that are live.
    pub live: u64,
    /// The data blocks that may be live.
    pub capacity: u64,
    /// The same for a medium without damage.
    pub undamaged: u64,
    /// The blocks that clients may see: before the volume shrank, and now.
    pub promised: [u64; 2],
}

impl Spare {
    /// Implements rule 3. A volume that is not thin has room for all blocks that its clients see, so bases take their room from the
    /// over-provisioning. A volume that has shrunk may get its old size back. If it was not thin at that size, bases leave room for all
    /// blocks of that size.
    fn has_room(&self) -> bool {
        // Losing blocks to damage does not make a volume thin: it only has less to spare.
        let has_room = |blocks: &u64| self.undamaged >= *blocks;
        match self.promised.into_iter().find(has_room) {
            Some(promised) => {
                self.bases < self.capacity.saturating_sub(promised) / limits::BASES_OF_SPARE
            }
            None => {
                self.bases < self.capacity / limits::BASES_OF_THIN
                    && self.live * 100 < self.capacity * limits::DELTAS_UP_TO
            }
        }
    }
}

/// Whether blocks are stored as deltas.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    on: bool,
}

impl Delta {
    /// The policy, on or off.
    #[must_use]
    pub fn new(on: bool) -> Self {
        Self { on }
    }

    /// True if new deltas are made.
    #[inline]
    #[must_use]
    pub fn is_on(self) -> bool {
        self.on
    }

    /// Turns the making of new deltas on or off; true if that ends it.
    pub fn set(&mut self, on: bool) -> bool {
        core::mem::replace(&mut self.on, on) && !on
    }

    /// True if a delta may be made against the part. `spare` is asked for only if a page more would be needed.
    pub fn takes(self, base: Candidate, spare: impl FnOnce() -> Spare) -> bool {
        self.on
            && base.is_kept
            && !base.is_delta
            && !base.is_open
            && (base.is_needed || spare().has_room())
    }
}

/// Drops deltas whose base is gone: their blocks are stored whole.
pub fn drop_deltas(blocks: &mut [Payload], is_gone: impl Fn(PartId) -> bool) {
    for payload in blocks {
        let base = payload.digest.packed.and_then(|packed| packed.base);
        if base.is_some_and(&is_gone) {
            payload.digest.packed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Buf, Vba};
    use crate::seam::{Digest, Packed};
    use core::num::NonZeroU16;

    const CANDIDATE: Candidate = Candidate {
        is_kept: true,
        is_delta: false,
        is_needed: false,
        is_open: false,
    };

    const SPARE: Spare = Spare {
        bases: 0,
        live: 0,
        capacity: 1000,
        undamaged: 1000,
        promised: [900, 800],
    };

    fn takes(base: Candidate, spare: Spare) -> bool {
        Delta::new(true).takes(base, || spare)
    }

    #[test]
    fn a_base_is_kept_sealed_and_no_delta() {
        assert!(takes(CANDIDATE, SPARE));
        assert!(!Delta::new(false).takes(CANDIDATE, || SPARE));
        for unfit in [
            Candidate {
                is_kept: false,
                ..CANDIDATE
            },
            Candidate {
                is_delta: true,
                ..CANDIDATE
            },
            Candidate {
                is_open: true,
                ..CANDIDATE
            },
        ] {
            assert!(!takes(unfit, SPARE), "{unfit:?}");
        }
    }

    #[test]
    fn only_a_page_that_no_delta_needs_yet_needs_room() {
        let full = Spare {
            bases: 1000,
            ..SPARE
        };
        assert!(!takes(CANDIDATE, full));
        let needed = Candidate {
            is_needed: true,
            ..CANDIDATE
        };
        assert!(Delta::new(true).takes(needed, || unreachable!("it is needed already")));
    }

    #[test]
    fn bases_take_a_share_of_what_is_not_promised() {
        let most = |spare: Spare| {
            let fits = |bases: &u64| {
                takes(
                    CANDIDATE,
                    Spare {
                        bases: *bases,
                        ..spare
                    },
                )
            };
            (0..2000).take_while(fits).count() as u64
        };
        assert_eq!(most(SPARE), 100 / limits::BASES_OF_SPARE);
        // It was thin before it shrank.
        let shrunk = Spare {
            promised: [5000, 800],
            ..SPARE
        };
        assert_eq!(most(shrunk), 200 / limits::BASES_OF_SPARE);
        // Damage took what it had to spare.
        let damaged = Spare {
            capacity: 850,
            ..SPARE
        };
        assert_eq!(most(damaged), 0);
        let thin = Spare {
            promised: [5000, 5000],
            ..SPARE
        };
        assert_eq!(most(thin), 1000 / limits::BASES_OF_THIN);
        let full = Spare {
            live: 10 * limits::DELTAS_UP_TO,
            ..thin
        };
        assert_eq!(most(full), 0, "a thin volume that is nearly full");
    }

    #[test]
    fn a_delta_whose_base_is_gone_is_stored_whole() {
        let part = |page| PartId {
            page: Vba(page),
            slot: 0,
        };
        let payload = |base| Payload {
            buf: Buf(0),
            digest: Digest {
                packed: NonZeroU16::new(100).map(|len| Packed {
                    len,
                    encoding: 1,
                    bucket: None,
                    base,
                }),
                ..Digest::default()
            },
        };
        let mut blocks = [Some(part(1)), Some(part(2)), None].map(payload);
        drop_deltas(&mut blocks, |base| base == part(1));
        let packed = blocks.map(|payload| payload.digest.packed.is_some());
        assert_eq!(packed, [false, true, true]);
    }
}
