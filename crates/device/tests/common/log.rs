//! Blocks of a journal (jbd2), as the kernel writes them on a file system that is mounted for the first time: with checksums v3, which the
//! journal has not yet when it is made.
#![allow(dead_code, reason = "each test binary uses its part")]

const MAGIC: u32 = 0xC03B_3998;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;
/// Checksums v3: tags of 16 bytes, where a journal without features has 8.
const CHECKSUM_V3: u32 = 0x10;
/// `journal_async_commit`.
const ASYNC_COMMIT: u32 = 4;
const CHECKSUM_CRC32C: u8 = 4;

fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

/// The kernel's checksum, of what it begins with.
fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// A block of the log, with its checksum at `at`.
fn sealed(mut block: Vec<u8>, at: usize) -> Vec<u8> {
    let sum = checksum(checksum(!0, &[0; 16]), &block);
    put(&mut block, at, sum);
    block
}

fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (at, word) in [(0, MAGIC), (4, kind), (8, sequence)] {
        put(&mut block, at, word);
    }
    block
}

/// Of copies of these blocks, each with its flags beside.
pub fn descriptor(sequence: u32, homes: &[(u32, u32)], copies: &[&[u8]]) -> Vec<u8> {
    let mut block = header(1, sequence);
    let seed = checksum(checksum(!0, &[0; 16]), &sequence.to_be_bytes());
    assert_eq!(homes.len(), copies.len());
    for (index, (&(home, flags), copy)) in homes.iter().zip(copies).enumerate() {
        let at = 12 + index * 16;
        let last = if index + 1 == homes.len() { LAST } else { 0 };
        put(&mut block, at, home);
        put(&mut block, at + 4, SAME_UUID | last | flags);
        put(&mut block, at + 12, checksum(seed, copy));
    }
    sealed(block, 4092)
}

/// The end of a transaction.
pub fn commit(sequence: u32) -> Vec<u8> {
    sealed(header(2, sequence), 16)
}

/// What the journal's superblock becomes when its log begins with this transaction, there.
pub fn begin(superblock: &mut [u8], sequence: u32, block: u32) {
    begin_as(superblock, sequence, block, CHECKSUM_V3 | ASYNC_COMMIT);
}

/// The same, of a journal that is not asynchronous.
pub fn begin_in_step(superblock: &mut [u8], sequence: u32, block: u32) {
    begin_as(superblock, sequence, block, CHECKSUM_V3);
}

fn begin_as(superblock: &mut [u8], sequence: u32, block: u32, features: u32) {
    put(superblock, 0x18, sequence);
    put(superblock, 0x1C, block);
    put(superblock, 0x28, features);
    superblock[0x50] = CHECKSUM_CRC32C;
    put(superblock, 0xFC, 0);
    let sum = checksum(!0, &superblock[..1024]);
    put(superblock, 0xFC, sum);
}
