//! Blocks that change roles: a file's data, then a directory in the journal and home, then data again. However a block's earlier
//! versions were stored, it reads as last written, and the journal's copies read as written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Random, assert_sound, open_packing, open_under};
use journal::{HOME, Host, JOURNAL, mounted};
use std::collections::BTreeMap;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};

type Bytes = [u8; BLOCK_BYTES];

const HOMES: [u64; 2] = [HOME as u64, HOME as u64 + 1];

/// The role of a block.
#[derive(Clone, Copy, Debug)]
enum Role {
    Directory,
    Text,
    Noise,
    Zeros,
    /// The contents of the other block.
    Twin,
}

const ROLES: [Role; 5] = [
    Role::Directory,
    Role::Text,
    Role::Noise,
    Role::Zeros,
    Role::Twin,
];

/// The `n`th version: directories and texts differ a little from the previous one.
fn content(role: Role, n: u64, other: &Bytes) -> Bytes {
    let mut block = [0; BLOCK_BYTES];
    match role {
        Role::Directory => {
            for (index, entry) in block.chunks_exact_mut(32).enumerate().take(60) {
                let inode = if index as u64 == n % 60 { n } else { 7 };
                entry[..4].copy_from_slice(&(inode as u32).to_le_bytes());
                entry[4..8].copy_from_slice(&[32, 0, 12, 1]);
                entry[8..20].copy_from_slice(format!("file-{index:07}").as_bytes());
            }
        }
        Role::Text => {
            let mut random = Random(3);
            for word in block.chunks_exact_mut(8) {
                let text = format!("{:07} ", random.below(9_999_999));
                word.copy_from_slice(text.as_bytes());
            }
            let at = 8 * (n as usize % 500);
            block[at..at + 8].copy_from_slice(&n.to_be_bytes());
        }
        Role::Noise => {
            let mut random = Random(n << 32);
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
            }
        }
        Role::Zeros => {}
        Role::Twin => block = *other,
    }
    block
}

struct Blocks {
    host: Host,
    now: [Bytes; 2],
    /// Copies in the journal, by place.
    copies: BTreeMap<u64, Bytes>,
}

impl Blocks {
    /// One of the two blocks, and its new contents.
    fn next(&self, random: &mut Random, n: u64) -> (usize, Bytes) {
        let which = random.below(2) as usize;
        let role = ROLES[random.below(ROLES.len() as u64) as usize];
        (which, content(role, n, &self.now[1 - which]))
    }

    fn write(&mut self, which: usize, to: Bytes) {
        self.host.put(HOMES[which], &to);
        self.now[which] = to;
    }

    fn commit(&mut self, to: [Bytes; 2]) {
        let place = JOURNAL + u64::from(self.host.next_block()) + 1;
        self.host.commit_blocks(to.each_ref());
        self.copies.extend((place..).zip(to));
    }

    fn verify(&mut self, step: u64, with_copies: bool) {
        for (lba, bytes) in HOMES.into_iter().zip(self.now) {
            assert!(self.host.get(lba) == bytes, "step {step}: home block {lba}");
        }
        if with_copies {
            for (&place, bytes) in &self.copies {
                assert!(self.host.get(place) == bytes, "step {step}: copy {place}");
            }
        }
    }
}

/// Changes a block in one of the ways in which a file system does.
fn change(blocks: &mut Blocks, random: &mut Random, step: u64) {
    let (which, to) = blocks.next(random, step);
    match random.below(8) {
        // Without the journal, and mostly still in memory when it changes again.
        0 | 1 => {
            blocks.write(which, to);
            for burst in 0..random.below(8) {
                let (which, to) = blocks.next(random, step + burst);
                blocks.write(which, to);
                blocks.verify(step, false);
            }
        }
        2 => {
            blocks.host.client.discard(HOMES[which], 1).unwrap();
            blocks.now[which] = [0; BLOCK_BYTES];
        }
        way => {
            let mut all = blocks.now;
            all[which] = to;
            blocks.commit(all);
            match way {
                // Written home as committed.
                3..6 => (0..2).for_each(|which| blocks.write(which, all[which])),
                // Freed, and already data when it would have been written home.
                6 => blocks.write(which, content(Role::Text, step + 1, &to)),
                _ => {}
            }
        }
    }
}

#[test]
fn a_block_that_changes_its_role_reads_as_written_last() {
    for compression in Compression::ALL {
        let policy = Policy {
            compression,
            deltas: Deltas::Packed,
            dedup: true,
            semantics: true,
            ..Policy::default()
        };
        let (medium, volume, host) = mounted(|medium| open_under(medium, policy));
        let mut blocks = Blocks {
            host,
            now: [[0; BLOCK_BYTES]; 2],
            copies: BTreeMap::new(),
        };
        blocks.host.begin_log();
        let mut random = Random(5);
        for step in 0..600 {
            change(&mut blocks, &mut random, step);
            if random.below(4) == 0 {
                blocks.host.client.flush().unwrap();
            }
            blocks.verify(step, step % 50 == 0);
        }
        blocks.verify(600, true);
        let core = volume.stats().core;
        for counter in ["delta_blocks", "remapped_blocks", "dedup_blocks"] {
            assert!(core[counter] > 10, "{compression}: {counter}");
        }
        volume.stop().unwrap();
        let Blocks {
            host: Host { sequence, client },
            now,
            copies,
        } = blocks;
        drop((client, volume));
        assert_sound(&*medium);
        let volume = open_under(&medium, Policy::default());
        let client = common::Client::new(&volume);
        let mut blocks = Blocks {
            host: Host { client, sequence },
            now,
            copies,
        };
        blocks.verify(601, true);
    }
}

/// A file system that grows while it is mounted writes all copies of its group descriptors, by way of its journal. A part is not shared
/// with them at all, because nobody counts a part's owners.
#[test]
fn deliberate_copies_have_a_page_each_without_deduplication_too() {
    for (compression, remapped) in [(Compression::Off, 1), (Compression::ZSTD, 0)] {
        let (medium, volume, mut host) = mounted(|medium| open_packing(medium, compression));
        host.begin_log();
        let copy: Bytes = host.get(0).try_into().unwrap();
        host.commit_blocks([&copy, &copy]);
        let before = volume.stats().core["remapped_blocks"];
        // The superblock and the descriptors.
        host.put(0, &copy);
        host.put(1, &copy);
        host.client.flush().unwrap();
        let after = volume.stats().core["remapped_blocks"];
        assert_eq!(after - before, remapped, "{compression:?}");
        assert!(host.get(0) == copy && host.get(1) == copy);
        drop((host, volume));
        assert_sound(&*medium);
    }
}
