//! Makes the blocks of a journal's log, by the rules of `jbd2.h`.

use crate::checksum::crc32c;

const BLOCK: usize = 4096;
const MAGIC: u32 = 0xC03B_3998;

/// Bits of `s_feature_incompat`.
pub mod features {
    /// There may be revoke blocks.
    pub const REVOKE: u32 = 1;
    /// Home addresses have 64 bits.
    pub const WIDE: u32 = 2;
    /// `journal_async_commit`
    pub const ASYNC_COMMIT: u32 = 4;
    /// Checksums v2.
    pub const CHECKSUM_V2: u32 = 8;
    /// Checksums v3: tags of 16 bytes, where a journal without features has 8.
    pub const CHECKSUM_V3: u32 = 0x10;
}

/// Bits of a tag.
pub mod flags {
    /// The copy's first four bytes were the magic.
    pub const ESCAPED: u32 = 1;
    /// No UUID follows.
    pub const SAME_UUID: u32 = 2;
    /// It is the descriptor's last.
    pub const LAST: u32 = 8;
}

const HAS_SUMS: u32 = features::CHECKSUM_V2 | features::CHECKSUM_V3;

/// A copy and its descriptor entry.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The block that was copied.
    pub home: u64,
    /// Bits of its tag.
    pub flags: u32,
    /// Its [checksum](Writer::sum), if the journal has checksums v3.
    pub sum: u32,
}

/// Writes a journal of blocks of 4096 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Its `s_feature_incompat`.
    pub features: u32,
    /// The checksum of its UUID.
    pub seed: u32,
}

fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

impl Writer {
    /// A writer for a journal with these features and this UUID.
    #[must_use]
    pub fn new(features: u32, uuid: [u8; 16]) -> Self {
        Self {
            features,
            seed: crc32c(!0, &uuid),
        }
    }

    /// The header of every log block that is not a copy.
    #[must_use]
    pub fn header(kind: u32, sequence: u32) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        for (at, word) in [(0, MAGIC), (4, kind), (8, sequence)] {
            put(&mut block, at, word);
        }
        block
    }

    /// Adds the checksum of v2 and v3 at `at`.
    #[must_use]
    pub fn sealed(&self, mut block: Vec<u8>, at: usize) -> Vec<u8> {
        if self.features & HAS_SUMS != 0 {
            let sum = crc32c(self.seed, &block);
            put(&mut block, at, sum);
        }
        block
    }

    /// The checksum of a copy in that transaction, by `jbd2_block_tag_csum_set`.
    #[must_use]
    pub fn sum(&self, sequence: u32, copy: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy)
    }

    /// A descriptor of the copies that follow it, as `jbd2_journal_commit_transaction` writes it.
    #[must_use]
    pub fn descriptor(&self, sequence: u32, copies: &[Named]) -> Vec<u8> {
        let is = |feature| self.features & feature != 0;
        let mut block = Self::header(1, sequence);
        let mut at = 12;
        for copy in copies {
            let (low, high) = (copy.home as u32, (copy.home >> 32) as u32);
            put(&mut block, at, low);
            if is(features::CHECKSUM_V3) {
                put(&mut block, at + 4, copy.flags);
                put(&mut block, at + 8, high);
                put(&mut block, at + 12, copy.sum);
                at += 16;
            } else {
                let flags = copy.flags as u16;
                block[at + 6..at + 8].copy_from_slice(&flags.to_be_bytes());
                at += 8;
                if is(features::WIDE) {
                    put(&mut block, at, high);
                    at += 4;
                }
                at += if is(features::CHECKSUM_V2) { 2 } else { 0 };
            }
            if copy.flags & flags::SAME_UUID == 0 {
                // It is never read.
                block[at..at + 16].fill(7);
                at += 16;
            }
        }
        self.sealed(block, BLOCK - 4)
    }

    /// A revoke block for blocks whose older copies must not be replayed.
    #[must_use]
    pub fn revoke(&self, sequence: u32, blocks: &[u64]) -> Vec<u8> {
        let mut block = Self::header(5, sequence);
        let mut at = 16;
        for home in blocks {
            if self.features & features::WIDE != 0 {
                put(&mut block, at, (*home >> 32) as u32);
                at += 4;
            }
            put(&mut block, at, *home as u32);
            at += 4;
        }
        put(&mut block, 12, at as u32);
        self.sealed(block, BLOCK - 4)
    }

    /// The end of a transaction.
    #[must_use]
    pub fn commit(&self, sequence: u32) -> Vec<u8> {
        self.sealed(Self::header(2, sequence), 16)
    }

    /// The superblock of a journal with this many blocks.
    #[must_use]
    pub fn superblock(&self, blocks: u32, uuid: [u8; 16], begin: (u32, u32)) -> Vec<u8> {
        let mut block = Self::header(4, 0);
        for (at, word) in [(0x0C, BLOCK as u32), (0x10, blocks), (0x14, 1), (0x40, 1)] {
            put(&mut block, at, word);
        }
        block[0x30..0x40].copy_from_slice(&uuid);
        self.begin(&mut block, begin);
        block
    }

    /// Makes a journal's superblock say that its log begins with this transaction at this block; 0: the log is empty.
    pub fn begin(&self, superblock: &mut [u8], (sequence, start): (u32, u32)) {
        put(superblock, 0x18, sequence);
        put(superblock, 0x1C, start);
        put(superblock, 0x28, self.features);
        if self.features & HAS_SUMS != 0 {
            superblock[0x50] = 4;
            put(superblock, 0xFC, 0);
            let sum = crc32c(!0, &superblock[..1024]);
            put(superblock, 0xFC, sum);
        }
    }
}
