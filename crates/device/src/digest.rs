//! What the core needs to know of a block's bytes, computed while they are hot in the cache.

use crate::compression::{Alone, Compression};
use crate::policy::{Deltas, PrintHash, WeakHash};
use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::Sha256;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::BlockSum;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Digest, Fingerprint};
use vellum_watch::may_be_critical;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use xxhash_rust::xxh64::xxh64;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// As in the paper (WOJ §4.2).
const HEAD_BYTES: usize = 64;
/// In [`Digester::mode`]: zeros are treated like any other block.
const ZEROS_ARE_DATA: u32 = 1 << 8;

/// CRC32C, as the core uses it for its structures.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Computes digests as the policies in force require; these can change at any time.
pub(crate) struct Digester {
    secret: [u8; 32],
    seed: u64,
    sum: BlockSum,
    zero_sum: u32,
    /// 0 if no weak hash is wanted; else its place in [`WeakHash::ALL`], plus one.
    mode: AtomicU32,
    /// [`Compression::number`], and a place in [`Deltas::ALL`].
    smaller: AtomicU16,
    /// Whether contents are shared.
    shares: AtomicBool,
    /// The place of the strong hash in [`PrintHash::ALL`].
    print: AtomicU8,
}

/// What to compute for each block of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    seed: u64,
    sum: BlockSum,
    zero_sum: u32,
    hash: Option<WeakHash>,
    zero: bool,
    shares: bool,
    /// How blocks are made smaller.
    pub compression: Compression,
    /// Whether deltas are made as well, and where they go.
    pub deltas: Deltas,
}

impl Digester {
    /// Hashes are seeded with the volume's secret, so that no client can prepare collisions. No weak hash is computed until one
    /// is set.
    pub fn new(superblock: &Superblock) -> Self {
        let sum = superblock.sum(crc32c);
        Self {
            secret: superblock.secret(),
            seed: superblock.hash_seed(),
            sum,
            zero_sum: sum.of(&ZEROS),
            mode: AtomicU32::new(0),
            smaller: AtomicU16::new(0),
            shares: AtomicBool::new(false),
            print: AtomicU8::new(0),
        }
    }

    /// Sets the weak hash, if any, and whether zeros are recognised.
    pub fn set(&self, hash: Option<WeakHash>, zero: bool) {
        let place = hash.map_or(0, |hash| hash as u32 + 1);
        let zeros = if zero { 0 } else { ZEROS_ARE_DATA };
        self.mode.store(place | zeros, Ordering::Relaxed);
    }

    /// Sets how blocks are made smaller.
    pub fn set_compression(&self, compression: Compression, deltas: Deltas) {
        let numbers = [compression.number(), deltas as u8];
        self.smaller
            .store(u16::from_le_bytes(numbers), Ordering::Relaxed);
    }

    /// Sets whether contents are shared.
    pub fn set_shares(&self, shares: bool) {
        self.shares.store(shares, Ordering::Relaxed);
    }

    /// Sets the strong hash.
    pub fn set_print(&self, hash: PrintHash) {
        self.print.store(hash as u8, Ordering::Relaxed);
    }

    /// Computes a block's fingerprint. All hashes are keyed: a client that knows collisions of MD5 or SHA-1 cannot use them without
    /// the secret.
    pub fn fingerprint(&self, block: &[u8]) -> Fingerprint {
        fn of<D: md5::Digest>(secret: &[u8; 32], block: &[u8]) -> Fingerprint {
            let hash = D::new().chain_update(secret).chain_update(block).finalize();
            first_half(&hash)
        }
        let secret = &self.secret;
        match PrintHash::ALL[usize::from(self.print.load(Ordering::Relaxed))] {
            PrintHash::Blake3 => first_half(blake3::keyed_hash(secret, block).as_bytes()),
            PrintHash::Sha256 => of::<Sha256>(secret, block),
            PrintHash::Sha1 => of::<Sha1>(secret, block),
            PrintHash::Md5 => of::<Md5>(secret, block),
        }
    }

    /// The function that makes blocks' sums.
    pub fn sum(&self) -> BlockSum {
        self.sum
    }

    pub fn how(&self) -> How {
        let mode = self.mode.load(Ordering::Relaxed);
        let place = (mode & !ZEROS_ARE_DATA) as usize;
        let [compression, deltas] = self.smaller.load(Ordering::Relaxed).to_le_bytes();
        How {
            seed: self.seed,
            sum: self.sum,
            zero_sum: self.zero_sum,
            hash: place.checked_sub(1).map(|place| WeakHash::ALL[place]),
            zero: mode & ZEROS_ARE_DATA == 0,
            shares: self.shares.load(Ordering::Relaxed),
            compression: Compression::from_number(compression),
            deltas: Deltas::ALL[usize::from(deltas)],
        }
    }
}

impl How {
    /// How a block by itself is made smaller.
    pub fn alone(self) -> Alone {
        Alone::new(self.compression, self.deltas.are_made())
    }

    #[inline]
    pub fn digest(self, block: &[u8]) -> Digest {
        // Stops at the first byte that is not zero, so it costs most blocks next to nothing.
        if self.zero && block == ZEROS {
            return Digest {
                sum: self.zero_sum,
                zero: true,
                ..Digest::default()
            };
        }
        let (sum, weak) = self.sum_and_weak(block);
        Digest {
            sum,
            weak,
            first: u32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            copied: self.shares && may_be_critical(block),
            ..Digest::default()
        }
    }

    /// Computes the sum and the weak hash; only once if both use the same hash.
    fn sum_and_weak(self, block: &[u8]) -> (u32, u64) {
        match (self.sum, self.hash) {
            (BlockSum::Xxh3 { seed }, Some(WeakHash::Xxh3)) => {
                let hash = xxh3_64_with_seed(block, seed);
                (BlockSum::of_hash(hash), hash)
            }
            (BlockSum::Crc32c(_), Some(WeakHash::Crc32c)) => {
                let sum = self.sum.of(block);
                (sum, twice(sum))
            }
            (sum, hash) => {
                let weak = hash.map_or(0, |hash| self.weak(hash, block));
                (sum.of(block), weak)
            }
        }
    }

    fn weak(self, hash: WeakHash, block: &[u8]) -> u64 {
        match hash {
            WeakHash::Xxh3 => xxh3_64_with_seed(block, self.seed),
            WeakHash::Head64 => xxh64(&block[..HEAD_BYTES], self.seed),
            WeakHash::Crc32c => twice(crc32c(block)),
            WeakHash::Md5 => first_word(&Md5::digest(block)),
            WeakHash::Sha1 => first_word(&Sha1::digest(block)),
        }
    }
}

/// The core looks at the upper half first: a short hash belongs there.
fn twice(short: u32) -> u64 {
    u64::from(short) << 32 | u64::from(short)
}

fn first_half(hash: &[u8]) -> Fingerprint {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    Fingerprint(half)
}

fn first_word(hash: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_core::format::SumKind;
    use vellum_core::format::geometry::{Params, plan};

    fn digester(secret: u8, sums: SumKind) -> Digester {
        let superblock = plan(&Params {
            medium_blocks: 10_000,
            logical_blocks: None,
            over_provisioning: 100,
            segment_blocks: None,
            uuid: [1; 16],
            secret: [secret; 32],
            sums,
        });
        Digester::new(&superblock.unwrap())
    }

    #[test]
    fn zero_blocks_are_found_when_they_are_asked_for() {
        let digester = digester(7, SumKind::Crc32c);
        let zero = digester.how().digest(&[0; BLOCK_BYTES]);
        assert!(zero.zero);
        // The published CRC32C of 4096 zero bytes.
        assert_eq!(zero.sum, 0x98f9_4189);
        digester.set(Some(WeakHash::Xxh3), false);
        let data = digester.how().digest(&[0; BLOCK_BYTES]);
        assert!(!data.zero && data.sum == zero.sum && data.weak != 0);
    }

    #[test]
    fn each_hash_sees_what_it_should() {
        let [digester, other] = [7, 8].map(|secret| digester(secret, SumKind::Xxh3));
        let mut block = [0; BLOCK_BYTES];
        block[0] = 1;
        assert_eq!(digester.how().digest(&block).weak, 0, "not asked for");
        for hash in WeakHash::ALL {
            digester.set(Some(hash), true);
            let weak = |at: usize| {
                let mut block = block;
                block[at] ^= 0xff;
                digester.how().digest(&block).weak >> 32
            };
            let same = digester.how().digest(&block).weak >> 32;
            assert_ne!(weak(HEAD_BYTES - 1), same, "{hash}");
            let sees_all = hash != WeakHash::Head64;
            assert_eq!(weak(HEAD_BYTES) != same, sees_all, "{hash}");
            assert_eq!(weak(BLOCK_BYTES - 1) != same, sees_all, "{hash}");
        }
        other.set(Some(WeakHash::Xxh3), true);
        digester.set(Some(WeakHash::Xxh3), true);
        assert_ne!(
            other.how().digest(&block).weak,
            digester.how().digest(&block).weak
        );
    }

    #[test]
    fn sums_are_the_volumes_whatever_hash_is_wanted() {
        let mut block = [0; BLOCK_BYTES];
        block[7] = 7;
        for sums in [SumKind::Crc32c, SumKind::Xxh3] {
            let digester = digester(7, sums);
            let sum = digester.sum().of(&block);
            assert_eq!(sum == crc32c(&block), sums == SumKind::Crc32c);
            for hash in [None].into_iter().chain(WeakHash::ALL.map(Some)) {
                digester.set(hash, true);
                let digest = digester.how().digest(&block);
                assert_eq!(digest.sum, sum, "{hash:?}");
                let alone = hash.map_or(0, |hash| digester.how().weak(hash, &block));
                assert_eq!(digest.weak, alone, "{hash:?}");
            }
            assert_eq!(digester.how().digest(&ZEROS).sum, digester.sum().of(&ZEROS));
        }
    }

    #[test]
    fn fingerprints_are_of_all_bytes_and_of_the_volume() {
        let (one, other) = (digester(7, SumKind::Xxh3), digester(8, SumKind::Xxh3));
        let mut seen = std::collections::BTreeSet::new();
        for hash in PrintHash::ALL {
            one.set_print(hash);
            other.set_print(hash);
            let mut block = [0; BLOCK_BYTES];
            for at in [0, 1000, BLOCK_BYTES - 1] {
                block[at] ^= 1;
                assert_eq!(one.fingerprint(&block), one.fingerprint(&block));
                assert!(seen.insert(one.fingerprint(&block).0), "{}", hash.name());
                assert!(seen.insert(other.fingerprint(&block).0), "{}", hash.name());
            }
        }
    }

    #[test]
    fn strong_hashes_are_the_published_ones() {
        // `head -c 4096 /dev/zero | md5sum`, and sha1sum.
        let digester = digester(7, SumKind::Xxh3);
        for (hash, word) in [
            (WeakHash::Md5, 0x620f_0b67_a91f_7f74),
            (WeakHash::Sha1, 0x1cea_f73d_f40e_531d),
        ] {
            digester.set(Some(hash), false);
            assert_eq!(digester.how().digest(&ZEROS).weak, word, "{hash}");
        }
    }
}
