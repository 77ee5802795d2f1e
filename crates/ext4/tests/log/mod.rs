//! Blocks of a journal's log, written by the rules of `jbd2.h`.

use vellum_ext4::journal::{Alignment, Journal, JournalBlock, JournalFeatures, JournalFormat};
use vellum_ext4::{Span, Uuid};

pub const BLOCK: usize = 4096;
pub const BLOCKS: u32 = 2048;
pub const HOME: Span = Span::new(1 << 30, 1 << 32);
/// The checksum of its UUID.
pub const SEED: u32 = 0xAA0A_5ECD;

pub const WIDE: u32 = 2;
pub const V2: u32 = 8;
pub const V3: u32 = 16;

pub fn format(incompatible: u32) -> JournalFormat {
    JournalFormat {
        block_bytes: BLOCK as u32,
        first: JournalBlock(1),
        end: JournalBlock(BLOCKS - 256),
        features: JournalFeatures {
            compatible: 0,
            incompatible,
        },
        seed: SEED,
    }
}

/// A journal in three pieces, out of order.
pub fn journal(incompatible: u32) -> Journal {
    let piece = |start: u64, blocks: u64| Span::new(start * BLOCK as u64, blocks * BLOCK as u64);
    Journal {
        extents: vec![piece(9000, 1000), piece(500, 1), piece(20_000, 1047)],
        format: format(incompatible),
        blocks: BLOCKS,
        fast_commit_blocks: 256,
        uuid: Uuid([7; 16]),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    }
}

pub fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    for (word, to) in [0xC03B_3998, kind, sequence]
        .iter()
        .zip(block.chunks_mut(4))
    {
        to.copy_from_slice(&word.to_be_bytes());
    }
    block
}

/// Puts the checksum of v2 and v3 at `at`.
pub fn seal(mut block: Vec<u8>, at: usize, features: u32) -> Vec<u8> {
    if features & (V2 | V3) != 0 {
        let sum = !crc32c::crc32c_append(!SEED, &block);
        block[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    block
}

/// What a copy is if nothing else is said.
pub fn copy() -> Vec<u8> {
    vec![1; BLOCK]
}

/// As `jbd2_block_tag_csum_set` has it.
pub fn sum_of(sequence: u32, copy: &[u8]) -> u32 {
    let seed = crc32c::crc32c_append(!SEED, &sequence.to_be_bytes());
    !crc32c::crc32c_append(seed, copy)
}

/// As `jbd2_journal_commit_transaction` writes it; (home, flags).
pub fn descriptor(features: u32, sequence: u32, tags: &[(u64, u32)]) -> Vec<u8> {
    descriptor_of(features, sequence, tags, &vec![copy(); tags.len()])
}

/// The same, of these copies.
pub fn descriptor_of(
    features: u32,
    sequence: u32,
    tags: &[(u64, u32)],
    copies: &[Vec<u8>],
) -> Vec<u8> {
    let mut block = header(1, sequence);
    let mut at = 12;
    for ((home, flags), copy) in tags.iter().zip(copies) {
        let low = (*home as u32).to_be_bytes();
        let high = ((home >> 32) as u32).to_be_bytes();
        block[at..at + 4].copy_from_slice(&low);
        if features & V3 != 0 {
            block[at + 4..at + 8].copy_from_slice(&flags.to_be_bytes());
            block[at + 8..at + 12].copy_from_slice(&high);
            block[at + 12..at + 16].copy_from_slice(&sum_of(sequence, copy).to_be_bytes());
            at += 16;
        } else {
            block[at + 6..at + 8].copy_from_slice(&(*flags as u16).to_be_bytes());
            at += 8;
            if features & WIDE != 0 {
                block[at..at + 4].copy_from_slice(&high);
                at += 4;
            }
            at += if features & V2 != 0 { 2 } else { 0 };
        }
        if flags & 2 == 0 {
            block[at..at + 16].fill(7);
            at += 16;
        }
    }
    seal(block, BLOCK - 4, features)
}

pub fn revoke(features: u32, sequence: u32, blocks: &[u64]) -> Vec<u8> {
    let mut block = header(5, sequence);
    let mut at = 16;
    for home in blocks {
        if features & WIDE != 0 {
            block[at..at + 8].copy_from_slice(&home.to_be_bytes());
            at += 8;
        } else {
            block[at..at + 4].copy_from_slice(&(*home as u32).to_be_bytes());
            at += 4;
        }
    }
    block[12..16].copy_from_slice(&(at as u32).to_be_bytes());
    seal(block, BLOCK - 4, features)
}

pub fn commit(features: u32, sequence: u32) -> Vec<u8> {
    seal(header(2, sequence), 16, features)
}

/// The journal's superblock: the log begins with this transaction at block `start`; 0: nowhere.
pub fn superblock_with(features: u32, sequence: u32, start: u32) -> Vec<u8> {
    let mut block = header(4, 0);
    let words = [
        (0x0C, BLOCK as u32),
        (0x10, BLOCKS - 256),
        (0x14, 1),
        (0x18, sequence),
        (0x1C, start),
        (0x28, features),
        (0x40, 1),
    ];
    for (at, word) in words {
        block[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    block[0x30..0x40].fill(7);
    if features & (V2 | V3) != 0 {
        block[0x50] = 4;
        let sum = !crc32c::crc32c(&block[..1024]);
        block[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
    }
    block
}
