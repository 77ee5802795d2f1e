//! A volume on which each content is written three times, for tests of deduplication.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{Client, create, open, with_crc_sums};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_device::block::Request;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{Haste, Sought, SweepProgress, Volume};
use vellum_medium::{Medium, MemoryMedium};

/// The number of contents of a volume, each written three times.
pub const CONTENTS: u64 = 300;

pub fn counted(volume: &Volume, name: &str) -> u64 {
    volume.stats().core[name]
}

pub fn deduplicating() -> Policy {
    Policy {
        dedup: true,
        index_bytes: 1 << 20,
        ..Policy::default()
    }
}

pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn write_thrice(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    for round in 0..3 {
        for content in 0..CONTENTS {
            client
                .write(round * CONTENTS + content, &[content + 1])
                .unwrap();
        }
    }
    client.flush().unwrap();
}

pub fn assert_read(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    for round in 0..3 {
        for content in 0..CONTENTS {
            let lba = round * CONTENTS + content;
            assert_eq!(client.read(lba, 1).unwrap(), [content + 1], "LBA {lba}");
        }
    }
}

pub fn volume() -> (Arc<dyn Medium>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    (medium, volume)
}

/// A volume with CRC32C sums, so that [`collide`] makes blocks with the same sum.
pub fn older_volume() -> (Arc<dyn Medium>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    with_crc_sums(&*medium);
    let volume = open(&medium);
    (medium, volume)
}

/// A policy under which a sweep reads no more blocks a second than this.
pub fn slow(sweep_blocks: u32) -> Policy {
    Policy {
        sweep_blocks,
        ..Policy::default()
    }
}

pub fn sweep(volume: &Volume) {
    volume.sweep(Sought::Duplicates, Haste::Beside).unwrap();
}

pub fn progress(volume: &Volume) -> SweepProgress {
    volume.sweep_progress(Sought::Duplicates)
}

/// Waits until so many sweeps have ended.
pub fn wait_for_sweeps(volume: &Volume, count: u64) {
    wait_until("the sweep ends", || progress(volume).ended == count);
}

pub fn packing() -> Policy {
    Policy {
        compression: Compression::Lz4,
        ..Policy::default()
    }
}

/// CRC32C is linear: its polynomial, XORed into a block anywhere, changes the bytes but not the checksum.
pub fn collide(request: &mut Request) {
    const POLYNOMIAL: u64 = 1 | 0x82f6_3b78 << 1;
    let block = request.frames.block_mut(0);
    for (byte, other) in block[1000..].iter_mut().zip(POLYNOMIAL.to_le_bytes()) {
        *byte ^= other;
    }
}
