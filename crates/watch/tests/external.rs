//! A journal on a partition of its own: only a number says whose it is, and anyone can write that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_core::seam::WriteOnce;
use vellum_ext4::made::{FileSystem, Writer, features};
use vellum_ext4::{Scan, Source, Unreadable, scan};
use vellum_watch::{Findings, Plan, Wants};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
/// The file system, its journal, and the volume.
const HOME: u64 = MIB;
const JOURNAL: u64 = 65 * MIB;
const BLOCKS: u64 = 32_768;

struct Volume(BTreeMap<u64, Vec<u8>>);

impl Source for Volume {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        for (at, page) in (offset..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
            match self.0.get(&(at / BLOCK as u64)) {
                Some(block) => page.copy_from_slice(block),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

/// Two partitions: a file system whose superblock names a journal, and a journal with that number.
fn divided() -> Volume {
    let made = FileSystem {
        blocks: 64 * MIB / BLOCK as u64,
        journal: (100, 2048),
        bitmaps: 50,
        inodes: 60,
        leaf: 61,
    };
    let mut blocks = BTreeMap::new();
    let mut table = vec![0; BLOCK];
    for (at, first) in [(446, HOME), (462, JOURNAL)] {
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&((first / 512) as u32).to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&((48 * MIB / 512) as u32).to_le_bytes());
    }
    table[446 + 12..446 + 16].copy_from_slice(&((64 * MIB / 512) as u32).to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xAA]);
    blocks.insert(0, table);
    for (block, mut bytes) in made.made() {
        if block == 0 {
            // s_journal_uuid, and no s_journal_inum.
            bytes[1024 + 0xD0..1024 + 0xE0].fill(9);
            bytes[1024 + 0xE0..1024 + 0xE4].fill(0);
            let mut device = bytes.clone();
            let incompatible = 1024 + 0x60..1024 + 0x64;
            device[incompatible].copy_from_slice(&8u32.to_le_bytes());
            device[1024 + 4..1024 + 8].copy_from_slice(&2048u32.to_le_bytes());
            device[1024 + 0x68..1024 + 0x78].fill(9);
            blocks.insert(JOURNAL / BLOCK as u64, device);
        }
        blocks.insert(HOME / BLOCK as u64 + block, bytes);
    }
    let writer = Writer::new(features::CHECKSUM_V3, [9; 16]);
    let mut superblock = writer.superblock(2048, [9; 16], (0, 0));
    superblock[0x14..0x18].copy_from_slice(&2u32.to_be_bytes());
    writer.begin(&mut superblock, (7, 2));
    blocks.insert(JOURNAL / BLOCK as u64 + 1, superblock);
    Volume(blocks)
}

fn findings(scan: &Arc<Scan>, replay: bool) -> Findings {
    let wants = Wants {
        write_once: WriteOnce::Hash,
        replay,
        ..Wants::default()
    };
    let plan = Plan::new(scan, &[], &wants, BLOCKS);
    Findings::new(
        Arc::clone(scan),
        plan,
        Arc::default(),
        Arc::default(),
        wants,
    )
}

#[test]
fn nothing_of_an_external_journal_is_replayed() {
    let scan = Arc::new(scan(&mut divided(), BLOCKS));
    let [found] = &scan.file_systems[..] else {
        panic!("{:?}", scan.file_systems);
    };
    let journal = found.journal.as_ref().unwrap_or_else(|e| panic!("{e}"));
    assert!(journal.is_external);
    let findings = findings(&scan, true);
    assert!(
        findings.logs().is_empty(),
        "no transaction of it is reported"
    );
    let told = findings.file_systems(|_| None);
    let why = told[0].not_replayed.as_ref().expect("the user hears of it");
    assert!(why.contains("partition of its own"), "{why}");
    // Bytes are compared for write-once, and waiting for a commit block harms nobody.
    assert_eq!((findings.regions(), findings.commits().len()), (1, 1));
}

#[test]
fn replay_is_not_refused_where_it_is_not_wanted() {
    let scan = Arc::new(scan(&mut divided(), BLOCKS));
    let told = findings(&scan, false).file_systems(|_| None);
    assert_eq!(told[0].not_replayed, None);
}
