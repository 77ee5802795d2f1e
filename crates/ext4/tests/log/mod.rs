//! Blocks of a journal's log, written by the rules of `jbd2.h`.

use vellum_ext4::journal::{Alignment, Journal, JournalBlock, JournalFeatures, JournalFormat};
use vellum_ext4::made::{Named, Writer};
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

/// Returns a journal in three pieces, out of order.
pub fn journal(incompatible: u32) -> Journal {
    let piece = |start: u64, blocks: u64| Span::new(start * BLOCK as u64, blocks * BLOCK as u64);
    Journal {
        extents: vec![piece(9000, 1000), piece(500, 1), piece(20_000, 1047)],
        format: format(incompatible),
        is_empty: true,
        blocks: BLOCKS,
        fast_commit_blocks: 256,
        uuid: Uuid([7; 16]),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    }
}

fn writer(features: u32) -> Writer {
    Writer {
        features,
        seed: SEED,
    }
}

pub fn header(kind: u32, sequence: u32) -> Vec<u8> {
    Writer::header(kind, sequence)
}

/// Puts the checksum of v2 and v3 at `at`.
pub fn seal(block: Vec<u8>, at: usize, features: u32) -> Vec<u8> {
    writer(features).sealed(block, at)
}

/// The default contents of a copy.
pub fn copy() -> Vec<u8> {
    vec![1; BLOCK]
}

/// Computes what `jbd2_block_tag_csum_set` does.
pub fn sum_of(sequence: u32, copy: &[u8]) -> u32 {
    writer(0).sum(sequence, copy)
}

/// Returns a descriptor like `jbd2_journal_commit_transaction` writes it, for these (home, flags).
pub fn descriptor(features: u32, sequence: u32, tags: &[(u64, u32)]) -> Vec<u8> {
    descriptor_of(features, sequence, tags, &vec![copy(); tags.len()])
}

/// Returns a descriptor of these copies.
pub fn descriptor_of(
    features: u32,
    sequence: u32,
    tags: &[(u64, u32)],
    copies: &[Vec<u8>],
) -> Vec<u8> {
    let named = tags.iter().zip(copies).map(|(&(home, flags), copy)| Named {
        home,
        flags,
        sum: sum_of(sequence, copy),
    });
    let named: Vec<Named> = named.collect();
    writer(features).descriptor(sequence, &named)
}

pub fn revoke(features: u32, sequence: u32, blocks: &[u64]) -> Vec<u8> {
    writer(features).revoke(sequence, blocks)
}

pub fn commit(features: u32, sequence: u32) -> Vec<u8> {
    writer(features).commit(sequence)
}

/// Returns the journal's superblock: the log begins with transaction `sequence` at block `start`; 0: nowhere.
pub fn superblock_with(features: u32, sequence: u32, start: u32) -> Vec<u8> {
    writer(features).superblock(BLOCKS - 256, [7; 16], (sequence, start))
}
