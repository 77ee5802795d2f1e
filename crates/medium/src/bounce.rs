//! Memory that direct I/O accepts, for data that is not in such memory, or not in the form it has on the medium.

use crate::io::Piece;
use parking_lot::Mutex;
use vellum_core::addr::BLOCK_BYTES;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Aligned([u8; BLOCK_BYTES]);

/// Whole blocks, each aligned to a block.
pub(crate) struct Bounce(Vec<Aligned>);

impl std::fmt::Debug for Bounce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounce")
            .field("blocks", &self.0.len())
            .finish()
    }
}

impl Bounce {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![Aligned([0; BLOCK_BYTES]); bytes.div_ceil(BLOCK_BYTES)])
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() * BLOCK_BYTES
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the vector's memory, which is plain bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len()) }
    }

    pub(crate) fn piece(&mut self, len: usize) -> Piece {
        Piece {
            ptr: self.0.as_mut_ptr().cast(),
            len,
        }
    }
}

/// The most bytes kept for reuse.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Memory that is reused.
#[derive(Debug, Default)]
pub(crate) struct Bounces(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    free: Vec<Bounce>,
    bytes: usize,
}

impl Bounces {
    /// Returns at least this many bytes. Their contents are undefined.
    pub(crate) fn take(&self, bytes: usize) -> Bounce {
        let mut kept = self.0.lock();
        // The newest is the most likely to be in the processor's cache.
        let fits =
            |bounce: &Bounce| bytes <= bounce.len() && bounce.len() <= bytes.saturating_mul(4);
        let Some(found) = kept.free.iter().rposition(fits) else {
            drop(kept);
            return Bounce::new(bytes.next_power_of_two());
        };
        let bounce = kept.free.remove(found);
        kept.bytes -= bounce.len();
        bounce
    }

    pub(crate) fn give(&self, bounce: Bounce) {
        let mut kept = self.0.lock();
        kept.bytes += bounce.len();
        kept.free.push(bounce);
        while kept.bytes > KEPT_BYTES_MAX {
            let oldest = kept.free.remove(0);
            kept.bytes -= oldest.len();
        }
    }
}
