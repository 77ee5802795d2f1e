//! What the core is told of a block's bytes, computed while they are hot in the cache.

use vellum_core::addr::BLOCK_BYTES;
use vellum_core::seam::Digest;
use xxhash_rust::xxh3::xxh3_64_with_seed;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// CRC32C, as the core takes it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Computes digests; the weak hash is seeded with the volume's secret, so that no client can prepare
/// collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digester {
    seed: u64,
    zero: Digest,
}

impl Digester {
    pub fn new(secret: &[u8; 32]) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&secret[..8]);
        let seed = u64::from_le_bytes(seed);
        let zero = Digest {
            crc: crc32c(&ZEROS),
            weak: xxh3_64_with_seed(&ZEROS, seed),
            zero: true,
            first: 0,
        };
        Self { seed, zero }
    }

    #[inline]
    pub fn digest(&self, block: &[u8]) -> Digest {
        // Stops at the first byte that is not zero: next to nothing for most blocks.
        if block == ZEROS {
            return self.zero;
        }
        Digest {
            crc: crc32c(block),
            weak: xxh3_64_with_seed(block, self.seed),
            zero: false,
            first: u32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_blocks_are_found_and_digest_like_any_other() {
        let digester = Digester::new(&[7; 32]);
        let zero = digester.digest(&[0; BLOCK_BYTES]);
        assert!(zero.zero);
        // The published CRC32C of 4096 zero bytes.
        assert_eq!(zero.crc, 0x98f9_4189);
        let mut block = [0; BLOCK_BYTES];
        block[BLOCK_BYTES - 1] = 1;
        let other = digester.digest(&block);
        assert!(!other.zero);
        assert_ne!((other.crc, other.weak), (zero.crc, zero.weak));
        assert_ne!(Digester::new(&[8; 32]).digest(&block).weak, other.weak);
    }
}
