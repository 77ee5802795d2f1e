//! Blocks of zeros: they need no page, only an entry of the map. So nothing looks for their twins either.

use crate::seam::Payload;

/// Whether blocks of zeros are stored without a page.
#[derive(Clone, Copy, Debug)]
pub struct Zero {
    on: bool,
}

impl Zero {
    /// The policy, on or off.
    #[must_use]
    pub const fn new(on: bool) -> Self {
        Self { on }
    }

    /// True if the block is stored as zeros.
    #[inline]
    #[must_use]
    pub fn takes(self, payload: &Payload) -> bool {
        self.on && payload.digest.zero
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Buf;
    use crate::seam::Digest;

    #[test]
    fn only_zeros_are_taken_and_only_if_it_is_on() {
        for (on, zero) in [(true, true), (true, false), (false, true)] {
            let digest = Digest {
                zero,
                ..Digest::default()
            };
            let payload = Payload {
                buf: Buf(0),
                digest,
            };
            assert_eq!(Zero::new(on).takes(&payload), on && zero);
        }
    }
}
