//! Blocks of a journal (jbd2), as the kernel writes them on a file system that is mounted for the first time: with checksums v3,
//! which a new journal does not have yet.
#![allow(dead_code, reason = "each test binary uses its part")]

use vellum_ext4::made::{Named, Writer, features, flags};

fn writer(features: u32) -> Writer {
    Writer::new(features::CHECKSUM_V3 | features, [0; 16])
}

/// A descriptor of copies of these blocks, each with its flags.
pub fn descriptor(sequence: u32, homes: &[(u32, u32)], copies: &[&[u8]]) -> Vec<u8> {
    let writer = writer(0);
    assert_eq!(homes.len(), copies.len());
    let named = homes.iter().zip(copies).enumerate();
    let named: Vec<Named> = named
        .map(|(index, (&(home, own), copy))| {
            let last = if index + 1 == homes.len() {
                flags::LAST
            } else {
                0
            };
            Named {
                home: home.into(),
                flags: flags::SAME_UUID | last | own,
                sum: writer.sum(sequence, copy),
            }
        })
        .collect();
    writer.descriptor(sequence, &named)
}

/// The commit block of a transaction.
pub fn commit(sequence: u32) -> Vec<u8> {
    writer(0).commit(sequence)
}

/// Changes the journal's superblock as if its log began with this transaction, at `block`.
pub fn begin(superblock: &mut [u8], sequence: u32, block: u32) {
    writer(features::ASYNC_COMMIT).begin(superblock, (sequence, block));
}

/// The same for a journal that is not asynchronous.
pub fn begin_in_step(superblock: &mut [u8], sequence: u32, block: u32) {
    writer(0).begin(superblock, (sequence, block));
}
