//! Small repeatable randomness: the same seed causes the same faults.

/// Xorshift64*, seeded through splitmix64 so that small seeds differ at once.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts from any seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and a bias that no test can see.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True with probability `of` in `all`.
    pub fn chance(&mut self, of: u32, all: u32) -> bool {
        self.below(u64::from(all)) < u64::from(of)
    }
}
