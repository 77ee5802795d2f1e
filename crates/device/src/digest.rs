//! What the core is told of a block's bytes, computed while they are hot in the cache.

use crate::pack::{Alone, Compression};
use crate::policy::{PrintHash, WeakHash};
use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::Sha256;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::seam::{Digest, Fingerprint};
use vellum_ext4::may_be_descriptors;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use xxhash_rust::xxh64::xxh64;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// As the paper has it (WOJ §4.2).
const HEAD_BYTES: usize = 64;
/// In [`Digester::mode`]: zeros are not told from other blocks.
const ZEROS_ARE_DATA: u32 = 1 << 8;

/// In the number of a compression: with deltas.
const DELTAS: u32 = 1 << 31;

/// CRC32C, as the core takes it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Computes digests, as the policies in force want them; can be told otherwise at any time.
pub(crate) struct Digester {
    secret: [u8; 32],
    seed: u64,
    zero_crc: u32,
    /// 0: no weak hash is wanted; else its place in [`WeakHash::ALL`], plus one.
    mode: AtomicU32,
    /// A place in [`Compression::ALL`], and [`DELTAS`].
    compression: AtomicU32,
    /// Whether contents are shared.
    shares: AtomicBool,
    /// The place of the strong hash in [`PrintHash::ALL`].
    print: AtomicU8,
}

/// What is computed of each block of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    seed: u64,
    zero_crc: u32,
    hash: Option<WeakHash>,
    zero: bool,
    shares: bool,
    /// How blocks are made smaller.
    pub compression: Compression,
    /// Whether as deltas, too.
    pub deltas: bool,
}

impl Digester {
    /// Hashes are seeded with the volume's secret, so that no client can prepare collisions. Until told
    /// otherwise none is computed.
    pub fn new(secret: &[u8; 32]) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&secret[..8]);
        Self {
            secret: *secret,
            seed: u64::from_le_bytes(seed),
            zero_crc: crc32c(&ZEROS),
            mode: AtomicU32::new(0),
            compression: AtomicU32::new(0),
            shares: AtomicBool::new(false),
            print: AtomicU8::new(0),
        }
    }

    /// From now on: this hash, if one is used at all, and whether zeros are told.
    pub fn set(&self, hash: Option<WeakHash>, zero: bool) {
        let place = hash.map_or(0, |hash| hash as u32 + 1);
        let zeros = if zero { 0 } else { ZEROS_ARE_DATA };
        self.mode.store(place | zeros, Ordering::Relaxed);
    }

    /// From now on blocks are made smaller like this.
    pub fn set_compression(&self, compression: Compression, deltas: bool) {
        let deltas = if deltas { DELTAS } else { 0 };
        self.compression
            .store(compression as u32 | deltas, Ordering::Relaxed);
    }

    /// From now on: whether contents are shared.
    pub fn set_shares(&self, shares: bool) {
        self.shares.store(shares, Ordering::Relaxed);
    }

    /// From now on: this strong hash.
    pub fn set_print(&self, hash: PrintHash) {
        self.print.store(hash as u8, Ordering::Relaxed);
    }

    /// A block's fingerprint. All are keyed: that collisions of MD5 and SHA-1 can be made is of no use to a client,
    /// who does not know the secret.
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

    pub fn how(&self) -> How {
        let mode = self.mode.load(Ordering::Relaxed);
        let place = (mode & !ZEROS_ARE_DATA) as usize;
        let compression = self.compression.load(Ordering::Relaxed);
        How {
            seed: self.seed,
            zero_crc: self.zero_crc,
            hash: place.checked_sub(1).map(|place| WeakHash::ALL[place]),
            zero: mode & ZEROS_ARE_DATA == 0,
            shares: self.shares.load(Ordering::Relaxed),
            compression: Compression::ALL[(compression & !DELTAS) as usize],
            deltas: compression & DELTAS != 0,
        }
    }
}

impl How {
    /// How a block by itself is made smaller.
    pub fn alone(self) -> Alone {
        Alone::new(self.compression, self.deltas)
    }

    #[inline]
    pub fn digest(self, block: &[u8]) -> Digest {
        // Stops at the first byte that is not zero: next to nothing for most blocks.
        if self.zero && block == ZEROS {
            return Digest {
                crc: self.zero_crc,
                zero: true,
                ..Digest::default()
            };
        }
        let crc = crc32c(block);
        Digest {
            crc,
            weak: self.hash.map_or(0, |hash| self.weak(hash, block, crc)),
            first: u32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            copied: self.shares && may_be_descriptors(block),
            ..Digest::default()
        }
    }

    /// The core looks at the upper half first: a short hash belongs there.
    fn weak(self, hash: WeakHash, block: &[u8], crc: u32) -> u64 {
        match hash {
            WeakHash::Xxh3 => xxh3_64_with_seed(block, self.seed),
            WeakHash::Head64 => xxh64(&block[..HEAD_BYTES], self.seed),
            WeakHash::Crc32c => u64::from(crc) << 32 | u64::from(crc),
            WeakHash::Md5 => first_word(&Md5::digest(block)),
            WeakHash::Sha1 => first_word(&Sha1::digest(block)),
        }
    }
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

    #[test]
    fn zero_blocks_are_found_when_they_are_asked_for() {
        let digester = Digester::new(&[7; 32]);
        let zero = digester.how().digest(&[0; BLOCK_BYTES]);
        assert!(zero.zero);
        // The published CRC32C of 4096 zero bytes.
        assert_eq!(zero.crc, 0x98f9_4189);
        digester.set(Some(WeakHash::Xxh3), false);
        let data = digester.how().digest(&[0; BLOCK_BYTES]);
        assert!(!data.zero && data.crc == zero.crc && data.weak != 0);
    }

    #[test]
    fn each_hash_sees_what_it_should() {
        let digester = Digester::new(&[7; 32]);
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
        let other = Digester::new(&[8; 32]);
        other.set(Some(WeakHash::Xxh3), true);
        digester.set(Some(WeakHash::Xxh3), true);
        assert_ne!(
            other.how().digest(&block).weak,
            digester.how().digest(&block).weak
        );
    }

    #[test]
    fn fingerprints_are_of_all_bytes_and_of_the_volume() {
        let (one, other) = (Digester::new(&[7; 32]), Digester::new(&[8; 32]));
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
        let digester = Digester::new(&[7; 32]);
        for (hash, word) in [
            (WeakHash::Md5, 0x620f_0b67_a91f_7f74),
            (WeakHash::Sha1, 0x1cea_f73d_f40e_531d),
        ] {
            digester.set(Some(hash), false);
            assert_eq!(digester.how().digest(&ZEROS).weak, word, "{hash}");
        }
    }
}
